"""Trace JSON in chunks → batches of events: sans-IO, one pass, whatever form the document has.

    {"traceEvents": […], …}    […]    […, left open    one event a line, with or without brackets and commas

What stands around the events is kept, key by key, as text. A chunk is cut before the last event in it and decoded
at once; what then fails is taken apart (salvage.py). The same text gives the same events however it is split.
"""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.diagnostics import Code, ImportLog
from traceconv.json_events import EventColumns, Segment, TraceBatch, join_columns
from traceconv.readers.chrome_json.decode import BLANKS, Decoded, NotWhole, decode_events
from traceconv.readers.chrome_json.limits import Limits
from traceconv.readers.chrome_json.salvage import MANY_FAILURES, Piece, Salvage
from traceconv.readers.chrome_json.scan import end_of_string, end_of_value, last_event_starts, skip_space

#: Text that is decoded at once, and that of a batch, about.
CHUNK_BYTES = 4 << 20
_BATCH_BYTES = 2 << 20
#: Keys that an event has and the object around the events has not.
_EVENT_KEYS = ("ph",)
_EVENTS_KEY = "traceEvents"


class TraceParser:
    """Feed it text; it yields batches. `keys` has what stood around the events."""

    def __init__(self, log: ImportLog, limits: Limits | None = None) -> None:
        self._log = log
        self._limits = limits or Limits()
        self._text = b""
        self._base = 0  # offset of _text in the whole text
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._need = CHUNK_BYTES
        self._last = b""
        self._state = "start"
        self._in_object = False
        self._lines = False
        self._arrays = 0
        self._open = False  # a bracket waits for its end
        self._pending: list[Piece] = []
        self._pending_bytes = 0
        self._failures = 0  # events of the last chunk that did not decode
        self.keys: dict[str, bytes] = {}
        self.event_count = 0
        self.lost_events = 0

    def feed(self, chunk: bytes) -> Iterator[TraceBatch]:
        """Takes the next text."""
        self._waiting.append(chunk)
        self._waiting_bytes += len(chunk)
        # In steps of a fixed size, so that the batches do not depend on how the text comes.
        while self._waiting_bytes >= self._need:
            waiting = b"".join(self._waiting)
            step, rest = waiting[: self._need], waiting[self._need :]
            self._waiting, self._waiting_bytes = [rest] if rest else [], len(rest)
            yield from self._take(step, final=False)

    def finish(self) -> Iterator[TraceBatch]:
        """Takes what is left when there is no more text."""
        rest = b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        comma = (rest or self._last).rstrip(b" \t\r\n").endswith(b",")
        yield from self._take(rest, final=True)
        if self._state in ("start", "trailer") and not self._open:
            return
        if self._state == "events" and self._lines and not self._in_object:
            return
        if comma and self._state == "events" and self._in_object:
            self._info(Code.CUT_OFF, "the text ends behind a comma: more events were to come", len(self._text))
        else:
            self._info(Code.NO_END, "the text ends before its brackets close", len(self._text))

    @property
    def found_events(self) -> bool:
        """Whether the text has a place for events, even if there is none in it."""
        return self._arrays > 0

    def _take(self, chunk: bytes, *, final: bool) -> Iterator[TraceBatch]:
        self._last = chunk[-64:] or self._last
        before = len(self._text) + len(chunk)
        if final or not self._whole_events(chunk):
            self._text = self._text + chunk if self._text else chunk
        while self._step(final):
            if self._pending_bytes >= _BATCH_BYTES:
                yield from self._emit()
        if final or self._pending_bytes >= _BATCH_BYTES:
            yield from self._emit()
        # When nothing could be used, more is asked for each time, so that the work stays linear.
        self._need = CHUNK_BYTES if len(self._text) < before else max(CHUNK_BYTES, len(self._text))

    def _step(self, final: bool) -> bool:
        """One step forward; False when there is nothing more to do with the text that is there."""
        if self._state == "start":
            return self._start(final)
        if self._state == "keys":
            return self._next_key(final)
        if self._state == "events":
            return self._events(final)
        return self._trailer(final)

    def _drop(self, count: int) -> None:
        self._text = self._text[count:]
        self._base += count

    def _info(self, code: Code, message: str, at: int, count: int | None = None) -> None:
        self._log.add(code, message, source_id=1, byte_offset=self._base + at, byte_count=count)

    # -- what stands around the events --

    def _start(self, final: bool) -> bool:
        if self._base == 0 and self._text.startswith(b"\xef\xbb\xbf"):
            self._drop(3)
        self._drop(skip_space(self._text, 0))
        first = self._text[:1]
        if first == b"[":
            self._drop(1)
            self._begin_events(in_object=False)
            return True
        if first == b"{":
            if self._looks_like_event(final) is None:
                return False
            if self._looks_like_event(final):
                self._lines, self._open = True, False
                self._begin_events(in_object=False, opened=False)
                return True
            self._drop(1)
            self._open, self._in_object, self._state = True, True, "keys"
            return True
        if first and self._arrays:
            self._state = "trailer"
            return True
        return False

    def _looks_like_event(self, final: bool) -> bool | None:
        """Whether the object that the text begins with is an event, and not what stands around them; None: unclear."""
        at = 1
        while True:
            at = skip_space(self._text, at)
            if self._text[at : at + 1] == b",":
                at = skip_space(self._text, at + 1)
            if self._text[at : at + 1] != b'"':
                return False if final or at < len(self._text) else None
            end = end_of_string(self._text, at)
            if end is None:
                return False if final else None
            key = self._text[at + 1 : end - 1].decode("utf-8", "replace")
            if key in _EVENT_KEYS or key == _EVENTS_KEY:
                return key in _EVENT_KEYS
            at = skip_space(self._text, end)
            if self._text[at : at + 1] != b":":
                return False if final or at < len(self._text) else None
            at = skip_space(self._text, at + 1)
            value_end = end_of_value(self._text, at, final)
            if value_end is None:
                return False if final or len(self._text) > self._limits.event_bytes else None
            at = value_end

    def _begin_events(self, *, in_object: bool, opened: bool = True) -> None:
        self._state, self._in_object, self._open = "events", in_object, opened
        self._arrays += 1
        if self._arrays == 2:
            self._info(Code.SEVERAL_ARRAYS, "events stand in more than one array; all of them are read", 0)

    def _next_key(self, final: bool) -> bool:
        at = skip_space(self._text, 0)
        while self._text[at : at + 1] == b",":
            at = skip_space(self._text, at + 1)
        first = self._text[at : at + 1]
        if not first:
            return False
        if first == b"}":
            self._drop(at + 1)
            self._open, self._state = False, "trailer"
            return True
        end = end_of_string(self._text, at) if first == b'"' else None
        if end is None:
            if first == b'"' and not final:
                return False
            return self._bad_key(at)
        colon = skip_space(self._text, end)
        value = skip_space(self._text, colon + 1)
        if value >= len(self._text) and not final:
            return False
        if self._text[colon : colon + 1] != b":" or value >= len(self._text):
            return self._bad_key(at)
        key = self._text[at + 1 : end - 1].decode("utf-8", "replace")
        if key == _EVENTS_KEY and self._text[value : value + 1] == b"[":
            self._drop(at)
            self._begin_events(in_object=True)
            self._drop(value - at + 1)
            return True
        value_end = end_of_value(self._text, value, final)
        if value_end is None:
            if final or len(self._text) > self._limits.event_bytes:
                return self._bad_key(at)
            return False
        self.keys[key] = self._text[value:value_end]
        self._drop(value_end)
        return True

    def _bad_key(self, at: int) -> bool:
        """Something that is no key and value: read on where an array of events begins, if one does."""
        found = self._text.find(b'"' + _EVENTS_KEY.encode() + b'"', at + 1)
        end = found if found >= 0 else len(self._text)
        self._log.add(
            Code.DAMAGED_TEXT,
            "text beside the events that is no JSON",
            source_id=1,
            byte_offset=self._base + at,
            byte_count=end - at,
        )
        self._drop(end)
        return found >= 0

    def _trailer(self, final: bool) -> bool:
        at = skip_space(self._text, 0)
        if at == len(self._text):
            self._drop(at)
            return False
        if self._text[at : at + 1] == b"\0":
            rest = self._text[at:].lstrip(b"\0 \t\r\n")
            if rest or final:
                self._info(Code.PADDING, "NUL bytes behind the end", at, len(self._text) - at - len(rest))
                self._drop(len(self._text) - len(rest))
                return bool(rest)
            return False
        if self._text[at : at + 1] in (b"{", b"["):
            self._drop(at)
            self._state = "start"
            self._info(Code.SEVERAL_ARRAYS, "another document follows; it is read too", 0)
            self._arrays += 1
            return True
        end = self._text.find(b"{", at)
        end = len(self._text) if end < 0 else end
        self._log.add(
            Code.DAMAGED_TEXT,
            "text behind the end of the document",
            source_id=1,
            byte_offset=self._base + at,
            byte_count=end - at,
        )
        self._drop(end)
        return bool(self._text)

    # -- the events --

    def _events(self, final: bool) -> bool:
        text = self._text
        at = 0
        while at < len(text) and text[at] in BLANKS:
            at += 1
        if at == len(text):
            self._drop(at)
            return False
        if text[at] == ord("]"):
            return self._end_of_events(at, final)
        if not final and len(text) - at < CHUNK_BYTES // 2:
            return False
        cut = self._cut(text, at)
        if cut is not None:
            # Where most events before were wrong, they are put right before they are decoded.
            end = cut
            while text[end - 1] in BLANKS:
                end -= 1
            events = text[at:end]
            decoded = self._decode(events) if self._failures <= MANY_FAILURES else None
            if decoded is not None:
                self._failures = 0
                self._add(decoded, at, events)
                self._drop(cut)
                return True
        elif not final and len(text) < self._limits.event_bytes:
            return False
        may_wait = not final and len(text) < self._limits.event_bytes
        salvage = Salvage(self._log, self._base, text, at, final, may_wait, self._lines, self._failures, cut)
        pieces, at, ended = salvage.run()
        self._lines, self._failures = salvage.lines, salvage.failures
        self.lost_events += salvage.lost_events
        for piece in pieces:
            self._put(piece)
        self._drop(at)
        if ended:
            return True
        return bool(at) and not (final and not self._text)

    def _whole_events(self, chunk: bytes) -> bool:
        """Takes events up to near the end of `chunk`, as `_events` would, when nothing is wrong with them.

        That is most text: it is copied but once.
        """
        if self._state != "events" or self._failures or len(chunk) < CHUNK_BYTES // 2:
            return False
        cut = self._cut(chunk, 0)
        if cut is None:
            return False
        end = cut
        while end and chunk[end - 1] in BLANKS:
            end -= 1
        events = b"".join((self._text, memoryview(chunk)[:end]))
        decoded = self._decode(events) if events.startswith(b"{") else None
        if decoded is None:
            return False
        self._add(decoded, 0, events)
        self._base += len(self._text) + cut
        self._text = chunk[cut:]
        return True

    def _cut(self, text: bytes, at: int) -> int | None:
        """Where the last event of the text seems to begin: behind an event, since objects in args may look like one."""
        starts = last_event_starts(text, at)
        for low, high in zip(starts[-2::-1], starts[:0:-1], strict=True):
            decoded = self._decode(text[low:high])
            if decoded is not None and any(decoded.columns.label("ph")[:1]):
                return high
        return starts[-1] if starts else None

    def _decode(self, text: bytes) -> Decoded | None:
        for lines in (self._lines, not self._lines):
            try:
                decoded = decode_events(text, lines)
            except NotWhole:
                continue
            if lines and not self._lines:
                self._lines = True
            return decoded
        return None

    def _add(self, decoded: Decoded, at: int, text: bytes) -> None:
        segment = Segment(self._base + at, text, decoded.columns.count)
        self._put(Piece(decoded, segment))

    def _put(self, piece: Piece) -> None:
        self._pending.append(piece)
        self._pending_bytes += len(piece.segment.text)

    def _end_of_events(self, at: int, final: bool) -> bool:
        self._drop(at + 1)
        if self._in_object:
            self._state = "keys"
        else:
            self._open, self._state = False, "trailer"
        return True

    def _emit(self) -> Iterator[TraceBatch]:
        if not self._pending:
            return
        pieces, self._pending, self._pending_bytes = self._pending, [], 0
        columns: list[EventColumns] = []
        for piece in pieces:
            columns.append(piece.decoded.columns)
            self._report(piece)
        joined = join_columns(columns)
        if not joined.count:
            return
        first, last = pieces[0].segment, pieces[-1].segment
        end = last.byte_offset + len(last.text)
        yield TraceBatch(
            self.event_count,
            first.byte_offset,
            end - first.byte_offset,
            joined,
            tuple(piece.segment for piece in pieces if piece.segment.count),
        )
        self.event_count += joined.count

    def _report(self, piece: Piece) -> None:
        for index in piece.decoded.repeated[: ImportLog.LIMIT]:
            one = TraceBatch(0, 0, 0, piece.decoded.columns, (piece.segment,))
            offset, size = one.place(index)
            message = "an event has a key twice; the last value counts"
            self._log.add(Code.REPEATED_KEY, message, source_id=1, byte_offset=offset, byte_count=size, event_count=1)
        if piece.decoded.strangers:
            message = "elements among the events that are no objects"
            offset = piece.segment.byte_offset
            self._log.add(
                Code.NOT_AN_EVENT, message, source_id=1, byte_offset=offset, event_count=piece.decoded.strangers
            )
