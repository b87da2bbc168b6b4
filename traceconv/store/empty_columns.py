"""Columns of large tables that have no values in any run: they are generated (as NULL) instead of stored.

A NULL takes DuckDB as long to store as a number, and up to half of a trace's columns have no values. They are those
that the first rows of a table don't have. If a later run has such a column, or a statement writes to it, the table is
rewritten with it; so is one of an existing store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Set
from typing import Any

import duckdb
import pyarrow as pa

from traceconv.schema import tables
from traceconv.schema.ddl import comments, create_table, quote_identifier
from traceconv.store.catalogue import generated_columns

#: Name of a table while it is rewritten.
_OLD = "traceconv_rewritten"
#: Columns that statements fill after the rows of many traces were inserted.
_FILLED_LATER = {
    "task": {"submit_ns", "api_id", "call_ns", "step_id", "op_id", "size_bytes", "wait_ns", "stream_wait_ns"}
}
#: Tables whose columns the first statement that inserts into them tells, and the rows of other tables from which on it
#: is worth creating them again.
_FILLED_BY_STATEMENTS, _MANY_ROWS = {"task_pmu"}, 100_000
_LISTED = re.compile(r'\bINSERT\s+INTO\s+"?(\w+)"?\s*\(([\w", ]+)\)')
#: The target of a statement, and what it may write to: names before `=`, or all words.
_UPDATED, _ASSIGNED = re.compile(r'\bUPDATE\s+"?(\w+)'), re.compile(r"(\w+)\s*=")
_INSERTED, _WORD = re.compile(r'\bINSERT\s+INTO\s+"?(\w+)'), re.compile(r"\w+")


class EmptyColumns:
    """The generated columns of a store that is being written."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, execute: Callable[[str], list[Any]], *, is_new: bool
    ) -> None:
        """Take a store that nobody else writes.

        execute  execute a statement and return its rows
        is_new   the store has only empty tables, with all columns
        """
        self._connection = connection
        self._execute = execute
        self._is_new = is_new
        #: By table; None: not read yet.
        self._generated: dict[str, Set[str]] | None = {} if is_new else None

    def prepare(self, table: str, names: Collection[str]) -> None:
        """Prepare a table for many rows that have these columns; its others are NULL."""
        if self._is_new and table not in self._known and not self._has_rows(table):
            empty = _names(table) - set(names) - _FILLED_LATER.get(table, set()) - {"run_id"}
            if empty:
                self._execute(f"DROP TABLE {quote_identifier(table)}")
                self._create(table, empty)
        else:
            self._store(table, self._known.get(table, set()) & set(names))

    def fit(self, table: str, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Return few rows without generated columns: the table can then store them."""
        generated = self._known.get(table, set()) & set(rows.schema.names)
        self._store(table, {name for name in generated if rows.column(name).null_count < rows.num_rows})
        left_out = self._known.get(table, set())
        return rows.select([name for name in rows.schema.names if name not in left_out]) if generated else rows

    def before(self, statement: str, row_count: int) -> None:
        """Prepare for a statement: if it may write to generated columns, all columns of its table are stored.

        row_count  rows that were stored so far
        """
        listed = _LISTED.search(statement) if row_count > _MANY_ROWS else None
        if listed and listed[1] in _FILLED_BY_STATEMENTS and listed[1] not in self._known:
            self.prepare(listed[1], _WORD.findall(listed[2]))
        for target, written in ((_UPDATED, _ASSIGNED), (_INSERTED, _WORD)):
            for table in target.findall(statement):
                generated = self._known.get(table)
                if generated and not generated.isdisjoint(written.findall(statement)):
                    self._store(table, generated)

    @property
    def _known(self) -> dict[str, Set[str]]:
        if self._generated is None:
            self._generated = generated_columns(self._connection)
        return self._generated

    def _has_rows(self, table: str) -> bool:
        """Whether it has rows, or may get some by statements, as derived tables do."""
        if tables()[table].derived_from:
            return True
        [(has_rows,)] = self._execute(f"SELECT EXISTS (FROM {quote_identifier(table)})")
        return bool(has_rows)

    def _create(self, table: str, generated: Set[str]) -> None:
        schema = tables()[table]
        self._execute(";\n".join([create_table(schema, generated), *comments(schema)]))
        self._known[table] = generated

    def _store(self, table: str, columns: Set[str]) -> None:
        """Store columns of a table that are generated."""
        if not columns:
            return
        name, execute = quote_identifier(table), self._execute
        generated, own = self._known[table] - columns, _names(table)
        execute(f"ALTER TABLE {name} RENAME TO {_OLD}")
        self._create(table, generated)
        copied = []
        for column, kind, *_ in execute(f"DESCRIBE {_OLD}"):
            if column not in generated:
                copied.append(quote_identifier(column))
            if column not in own:  # added by the user
                execute(f"ALTER TABLE {name} ADD COLUMN {quote_identifier(column)} {kind}")
        execute(f"INSERT INTO {name} BY NAME SELECT {', '.join(copied)} FROM {_OLD}")  # noqa: S608 - quoted
        execute(f"DROP TABLE {_OLD}")


def _names(table: str) -> Set[str]:
    return {column.name for column in tables()[table].columns}
