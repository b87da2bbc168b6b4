"""One trace file → batches of events, with what the store keeps of the file itself."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.events.trace import TraceBatch
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import ReadRequest

__all__ = ["SOURCE_ID", "TraceFileReader"]


class TraceFileReader(FileReader):
    """Reads one file. After `batches` has come to its end, the rest is known."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._parser = TraceParser(request.log, request.limits)
        self.keys = self._parser.keys

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
            self._note_block(batch)
            yield batch
        self.found_events = self._parser.found_events
