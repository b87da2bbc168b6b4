"""Decoded pieces of text → batches of events."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.events.trace import Segment, TraceBatch, join_columns
from traceconv.formats.chrome_json.decode import BLANKS, Decoded, MalformedText, decode_events
from traceconv.formats.chrome_json.scan import end_of_bracketed
from traceconv.formats.common.limits import LARGE_BYTES

#: From this many malformed events on, stretches are repaired before they are decoded.
MANY_FAILURES = 64
#: Scanning ahead is limited to this multiple of the recovered text, plus a constant: the work stays proportional to the
#: length of the text, for any damage.
_AHEAD_TIMES, _AHEAD_BYTES = 16, 4 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Decoded events and their text."""

    decoded: Decoded
    segment: Segment


@dataclass(slots=True)
class RecoveryState:
    """State that one stretch of text passes on to the next.

    lines     events are separated by line breaks, not commas
    failures  malformed events in the last stretch
    in_large  the text may continue an event that was skipped for its size
    """

    lines: bool = False
    failures: int = 0
    in_large: bool = False
    lost_events: int = 0
    _ahead_bytes: int = field(default_factory=lambda: _AHEAD_BYTES)

    def decode(self, text: bytes) -> Decoded | None:
        """Decode events separated by commas or by line breaks; None if the text is malformed."""
        for lines in (self.lines, not self.lines):
            try:
                return decode_events(text, lines)
            except MalformedText:
                continue
        return None

    def decode_stretch(self, text: bytes) -> Decoded | None:
        """Decode events, and note whether line breaks separate them."""
        decoded = self.decode(text)
        self.lines = self.lines or (decoded is not None and decoded.lines)
        return decoded

    def advance(self, size: int) -> None:
        """Count bytes that were taken or skipped."""
        self._ahead_bytes = min(_AHEAD_BYTES, self._ahead_bytes + _AHEAD_TIMES * size)

    def may_scan(self, size: int) -> bool:
        """Whether to scan this many bytes ahead; counts them."""
        self._ahead_bytes -= size
        return self._ahead_bytes >= 0


class Pieces:
    """Collects pieces until their batch is made.

    most_large_bytes  limit of all large events together; further ones are lost
    """

    def __init__(self, log: ImportLog, most_large_bytes: int, state: RecoveryState) -> None:
        self._log = log
        self._most_large_bytes = most_large_bytes
        self._state = state
        self._pieces: list[Piece] = []
        self._large_bytes = 0
        self._ordinal = 0
        self.size_bytes = 0

    def put(self, piece: Piece) -> None:
        """Add a piece, without an event that exceeds the limit."""
        size = len(piece.segment.text)
        if size > LARGE_BYTES:
            self._large_bytes += size
            if self._large_bytes > self._most_large_bytes:
                self._put_without_large(piece.segment)
                return
        self._put(piece)

    def _put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.size_bytes += len(piece.segment.text)

    def _put_without_large(self, segment: Segment) -> None:
        """Skip the large event at the beginning of a segment, and keep the rest."""
        text = segment.text
        end = end_of_bracketed(text, 0) or len(text)
        rest = text[end:].lstrip(BLANKS) if end > LARGE_BYTES else b""
        decoded = self._state.decode_stretch(rest) if rest else None
        kept = 0 if decoded is None else decoded.columns.count
        size = len(text) - len(rest) if kept else len(text)
        limit = f"{self._most_large_bytes >> 20} MB"
        message = f"large events of this file take more than {limit}: one is skipped; raise --max-event-mb"
        self._note(Code.TOO_LARGE, message, segment.byte_offset, size, segment.count - kept)
        self._state.lost_events += segment.count - kept
        if decoded is not None:
            self._put(Piece(decoded, Segment(segment.byte_offset + size, rest, kept)))

    def batches(self) -> Iterator[TraceBatch]:
        """Yield a batch of the pieces, unless they have no events."""
        pieces, self._pieces, self.size_bytes = self._pieces, [], 0
        if not pieces:
            return
        for piece in pieces:
            self._report(piece)
        columns = join_columns([piece.decoded.columns for piece in pieces])
        if not columns.count:
            return
        first, last = pieces[0].segment, pieces[-1].segment
        size = last.byte_offset + len(last.text) - first.byte_offset
        segments = tuple(piece.segment for piece in pieces if piece.segment.count)
        yield TraceBatch(self._ordinal, first.byte_offset, size, columns, segments)
        self._ordinal += columns.count

    def _report(self, piece: Piece) -> None:
        decoded, segment = piece.decoded, piece.segment
        for index in decoded.repeated[: ImportLog.LIMIT]:
            offset, size = TraceBatch(0, 0, 0, decoded.columns, (segment,)).place(index)
            self._note(Code.REPEATED_KEY, "an event with a duplicate key; the last value is used", offset, size, 1)
        if decoded.non_objects:
            message = "elements among the events that are not objects"
            self._note(Code.NOT_AN_EVENT, message, segment.byte_offset, None, decoded.non_objects)

    def _note(self, code: Code, message: str, offset: int | None, size: int | None, count: int) -> None:
        self._log.add(code, message, source_id=1, byte_offset=offset, byte_count=size, event_count=count)
