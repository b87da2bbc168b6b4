"""SQL that formats the columns of a table as JSON text: one flat `concat`, as short as the values allow.

Facts about all values of a column make its text cheap: a constant is a literal, a column without NULLs needs no test
for them, and text without characters that JSON escapes only needs quotes. Collecting the facts first makes an export of
several million rows four times as fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.schema.model import Column, TableSchema

#: Doubles, and so most JSON parsers, can't represent every integer beyond this; larger ones are strings.
EXACT_LIMIT = 2**53

#: A character that JSON escapes.
_ESCAPED = quote_text(r'["\\\x00-\x1f]')
#: Accepted as JSON by DuckDB but not by other parsers: NaN, Infinity, trailing commas.
_LENIENT = quote_text(r"(?i)(^|[:,\[])\s*-?(nan|inf)|,\s*[\]}]")


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about all values of a column. `plain`: no text has characters that JSON escapes."""

    some_null: bool
    all_null: bool
    minimum: object
    maximum: object
    plain: bool


class Concat:
    """Builds the SQL of a flat `concat` from literal text and expressions; adjacent literals are joined."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._literal = ""

    def literal(self, text: str) -> Concat:
        """Append text."""
        self._literal += text
        return self

    def sql(self, expression: str) -> Concat:
        """Append the value of an expression; nothing if it is NULL."""
        if self._literal:
            self._parts.append(quote_text(self._literal))
            self._literal = ""
        self._parts.append(expression)
        return self

    def extend(self, other: Concat) -> Concat:
        """Append all parts of another one."""
        for part in other._parts:
            self.sql(part)
        return self.literal(other._literal)

    def member(self, key: str, column: Column, alias: str, facts: Facts, *, first: bool = False) -> Concat:
        """Append `,"key":value` for a column of the table `alias`; nothing if the value is NULL.

        `first`: without the comma, for the first member of an object.
        """
        start = ("" if first else ",") + f"{json.dumps(key)}:"
        if facts.all_null:
            return self
        name = f"{alias}.{quote_identifier(column.name)}"
        before, expression, after = _value(column, name, facts)
        if not facts.some_null:
            self.literal(start + before)
            return (self.sql(expression) if expression else self).literal(after)
        if not expression:
            return self.sql(f"CASE WHEN {name} IS NOT NULL THEN {quote_text(start + before)} END")
        return self.sql(f"{quote_text(start + before)} || ({expression}) || {quote_text(after)}")

    def members(
        self, columns: Iterable[Column], alias: str, facts: Mapping[str, Facts], *, first: bool = False
    ) -> Concat:
        """Append a member for each column, under its name."""
        for column in columns:
            self.member(column.name, column, alias, facts[column.name], first=first)
        return self

    def build(self) -> str:
        """Return the SQL expression."""
        parts = [*self._parts, *([quote_text(self._literal)] if self._literal else [])]
        return f"concat({', '.join(parts)})" if parts else "''"


def collect_facts(connection: duckdb.DuckDBPyConnection, source: str, schema: TableSchema) -> dict[str, Facts]:
    """Collect the facts of every column of a table for the rows of `source` (a FROM clause)."""
    asked = ["count(*)"]
    for column in schema.columns:
        name = quote_identifier(column.name)
        # Not compared: long texts are expensive, and doubles have no useful order.
        ends = ["NULL", "NULL"] if column.type in ("json", "f64") else [f"min({name})", f"max({name})"]
        asked += [f"count({name})", *ends]
    [(rows, *found)] = connection.execute(f"SELECT {', '.join(asked)} FROM {source}").fetchall()
    facts = {}
    for column, (count, minimum, maximum) in zip(
        schema.columns, zip(found[::3], found[1::3], found[2::3], strict=True), strict=True
    ):
        plain = True
        if column.type == "str" and count and minimum != maximum:
            name = quote_identifier(column.name)
            [(escaped,)] = connection.execute(
                f"SELECT count(*) FROM (SELECT DISTINCT {name} AS text FROM {source}) "
                f"WHERE regexp_matches(text, {_ESCAPED})"
            ).fetchall()
            plain = escaped == 0
        facts[column.name] = Facts(count < rows, count == 0, minimum, maximum, plain)
    return facts


def _value(column: Column, expression: str, facts: Facts) -> tuple[str, str, str]:
    """Return the text before a value, its expression (empty if constant) and the text after it."""
    if column.type not in ("json", "f64") and facts.minimum == facts.maximum:
        return (json_text(facts.minimum), "", "")
    if column.type in ("i32", "i64", "u64"):
        minimum, maximum = facts.minimum, facts.maximum
        assert isinstance(minimum, int)
        assert isinstance(maximum, int)
        if minimum >= -EXACT_LIMIT and maximum <= EXACT_LIMIT:
            return ("", expression, "")
        if maximum < -EXACT_LIMIT or minimum > EXACT_LIMIT:
            return ('"', expression, '"')
        return ("", integer(expression), "")
    if column.type == "str":
        return ('"', expression, '"') if facts.plain else ("", text(expression), "")
    if column.type == "json":
        return ("", embedded(expression), "")
    return ("", double(expression) if column.type == "f64" else expression, "")


def integer(expression: str) -> str:
    """Format an integer, as a string beyond ±2^53."""
    return (
        f"CASE WHEN {expression} BETWEEN -{EXACT_LIMIT} AND {EXACT_LIMIT} THEN ({expression})::VARCHAR "
        f"""ELSE '"' || ({expression})::VARCHAR || '"' END"""
    )


def double(expression: str) -> str:
    """Format a double so that it round-trips; "nan", "inf" and "-inf" are strings."""
    return (
        f"CASE WHEN isfinite({expression}) THEN ({expression})::VARCHAR "
        f"""ELSE '"' || ({expression})::VARCHAR || '"' END"""
    )


def text(expression: str) -> str:
    """Format a string, escaped."""
    return f"to_json({expression})::VARCHAR"


def embedded(expression: str) -> str:
    """Embed JSON text unchanged, or as a string if it is not strict JSON."""
    return (
        f"CASE WHEN json_valid({expression}) AND NOT regexp_matches({expression}, {_LENIENT}) "
        f"THEN {expression} ELSE {text(expression)} END"
    )


def json_object(expression: str) -> str:
    """Return JSON text unchanged if it is a strict JSON object, otherwise NULL."""
    return (
        f"CASE WHEN starts_with({expression}, '{{') AND json_valid({expression}) "
        f"AND NOT regexp_matches({expression}, {_LENIENT}) THEN {expression} END"
    )


def microseconds(nanoseconds: str, *, wide: bool) -> str:
    """Format nanoseconds as microseconds with three decimals, in exact decimal arithmetic.

    `wide` is for values of 10^15 ns (11 days) and more, which need more than 64 bits.
    """
    digits = 30 if wide else 15
    return f"(({nanoseconds})::DECIMAL({digits}, 0) * 0.001::DECIMAL(3, 3))"


def json_text(value: object) -> str:
    """Return compact JSON of a Python value. Members that are None are omitted, integers beyond 2^53 are strings."""
    return json.dumps(_exact(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _exact(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _exact(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    if isinstance(value, int) and abs(value) > EXACT_LIMIT:
        return str(value)
    return value
