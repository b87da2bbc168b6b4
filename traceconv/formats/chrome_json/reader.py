"""One trace file → batches of events, with what the store keeps of the file itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import TraceBatch
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.formats.common.file_reader import FileReader, keys_object
from traceconv.formats.common.limits import Limits

#: The one source of a run that is read from one file.
SOURCE_ID = 1


class TraceFileReader(FileReader):
    """Reads one file. After `batches` has come to its end, the rest is known."""

    def __init__(
        self, path: Path, log: ImportLog, accounts: Accounts, limits: Limits, advance: Callable[[int], None]
    ) -> None:
        super().__init__(path, log, accounts, limits, advance)
        self._parser = TraceParser(log, limits)

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
    def keys(self) -> dict[str, bytes]:
        """What stands around the events: key → text of its value."""
        return self._parser.keys

    def options(self) -> str | None:
        """The same as the text of one JSON object; values that are no JSON as strings. None when there are none."""
        return keys_object(self.keys)
