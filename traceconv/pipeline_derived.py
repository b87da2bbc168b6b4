"""What is made of a run's rows once all are stored: looked for while they pass, so that most files cost nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from traceconv.normalize.trace_json.classify import MemoryMarkers
from traceconv.store.task_waits import correct_waits
from traceconv.store.trace_memory import insert_blocks
from traceconv.store.writer import StoreWriter


class DerivedRows:
    """Sees the rows of a run, and makes what follows from them."""

    def __init__(self) -> None:
        self._of_tasks: set[int | None] = set()
        self._of_others: set[int | None] = set()
        self._memory: MemoryMarkers | None = None

    def noted(
        self, table: str, batches: Iterator[pa.RecordBatch], memory: MemoryMarkers | None
    ) -> Iterator[pa.RecordBatch]:
        """The same batches. `memory`: how allocations and frees stand among markers."""
        for batch in batches:
            if table == "task":
                self._of_tasks.update(batch.column("track_id").unique().to_pylist())
            elif table in ("range", "api"):
                self._of_others.update(batch.column("track_id").unique().to_pylist())
            elif table == "marker" and memory is not None and self._memory is None:
                names = batch.column("name")
                distinct = names.dictionary if pa.types.is_dictionary(names.type) else names.unique()
                self._memory = memory if memory.name in distinct.to_pylist() else None
            yield batch

    def insert(self, writer: StoreWriter, run_id: int) -> None:
        """Makes blocks of memory out of markers, and waits right on tracks that tasks share with others."""
        shared = {track for track in self._of_tasks & self._of_others if track is not None}
        if shared:
            correct_waits(writer, run_id, shared)
        if self._memory is not None:
            insert_blocks(writer, run_id, self._memory)
