"""Records of timelines, JSON text or Perfetto packets: templates that are filled from columns, row by row.

A template lists the parts of a record in order. The loop over the rows is in C (`native/records.c`); without C,
`_records` here does the same, one row at a time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import Int64
from traceconv.base.workers import Result, Workers
from traceconv.export.json_sql import EXACT_LIMIT
from traceconv.export.output import CountedFile
from traceconv.wire.protobuf import encode_varint

#: kind, column, texts to look up in, number, bytes before the value, bytes after its length; columns by their place.
_Part: TypeAlias = "tuple[int, int, int, int, bytes, bytes]"
#: Validity bits, values or offsets, data of texts, the first row in them, and the number of rows.
_Buffers: TypeAlias = "tuple[pa.Buffer | None, pa.Buffer | bytes, pa.Buffer | bytes | None, int, int]"

#: Rows that are fetched at once, and that are written at once: some MB. With fewer, threads wait for the interpreter.
_ROWS = 16_384
#: Size of the batches that are being written or wait for it, and what each takes beyond its own size.
_MOST_WAITING_BYTES, _CALL_BYTES = 12 << 20, 1 << 13
_BUFFER_BYTES = 1 << 20


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


_SKIPS = (Kind.SKIP_IF_NULL, Kind.SKIP_UNLESS_NULL)
#: Parts that become literals if all rows have the same value. Fewer rows don't pay for it.
_FOLDED = frozenset(
    (Kind.INTEGER, Kind.UNSIGNED, Kind.BOOLEAN, Kind.STRING, Kind.RAW, Kind.LOOKUP, Kind.VARINT, Kind.NOTE)
)
_LEAST_SAME_ROWS = 256
#: JSON of columns by their type in the schema; doubles are text from SQL.
JSON_KINDS = {
    "i32": Kind.INTEGER, "i64": Kind.INTEGER, "u64": Kind.UNSIGNED, "f64": Kind.RAW, "bool": Kind.BOOLEAN,
    "str": Kind.STRING, "json": Kind.JSON,
}  # fmt: skip


class Template:
    """The parts of a record. `lists`: the texts that LOOKUP parts refer to, by name."""

    def __init__(self, lists: Mapping[str, pa.Array] | None = None) -> None:
        self._parts: list[tuple[Kind, str, str, int, bytes, bytes, Template | None]] = []
        self._lists = lists or {}

    def literal(self, text: str | bytes) -> Template:
        """Append the same bytes for all rows."""
        return self.put(Kind.LITERAL, "", text)

    def put(self, kind: Kind, column: str, before: str | bytes = b"", inner: bytes = b"", number: int = 0) -> Template:
        """Append a part."""
        self._parts.append((kind, column, "", number, _bytes(before), inner, None))
        return self

    def lookup(self, column: str, texts: str) -> Template:
        """Append the text of a list at the place that the column has."""
        self._parts.append((Kind.LOOKUP, column, texts, 0, b"", b"", None))
        return self

    def when_null(self, column: str, parts: Template) -> Template:
        """Append parts for the rows in which the column is NULL."""
        self._parts.append((Kind.SKIP_UNLESS_NULL, column, "", 0, b"", b"", parts))
        return self

    def unless_null(self, column: str, parts: Template) -> Template:
        """Append parts for the rows in which the column is not NULL."""
        self._parts.append((Kind.SKIP_IF_NULL, column, "", 0, b"", b"", parts))
        return self

    def extend(self, other: Template) -> Template:
        """Append all parts of another template."""
        self._parts += other._parts
        return self

    def length(self, before: bytes, parts: Template) -> Template:
        """Append parts with their length before them."""
        self._parts.append((Kind.OPEN, "", "", 0, before, b"", None))
        return self.extend(parts).put(Kind.CLOSE, "")

    def bind(self, batch: pa.RecordBatch) -> Bound:
        """Return the parts that the rows of a batch need, with their columns."""
        bound = Bound(batch.num_rows)
        bound.add(self._flat(batch, bound))
        return bound

    def _flat(self, batch: pa.RecordBatch, bound: Bound) -> Iterator[_Part]:
        for kind, name, texts, number, before, inner, parts in self._parts:
            if not name:
                yield (kind, -1, -1, number, before, inner)
                continue
            column = batch.column(name)
            some, every = column.null_count > 0, column.null_count == len(column)
            if parts is None:
                if kind in _FOLDED and _is_same(column):
                    if (text := self._same_text(kind, column[0].as_py(), texts, number, inner)) is not None:
                        yield (Kind.LITERAL, -1, -1, 0, before + text, b"")
                elif not every:
                    listed = bound.place(texts, self._lists[texts]) if texts else -1
                    yield (kind, bound.place(name, column), listed, number, before, inner)
            elif every if kind == Kind.SKIP_UNLESS_NULL else not some:
                yield from parts._flat(batch, bound)
            elif some and not every:
                inside = joined(parts._flat(batch, bound), bound.nullable)
                yield (kind, bound.place(name, column), -1, len(inside), b"", b"")
                yield from inside

    def _same_text(self, kind: Kind, value: Any, texts: str, number: int, inner: bytes) -> bytes | None:
        """Return what a part writes for a value without the bytes before it; None if it is omitted."""
        if kind == Kind.LOOKUP:
            listed = self._lists[texts]
            value = listed[value].as_py() if 0 <= value < len(listed) else None
            if value is None:
                return None
        return _FORMS[kind](value.encode() if isinstance(value, str) else value, number, inner)


class Bound:
    """Parts with their columns, for `records`."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: tuple[_Part, ...] = ()
        self.columns: list[_Buffers] = []
        self.nullable: list[bool] = []
        self._places: dict[str, int] = {}

    def add(self, parts: Iterator[_Part]) -> None:
        """Set the parts."""
        self.parts = tuple(joined(parts, self.nullable))

    def place(self, name: str, column: pa.Array) -> int:
        """Return the place of a column in `columns`."""
        if name not in self._places:
            self._places[name] = len(self.columns)
            self.columns.append(_buffers(column))
            self.nullable.append(column.null_count > 0)
        return self._places[name]


def joined(parts: Iterator[_Part], nullable: Sequence[bool]) -> list[_Part]:
    """Return the parts with literals joined to the next part that is in all records."""
    found: list[_Part] = []
    for part in parts:
        kind, column, texts, number, before, inner = part
        follows = kind not in (*_SKIPS, Kind.LOOKUP, Kind.CLOSE) and (column < 0 or not nullable[column])
        if found and follows and found[-1][0] == Kind.LITERAL and not _is_skipped(found):
            literal = found.pop()[4]
            before = literal + _first_member(before, literal)
        found.append((kind, column, texts, number, before, inner))
    return found


def _is_same(column: pa.Array) -> bool:
    """Whether many rows have the same value, and none is NULL: the part is written once, as a literal."""
    last = len(column) - 1
    if last < _LEAST_SAME_ROWS or column.null_count or column[0] != column[last]:
        return False
    return bool(column.slice(1).equals(column.slice(0, last)))


def _is_skipped(parts: Sequence[_Part]) -> bool:
    """Whether the last part can be skipped."""
    last = len(parts) - 1
    return any(part[0] in _SKIPS and at + part[3] >= last for at, part in enumerate(parts[:-1]))


def _first_member(text: bytes, previous: bytes | bytearray) -> bytes:
    """Return text that follows other text: without its comma if that begins an object or array."""
    return text[1:] if text[:1] == b"," and previous[-1:] in (b"{", b"[") else text


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _buffers(column: pa.Array) -> _Buffers:
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type) or column.type.bit_width == 64):
        column = column.cast(pa.int64())
    valid, values, *data = column.buffers()
    texts = (data[0] or b"") if data else None
    return (valid if column.null_count else None, values or b"\0" * 8, texts, column.offset, len(column))


class RecordFile:
    """Writes records to a file, in order: a thread fills the templates and writes.

    at_once  for the functions given to `later`: writes to the same file, in the thread that calls
    """

    def __init__(self, file: CountedFile, writer: Workers | None) -> None:
        """`writer`: None writes at once."""
        self._file = file
        self._writer = writer
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_bytes = 0
        self._buffer = bytearray(_BUFFER_BYTES)
        self.at_once = self if writer is None else RecordFile(file, None)

    def later(self, function: Callable[[], None], size_bytes: int) -> None:
        """Let the thread call a function, which writes to `at_once` and keeps `size_bytes`, after the records."""
        self._submit(function, size_bytes)

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Let the thread call a function, which doesn't write, after the records; return its future result."""
        assert self._writer is not None
        return self._writer.submit(function)

    def write(self, data: bytes) -> None:
        """Write bytes after the records."""
        self._submit(lambda: self._file.write(data), len(data))

    def write_later(self, function: Callable[[], bytes], size_bytes: int = 0) -> None:
        """Write the result of a function, which a thread calls, and which keeps `size_bytes`."""
        self._submit(lambda: self._file.write(function()), size_bytes)

    def rows(self, template: Template, batch: pa.RecordBatch, order: Int64 | None = None) -> int:
        """Write a record for each row of a batch, or for those in `order`; return their number."""
        bound = template.bind(batch)
        rows = np.arange(batch.num_rows, dtype=np.int64) if order is None else order
        size_bytes = batch.nbytes
        for at in range(0, len(rows), _ROWS):
            piece = rows[at : at + _ROWS]
            self._submit(partial(self._fill, bound, piece), size_bytes * len(piece) // len(rows))
        return len(rows)

    def query(
        self, connection: duckdb.DuckDBPyConnection, template: Template, query: str, most_rows: int = _ROWS
    ) -> Iterator[int]:
        """Write a record for each row of a query, in order; yield their numbers. `most_rows` are fetched at once."""
        batches = connection.sql(query).to_arrow_reader(min(most_rows, _ROWS))
        return (self.rows(template, batch) for batch in batches)

    def flush(self) -> None:
        """Write all records."""
        while self._waiting:
            self._await_first()

    def _submit(self, write: Callable[[], None], size_bytes: int = 0) -> None:
        """Let the thread write when little waits for it. Raises what it raised."""
        if self._writer is None:
            write()
            return
        size_bytes += _CALL_BYTES
        while self._waiting and (self._waiting[0][0].done() or self._waiting_bytes + size_bytes > _MOST_WAITING_BYTES):
            self._await_first()
        self._waiting.append((self._writer.submit(write), size_bytes))
        self._waiting_bytes += size_bytes

    def _await_first(self) -> None:
        future, size_bytes = self._waiting.popleft()
        self._waiting_bytes -= size_bytes
        future.result()

    def _fill(self, bound: Bound, order: Int64) -> None:
        """Write records. Runs in the thread."""
        at, buffer = 0, self._buffer
        while at < len(order):
            next_at, size = _fill(bound, order, at, buffer)
            if next_at == at:
                buffer = bytearray(2 * len(buffer))
                continue
            with memoryview(buffer) as data:
                self._file.write(data[:size])
            at, buffer = next_at, self._buffer


@contextmanager
def record_file(file: CountedFile) -> Iterator[RecordFile]:
    """Write records to a file, all of them by the end of the `with` block."""
    with Workers(1) as writer:
        records = RecordFile(file, writer)
        try:
            yield records
            records.flush()
        finally:
            writer.shutdown(cancel_futures=True)


def in_turn(*writers: Iterator[int]) -> None:
    """Exhaust iterators that write rows and yield their number: always the one that has written the fewest.

    One that computes much and one that writes much keep both threads busy.
    """
    written = dict.fromkeys(writers, 0)
    while written:
        one = min(written, key=written.__getitem__)
        rows = next(one, None)
        if rows is None:
            del written[one]
        else:
            written[one] += rows


def fill(template: Template, batch: pa.RecordBatch, buffer: bytearray, start: int) -> int:
    """Write the records of all rows from `start` on; return their end. The buffer doubles while it is too small."""
    bound, order = template.bind(batch), np.arange(batch.num_rows, dtype=np.int64)
    at = 0
    while at < len(order):
        with memoryview(buffer) as data, data[start:] as free:
            at, size = _fill(bound, order, at, free)
        start += size
        if at < len(order):
            buffer.extend(bytes(len(buffer)))
    return start


def _fill(bound: Bound, order: Int64, first: int, buffer: bytearray | memoryview) -> tuple[int, int]:
    """Write records from row `first` of the order on; return the first one that didn't fit, and the size."""
    if native.AVAILABLE:
        return native.records(bound.parts, tuple(bound.columns), order, first, buffer)
    at, size = first, 0
    for record in _records(bound, order[first:]):
        if size + len(record) > len(buffer):
            break
        buffer[size : size + len(record)] = record
        at, size = at + 1, size + len(record)
    return at, size


# -- without C --


def _records(bound: Bound, order: Int64) -> Iterator[bytes]:
    columns = [_values(column) for column in bound.columns]
    for row in order.tolist():
        out = bytearray()
        opened: list[int] = []
        skip = 0
        for kind, place, listed, number, before, inner in bound.parts:
            if skip:
                skip -= 1
                continue
            value = columns[place](row) if place >= 0 else None
            if kind in _SKIPS:
                skip = number if (value is None) == (kind == Kind.SKIP_IF_NULL) else 0
                continue
            if kind == Kind.LOOKUP and value is not None:
                value = columns[listed](value) if 0 <= value < bound.columns[listed][4] else None
            if place >= 0 and value is None:
                continue
            out += _first_member(before, out)
            if kind == Kind.OPEN:
                opened.append(len(out))
            elif kind == Kind.CLOSE:
                start = opened.pop()
                out[start:start] = _length(len(out) - start)
            elif kind != Kind.LITERAL:
                out += _FORMS[Kind(kind)](value, number, inner)
        yield bytes(out)


def _length(size: int) -> bytes:
    """Encode a length in two bytes, or more if they don't suffice, as C does: it reserves two."""
    return encode_varint(size) if size >= 1 << 14 else bytes([size & 127 | 128, size >> 7])


def _values(column: _Buffers) -> Callable[[int], Any]:
    valid, values, data, offset, count = column
    bits = None
    if valid is not None:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=offset + count, bitorder="little")[offset:]
    if data is None:
        numbers = np.frombuffer(values, np.int64)[offset : offset + count]
        return lambda row: None if bits is not None and not bits[row] else int(numbers[row])
    ends, texts = np.frombuffer(values, np.int32)[offset:], memoryview(data)
    return lambda row: None if bits is not None and not bits[row] else bytes(texts[ends[row] : ends[row + 1]])


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


_FORMS: Mapping[Kind, Callable[[Any, int, bytes], bytes]] = {
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
