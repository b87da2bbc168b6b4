"""Templates of records, JSON text or Perfetto packets: lists of parts that are filled from columns, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from traceconv.export.record_kinds import FORMS, Kind

#: kind, column, texts to look up in, number, bytes before the value, bytes after its length; columns by their place.
_Part: TypeAlias = "tuple[int, int, int, int, bytes, bytes]"
#: Validity bits, values or offsets, data of texts, the first row in them, and the number of rows.
Buffers: TypeAlias = "tuple[pa.Buffer | None, pa.Buffer | bytes, pa.Buffer | bytes | None, int, int]"

#: Parts that are not written: they skip others.
SKIPS = (Kind.SKIP_IF_NULL, Kind.SKIP_UNLESS_NULL)
#: Parts that become literals if all rows have the same value. Fewer rows don't pay for it.
_FOLDED = frozenset(
    (Kind.INTEGER, Kind.UNSIGNED, Kind.BOOLEAN, Kind.STRING, Kind.RAW, Kind.LOOKUP, Kind.VARINT, Kind.NOTE)
)
_LEAST_SAME_ROWS = 256


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
        bound.parts = tuple(joined(self._flat(batch, bound), bound.nullable))
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
        return FORMS[kind](value.encode() if isinstance(value, str) else value, number, inner)


class Bound:
    """Parts with their columns, for the loop over the rows."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: tuple[_Part, ...] = ()
        self.columns: list[Buffers] = []
        self.nullable: list[bool] = []
        self._places: dict[str, int] = {}

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
        follows = kind not in (*SKIPS, Kind.LOOKUP, Kind.CLOSE) and (column < 0 or not nullable[column])
        if found and follows and found[-1][0] == Kind.LITERAL and not _is_skipped(found):
            literal = found.pop()[4]
            before = literal + first_member(before, literal)
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
    return any(part[0] in SKIPS and at + part[3] >= last for at, part in enumerate(parts[:-1]))


def first_member(text: bytes, previous: bytes | bytearray) -> bytes:
    """Return text to write after other text: without its comma if that begins an object or array."""
    return text[1:] if text[:1] == b"," and previous[-1:] in (b"{", b"[") else text


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _buffers(column: pa.Array) -> Buffers:
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type) or column.type.bit_width == 64):
        column = column.cast(pa.int64())
    valid, values, *data = column.buffers()
    texts = (data[0] or b"") if data else None
    return (valid if column.null_count else None, values or b"\0" * 8, texts, column.offset, len(column))
