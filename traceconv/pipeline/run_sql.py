"""SQL on the rows of one run in an open transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from traceconv.store.writer import StoreWriter


@dataclass(frozen=True, slots=True)
class RunSql:
    """Executes statements in which `$run` is the number of the run; other parameters are keywords."""

    writer: StoreWriter
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
