"""A stretch of text that does not decode as a whole → the events in it that do, and word of those that don't.

The stretch is cut at the event that is wrong, where that is known, and halved at places where an event seems to begin
where it is not, so that sound parts go fast; what is left are single events, which are put right where that keeps all
of them, and given up where it can't be done.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from traceconv import native
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.events.trace import Segment
from traceconv.formats.chrome_json.compiled import scanned_prefix
from traceconv.formats.chrome_json.decode import BLANKS, Decoded, NotWhole, decode_events, goes_on
from traceconv.formats.chrome_json.patch import SURROGATE, is_utf8, patch
from traceconv.formats.chrome_json.scan import end_of_bracketed, event_starts, next_event_start, skip_space
from traceconv.formats.common.limits import LARGE_BYTES

#: So many events that don't decode, and the rest of the stretch is put right as a whole before it is decoded.
MANY_FAILURES = 64
#: So far an event is followed that has something wrong.
_NEAR_BYTES = 64 << 10
_FIRST_BYTES = 1 << 10
#: Text is looked at ahead of what is taken so many times as long as that in all, and so much more: however the text is
#: damaged, the work stays in proportion to its length.
_AHEAD_TIMES, _AHEAD_BYTES = 16, 4 << 20
_BLANK_RUN = re.compile(rb"[ \t\r\n,]*")
#: Between events: byte order marks of files that were joined, separators of JSON text sequences, form feeds.
_SEPARATORS = re.compile(rb"(?:\xef\xbb\xbf|[\x01-\x20,])+")
#: Behind the end of an event: what is not part of any JSON outside of strings.
_BEHIND = re.compile(rb"[\x00-\x20\x80-\xff]*")


class Lookahead:
    """How far ahead of the text that was taken may still be looked."""

    def __init__(self) -> None:
        self._left = _AHEAD_BYTES

    def taken(self, size: int) -> None:
        """`size` more bytes were taken or skipped."""
        self._left = min(_AHEAD_BYTES, self._left + _AHEAD_TIMES * size)

    def spend(self, size: int) -> bool:
        """Whether `size` bytes may be scanned."""
        self._left -= size
        return self._left >= 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Events that were decoded, and where they stand."""

    decoded: Decoded
    segment: Segment


@dataclass(frozen=True, slots=True)
class Stretch:
    """Text that begins where an event begins.

    base      where it is in the decompressed text
    final     nothing comes after it
    may_wait  an event that is sound as far as the text goes is left for when there is more of it
    cut       where an event is likely to begin, after most of the text; None when that is not known
    """

    text: bytes
    base: int
    final: bool
    may_wait: bool
    cut: int | None


class Salvage:
    """One run over a stretch of text.

    failures  how many events of the text before this one did not decode
    in_large  the text may begin inside of an event that was given up for its size
    """

    def __init__(
        self, log: ImportLog, lookahead: Lookahead, stretch: Stretch, *, lines: bool, failures: int, in_large: bool
    ) -> None:
        self._lookahead = lookahead
        self._log = log
        self._base = stretch.base
        self._text = stretch.text
        self._at = 0
        self._end = len(stretch.text)
        self._final = stretch.final
        self._may_wait = stretch.may_wait
        self._cut = stretch.cut
        self._starts: list[int] = []
        self._pieces: list[Piece] = []
        self._before = failures
        self._failures = 0
        self._splits = 0  # stretches that were cut at the event that is wrong
        self._ended = False
        self._waits = False
        self._wrong_at: int | None = None  # where the text that was tried last is not sound
        self.lines = lines
        self.in_large = in_large
        self.lost_events = 0

    def run(self) -> tuple[list[Piece], int, bool]:
        """The events, where to read on, and whether the array of events ended there."""
        if self._cut is not None and self._before > MANY_FAILURES and self._take_patched(self._at, self._cut):
            return self._pieces, self._at, False
        is_rare = self._before <= MANY_FAILURES
        if native.AVAILABLE and is_rare and is_utf8(self._text) and self._take_prefixes():
            return self._pieces, self._at, self._ended
        self._starts = event_starts(self._text, self._at, self._end)
        stack = [(0, len(self._starts))]
        while stack and not self._ended and not self._waits:
            low, high = stack.pop()
            if self._at >= self._end:
                break
            low = max(low, bisect_left(self._starts, self._at))
            if low >= high:
                if high < len(self._starts) or stack:
                    continue
                self._single(self._end)
                continue
            if self._at < self._starts[low] and not self._blank(self._at, self._starts[low]):
                self._single(self._starts[low])
                stack.append((low, high))
                continue
            start, end = self._starts[low], self._starts[high] if high < len(self._starts) else self._end
            if self._take(start, end):
                continue
            if high - low == 1:
                self._at = start
                self._single(end)
                continue
            if self._before + self._failures + self._splits <= MANY_FAILURES:
                self._splits += 1
                stack += self._parts(low, high)
            elif not self._take_patched(start, end):
                middle = (low + high) // 2
                stack += [(middle, high), (low, middle)]
        return self._pieces, self._at, self._ended

    def _take_prefixes(self) -> bool:
        """Sound stretches, each up to the event that is wrong, and those events one by one; whether that was all."""
        for _ in range(MANY_FAILURES):
            while self._at < self._end and self._text[self._at] in BLANKS:
                self._at += 1
            columns, size = scanned_prefix(self._text[self._at : self._end], self.lines)
            if columns is not None:
                self._add(Decoded(columns), self._at, self._at + size)
            if self._at >= self._end:
                return True
            following = next_event_start(self._text, self._at + 1, self._end)
            if following == self._end and self._text[self._at] == ord("]"):
                return True  # the end of the events, for all that is known here
            if not self._take(self._at, following):
                self._single(following)
            if self._ended or self._waits or self._at >= self._end or following == self._end:
                return True
        return False

    @property
    def failures(self) -> int:
        """How many events did not decode as they are; those of stretches that were put right as a whole count too."""
        return self._failures

    def _parts(self, low: int, high: int) -> list[tuple[int, int]]:
        """What to try instead of a stretch that did not decode, the first part last: cut at the event that is wrong."""
        middle = (low + high) // 2
        if self._wrong_at is None or not self._starts[low] < self._wrong_at < (*self._starts, self._end)[high]:
            return [(middle, high), (low, middle)]
        wrong = bisect_left(self._starts, self._wrong_at, low, high) - 1
        return [part for part in ((wrong + 1, high), (wrong, wrong + 1), (low, wrong)) if part[0] < part[1]]

    def _blank(self, start: int, end: int) -> bool:
        match = _BLANK_RUN.match(self._text, start, end)
        return match is not None and match.end() == end

    def _take(self, start: int, end: int) -> bool:
        """Decodes `text[start:end]` as it is."""
        text = self._text[start:end]
        self._wrong_at = None
        for lines in (self.lines, not self.lines):
            try:
                decoded = decode_events(text, lines)
            except NotWhole as error:
                if lines == self.lines and error.at is not None:
                    self._wrong_at = start + error.at
                continue
            self._add(decoded, start, end)
            return True
        return False

    def _add(self, decoded: Decoded, start: int, end: int) -> None:
        self._pieces.append(Piece(decoded, Segment(self._base + start, self._text[start:end], decoded.columns.count)))
        self._lookahead.taken(end - start)
        self._at = end
        self.in_large = False

    def _take_patched(self, start: int, end: int) -> bool:
        patched = patch(self._text[start:end])
        for lines in (self.lines, not self.lines):
            try:
                decoded = decode_events(patched.text, lines)
            except NotWhole:
                continue
            self._add(decoded, start, end)
            patched.say(self._log, self._base + start)
            if patched.at is not None:
                self._failures += patched.count
            return True
        return False

    def _single(self, next_start: int) -> None:
        """Takes one element from `_at` on, wherever it ends, or gives up the text up to `next_start`."""
        text, at = self._text, self._at
        while at < next_start and text[at] in BLANKS:
            at += 1
        if at >= next_start:
            self._at = next_start
            return
        self._at = at
        separators = _SEPARATORS.match(text, at, next_start)
        if separators is not None:
            self._at = separators.end()
            message, size = "characters between events that JSON does not have there", self._at - at
            self._log.add(Code.ODD_JSON, message, source_id=1, byte_offset=self._base + at, byte_count=size)
            self._single(next_start)
            return
        if text[at] == ord("]"):
            if self._ends_here(at):
                self._ended = True
            else:
                self._lose(at, at + 1, "a bracket that closes nothing", events=0)
            return
        if text[at] == ord("{"):
            goes_on = self._may_wait and self._goes_on(at)
            # What is the beginning of sound JSON has no end in it, and is not searched for one; but half of a surrogate
            # pair passes for such a beginning too.
            end = None
            if not goes_on or SURROGATE.search(self._text, at):
                end = self._end_of_event(at, next_start)
            if end is None and goes_on:
                self._waits = True
                return
            if end is not None and (self._take_one(at, end) or (end > next_start and self._take_patched(at, end))):
                return
        elif self._stranger(at, next_start):
            return
        self._failures += 1
        if self.in_large:
            self._lose(at, next_start, "the rest of an event larger than the limit", events=0)
        else:
            self._lose(at, next_start, "an event that can't be read", events=1)

    def _goes_on(self, at: int) -> bool:
        """Whether the text from `at` on is the beginning of a sound event, which needs more text."""
        size = _FIRST_BYTES
        while at + size < self._end:
            if not goes_on(memoryview(self._text)[at : at + size]):
                return False
            size *= 4
        return goes_on(memoryview(self._text)[at:])

    def _end_of_event(self, at: int, next_start: int) -> int | None:
        """Where the object at `at` ends. What is not sound so far is not looked at far beyond the next event."""
        size = _FIRST_BYTES
        while True:
            limit = min(at + size, self._end)
            if not self._lookahead.spend(limit - at):
                return end_of_bracketed(self._text, at, next_start)
            end = end_of_bracketed(self._text, at, limit)
            if end is not None or limit == self._end:
                return end
            if size >= _NEAR_BYTES and limit >= next_start and not goes_on(memoryview(self._text)[at:limit]):
                return None
            size *= 4

    def _take_one(self, start: int, end: int) -> bool:
        """The element `text[start:end]`, as it is or put right, if behind it there is what may stand behind one."""
        match = _BEHIND.match(self._text, end)
        behind = end if match is None else match.end()
        if behind < self._end and self._text[behind] not in b",]{":
            return False
        if self._take(start, end):
            return True
        self._failures += 1
        return self._take_patched(start, end)

    def _ends_here(self, at: int) -> bool:
        """Whether the bracket at `at` closes the events: then a comma and a key, a brace or nothing follow."""
        behind = skip_space(self._text, at + 1)
        following = self._text[behind : behind + 1]
        if following == b",":
            following = self._text[skip_space(self._text, behind + 1) :][:1]
            return following in (b'"', b"")
        return following in (b"", b"}", b"\0", b"[")

    def _stranger(self, start: int, end: int) -> bool:
        """Something among the events that is no object, such as null."""
        if not self._lookahead.spend(end - start):
            return False
        text = self._text
        for stop in sorted({place for mark in (b",", b"]") if (place := text.find(mark, start, end)) > start} | {end}):
            try:
                decoded = decode_events(text[start:stop], False)
            except NotWhole:
                continue
            self._add(decoded, start, stop)
            return True
        return False

    def _lose(self, start: int, end: int, message: str, events: int) -> None:
        """Books `text[start:end]` as lost, separators behind it aside; the end of the text may cut an event off."""
        size = len(self._text[start:end].rstrip(BLANKS if end < len(self._text) else b""))
        code = Code.DAMAGED_EVENT
        if self._final and end == len(self._text):
            code, message = Code.CUT_EVENT, "the text ends inside an event"
        elif not self._final and not self._may_wait and end - start > LARGE_BYTES:
            code, message = Code.TOO_LARGE, "an event larger than the limit; raise it with --max-event-mb"
            self.in_large = True
        self._log.add(
            code,
            message,
            source_id=1,
            byte_offset=self._base + start,
            byte_count=size,
            event_count=events,
        )
        self.lost_events += events
        self._lookahead.taken(end - start)
        self._at = end
