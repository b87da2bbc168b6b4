"""The first rows of a report on single tasks, whose IDs are found before the other columns are computed.

DuckDB joins and computes all rows of a report before it takes the first ones. Those of reports on single tasks are
found without the joins that their order doesn't need, or in a table with the same rows (`top_from`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Any

import duckdb

from traceconv.reports.catalog import define_known_part, define_part
from traceconv.reports.fetch import fetch
from traceconv.reports.filters import Value, where
from traceconv.reports.question import Question, order_by
from traceconv.reports.render import Row
from traceconv.reports.run_choice import recorded_groups
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.documented_sql import OrderTerm

#: More rows are found faster by the report itself.
_MOST_ROWS = 10_000
#: IDs of tasks in a range that is joined at once: the most that DuckDB joins by an array instead of a hash table; the
#: number of ranges; and of those in a statement, which keep all threads busy.
_ID_RANGE, _ID_RANGES, _RANGES_AT_ONCE = 1 << 20, 256, 4
_JOIN_OPTIMIZERS = frozenset({"join_order", "build_side_probe_side"})
#: The column that a parameter filters in tables of single tasks (none: the time that orders the report), and how.
_PARAMETER_CONDITIONS = {
    "run": ("run_id", "="), "device": ("device_id", "="), "step": ("step_id", "="), "first_step": ("step_id", ">="),
    "last_step": ("step_id", "<="), "from_ns": ("", ">="), "to_ns": ("", "<"),
}  # fmt: skip


def first_ids(connection: duckdb.DuckDBPyConnection, question: Question) -> list[int] | None:
    """Return the IDs of the rows that `top` selects; None if they can't be found faster than by the report."""
    if question.top is None or question.top > _MOST_ROWS or question.table is not None:
        return None
    if not (question.report.joined or question.report.top_from):
        return None
    if "run" not in question.parameters:
        return None  # an ID is only unique in its run
    return _FirstRows(connection, question, question.top).ids()


class _FirstRows:
    """Finds the first rows of one run. `terms`: their order, in which no two rows with an ID are equal."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, question: Question, top: int) -> None:
        self.connection = connection
        self.question = question
        self.report = question.report
        self.run_id = int(question.parameters["run"])
        self.top = top
        order = question.total_order
        self.terms = order[: 1 + next(place for place, term in enumerate(order) if term.column == "id")]
        self.conditions, self.values = question.conditions(connection)

    def ids(self) -> list[int] | None:
        """Return their IDs, as `first_ids` does."""
        terms = self.terms
        known = self._known() if self.report.joined else None
        ids = known or []
        if known is not None:
            terms = terms[1:]  # the value is NULL in all other rows
        if len(ids) == self.top:
            return ids
        table = self.report.top_from
        if table and not self._has_all(table):
            # The table has no rows of a run without tasks; those of the report have no ID.
            return self._in_ranges(define_part(self.connection, self.report, set())) or None
        chosen, values, parameters = list(self.conditions), list(self.values), self.question.parameters
        if table:
            source = quote_identifier(table)
            for name, value in parameters.items():
                column, operator = self._condition(name)
                chosen.append(f"{quote_identifier(column)} {operator} ?")
                values.append(value)
        else:
            source = self._part({*(term.column for term in terms), *self.question.filtered})
            values = [*parameters.values(), *values]
        if ids:
            chosen.append(f"id NOT IN ({', '.join(map(str, ids))})")
        sql = f"SELECT id FROM {source}{where(chosen)}{order_by(terms)} LIMIT {self.top - len(ids):d}"  # noqa: S608 - names from our own headers
        rows = [row for batch in fetch(self.connection, sql, values) for row in batch]
        if table and (not rows or (None,) in rows):
            return None  # the table has no rows of this run; those of the report have no ID
        return ids + [id_ for (id_,) in rows if isinstance(id_, int)]

    def _known(self) -> list[int] | None:
        """Return the IDs of the first rows in which the column of the order is not NULL, at most `top`.

        None if that column doesn't come from one joined table. Tasks are joined with it in ranges of IDs, which takes
        a third to two thirds of the time of one join.
        """
        column = self.report.column(self.terms[0].column)
        groups = recorded_groups(self.connection, [self.run_id]) if column.group else {}
        if column.group and column.group != "any" and column.group not in groups:
            return []
        columns = {"id", *(term.column for term in self.terms), *self.question.filtered}
        known = define_known_part(self.connection, self.report, columns, column.name, groups, self._only_device())
        if known is None:
            return None
        part, is_alone = known
        return self._within_limit(part) if is_alone else self._in_ranges(part, is_known=True)

    def _only_device(self) -> dict[str, int | None]:
        """Return the numbers of the device that all tasks of the run are on; none if they are on several."""
        [(low, high, unknown)] = self.connection.execute(
            "SELECT min(device_id), max(device_id), count(*) - count(device_id) FROM task WHERE run_id = ?",
            [self.run_id],
        ).fetchall()
        if low is None or low != high or unknown:
            return {}
        sql = "FROM device WHERE run_id = ? AND device_id = ?"
        row = self.connection.execute(sql, [self.run_id, low]).fetchone()
        names = [name for name, *_ in self.connection.description or ()]
        return {name: value for name, value in zip(names, row or (), strict=False) if isinstance(value, int | None)}

    def _within_limit(self, part: str) -> list[int]:
        """Return the IDs of the first rows of a macro whose first column, which must be known, comes from one table.

        The last of the first rows in a few ranges of IDs limits that column: DuckDB filters its table before the join.
        """
        name, better = quote_identifier(self.terms[0].column), ">" if self.terms[0].descending else "<"
        first: list[Row] = []
        for ids in self._id_ranges():
            first += [row for row in self._rows(part, [ids]) if row[0] is not None]
            if len(first) >= self.top:
                break
        first = _in_order(first, self.terms)[: self.top]
        if len(first) < self.top:
            return _ids(first)
        last: Sequence[Any] = first[-1]
        value, *others = last
        rows = self._rows(part, [], f"{name} {better} ?", [value])
        if len(rows) < self.top:
            # Many rows may have the same value, but few of them come before the last one: bounds of their IDs filter
            # both sides of the join.
            rest, limits = _up_to(self.terms[1:], others)
            source = self._part({term.column for term in self.terms[1:]})
            sql = f"SELECT min(id), max(id) FROM {source} WHERE {rest}"  # noqa: S608 - names from our own headers
            parameters = self.question.parameters.values()
            [(low, high)] = self.connection.execute(sql, [*parameters, *limits]).fetchall()
            rows += self._rows(part, [(low, high)], f"{name} = ? AND {rest}", [value, *limits])
        return _ids(rows[: self.top])

    def _in_ranges(self, part: str, *, is_known: bool = False) -> list[int]:
        """Return the IDs of the first rows of a macro; with `is_known`, of those whose first column is not NULL."""
        rows: list[Row] = []
        ranges = self._id_ranges()
        for place in range(0, len(ranges), _RANGES_AT_ONCE):
            rows += self._rows(part, ranges[place : place + _RANGES_AT_ONCE])
            rows = _in_order([row for row in rows if row[0] is not None or not is_known], self.terms)[: self.top]
        return _ids(rows)

    def _rows(
        self, part: str, ranges: Sequence[tuple[int, int]], condition: str = "true", limits: Sequence[Value] = ()
    ) -> list[Sequence[Any]]:
        """Return the values that order the first rows of a macro, of which the last is their ID.

        ranges  bounds of these IDs; none: all
        """
        names = ", ".join(quote_identifier(term.column) for term in self.terms)
        bounds = [f"id BETWEEN {low:d} AND {high:d}" for low, high in ranges] or ["true"]
        rows = " UNION ALL ".join(
            f"SELECT {names} FROM {self.question.call(part)}{where([*self.conditions, bound, condition])}"  # noqa: S608 - names from our own headers
            for bound in bounds
        )
        values = [*self.question.parameters.values(), *self.values, *limits]
        with _joins_as_written(self.connection):
            sql = f"FROM ({rows}){order_by(self.terms)} LIMIT {self.top:d}"
            return [row for batch in fetch(self.connection, sql, values * len(bounds)) for row in batch]

    def _part(self, columns: Set[str]) -> str:
        """Return the SQL of the report's rows with their ID and these columns."""
        return self.question.call(define_part(self.connection, self.report, columns | {"id"}))

    def _id_ranges(self) -> list[tuple[int, int]]:
        """Divide the IDs of the run's tasks into ranges; a single one if they are of many files."""
        sql = "SELECT min(id), max(id) FROM task WHERE run_id = ?"
        [(low, high)] = self.connection.execute(sql, [self.run_id]).fetchall()
        if low is None:
            return []
        if high - low >= _ID_RANGE * _ID_RANGES:
            return [(low, high)]
        return [(first, first + _ID_RANGE - 1) for first in range(low, high + 1, _ID_RANGE)]

    def _has_all(self, table: str) -> bool:
        """Whether a table has the columns that order and filter the rows."""
        needed = self.question.filtered | {term.column for term in self.terms}
        needed |= {self._condition(name)[0] for name in self.question.parameters}
        return needed <= {column.name for column in tables()[table].columns}

    def _condition(self, parameter: str) -> tuple[str, str]:
        """Return the column that a parameter filters in tables of single tasks, and the operator."""
        column, operator = _PARAMETER_CONDITIONS[parameter]
        return column or next(term.column for term in self.report.order if term.column.endswith("_ns")), operator


@contextmanager
def _joins_as_written(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Join tables as they are written: the second one, of which fewer rows or columns are read, is the hash table.

    DuckDB has no such setting for one connection: queries of other threads may be planned in this way, too.
    """
    [(before,)] = connection.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    disabled = {name for name in before.split(",") if name}
    if disabled >= _JOIN_OPTIMIZERS:  # by the user, or by another thread, which enables them again
        yield
        return
    setting = "SET disabled_optimizers = '{}'"
    connection.execute(setting.format(",".join(disabled | _JOIN_OPTIMIZERS)))
    try:
        yield
    finally:
        with suppress(duckdb.ConnectionException):  # closed by another thread
            connection.execute(setting.format(before))


def _ids(rows: Sequence[Row]) -> list[int]:
    return [id_ for *_, id_ in rows if isinstance(id_, int)]


def _up_to(terms: Sequence[OrderTerm], values: Sequence[Any]) -> tuple[str, list[Value]]:
    """Return a condition, and its values, for rows that come before the one with these values, and for that one."""
    if not terms:
        return "true", []
    (term, *others), (value, *rest) = terms, values
    condition, limits = _up_to(others, rest)
    name = quote_identifier(term.column)
    if value is None:
        return f"({name} IS NOT NULL OR {condition})", limits
    better = ">" if term.descending else "<"
    return f"({name} {better} ? OR {name} = ? AND {condition})", [value, value, *limits]


def _in_order(rows: list[Row], terms: Sequence[OrderTerm]) -> list[Row]:
    """Sort rows that begin with the values of these terms."""
    for place, term in reversed(list(enumerate(terms))):
        known = [row for row in rows if row[place] is not None]
        # DuckDB takes NaN for the largest number.
        known.sort(key=lambda row: (row[place] != row[place], row[place]), reverse=term.descending)
        rows = known + [row for row in rows if row[place] is None]
    return rows
