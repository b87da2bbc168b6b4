"""Items of a JSON document → batches of complete events, read with ijson in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, TypeAlias

import ijson
import pyarrow as pa

from traceconv.base.diagnostics import Account, Code
from traceconv.base.errors import InputError, UsageError, option, printable
from traceconv.events.items import ITEMS_KEY, Items
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import TraceBatch, TrackName
from traceconv.formats.chrome_json.patch import SURROGATE, patch
from traceconv.formats.common.columns import exact_decimal, slices
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


class _Table:
    """One table of items, and what was read of it."""

    def __init__(self, items: Items, account: Account) -> None:
        self.prefix = items.prefix
        self.fields = ItemFields(items)
        self.account = account
        self.done = self.arrays = 0

    def note(self, items: Sequence[Any], *, damaged: int = 0) -> list[dict[str, Any]]:
        """Count items, and return those that are objects."""
        objects = [item for item in items if isinstance(item, dict)]
        self.arrays += sum(isinstance(item, list) for item in items)
        self.account.add(used=len(objects), lost=len(items) - len(objects) + damaged)
        return objects


#: Items of a table, and the byte range that contains them.
_Found: TypeAlias = tuple[_Table, list[Any], Place]


class JsonItemsReader(FileReader):
    """Reads one file. Where ijson stops, `JsonDocument` reads the file again and continues with the next item.

    A parser per table gets each piece of the text, which is read once. Since no table is inside another, no item of any
    table is open where an item ends.
    """

    def __init__(self, request: ReadRequest) -> None:
        if not request.items:
            raise UsageError(
                "the reader json_items needs a description of the items; "
                f"use {option('--rules FILE', 'rules=FILE')} with a section [items]"
            )
        if request.path == STDIN:
            raise InputError("a document with items can't be read from standard input; specify its path")
        super().__init__(request)
        described = [{key: value for key, value in one._asdict().items() if value is not None} for one in request.items]
        self.keys = {ITEMS_KEY: json.dumps(described).encode()}
        self._tables = {
            one.prefix: _Table(one, self._accounts[f"items {one.prefix}".rstrip()]) for one in request.items
        }
        self._rows: list[tuple[Any, ...]] = []
        self._place: Place | None = None
        self._tracks: set[tuple[str | None, str | None]] = set()
        self._names: list[TrackName] = []
        self._shapes: set[tuple[str, ...]] = set()
        self._dotted: dict[str, None] = {}
        self._repeated: list[str] = []

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all items in order. Raises InputError if the file can't be read, or has none at the prefixes."""
        chunks = self._source.chunks()
        for found in self._items(chunks):
            self._take(*found)
            yield from self._flushed(_BATCH)
        yield from self._flushed(1)
        for _ in chunks:  # for the size and the digest
            pass
        self._report()

    # -- items --

    def _items(self, chunks: Iterable[bytes]) -> Iterator[_Found]:
        try:
            for table, items, place in self._streamed(chunks):
                table.done += len(items)
                yield table, items, place
        except _STOPS:
            yield from self._continued()

    def _streamed(self, chunks: Iterable[bytes]) -> Iterator[_Found]:
        """Items from ijson. Raises one of _STOPS where it can't continue."""
        repeated = self._repeated

        class Object(dict[str, Any]):
            def __setitem__(self, key: str, value: object) -> None:
                if key in self:
                    repeated.append(key)
                super().__setitem__(key, value)

        options = {"use_float": False, "map_type": Object, "multiple_values": True}
        parsers: list[tuple[_Table, list[Any], Any]] = []
        for table in self._tables.values():
            found: list[Any] = ijson.sendable_list()
            parsers.append((table, found, ijson.items_coro(found, table.prefix, **options)))
        guard = Guard()
        start = end = 0
        try:
            for at, piece in pieces(chunks):
                end = at + len(piece)
                if guard.refusal(piece) is not None or end - start > self._limits.event_bytes:
                    raise ijson.JSONError("not for ijson")
                error: Exception | None = None
                next_start, parts = start, list(_parts(piece))
                for table, found, parser in parsers:
                    anchor = None
                    try:
                        for place, part in parts:
                            before = len(found)
                            parser.send(part)
                            if len(part) == 1 and len(found) > before:
                                anchor = at + place + 1
                    except _STOPS as stop:
                        error = stop
                    if found:
                        yield table, list(found), (start, (anchor or end) - start)
                        found.clear()
                        next_start = max(next_start, anchor or at)
                start = next_start
                if error is not None:
                    raise error
            for table, found, parser in parsers:
                parser.close()
                if found:
                    yield table, list(found), (start, end - start)
        finally:
            # The Python parser would complain when it is collected inside a text.
            for _, _, parser in parsers:
                with suppress(*_STOPS):
                    parser.close()

    def _continued(self) -> Iterator[_Found]:
        """The items that ijson didn't reach, from the reader that continues after damage."""
        chunks, damaged = self._second_pass().chunks(), "damaged items"
        document = JsonDocument(chunks, self._shape, self._log, self._limits, self._accounts, damaged, several=True)
        seen = dict.fromkeys(self._tables, 0)
        for item in document.items():
            if isinstance(item, Elements):
                table = self._tables.get(_joined((*item.path, 0)))
                texts, place = [bytes(text) for text in item.texts], (item.byte_offset, item.byte_count)
            else:
                table = self._tables.get(_joined(item.path))
                texts, place = [item.text], (item.byte_offset, len(item.text))
            if table is not None:
                new = texts[max(0, table.done - seen[table.prefix]) :]
                seen[table.prefix] += len(texts)
                decoded = [self._decoded(text, place[0]) for text in new]
                table.note((), damaged=decoded.count(_DAMAGED))
                if decoded:
                    yield table, [one for one in decoded if one is not _DAMAGED], place

    def _shape(self, path: JsonPath) -> str:
        here, element = _joined(path), _joined((*path, 0))
        if here in self._tables:
            return KEEP
        if element in self._tables:
            return STREAM
        return ENTER if not path or any(prefix.startswith(here + ".") for prefix in self._tables) else STREAM

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

    def _take(self, table: _Table, items: Sequence[Any], place: Place) -> None:
        objects = table.note(items)
        rows = [self._row(table.fields, item) for item in objects]
        self._log_at(Code.NOT_AN_EVENT, "items that are not objects", place, len(items) - len(rows))
        message = "items with a duplicate key: the last value is used"
        self._log_at(Code.REPEATED_KEY, message, place, len(self._repeated))
        self._repeated.clear()
        if rows:
            offset, count = place
            first = self._ordinal + len(self._rows)
            self.blocks.append(((SOURCE_ID << ORDINAL_BITS) + first, len(rows), offset, count))
            start, size = self._place or place
            start, end = min(offset, start), max(offset + count, start + size)
            self._place = (start, end - start)
            self._rows += rows
            self.found_events = True

    def _log_at(self, code: Code, message: str, place: Place, count: int) -> None:
        if count:
            offset, size = place
            self._log.add(code, message, source_id=SOURCE_ID, byte_offset=offset, byte_count=size, event_count=count)

    def _row(self, fields: ItemFields, item: dict[str, Any]) -> tuple[Any, ...]:
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
        times, lengths = pa.array(starts, pa.int64()), pa.array(durs, pa.int64())
        columns = slices(names, categories, processes, threads, times, lengths, args)
        yield TraceBatch(self._ordinal, *self._place, columns, (), tuple(self._names))
        self._ordinal += columns.count
        self._rows, self._names, self._place = [], [], None

    def _report(self) -> None:
        shown = printable(str(self._path))
        empty = [table for table in self._tables.values() if not table.account.used]
        if not self.found_events and all(table.arrays and table.arrays == table.account.lost for table in empty):
            raise InputError(
                f"{shown}: the items at {_prefixes(empty)} are arrays; a rule file can only describe objects"
            )
        if not self.found_events and not self._log.lossy:
            raise InputError(
                f"{shown}: no items at {_prefixes(empty)}; list the document's prefixes with traceconv info"
            )
        if empty:
            self._log.add(Code.NO_ITEMS, f"no items at {_prefixes(empty)}", source_id=SOURCE_ID)
        rounded = sum(table.fields.rounded for table in self._tables.values())
        self._log.count(Code.FINE_TIME, "timestamps finer than a nanosecond", rounded, SOURCE_ID)
        if self._dotted:
            names = ", ".join(printable(key, 40) for key in [*self._dotted][:_SHOWN_KEYS])
            more = f", and {len(self._dotted) - _SHOWN_KEYS} more" if len(self._dotted) > _SHOWN_KEYS else ""
            self._log.add(Code.UNADDRESSABLE, f"keys of items that contain a dot: {names}{more}", source_id=SOURCE_ID)


_DAMAGED = object()


def _prefixes(tables: Iterable[_Table]) -> str:
    return ", ".join(f"'{printable(table.prefix)}'" for table in tables)


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
