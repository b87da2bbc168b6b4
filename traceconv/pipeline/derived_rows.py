"""What is made of a run's rows once all are stored: looked for while they pass, so that most files cost nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from traceconv.normalize.trace.classify import MemoryMarkers
from traceconv.pipeline.run_sql import RunSql
from traceconv.pipeline.trace_memory import insert_blocks


class DerivedRows:
    """Sees the rows of a run, and makes what follows from them."""

    def __init__(self) -> None:
        self._memory: MemoryMarkers | None = None

    def noted(
        self, table: str, batches: Iterator[pa.RecordBatch], memory: MemoryMarkers | None
    ) -> Iterator[pa.RecordBatch]:
        """The same batches. `memory`: how allocations and frees stand among markers."""
        for batch in batches:
            if table == "marker" and memory is not None and self._memory is None:
                names = batch.column("name")
                distinct = names.dictionary if pa.types.is_dictionary(names.type) else names.unique()
                self._memory = memory if memory.name in distinct.to_pylist() else None
            yield batch

    def insert(self, target: RunSql) -> None:
        """Makes blocks of memory out of markers."""
        if self._memory is not None:
            insert_blocks(target, self._memory)
