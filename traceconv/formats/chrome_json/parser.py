"""Trace JSON in chunks → batches of events: sans-IO, in one pass, for every form of the document.

    {"traceEvents": […], …}    […]    […, left open    one event a line, with or without brackets and commas

Keys outside the events are kept as text. A chunk is cut before its last event and decoded in one go; if that fails, its
events are recovered (recovery.py). The same text gives the same events however it is split.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from traceconv import native
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.events.trace import Segment, TraceBatch
from traceconv.formats.chrome_json.compiled import scanned_columns
from traceconv.formats.chrome_json.decode import BLANKS, Decoded
from traceconv.formats.chrome_json.pieces import MANY_FAILURES, Piece, Pieces, RecoveryState
from traceconv.formats.chrome_json.scan import (
    end_of_bracketed,
    end_of_string,
    end_of_value,
    last_event_starts,
    skip_space,
)
from traceconv.formats.common.limits import Limits

#: Approximate sizes of the text decoded in one go, and of the text of a batch.
CHUNK_BYTES = 4 << 20
_BATCH_BYTES = 2 << 20
#: Keys of events that the object around the events lacks.
_EVENT_KEYS = ("ph",)
_EVENTS_KEY = "traceEvents"
#: Memory of a key outside the events, without its value.
_KEY_BYTES = 256
#: A longer line is not searched for a key that Kineto wrote.
_LONGEST_LINE = 64 << 10
#: Minimum size of text that is searched for the events of one array.
_LEAST_REACH = 4 << 10
#: Arrays up to this size are decoded at once, without a search for the last event.
_SHORT_BYTES = 64 << 10
#: The end of the events, and what may follow it.
_ARRAY_END = re.compile(rb"\][ \t\r\n]*(?:[}\[]|,[ \t\r\n]*\"|\Z)")
_BLANK_RUN = re.compile(rb"[ \t\r\n,]*")
_NUL_RUN = re.compile(rb"[\0 \t\r\n]*")


class TraceParser:
    """Yields batches from text fed to it. `keys` has the keys outside the events.

    `found_events`: whether the text has an array of events, even an empty one, or a line with an event.
    """

    def __init__(self, log: ImportLog, limits: Limits | None = None) -> None:
        self._log = log
        self._limits = limits or Limits()
        self._text = b""
        self._at = 0  # all of _text before it is done
        self._base = 0  # offset of _text in the complete text
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._need = CHUNK_BYTES
        self._last = b""
        self._state = "start"
        self._in_object = False
        self._arrays = 0
        self._open = False  # a bracket is still open
        self._recovery = RecoveryState()
        self._pieces = Pieces(log, self._limits.large_events_bytes, self._recovery)
        self._reach = CHUNK_BYTES * 64
        self._padding: int | None = None  # where the current NUL padding began
        self._keys_bytes = 0
        self.keys: dict[str, bytes] = {}
        self.found_events = False

    def feed(self, chunk: bytes) -> Iterator[TraceBatch]:
        """Take the next text."""
        self._waiting.append(chunk)
        self._waiting_bytes += len(chunk)
        # In steps of a fixed size, so that the batches don't depend on how the text is split.
        while self._waiting_bytes >= self._need:
            yield from self._take(self._step_of(self._need), final=False)

    def _step_of(self, size: int) -> bytes:
        """Remove the next `size` bytes of the waiting text."""
        text = b"".join(self._waiting)
        rest = text[size:]
        self._waiting, self._waiting_bytes = [rest] if rest else [], len(rest)
        return text[:size]

    def finish(self) -> Iterator[TraceBatch]:
        """Take the rest, when there is no more text."""
        rest = self._step_of(self._waiting_bytes)
        comma = (rest[-64:] or self._last).rstrip(b" \t\r\n").endswith(b",")
        yield from self._take(rest, final=True)
        if self._state in ("start", "trailer") and not self._open:
            return
        if self._state == "events" and self._recovery.lines and not self._in_object:
            return
        if comma and self._state == "events" and self._in_object:
            self._note(Code.CUT_OFF, "the text ends after a comma: more events were expected", len(self._text))
        else:
            self._note(Code.NO_END, "the text ends before its brackets close", len(self._text))

    @property
    def lost_events(self) -> int:
        """Events that could not be recovered."""
        return self._recovery.lost_events

    def _take(self, text: bytes, *, final: bool) -> Iterator[TraceBatch]:
        left = len(self._text) - self._at
        before = left + len(text)
        if final or left >= CHUNK_BYTES or not self._take_sound(text):
            self._base += self._at
            self._text, self._at = b"".join((memoryview(self._text)[self._at :], text)), 0
        self._last = self._text[-64:] or self._last
        del text  # it is copied; the copy may be released before this returns
        while self._step(final):
            if self._pieces.size_bytes >= _BATCH_BYTES:
                yield from self._pieces.batches()
        if final or self._pieces.size_bytes >= _BATCH_BYTES:
            yield from self._pieces.batches()
        # If nothing was used, ask for more each time, so that the work stays linear.
        left = len(self._text) - self._at
        more = min(left, self._limits.event_bytes + CHUNK_BYTES - left) if left >= before else 0
        self._need = max(CHUNK_BYTES, more)

    def _step(self, final: bool) -> bool:
        """Do one step; False if there is nothing more to do with the available text."""
        if self._state == "start":
            return self._start(final)
        if self._state == "keys":
            return self._next_key(final)
        if self._state == "events":
            return self._events(final)
        return self._trailer(final)

    def _note(self, code: Code, message: str, at: int, size: int | None = None, count: int | None = None) -> None:
        """Log a finding at a position of `_text`."""
        start = self._base + at
        self._log.add(code, message, source_id=1, byte_offset=start, byte_count=size, event_count=count)

    def _skip(self, message: str, at: int, end: int) -> None:
        """Skip malformed text outside the events."""
        self._note(Code.DAMAGED_TEXT, message, at, end - at)
        self._at = end

    def _too_long(self, at: int) -> bool:
        """Whether what begins at `at`, and has not ended, exceeds the limit."""
        return len(self._text) - at > self._limits.event_bytes

    # -- around the events --

    def _start(self, final: bool) -> bool:
        if self._base + self._at == 0 and self._text.startswith(b"\xef\xbb\xbf"):
            self._at = 3
        self._at = skip_space(self._text, self._at)
        first = self._text[self._at : self._at + 1]
        if first == b"[":
            self._at += 1
            self._begin_events(in_object=False)
            return True
        if first == b"{":
            is_event = self._looks_like_event(final)
            if is_event is None:
                return False
            if is_event:
                self._recovery.lines, self._open = True, False
                self._begin_events(in_object=False, opened=False)
                return True
            self._at += 1
            self._open, self._in_object, self._state = True, True, "keys"
            return True
        if first and self._arrays:
            self._state = "trailer"
            return True
        if first == b"\0":
            return self._nul(final)
        self._at = len(self._text)  # not a trace: nothing is kept
        return False

    def _looks_like_event(self, final: bool) -> bool | None:
        """Whether the object at the beginning is an event, not the object around them; None: more text is needed."""
        text, at = self._text, self._at + 1
        unclear = False if final or self._too_long(self._at) else None
        while True:
            at = skip_space(text, at)
            if text[at : at + 1] == b",":
                at = skip_space(text, at + 1)
            if text[at : at + 1] != b'"':
                return False if at < len(text) else unclear
            end = end_of_string(text, at)
            if end is None:
                return unclear
            key = text[at + 1 : end - 1].decode("utf-8", "replace")
            if key in _EVENT_KEYS or key == _EVENTS_KEY:
                return key in _EVENT_KEYS
            at = skip_space(text, end)
            if text[at : at + 1] != b":":
                return False if at < len(text) else unclear
            at = skip_space(text, at + 1)
            value_end = end_of_value(text, at, final)
            if value_end is None:
                return unclear
            at = value_end

    def _begin_events(self, *, in_object: bool, opened: bool = True) -> None:
        self._state, self._in_object, self._open = "events", in_object, opened
        self.found_events = True
        self._arrays += 1
        if self._arrays == 2:
            self._note(Code.SEVERAL_ARRAYS, "events are in more than one array; all are read", self._at)

    def _next_key(self, final: bool) -> bool:
        text = self._text
        match = _BLANK_RUN.match(text, self._at)
        at = self._at = match.end() if match is not None else self._at
        first = text[at : at + 1]
        if not first:
            return False
        if first == b"}":
            self._at = at + 1
            self._open, self._state = False, "trailer"
            return True
        waits = not final and not self._too_long(at)
        end = end_of_string(text, at) if first == b'"' else None
        if end is None:
            if first == b'"' and waits:
                return False
            return self._bad_key(at)
        colon = skip_space(text, end)
        value = skip_space(text, colon + 1)
        if value >= len(text) and waits:
            return False
        if text[colon : colon + 1] != b":" or value >= len(text):
            return self._bad_key(at)
        key = text[at + 1 : end - 1].decode("utf-8", "replace")
        if key == _EVENTS_KEY and text[value : value + 1] == b"[":
            self._begin_events(in_object=True)
            self._at = value + 1
            return True
        within = value + min(_LONGEST_LINE, CHUNK_BYTES)
        line_end = text.find(b"\n", value, within)
        if line_end < 0 and waits and len(text) < within:
            return False
        restored = None
        if line_end >= 0:
            from traceconv.formats.chrome_json.patch import restore_backslashes

            restored = restore_backslashes(text[value:line_end].rstrip(b" \r,"))
        value_end = end_of_value(text, value, final) if restored is None else line_end
        if value_end is None:
            return False if waits else self._bad_key(at)
        self._keep_key(key, at, value, value_end)
        if restored is not None:
            restored.log_to(self._log, self._base + value)
            self.keys[key] = restored.text
        return True

    def _keep_key(self, key: str, at: int, value: int, end: int) -> None:
        before = self.keys.get(key)
        more = end - value + (len(key) + _KEY_BYTES if before is None else -len(before))
        if self._keys_bytes + more > self._limits.event_bytes:
            self._skip("a key outside the events; together they exceed the limit", at, end)
            return
        self._keys_bytes += more
        self.keys[key] = self._text[value:end]
        self._at = end

    def _bad_key(self, at: int) -> bool:
        """Skip malformed text, up to where an array of events begins, if one does."""
        found = self._text.find(b'"' + _EVENTS_KEY.encode() + b'"', at + 1)
        self._skip("text outside the events that is not JSON", at, found if found >= 0 else len(self._text))
        return found >= 0

    def _nul(self, final: bool) -> bool:
        """Skip NUL bytes and blanks, however many; they are logged after the last."""
        match = _NUL_RUN.match(self._text, self._at)
        end = match.end() if match is not None else self._at
        if self._padding is None:
            self._padding = self._base + self._at
        self._at = end
        if end == len(self._text) and not final:
            return False
        size = self._base + end - self._padding
        where = "after the end" if self._arrays else "before the beginning"
        self._note(Code.PADDING, f"NUL bytes {where}", self._padding - self._base, size)
        self._padding = None
        return end < len(self._text)

    def _trailer(self, final: bool) -> bool:
        if self._padding is not None:
            return self._nul(final)
        at = self._at = skip_space(self._text, self._at)
        first = self._text[at : at + 1]
        if not first:
            return False
        if first == b"\0":
            return self._nul(final)
        if first in (b"{", b"["):
            self._state = "start"
            self._note(Code.SEVERAL_ARRAYS, "another document follows; it is read too", at)
            self._arrays += 1
            return True
        end = self._text.find(b"{", at)
        self._skip("text after the end of the document", at, end if end >= 0 else len(self._text))
        return end >= 0

    # -- the events --

    def _events(self, final: bool) -> bool:
        match = _BLANK_RUN.match(self._text, self._at)
        self._at = match.end() if match is not None else self._at
        if self._at == len(self._text):
            return False
        if self._text[self._at] == ord("]"):
            self._end_of_events()
            return True
        if not final and len(self._text) - self._at < CHUNK_BYTES // 2:
            return False
        if self._take_short(final):
            return True
        while True:
            # Another document may follow a small one: look only at text that is likely to belong to this one.
            stop = min(len(self._text), self._at + self._reach)
            is_all = stop == len(self._text)
            begin = self._at
            went_on, ended = self._events_until(stop, final and is_all)
            taken = self._at - begin
            self._reach = max(_LEAST_REACH, 4 * taken) if ended else self._reach * 8
            if is_all or taken or ended:
                return went_on or not is_all

    def _take_short(self, final: bool) -> bool:
        """Take all events of a short array at once, if they are sound and it ends after them."""
        state, at = self._recovery, self._at
        most = min(_SHORT_BYTES, CHUNK_BYTES)
        begin, stop = self._text.rfind(b"[", 0, at), min(len(self._text), at + most)
        is_short = self._reach <= most or (final and stop == len(self._text))
        if not native.AVAILABLE or not is_short or begin < 0 or state.failures or state.lines:
            return False
        end = (end_of_bracketed(self._text, begin, stop) or 0) - 1
        if end < at or _ARRAY_END.match(self._text, end) is None:
            return False
        text = self._text[at:end].rstrip(b" \t\r\n")
        columns = scanned_columns(text, lines=False) if text.isascii() else None
        if columns is None:
            return False
        self._pieces.put(Piece(Decoded(columns), Segment(self._base + at, text, columns.count)))
        # As after an array that is not decoded at once: what damage is reported depends on it.
        self._at, self._reach = end, max(_LEAST_REACH, 4 * (end - at))
        return True

    def _events_until(self, stop: int, final: bool) -> tuple[bool, bool]:
        """Take the events before `stop`; return whether there may be more to do, and whether the array ended."""
        is_all = self._at == 0 and stop == len(self._text)
        text = self._text if is_all else self._text[self._at : stop]
        base = self._base + self._at
        may_wait = not final and len(text) < self._limits.event_bytes
        cut = self._cut(text)
        if cut is not None:
            # If most events before were malformed, these are repaired before they are decoded.
            events = text[: _end_before(text, cut)]
            decoded = self._recovery.decode_stretch(events) if self._recovery.failures <= MANY_FAILURES else None
            if decoded is not None:
                self._recovery.failures = 0
                self._pieces.put(Piece(decoded, Segment(base, events, decoded.columns.count)))
                self._at += cut
                return True, False
        elif may_wait:
            return False, False
        from traceconv.formats.chrome_json.recovery import Recovery

        recovery = Recovery(self._log, self._recovery, text, base, final=final, may_wait=may_wait, cut=cut)
        pieces, at, ended = recovery.run()
        for piece in pieces:
            self._pieces.put(piece)
        self._at += at
        return ended or (bool(at) and not (final and self._at == len(self._text))), ended

    def _take_sound(self, chunk: bytes) -> bool:
        """Take the events up to near the end of the chunk, if they are sound, which saves a copy of it."""
        if self._state != "events" or self._recovery.failures or len(chunk) < CHUNK_BYTES // 2:
            return False
        cut = self._cut(chunk)
        if cut is None:
            return False
        events = b"".join((memoryview(self._text)[self._at :], memoryview(chunk)[: _end_before(chunk, cut)]))
        decoded = self._recovery.decode_stretch(events) if events.startswith(b"{") else None
        if decoded is None:
            return False
        left = len(self._text) - self._at
        self._pieces.put(Piece(decoded, Segment(self._base + self._at, events, decoded.columns.count)))
        self._base += self._at + left + cut
        self._text, self._at = chunk[cut:], 0
        return True

    def _cut(self, text: bytes) -> int | None:
        """Where the last event seems to begin: after another event, since objects in args may look like one."""
        starts = last_event_starts(text)
        for low, high in zip(starts[-2::-1], starts[:0:-1], strict=True):
            decoded = self._recovery.decode_stretch(text[low:high])
            if decoded is not None and any(decoded.columns.label("ph")[:1]):
                return high
        return starts[-1] if starts else None

    def _end_of_events(self) -> None:
        self._at += 1
        if self._in_object:
            self._state = "keys"
        else:
            self._open, self._state = False, "trailer"


def _end_before(text: bytes, cut: int) -> int:
    """Where the event before `cut` ends, without separators."""
    while cut and text[cut - 1] in BLANKS:
        cut -= 1
    return cut
