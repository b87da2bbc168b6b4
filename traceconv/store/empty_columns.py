"""Columns of large tables that have no values in any run: they are generated (as NULL) instead of stored.

A NULL takes DuckDB as long to store as a number, and up to half of a trace's columns have no values. Which ones is seen
in the first rows of a table. If a column gets a value later, the table is rewritten with that column; so is one of an
existing store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Set
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa

from traceconv.schema import tables
from traceconv.schema.ddl import comments, create_table, quote_identifier
from traceconv.store.catalogue import generated_columns

#: Rows in which a column must have no value. Fewer rows are stored as fast with all columns.
FIRST_ROWS = 8192
#: Name of a table while it is rewritten.
_OLD = "traceconv_rewritten"
#: Columns that statements fill after the rows of many traces were inserted.
_FILLED_LATER = {
    "task": {"submit_ns", "api_id", "call_ns", "step_id", "op_id", "size_bytes", "wait_ns", "stream_wait_ns"}
}
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

    def stretches(self, table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yield rows for a table in stretches, without generated columns: each is to be inserted before the next one.

        All batches have the same columns; those of the table that they don't have are NULL.
        """
        first = _first_rows(batches)
        if self._may_choose(table):
            self._choose(table, first)
        waiting = chain(first, batches)
        while (batch := next(waiting, None)) is not None:
            self._make_fit(table, batch)
            unfit: list[pa.RecordBatch] = []
            yield self._fitting(table, chain([batch], waiting), unfit)
            waiting = chain(unfit, waiting)

    def fit(self, table: str, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Return rows without generated columns, for a table that can then store them."""
        self._make_fit(table, rows)
        return _without(rows, self._in(table, rows))

    def before(self, statement: str) -> None:
        """Prepare for a statement: if it may write to generated columns, all columns of its table are stored."""
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

    def _in(self, table: str, rows: pa.RecordBatch | pa.Table) -> list[str]:
        """Return the generated columns among those of `rows`."""
        generated = self._known.get(table)
        return [name for name in rows.schema.names if name in generated] if generated else []

    def _make_fit(self, table: str, rows: pa.RecordBatch | pa.Table) -> None:
        self._store(table, _valued(rows, self._in(table, rows)))

    def _fitting(
        self, table: str, batches: Iterator[pa.RecordBatch], unfit: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches without generated columns, up to one that has values in them, which is put into `unfit`."""
        for batch in batches:
            generated = self._in(table, batch)
            if _valued(batch, generated):
                unfit.append(batch)
                return
            yield _without(batch, generated)

    def _may_choose(self, table: str) -> bool:
        """Whether it is new and has no rows. Other statements also insert rows into derived tables."""
        if not self._is_new or table in self._known or tables()[table].derived_from:
            return False
        [(has_rows,)] = self._execute(f"SELECT EXISTS (FROM {quote_identifier(table)})")
        return not has_rows

    def _choose(self, table: str, first: list[pa.RecordBatch]) -> None:
        """Generate the columns that have no values in the first rows of a table."""
        if sum(batch.num_rows for batch in first) < FIRST_ROWS:
            return
        valued = set().union(*(_valued(batch, batch.schema.names) for batch in first))
        empty = _names(table) - valued - _FILLED_LATER.get(table, set()) - {"run_id"}
        if empty:
            self._execute(f"DROP TABLE {quote_identifier(table)}")
            self._create(table, empty)

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


def _valued(rows: pa.RecordBatch | pa.Table, names: Collection[str]) -> Set[str]:
    """Return those of the columns that have values."""
    return {name for name in names if rows.column(name).null_count < rows.num_rows}


def _without(rows: pa.RecordBatch | pa.Table, names: Collection[str]) -> pa.RecordBatch | pa.Table:
    return rows.select([name for name in rows.schema.names if name not in names]) if names else rows


def _first_rows(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    first: list[pa.RecordBatch] = []
    for batch in batches:
        first.append(batch)
        if sum(one.num_rows for one in first) >= FIRST_ROWS:
            break
    return first
