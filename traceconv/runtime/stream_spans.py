"""Spans on a stream of a device: from the start of the first task that ends inside to the end of the last.

A span's bounds are known only when the device is done, so it is logged at its end, once no other span on its stream is
open. Spans of two threads may overlap without nesting. A span still open when the profile ends has no end in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from traceconv.runtime.capture import Capture, continued
from traceconv.runtime.event_log import enum_values
from traceconv.runtime.recorder import RangeEvent

_HALVES = enum_values("stream_range", "event")


@dataclass(slots=True, eq=False)
class StreamSpan:
    """An open span. `bounds`: (first tick, last tick) seen by each capture; `pieces`: its latest piece in each."""

    device_id: int
    stream_id: int
    name: str
    args: str
    cut: bool
    bounds: dict[Capture, tuple[int, int]] = field(default_factory=dict)
    pieces: dict[Capture, int] = field(default_factory=dict)

    def extend(self, capture: Capture, start: int, end: int) -> None:
        """Extend the span to a task on its stream, in readings of the device's counter."""
        first, last = self.bounds.get(capture, (start, end))
        self.bounds[capture] = min(first, start), max(last, end)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a span, as logged. `end` None: it is open when the profile ends."""

    start: int
    end: int | None
    span_id: int
    name: str = ""
    args: str = ""
    cut: bool = False
    exception: str = ""


class StreamSpans:
    """The open spans of all streams, and the finished ones that wait for other spans on their stream to end."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self.open: list[StreamSpan] = []
        self._waiting: dict[tuple[Capture, int, int], list[Piece]] = {}

    def begin(self, device_id: int, stream_id: int, name: str, args: str, cut: bool) -> StreamSpan:
        """Begin a span on a stream."""
        span = StreamSpan(device_id, stream_id, name, args, cut)
        self.open.append(span)
        return span

    def end(self, span: StreamSpan, exception: str) -> None:
        """End a span and log the finished ones of its stream if possible; `exception`: type that ended it, or ""."""
        if span not in self.open:
            return  # the child of a fork leaves a span of its parent
        self.open.remove(span)
        for capture in list(span.bounds):
            self._finish_piece(span, capture, exception)
        self._log(span.device_id, span.stream_id)

    def forget(self) -> None:
        """In the child of a fork: all open spans belong to the parent."""
        self.open.clear()
        self._waiting.clear()

    def cut(self, capture: Capture, *, for_good: bool = False) -> None:
        """Log what a capture has seen of open spans when it resumes or, `for_good`, ends."""
        for span in self.open:
            if capture in span.bounds:
                self._finish_piece(span, capture, is_open=for_good)
        for waiting, device_id, stream_id in list(self._waiting):
            if waiting is capture:
                self._write(capture, device_id, stream_id)

    def add_task(self, device_id: int, stream_id: int, start: int, end: int, captures: tuple[Capture, ...]) -> None:
        """Note a finished task."""
        for span in self.open:
            if span.device_id == device_id and span.stream_id == stream_id:
                for capture in captures:
                    if capture.recording and capture.options.selection.tasks:
                        span.extend(capture, start, end)

    def _finish_piece(self, span: StreamSpan, capture: Capture, exception: str = "", *, is_open: bool = False) -> None:
        first, last = span.bounds.pop(capture)
        args = span.args if capture not in span.pieces else continued(span.args, span.pieces[capture])
        span_id = span.pieces[capture] = self._new_id()
        piece = Piece(first, None if is_open else last, span_id, span.name, args, span.cut, exception)
        self._waiting.setdefault((capture, span.device_id, span.stream_id), []).append(piece)

    def _log(self, device_id: int, stream_id: int) -> None:
        if any((span.device_id, span.stream_id) == (device_id, stream_id) for span in self.open):
            return
        for capture, device, stream in list(self._waiting):
            if (device, stream) == (device_id, stream_id):
                self._write(capture, device, stream)

    def _write(self, capture: Capture, device_id: int, stream_id: int) -> None:
        pieces = self._waiting.pop((capture, device_id, stream_id))
        if not capture.closed:
            capture.recorder.stream_ranges(device_id, stream_id, range_events(pieces))


def range_events(pieces: list[Piece]) -> list[RangeEvent]:
    """Return begins and ends sorted by time; at the same tick ends come first, then the longest begins first."""
    longest_first = sorted(pieces, key=lambda piece: (piece.start, piece.end is not None, -(piece.end or 0)))
    halves: list[tuple[int, int, int]] = []
    for place, piece in enumerate(longest_first):
        halves.append((piece.start, 1, place))
        if piece.end is not None:
            halves.append((piece.end, 0, -place))
    open_places: list[int] = []
    events: list[RangeEvent] = []
    for ticks, begins, signed_place in sorted(halves):
        place = abs(signed_place)
        piece = longest_first[place]
        if begins:
            open_places.append(place)
            half = "begin_cut" if piece.cut else "begin"
            events.append(RangeEvent(ticks, piece.span_id, piece.name, piece.args, _HALVES[half]))
        else:
            half = "end" if open_places[-1] == place else "end_apart"
            open_places.remove(place)
            events.append(RangeEvent(ticks, piece.span_id, piece.exception, "", _HALVES[half]))
    return events
