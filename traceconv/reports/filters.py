"""Filters on the rows of a report: `op_type=Conv2D`, `total_ns>=0.1ms`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import duckdb

from traceconv.base.errors import UsageError, option, printable
from traceconv.reports.columns import find_columns
from traceconv.reports.units import UNITS, quantity
from traceconv.schema.ddl import quote_identifier
from traceconv.store.documented_sql import DocumentedSql, SqlColumn

Value = int | float | str | bool | Decimal | None

_FILTER = re.compile(r"([^=<>!~]*)(>=|<=|!=|==?|>|<|~)(.*)", re.DOTALL)
_INTEGERS = ("BIGINT", "UBIGINT", "INTEGER")
_UNIT_NAMES = {"ns": "nanoseconds", "byte": "bytes", "flop": "FLOP", "flop/s": "FLOP/s", "byte/s": "bytes/s"}
#: Units in msprof's labels: a number without a unit is in the label's unit.
_LABEL_UNITS = {"(us)": 10**3, "(KB)": 1 << 10}
_FORMS = "COLUMN=VALUE, or with !=, <, <=, >, >= or ~ (a regular expression)"


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on the rows of a report. The value None is NULL, which only = and != can compare with.

    operator  =, !=, <, <=, >, >=, or ~ for a regular expression that is found anywhere in a text
    relative  whether a timestamp is compared relative to the start of its run
    """

    column: SqlColumn
    operator: str
    value: Value
    relative: bool = False

    def condition(self, origins: Mapping[int, int]) -> str:
        """The SQL condition, with a ? for the value unless it is NULL. NULL differs from every value.

        origins  starts of the runs in ns by run_id
        """
        name = quote_identifier(self.column.name)
        if self.value is None:
            return f"{name} IS {'NOT ' if self.operator == '!=' else ''}NULL"
        if self.operator == "~":
            return f"regexp_matches({name}, ?)"
        if self.relative:
            cases = "".join(f" WHEN {run_id} THEN {start_ns}" for run_id, start_ns in origins.items())
            name = f"({name}::HUGEINT - CASE run_id{cases} END)" if cases else "NULL"
        return f"{name} {'IS DISTINCT FROM' if self.operator == '!=' else self.operator} ?"


def parse_filter(report: DocumentedSql, text: str) -> Filter:
    """Parse a filter such as `COLUMN=VALUE`. Raises UsageError."""
    match = _FILTER.fullmatch(text)
    if match is None or not match[1].strip():
        raise _error(f"needs {_FORMS}, not '{printable(text)}'")
    return make_filter(report, match[1].strip(), match[2].replace("==", "="), match[3])


def make_filter(report: DocumentedSql, name: str, operator: str, text: str) -> Filter:
    """Make a filter from its three parts; the text NULL is a NULL. Raises UsageError."""
    (column,) = find_columns(report, [name])
    text = text.strip() if column.type != "VARCHAR" else text
    if text == "NULL" and operator in ("=", "!="):
        return Filter(column, operator, None)
    if operator == "~":
        return Filter(column, operator, _pattern(column, text))
    value, relative = _typed(column, text, name)
    if isinstance(value, bool) and operator not in ("=", "!="):
        raise _error(f"{column.name}: a flag can only be compared with = and !=")
    return Filter(column, operator, value, relative)


def where(conditions: Sequence[str]) -> str:
    """Return the clause for rows that satisfy all conditions, with a space before it."""
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def conditions(filters: Sequence[Filter], origins: Mapping[int, int]) -> tuple[list[str], list[Value]]:
    """Return the SQL conditions, and the values for their ?. `origins`: see `Filter.condition`."""
    return [one.condition(origins) for one in filters], [one.value for one in filters if one.value is not None]


def _pattern(column: SqlColumn, text: str) -> str:
    if column.type != "VARCHAR":
        raise _error(f"{column.name}: ~ needs a text column, and this is {column.type}")
    try:
        # DuckDB has its own syntax (RE2), so DuckDB checks the expression.
        with duckdb.connect() as connection:
            connection.execute("SELECT regexp_matches('', ?)", [text])
    except duckdb.Error as error:
        why = printable(str(error).splitlines()[0].rpartition(": ")[2], 120)
        raise _error(f"{column.name}: '{printable(text)}' is not a regular expression: {why}") from error
    return text


def _typed(column: SqlColumn, text: str, name: str) -> tuple[Value, bool]:
    """Return a value in the column's type and unit, and whether it is a time relative to the start of the run.

    name  of the column as the user wrote it: a number without a unit is in the unit of that name
    """
    exact = None if column.type == "VARCHAR" else quantity(text, column.unit)
    relative = exact is not None and column.timestamp
    number = _number(text) if exact is None and name != column.name and column.unit in ("ns", "byte") else None
    if number is not None:
        factor = next((size for unit, size in _LABEL_UNITS.items() if name.rstrip().endswith(unit)), None)
        if factor is None:
            units = ", ".join(one for one in UNITS[column.unit] if one != "us")
            raise _error(
                f"{printable(name)}: {printable(text)} needs a unit ({units}); for the stored number, use {column.name}"
            )
        exact = number * factor
    if exact is not None:
        if column.type in _INTEGERS and exact != exact.to_integral_value():
            raise _error(f"{column.name}: {printable(text)} is not an integer number of {_UNIT_NAMES[column.unit]}")
        text = str(int(exact)) if column.type in _INTEGERS else format(exact, "f")
    return _value(column, text), relative


def _error(message: str) -> UsageError:
    return UsageError(f"{option('--filter', 'filters')} {message}")


def _number(text: str) -> Decimal | None:
    return Decimal(text) if re.fullmatch(r"-?[0-9]{1,40}(\.[0-9]{1,40})?", text.strip()) else None


def _value(column: SqlColumn, text: str) -> Value:
    try:
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
            raise _error(f"{column.name}: lists can't be filtered")
    except (ValueError, InvalidOperation, KeyError):
        pass
    units = ", ".join(one for one in UNITS.get(column.unit, ()) if one != "us")
    with_unit = f", with or without a unit ({units})" if units else ""
    kind = {"BOOLEAN": "true or false", "BIGINT": "a 64-bit number" if units else "a 64-bit integer"}.get(
        column.type, "a number"
    )
    raise _error(f"{column.name}: '{printable(text)}' is not {kind}{with_unit}")
