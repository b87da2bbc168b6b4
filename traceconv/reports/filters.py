"""Filters on the rows of a report: `op_type=Conv2D`, `total_ns>=0.1ms`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import duckdb

from traceconv.base.errors import UsageError, printable
from traceconv.reports.columns import find_columns
from traceconv.schema.ddl import quote_identifier
from traceconv.store.documented_sql import DocumentedSql, SqlColumn

Value = int | float | str | bool | Decimal | None

_FILTER = re.compile(r"([^=<>!~]*)(>=|<=|!=|=|>|<|~)(.*)", re.DOTALL)
_INTEGERS = ("BIGINT", "UBIGINT", "INTEGER")
#: Durations may have a unit, but must be an integer number of nanoseconds.
_DURATION = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) ?(ns|us|µs|ms|s)")
_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_FORMS = "COLUMN=VALUE, or with !=, <, <=, >, >= or ~ (a regular expression)"


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the rows of a report. The value None is NULL, which only = and != can compare with.

    operator  =, !=, <, <=, >, >=, or ~ for a regular expression that is found anywhere in a text
    """

    column: SqlColumn
    operator: str
    value: Value

    @property
    def condition(self) -> str:
        """The SQL condition, with a ? for the value unless it is NULL. NULL differs from every value."""
        name = quote_identifier(self.column.name)
        if self.value is None:
            return f"{name} IS {'NOT ' if self.operator == '!=' else ''}NULL"
        if self.operator == "~":
            return f"regexp_matches({name}, ?)"
        return f"{name} {'IS DISTINCT FROM' if self.operator == '!=' else self.operator} ?"


def parse_filter(report: DocumentedSql, text: str) -> Filter:
    """Parse a filter such as `COLUMN=VALUE`. Raises UsageError."""
    match = _FILTER.fullmatch(text)
    if match is None or not match[1].strip():
        raise UsageError(f"--filter needs {_FORMS}, not '{printable(text)}'")
    return make_filter(report, match[1].strip(), match[2], match[3])


def make_filter(report: DocumentedSql, name: str, operator: str, text: str) -> Filter:
    """Make a filter from its three parts; the text NULL is a NULL. Raises UsageError."""
    (column,) = find_columns(report, [name])
    if text == "NULL" and operator in ("=", "!="):
        return Filter(column, operator, None)
    if operator == "~":
        return Filter(column, operator, _pattern(column, text))
    value = _typed(column, text)
    if isinstance(value, bool) and operator not in ("=", "!="):
        raise UsageError(f"--filter {column.name}: a flag can only be compared with = and !=")
    return Filter(column, operator, value)


def conditions(filters: Sequence[Filter]) -> tuple[list[str], list[Value]]:
    """Return the SQL conditions, and the values for their ?."""
    return [one.condition for one in filters], [one.value for one in filters if one.value is not None]


def _pattern(column: SqlColumn, text: str) -> str:
    if column.type != "VARCHAR":
        raise UsageError(f"--filter {column.name}: ~ needs a text column, and this is {column.type}")
    try:
        # DuckDB has its own syntax (RE2), so DuckDB checks the expression.
        with duckdb.connect() as connection:
            connection.execute("SELECT regexp_matches('', ?)", [text])
    except duckdb.Error as error:
        why = printable(str(error).splitlines()[0].rpartition(": ")[2], 120)
        raise UsageError(f"--filter {column.name}: '{printable(text)}' is not a regular expression: {why}") from error
    return text


def _typed(column: SqlColumn, text: str) -> Value:
    try:
        if column.unit == "ns" and not column.timestamp and (given := _DURATION.fullmatch(text.strip())):
            exact = Decimal(given[1]) * _NS[given[2]]
            if column.type in _INTEGERS and exact != exact.to_integral_value():
                raise UsageError(f"--filter {column.name}: {printable(text)} is not an integer number of nanoseconds")
            text = format(exact, "f") if column.type not in _INTEGERS else str(int(exact))
        if column.type in _INTEGERS:
            number = int(text)
            if -(1 << 63) <= number < 1 << 63:
                return number
        elif column.type == "DOUBLE":
            return float(text)
        elif column.type.startswith("DECIMAL"):
            decimal = Decimal(text)
            if decimal.is_finite():
                return decimal
        elif column.type == "BOOLEAN":
            return {"true": True, "false": False}[text.lower()]
        elif column.type == "VARCHAR":
            return text
        else:
            raise UsageError(f"--filter {column.name}: lists can't be filtered")
    except (ValueError, InvalidOperation, KeyError):
        pass
    raise UsageError(f"--filter {column.name}: '{printable(text)}' is not a {column.type}")
