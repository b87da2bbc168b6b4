"""SQL on the rows of one run in an open transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter


class RowWriter(Protocol):
    """What a recording uses of a StoreWriter, which documents it. A reading process sends these calls to the ingest."""

    def insert(self, table: str, run_id: int, batches: Iterator[pa.RecordBatch]) -> int:
        """Load batches into a table."""

    def stage(self, table: str, batches: Iterator[pa.RecordBatch], columns: dict[str, str]) -> int:
        """Load batches into a temporary table."""

    def run_sql(self, statement: str, parameters: Mapping[str, object] | None = None) -> None:
        """Execute a statement."""

    def fetch(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Any]:
        """Return the rows of a statement. A reading process waits until all earlier runs are stored."""

    def at_commit(self, work: Callable[[StoreWriter, str], None], run_id: int) -> None:
        """Call `work`, a function of a module, before the commit."""

    def make_room(self, text_bytes: int) -> None:
        """Prepare for strings of up to `text_bytes`."""


@dataclass(frozen=True, slots=True)
class RunSql:
    """Executes statements in which `$run` is the number of the run; other parameters are keywords."""

    writer: RowWriter
    run_id: int

    def run_sql(self, statement: str, **values: object) -> None:
        self.writer.run_sql(statement, self._parameters(statement, values))

    def fetch(self, statement: str, **values: object) -> list[Any]:
        """Return the rows of a query; there must be few."""
        return self.writer.fetch(statement, self._parameters(statement, values))

    def number(self, statement: str, **values: object) -> int:
        """Return the integer that a query selects, or the number of rows that an INSERT adds."""
        return int(self.fetch(statement, **values)[0][0])

    def _parameters(self, statement: str, values: dict[str, object]) -> dict[str, object]:
        return {**values, "run": self.run_id} if "$run" in statement else values
