"""A source format of traceconv: laps of a stopwatch, one per line, as name, start and end in nanoseconds."""

import re

import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.events.trace import EventColumns
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import Format

_HEAD = b"# stopwatch\n"
_LAP = re.compile(rb"([^,]*),(\d{1,19}),(\d{1,19})")


class StopwatchReader(FileReader):
    def batches(self):
        """Yield the laps as events, a batch for each chunk of text."""
        offset, rest = 0, b""
        for chunk in self._source.chunks():
            text, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                yield from self._laps(text + newline, offset)
                offset += len(text) + 1
        if rest:
            yield from self._laps(rest, offset)

    def _laps(self, text, offset):
        self.found_events = True
        names, starts, durations = [], [], []
        lost = 0
        for line in text.removeprefix(_HEAD).splitlines():
            match = _LAP.fullmatch(line)
            if match is None:
                lost += 1
                continue
            start_ns, end_ns = int(match[2]), int(match[3])
            names.append(match[1].decode("utf-8", "replace"))
            starts.append(start_ns)
            durations.append(end_ns - start_ns)
        if lost:
            account = self._accounts["laps"]
            account.records += lost
            account.lost += lost
            message = "lines without a name, a start and an end"
            self._log.add(Code.DAMAGED_EVENT, message, source_id=SOURCE_ID, byte_offset=offset, event_count=lost)
        if names:
            count = len(names)
            labels = {"name": names, "ph": ["X"] * count, "pid": [1] * count, "tid": [1] * count}
            times = {"ts": pa.array(starts, pa.int64()), "dur": pa.array(durations, pa.int64())}
            yield self._next_batch(EventColumns(count, labels, raw=times, extra=None), offset, len(text))


def locate(wanted):
    """Find a lap for `traceconv why`: by its number among the valid lines of its block."""
    offset, laps = 0, []
    for line in wanted.block().splitlines(keepends=True):
        if _LAP.fullmatch(line.rstrip(b"\r\n")):
            laps.append((offset, line.rstrip()))
        offset += len(line)
    return [wanted.evidence(*laps[wanted.index])]


FORMAT = Format(
    "stopwatch",
    "laps of a stopwatch",
    sniff=lambda head: 100 if head.startswith(_HEAD) else 0,
    reader="traceconv_stopwatch:StopwatchReader",
    locate="traceconv_stopwatch:locate",
    event_times="start, and end minus start: ns in the file",
)
