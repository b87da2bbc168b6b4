"""Items of a JSON document → batches of complete events, read with ijson in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from decimal import Decimal
from typing import Any

import ijson
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, UsageError, printable
from traceconv.events.items import ITEMS_KEY
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import EventColumns, TraceBatch, TrackName, binary_column
from traceconv.formats.chrome_json.patch import SURROGATE, patch
from traceconv.formats.common.columns import exact_decimal
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.json_document import ENTER, KEEP, STREAM, Elements, JsonDocument, JsonPath
from traceconv.formats.format import ReadRequest
from traceconv.formats.json_items.feeding import Guard, pieces
from traceconv.formats.json_items.fields import ItemFields

_BATCH = 16384
#: This many of the last brackets of a piece are fed one by one: an item that then appears ends there.
_LAST_BRACKETS = 8
_MOST_KEYS = 1 << 12
_SHOWN_KEYS = 8
_MAX_DIGITS = 400
#: What ijson raises for malformed text: its own errors, and Python's for numbers.
_STOPS = (ijson.JSONError, ArithmeticError, ValueError, RecursionError)
#: Byte offset and byte count.
Place = tuple[int, int]


class JsonItemsReader(FileReader):
    """Reads one file. Where ijson stops, `JsonDocument` reads the file again and continues with the next item."""

    def __init__(self, request: ReadRequest) -> None:
        items = request.items
        if items is None:
            raise UsageError(
                "the reader json_items needs a description of the items; use --rules FILE with a section [items]"
            )
        if request.path == STDIN:
            raise InputError("a document with items can't be read from standard input; specify its path")
        super().__init__(request)
        self._prefix = items.prefix
        self._fields = ItemFields(items)
        description = {key: value for key, value in asdict(items).items() if value is not None}
        self.keys = {ITEMS_KEY: json.dumps(description).encode()}
        self._rows: list[tuple[Any, ...]] = []
        self._place: Place | None = None
        self._tracks: set[tuple[str | None, str | None]] = set()
        self._names: list[TrackName] = []
        self._shapes: set[tuple[str, ...]] = set()
        self._dotted: dict[str, None] = {}
        self._repeated: list[str] = []
        self._arrays = self._others = 0

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all items in order. Raises InputError if the file can't be read, or has none at the prefix."""
        chunks = self._source.chunks()
        for items, place in self._items(chunks):
            self._take(items, place)
            yield from self._flushed(_BATCH)
        yield from self._flushed(1)
        for _ in chunks:  # for the size and the digest
            pass
        self._report()

    # -- items --

    def _items(self, chunks: Iterable[bytes]) -> Iterator[tuple[list[Any], Place]]:
        """Items, and the byte range that contains them."""
        done = 0
        try:
            for items, place in self._streamed(chunks):
                done += len(items)
                yield items, place
        except _STOPS:
            yield from self._continued(done)

    def _streamed(self, chunks: Iterable[bytes]) -> Iterator[tuple[list[Any], Place]]:
        """Items from ijson. Raises one of _STOPS where it can't continue."""
        repeated = self._repeated

        class Object(dict[str, Any]):
            def __setitem__(self, key: str, value: object) -> None:
                if key in self:
                    repeated.append(key)
                super().__setitem__(key, value)

        found: list[Any] = ijson.sendable_list()
        parser = ijson.items_coro(found, self._prefix, use_float=False, map_type=Object, multiple_values=True)
        guard = Guard()
        start = end = 0
        try:
            for at, piece in pieces(chunks):
                end = at + len(piece)
                if guard.refusal(piece) is not None or end - start > self._limits.event_bytes:
                    raise ijson.JSONError("not for ijson")
                anchor, error = None, None
                try:
                    for place, part in _parts(piece):
                        before = len(found)
                        parser.send(part)
                        if len(part) == 1 and len(found) > before:
                            anchor = at + place + 1
                except _STOPS as stop:
                    error = stop
                if found:
                    yield list(found), (start, (anchor or end) - start)
                    found.clear()
                    start = anchor or at
                if error is not None:
                    raise error
            parser.close()
            if found:
                yield list(found), (start, end - start)
        finally:
            # The Python parser would complain when it is collected inside a text.
            with suppress(*_STOPS):
                parser.close()

    def _continued(self, done: int) -> Iterator[tuple[list[Any], Place]]:
        """The items after the first `done`, from the reader that continues after damage."""
        account = self._accounts["items"]
        chunks = self._second_pass().chunks()
        document = JsonDocument(chunks, self._shape, self._log, self._limits, account, several=True)
        seen = 0
        for item in document.items():
            if isinstance(item, Elements):
                at_items = _joined((*item.path, 0)) == self._prefix
                texts, place = [bytes(text) for text in item.texts], (item.byte_offset, item.byte_count)
            else:
                at_items = _joined(item.path) == self._prefix
                texts, place = [item.text], (item.byte_offset, len(item.text))
            if at_items:
                new = texts[max(0, done - seen) :]
                seen += len(texts)
                decoded = [self._decoded(text, place[0]) for text in new]
                account.add(lost=decoded.count(_DAMAGED))
                if decoded:
                    yield [one for one in decoded if one is not _DAMAGED], place

    def _shape(self, path: JsonPath) -> str:
        here = _joined(path)
        if here == self._prefix:
            return KEEP
        if _joined((*path, 0)) == self._prefix:
            return STREAM
        return ENTER if not path or self._prefix.startswith(here + ".") else STREAM

    def _decoded(self, text: bytes, at: int) -> Any:
        if SURROGATE.search(text):
            patched = patch(text)
            patched.log_to(self._log, at, SOURCE_ID)
            text = patched.text
        try:
            return json.loads(text, parse_float=exact_decimal, parse_int=_integer, object_pairs_hook=self._object)
        except (ValueError, RecursionError):
            message = "an element that can't be read"
            self._log.add(Code.DAMAGED_EVENT, message, source_id=SOURCE_ID, byte_offset=at, event_count=1)
            return _DAMAGED

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            self._repeated += [""] * (len(pairs) - len(found))
        return found

    # -- rows --

    def _take(self, items: Sequence[Any], place: Place) -> None:
        rows = [self._row(item) for item in items if isinstance(item, dict)]
        others = len(items) - len(rows)
        self._others += others
        self._arrays += sum(isinstance(item, list) for item in items)
        if others:
            self._accounts["items"].add(lost=others)
        self._log_at(Code.NOT_AN_EVENT, "items that are not objects", place, others)
        message = "items with a duplicate key: the last value is used"
        self._log_at(Code.REPEATED_KEY, message, place, len(self._repeated))
        self._repeated.clear()
        if rows:
            offset, count = place
            first = self._ordinal + len(self._rows)
            self.blocks.append(((SOURCE_ID << ORDINAL_BITS) + first, len(rows), offset, count))
            start = min(offset, self._place[0]) if self._place else offset
            self._place = (start, offset + count - start)
            self._rows += rows
            self.found_events = True

    def _log_at(self, code: Code, message: str, place: Place, count: int) -> None:
        if count:
            offset, size = place
            self._log.add(code, message, source_id=SOURCE_ID, byte_offset=offset, byte_count=size, event_count=count)

    def _row(self, item: dict[str, Any]) -> tuple[Any, ...]:
        fields = self._fields
        keys = tuple(item)
        if keys not in self._shapes and len(self._shapes) < _MOST_KEYS:
            self._shapes.add(keys)
            self._dotted.update(dict.fromkeys(key for key in keys if "." in key))
        track = fields.track(item)
        if track not in self._tracks:
            self._tracks.add(track)
            self._names += [TrackName(track[0], None, track[0]), TrackName(track[0], track[1], track[1])]
        try:
            args = fields.args(item)
        except RecursionError:
            args = b""
        return fields.name(item), fields.category(item), *track, *fields.times(item), args

    def _flushed(self, at_least: int) -> Iterator[TraceBatch]:
        if self._place is None or len(self._rows) < at_least:
            return
        names, categories, processes, threads, starts, durs, args = zip(*self._rows, strict=True)
        count = len(self._rows)
        labels = {"name": names, "ph": ["X"] * count, "cat": categories, "pid": processes, "tid": threads}
        raw = {"ts": pa.array(starts, pa.int64()), "dur": pa.array(durs, pa.int64()), "args": binary_column(args)}
        columns = EventColumns(count, labels, raw, None)
        yield TraceBatch(self._ordinal, *self._place, columns, (), tuple(self._names))
        self._ordinal += count
        self._rows, self._names, self._place = [], [], None

    def _report(self) -> None:
        shown = printable(str(self._path))
        if not self.found_events and self._arrays and self._arrays == self._others:
            raise InputError(
                f"{shown}: the items at '{printable(self._prefix)}' are arrays; a rule file can only describe objects"
            )
        if not self.found_events and not self._log.lossy:
            raise InputError(
                f"{shown}: no items at '{printable(self._prefix)}'; list the document's prefixes with traceconv info"
            )
        if "items" in self._accounts.by_record and not self._accounts["items"].records:
            del self._accounts.by_record["items"]
        self._log.count(Code.FINE_TIME, "timestamps finer than a nanosecond", self._fields.rounded, SOURCE_ID)
        if self._dotted:
            names = ", ".join(printable(key, 40) for key in [*self._dotted][:_SHOWN_KEYS])
            more = f", and {len(self._dotted) - _SHOWN_KEYS} more" if len(self._dotted) > _SHOWN_KEYS else ""
            self._log.add(Code.UNADDRESSABLE, f"keys of items that contain a dot: {names}{more}", source_id=SOURCE_ID)


_DAMAGED = object()


def _parts(piece: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, text) of the parts of a piece; each of its last closing brackets is a part."""
    cuts: list[int] = []
    end = len(piece)
    while len(cuts) < _LAST_BRACKETS and (end := piece.rfind(b"}", 0, end)) >= 0:
        cuts.append(end)
    at = 0
    for cut in reversed(cuts):
        if cut > at:
            yield at, piece[at:cut]
        yield cut, piece[cut : cut + 1]
        at = cut + 1
    if at < len(piece):
        yield at, piece[at:]


def _joined(path: JsonPath) -> str:
    return ".".join("item" if isinstance(key, int) else key for key in path)


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) < _MAX_DIGITS else Decimal(text)
