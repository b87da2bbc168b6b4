"""Text that can't be decoded in one go → the events that can be decoded, and log entries for the rest.

Sound stretches are decoded together. The events between them are taken one by one: repaired if that keeps all their
content, otherwise skipped.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from traceconv import native
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.events.trace import Segment
from traceconv.formats.chrome_json.compiled import scanned_prefix
from traceconv.formats.chrome_json.decode import BLANKS, Decoded, MalformedText, decode_events, is_beginning
from traceconv.formats.chrome_json.patch import SURROGATE, Patched, escape_quotes, first_bad_byte, patch
from traceconv.formats.chrome_json.pieces import MANY_FAILURES, Piece, RecoveryState
from traceconv.formats.chrome_json.scan import end_of_bracketed, event_starts, next_event_start, skip_space
from traceconv.formats.common.limits import LARGE_BYTES

#: The end of a malformed event is searched up to this distance.
_NEAR_BYTES = 64 << 10
_FIRST_BYTES = 1 << 10
#: Between events: byte order marks of concatenated files, separators of JSON text sequences, form feeds.
_SEPARATORS = re.compile(rb"(?:\xef\xbb\xbf|[\x01-\x20,])+")
#: After the end of an event: what JSON has nowhere outside of strings.
_AFTER = re.compile(rb"[\x00-\x20\x80-\xff]*")
_LINE_END = re.compile(rb"[ \t\r]*\n")


@dataclass(slots=True)
class Recovery:
    """Recovers the events of one stretch of text, which begins where an event begins.

    base      byte offset in the decompressed text
    final     nothing follows
    may_wait  an event that is sound up to the end of the text is left until there is more
    cut       where the last event seems to begin; None: unknown
    """

    log: ImportLog
    state: RecoveryState
    text: bytes
    base: int
    final: bool
    may_wait: bool
    cut: int | None
    _at: int = 0
    _end: int = 0
    _starts: list[int] = field(default_factory=list)
    _bad_byte: int = -1  # the first from `_at` on; -1: not searched yet
    _pieces: list[Piece] = field(default_factory=list)
    _failures_before: int = 0
    _ended: bool = False
    _waits: bool = False

    def __post_init__(self) -> None:
        self._end = len(self.text)
        self._failures_before, self.state.failures = self.state.failures, 0

    def run(self) -> tuple[list[Piece], int, bool]:
        """Return the events, where to continue, and whether the array of events ends there."""
        step, prefixes = self._end, 0
        while True:
            self._skip_blanks()
            are_many = self._failures_before + self.state.failures > MANY_FAILURES
            by_prefix = native.AVAILABLE and max(prefixes, self._failures_before) < MANY_FAILURES
            if by_prefix:
                self._take_prefix()
                prefixes += 1
            if self._ended or self._waits or self._at >= self._end:
                return self._pieces, self._at, self._ended
            if by_prefix:
                stop, step = next_event_start(self.text, self._at + 1, self._end), 1
            else:
                stop, step = self._stop(step)
            if step and (self._take(self._at, stop) or (are_many and self._take_repaired(self._at, stop))):
                step *= 2
            elif step > 1:
                step //= 2
            else:
                self._take_single(stop)
                step = 1

    def _skip_blanks(self) -> None:
        while self._at < self._end and self.text[self._at] in BLANKS:
            self._at += 1

    def _take_prefix(self) -> None:
        """Take the sound events from here on."""
        if self._bad_byte < self._at:
            self._bad_byte = self._at + first_bad_byte(self.text[self._at :])
        columns, size = scanned_prefix(self.text[self._at : self._bad_byte], self.state.lines)
        if columns is not None:
            self._add(Decoded(columns), self._at, self._at + size)
            self._skip_blanks()

    def _stop(self, step: int) -> tuple[int, int]:
        """Where up to `step` events from here on seem to end, and how many there are; 0 if none begins here."""
        self._starts = self._starts or event_starts(self.text, self._at, self._end)
        following = bisect_right(self._starts, self._at)
        if self._starts[following - 1] != self._at:
            return self._starts[following] if following < len(self._starts) else self._end, 0
        stop = self._end if self.cut is None or self._at >= self.cut else self.cut
        count = min(step, bisect_left(self._starts, stop) - following + 1)
        return (self._starts[following + count - 1] if following + count - 1 < len(self._starts) else self._end), count

    def _take(self, start: int, end: int) -> bool:
        """Decode `text[start:end]` unchanged."""
        decoded = self.state.decode(self.text[start:end])
        if decoded is not None:
            self._add(decoded, start, end)
        return decoded is not None

    def _add(self, decoded: Decoded, start: int, end: int) -> None:
        self._pieces.append(Piece(decoded, Segment(self.base + start, self.text[start:end], decoded.columns.count)))
        self.state.advance(end - start)
        self._at = end
        self.state.in_large = False

    def _take_repaired(self, start: int, end: int) -> bool:
        text = self.text[start:end]
        repairs: tuple[Patched, ...] = (patch(text),)
        decoded = self.state.decode(repairs[-1].text)
        if decoded is None and (quotes := escape_quotes(text)).count:
            repairs = (quotes, patch(quotes.text))
            decoded = self.state.decode(repairs[-1].text)
        if decoded is None:
            return False
        self._add(decoded, start, end)
        for made in repairs:
            made.log_to(self.log, self.base + start)
            self.state.failures += made.count
        return True

    def _take_single(self, next_start: int) -> None:
        """Take one element, wherever it ends, or skip the text up to `next_start`."""
        text, at = self.text, self._at
        separators = _SEPARATORS.match(text, at, next_start)
        if separators is not None:
            self._at = separators.end()
            message, size = "characters between events that JSON does not allow", self._at - at
            self.log.add(Code.ODD_JSON, message, source_id=1, byte_offset=self.base + at, byte_count=size)
            return
        if text[at] == ord("]"):
            if next_start == self._end or self._ends_here(at):
                self._ended = True
            else:
                self._lose(at, at + 1, "a bracket that closes nothing", events=0)
            return
        if text[at] == ord("{"):
            is_beginning = self.may_wait and self._is_beginning(at)
            # Sound JSON that is only a beginning contains no end; half of a surrogate pair is accepted as one too.
            end = None
            if not is_beginning or SURROGATE.search(text, at):
                end = self._end_of_event(at, next_start)
            if end is None and is_beginning:
                self._waits = True
                return
            if end is not None and (self._take_one(at, end) or (end > next_start and self._take_repaired(at, end))):
                return
            # Quotes without a backslash hide where the event ends.
            if self._take_repaired(at, next_start):
                return
        elif self._take_non_object(at, next_start):
            return
        self.state.failures += 1
        if self.state.in_large:
            self._lose(at, next_start, "the rest of an event larger than the limit", events=0)
        else:
            self._lose(at, next_start, "an event that can't be read", events=1)

    def _is_beginning(self, at: int) -> bool:
        """Whether the text from `at` on is the beginning of a sound event, which needs more text."""
        size = _FIRST_BYTES
        while at + size < self._end:
            if not is_beginning(memoryview(self.text)[at : at + size]):
                return False
            size *= 4
        return is_beginning(memoryview(self.text)[at:])

    def _end_of_event(self, at: int, next_start: int) -> int | None:
        """Where the object at `at` ends. A malformed one is not followed far beyond the next event."""
        size = _FIRST_BYTES
        while True:
            limit = min(at + size, self._end)
            if not self.state.may_scan(limit - at):
                return end_of_bracketed(self.text, at, next_start)
            end = end_of_bracketed(self.text, at, limit)
            if end is not None or limit == self._end:
                return end
            if size >= _NEAR_BYTES and limit >= next_start and not is_beginning(memoryview(self.text)[at:limit]):
                return None
            size *= 4

    def _take_one(self, start: int, end: int) -> bool:
        """Take the element `text[start:end]`, unchanged or repaired, if what follows may follow an event."""
        match = _AFTER.match(self.text, end)
        after = end if match is None else match.end()
        ends_line = self.state.lines and _LINE_END.match(self.text, end) is not None
        if not ends_line and after < self._end and self.text[after] not in b",]{":
            return False
        if self._take(start, end):
            return True
        self.state.failures += 1
        return self._take_repaired(start, end)

    def _ends_here(self, at: int) -> bool:
        """Whether the bracket at `at` closes the events: a comma and a key, a brace or nothing follows."""
        after = skip_space(self.text, at + 1)
        following = self.text[after : after + 1]
        if following == b",":
            following = self.text[skip_space(self.text, after + 1) :][:1]
            return following in (b'"', b"")
        return following in (b"", b"}", b"\0", b"[")

    def _take_non_object(self, start: int, end: int) -> bool:
        """Take an element among the events that is not an object, such as null."""
        if not self.state.may_scan(end - start):
            return False
        text = self.text
        ends = {place for mark in (b",", b"]") if (place := text.find(mark, start, end)) > start} | {end}
        for stop in sorted(ends):
            try:
                decoded = decode_events(text[start:stop], False)
            except MalformedText:
                continue
            self._add(decoded, start, stop)
            return True
        return False

    def _lose(self, start: int, end: int, message: str, events: int) -> None:
        """Count `text[start:end]` as lost, without separators at its end; the end of the text may truncate an event."""
        size = len(self.text[start:end].rstrip(BLANKS if end < len(self.text) else b""))
        code = Code.DAMAGED_EVENT
        if self.final and end == len(self.text):
            code, message = Code.CUT_EVENT, "the text ends inside an event"
        elif not self.final and not self.may_wait and end - start > LARGE_BYTES:
            code, message = Code.TOO_LARGE, "an event larger than the limit; raise it with --max-event-mb"
            self.state.in_large = True
        self.log.add(code, message, source_id=1, byte_offset=self.base + start, byte_count=size, event_count=events)
        self.state.lost_events += events
        self.state.advance(end - start)
        self._at = end
