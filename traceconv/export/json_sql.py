"""SQL that formats values as JSON text, and JSON text of Python values."""

from __future__ import annotations

import json
from collections.abc import Mapping

from traceconv.schema.ddl import quote_text

#: Doubles, and so most JSON parsers, can't represent every integer beyond this; larger ones are strings.
EXACT_LIMIT = 2**53

#: Accepted as JSON by DuckDB but not by other parsers: NaN, Infinity, trailing commas.
_LENIENT = quote_text(r"(?i)(^|[:,\[])\s*-?(nan|inf)|,\s*[\]}]")


def double(expression: str) -> str:
    """Format a double so that it round-trips; "nan", "inf" and "-inf" are strings."""
    return (
        f"CASE WHEN isfinite({expression}) THEN ({expression})::VARCHAR "
        f"""ELSE '"' || ({expression})::VARCHAR || '"' END"""
    )


def text(expression: str) -> str:
    """Format a string, escaped."""
    return f"to_json({expression})::VARCHAR"


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
