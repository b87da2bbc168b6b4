"""Labelled ranges on a stream of a device: from the start of the first task that ends inside to the end of the last.

What a range covers is known when the device is done, so it is logged at its end, once no range around it on
its stream is open. Ranges of two threads may overlap on a stream without nesting. One that is open when the profile
ends has no end in the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from traceconv.runtime.capture import Capture
from traceconv.runtime.event_log import enum_values
from traceconv.runtime.recorder import RangeEvent

_HALVES = enum_values("stream_range", "event")


@dataclass(slots=True, eq=False)
class StreamSpan:
    """A range that is open. `bounds`: what each profile has seen of it, as (first tick, last tick)."""

    device_id: int
    stream_id: int
    name: str
    args: str
    cut: bool
    bounds: dict[Capture, tuple[int, int]] = field(default_factory=dict)
    pieces: dict[Capture, int] = field(default_factory=dict)

    def see(self, capture: Capture, start: int, end: int) -> None:
        """A task of its stream, in readings of the device's counter."""
        first, last = self.bounds.get(capture, (start, end))
        self.bounds[capture] = min(first, start), max(last, end)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range as it goes into a log. `end` None: it is open when the profile ends."""

    start: int
    end: int | None
    span_id: int
    name: str = ""
    args: str = ""
    cut: bool = False
    exception: str = ""


class StreamSpans:
    """The ranges of all streams that are open, and those that wait for one around them."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self.open: list[StreamSpan] = []
        self._waiting: dict[tuple[Capture, int, int], list[Piece]] = {}

    def begin(self, device_id: int, stream_id: int, name: str, args: str, cut: bool) -> StreamSpan:
        """A range begins on a stream."""
        span = StreamSpan(device_id, stream_id, name, args, cut)
        self.open.append(span)
        return span

    def end(self, span: StreamSpan, exception: str) -> None:
        """A range ends; what can be logged is."""
        if span not in self.open:
            return  # one of the parent, which a child of a fork leaves
        self.open.remove(span)
        for capture in list(span.bounds):
            self._put_aside(span, capture, exception)
        self._log(span.device_id, span.stream_id)

    def forget(self) -> None:
        """In the child of a fork: all that is open is the parent's."""
        self.open.clear()
        self._waiting.clear()

    def cut(self, capture: Capture, *, for_good: bool = False) -> None:
        """A profile goes on after a pause, or ends `for_good`: what it has seen of open ranges is logged."""
        for span in self.open:
            if capture in span.bounds:
                self._put_aside(span, capture, is_open=for_good)
        for waiting, device_id, stream_id in list(self._waiting):
            if waiting is capture:
                self._write(capture, device_id, stream_id)

    def see(self, device_id: int, stream_id: int, start: int, end: int, captures: tuple[Capture, ...]) -> None:
        """A task is done."""
        for span in self.open:
            if span.device_id == device_id and span.stream_id == stream_id:
                for capture in captures:
                    if capture.recording and capture.options.selection.tasks:
                        span.see(capture, start, end)

    def _put_aside(self, span: StreamSpan, capture: Capture, exception: str = "", *, is_open: bool = False) -> None:
        first, last = span.bounds.pop(capture)
        args = span.args if capture not in span.pieces else _continued(span.args, span.pieces[capture])
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
    """Begins and ends in the order of time: of one tick ends come first, and the longest begins first."""
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


def _continued(args: str, span_id: int) -> str:
    known = json.loads(args) if args else {}
    return json.dumps({**known, "continues": span_id}, ensure_ascii=False)
