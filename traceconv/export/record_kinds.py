"""The kinds of the parts of a record, and what each writes for a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from traceconv.export.json_sql import EXACT_LIMIT
from traceconv.wire.protobuf import encode_varint


class Kind(IntEnum):
    """The kinds of parts. Except for SKIP_IF_NULL, a part whose column is NULL is omitted, bytes before it too.

    A comma at the start of a part is omitted after `{` or `[`, so that any member can be the first.

    INTEGER             a JSON integer; a string beyond ±2^53, unless the part's number is 1
    UNSIGNED            the same, without a sign
    BOOLEAN             true or false
    MICROSECONDS        nanoseconds since the part's number, as microseconds with three decimals
    STRING              a JSON string
    JSON                JSON text unchanged if it is strict JSON; otherwise, and if it is a string or null, as a string
    RAW                 the bytes of a text
    LOOKUP              the text at this place of a list
    VARINT              a varint of protobuf
    NOTE, NOTE_BYTES    a length, bytes of the part, then a varint, or a text and its length
    FIXED64             eight bytes
    OPEN, CLOSE         the length of what is between them, in two bytes or more
    SHORT_MICROSECONDS  nanoseconds as microseconds with one to three decimals; with three from 10^15 ns on
    SKIP_IF_NULL, SKIP_UNLESS_NULL  skip as many parts as the part's number
    """

    LITERAL = 0
    INTEGER = 1
    UNSIGNED = 2
    BOOLEAN = 3
    MICROSECONDS = 4
    STRING = 5
    JSON = 6
    RAW = 7
    LOOKUP = 8
    VARINT = 9
    NOTE = 10
    NOTE_BYTES = 11
    FIXED64 = 12
    OPEN = 13
    CLOSE = 14
    SKIP_IF_NULL = 15
    SKIP_UNLESS_NULL = 16
    SHORT_MICROSECONDS = 17


#: JSON of columns by their type in the schema; doubles are text from SQL.
JSON_KINDS = {
    "i32": Kind.INTEGER, "i64": Kind.INTEGER, "u64": Kind.UNSIGNED, "f64": Kind.RAW, "bool": Kind.BOOLEAN,
    "str": Kind.STRING, "json": Kind.JSON,
}  # fmt: skip


def _integer(value: int, number: int, _: bytes) -> bytes:
    return b"%d" % value if number or abs(value) <= EXACT_LIMIT else b'"%d"' % value


def _microseconds(ns: int, base_ns: int, _: bytes) -> bytes:
    whole, rest = divmod(abs(ns - base_ns), 1000)
    return b"%s%d.%03d" % (b"-" if ns < base_ns else b"", whole, rest)


def _short_microseconds(ns: int, *_: object) -> bytes:
    text = _microseconds(ns, 0, b"")
    if abs(ns) >= 10**15:
        return text
    return text.rstrip(b"0") + (b"0" if text.endswith(b"000") else b"")


def _string(text: bytes, *_: object) -> bytes:
    return json.dumps(text.decode(), ensure_ascii=False).encode()


def _refused(_: str) -> None:
    raise ValueError


def _json(text: bytes, *_: object) -> bytes:
    if text[:1].isspace() or text[-1:].isspace() or text[:1] in (b'"', b"n"):
        return _string(text)
    try:
        # Lone surrogates can't be encoded. Numbers are not converted.
        value = json.loads(text.decode(), parse_constant=_refused, parse_int=len, parse_float=len)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return _string(text)
    return text


def _note(value: int, _: int, inner: bytes) -> bytes:
    encoded = encode_varint(value)
    return encode_varint(len(inner) + len(encoded)) + inner + encoded


def _note_bytes(text: bytes, _: int, inner: bytes) -> bytes:
    encoded = encode_varint(len(text)) + text
    return encode_varint(len(inner) + len(encoded)) + inner + encoded


def _unsigned(value: int) -> int:
    return value & (1 << 64) - 1


#: Kind → what it writes for a value that is not NULL, the part's number, and its bytes after the length.
FORMS: Mapping[Kind, Callable[[Any, int, bytes], bytes]] = {
    Kind.INTEGER: _integer,
    Kind.UNSIGNED: lambda value, number, inner: _integer(_unsigned(value), number, inner),
    Kind.BOOLEAN: lambda value, *_: b"true" if value else b"false",
    Kind.MICROSECONDS: _microseconds,
    Kind.SHORT_MICROSECONDS: _short_microseconds,
    Kind.STRING: _string,
    Kind.JSON: _json,
    Kind.RAW: lambda text, *_: text,
    Kind.LOOKUP: lambda text, *_: text,
    Kind.VARINT: lambda value, *_: encode_varint(value),
    Kind.NOTE: _note,
    Kind.NOTE_BYTES: _note_bytes,
    Kind.FIXED64: lambda value, *_: _unsigned(value).to_bytes(8, "little"),
}
