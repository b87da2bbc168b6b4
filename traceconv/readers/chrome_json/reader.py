"""One trace file → batches of events, with what the store keeps of the file itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from traceconv.diagnostics import Accounts, ImportLog
from traceconv.events import ORDINAL_BITS
from traceconv.json_events import TraceBatch
from traceconv.readers.chrome_json.containers import TextSource
from traceconv.readers.chrome_json.limits import Limits
from traceconv.readers.chrome_json.parser import TraceParser

#: The one source of a run that is read from one file.
SOURCE_ID = 1


class TraceFileReader:
    """Reads one file. After `batches` has come to its end, the rest is known."""

    def __init__(
        self, path: Path, log: ImportLog, accounts: Accounts, limits: Limits, advance: Callable[[int], None]
    ) -> None:
        self._source = TextSource(path, log, limits, advance)
        self._parser = TraceParser(log, limits)
        self._accounts = accounts
        self.blocks: list[tuple[int, int, int | None, int | None]] = []

    def batches(self) -> Iterator[TraceBatch]:
        """All events, in the order of the text. Raises InputError when the file can't be read."""
        for chunk in self._source.chunks():
            yield from self._noted(self._parser.feed(chunk))
        yield from self._noted(self._parser.finish())
        lost = self._parser.lost_events
        if lost:
            account = self._accounts["damaged events"]
            account.records += lost
            account.lost += lost

    def _noted(self, batches: Iterator[TraceBatch]) -> Iterator[TraceBatch]:
        for batch in batches:
            first_id = (SOURCE_ID << ORDINAL_BITS) + batch.first_ordinal
            self.blocks.append((first_id, batch.columns.count, batch.byte_offset, batch.byte_count))
            yield batch

    @property
    def found_events(self) -> bool:
        """Whether the text has a place for events."""
        return self._parser.found_events

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    @property
    def digest(self) -> str:
        return f"{self._source.crc:08x}"

    @property
    def container(self) -> str:
        return self._source.container

    @property
    def keys(self) -> dict[str, bytes]:
        """What stands around the events: key → text of its value."""
        return self._parser.keys

    def options(self) -> str | None:
        """The same as the text of one JSON object; values that are no JSON as strings. None when there are none."""
        if not self.keys:
            return None
        members = [f"{json.dumps(key)}:{_sound(value)}" for key, value in self.keys.items()]
        return "{" + ",".join(members) + "}"


def _sound(value: bytes) -> str:
    try:
        msgspec.json.decode(value)
        return value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return json.dumps(value.decode("utf-8", "replace"))
