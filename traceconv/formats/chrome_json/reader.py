"""One file of trace JSON → batches of events, and the metadata of the file."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.base.diagnostics import Code
from traceconv.events.trace import TraceBatch
from traceconv.formats.chrome_json.parser import TraceParser
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import ReadRequest

#: Keys next to the events with data of other sources: ftrace, samples of the call stack, power.
_OTHER_DATA = ("systemTraceEvents", "samples", "powerTraceAsString")


class TraceFileReader(FileReader):
    """Reads one file. Its other attributes are complete once `batches` is exhausted."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._parser = TraceParser(request.log, request.limits)
        self.keys = self._parser.keys

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all events in order. Raises InputError if the file can't be read."""
        for chunk in self._source.chunks():
            yield from self._noted(self._parser.feed(chunk))
        yield from self._noted(self._parser.finish())
        if self._parser.lost_events:
            self._accounts["damaged events"].add(lost=self._parser.lost_events)
        for key in _OTHER_DATA:
            if self.keys.get(key, b"").strip(b'[]{}" \t\r\n') not in (b"", b"null"):
                message = f"{key}: an unsupported data source, not read"
                self._log.add(Code.UNKNOWN_RECORD, message, source_id=SOURCE_ID)

    def _noted(self, batches: Iterator[TraceBatch]) -> Iterator[TraceBatch]:
        for batch in batches:
            self._note_block(batch)
            yield batch
        self.found_events = self._parser.found_events
