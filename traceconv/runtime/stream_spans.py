"""Labelled ranges on a stream of a device: from the start of the first task that ends inside to the end of the last.

What a range covers is known when the device is done, so it is logged at its end, once no range around it on
its stream is open. Ranges of two threads may overlap on a stream without nesting: the later one is logged in two
pieces then, the second with `"continues": <span_id of the first>` among its args.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from traceconv.runtime.capture import Capture


@dataclass(slots=True, eq=False)
class StreamSpan:
    """A range that is open. `bounds`: what each profile has seen of it, as (first tick, last tick)."""

    device_id: int
    stream_id: int
    name: str
    args: str
    bounds: dict[Capture, tuple[int, int]] = field(default_factory=dict)
    pieces: dict[Capture, int] = field(default_factory=dict)

    def see(self, capture: Capture, start: int, end: int) -> None:
        """A task of its stream, in readings of the device's counter."""
        first, last = self.bounds.get(capture, (start, end))
        self.bounds[capture] = min(first, start), max(last, end)


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    start: int
    negative_end: int
    span_id: int
    name: str
    args: str


#: (tick, span_id, name, args, whether it ends)
RangeEvent = tuple[int, int, str, str, bool]


class StreamSpans:
    """The ranges of all streams that are open, and those that wait for one around them."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._new_id = new_id
        self.open: list[StreamSpan] = []
        self._waiting: dict[tuple[Capture, int, int], list[_Piece]] = {}

    def begin(self, device_id: int, stream_id: int, name: str, args: str) -> StreamSpan:
        """A range begins on a stream."""
        span = StreamSpan(device_id, stream_id, name, args)
        self.open.append(span)
        return span

    def end(self, span: StreamSpan) -> None:
        """A range ends; what can be logged is."""
        if span not in self.open:
            return  # one of the parent, which a child of a fork leaves
        self.open.remove(span)
        for capture in list(span.bounds):
            self._put_aside(span, capture)
        self._log(span.device_id, span.stream_id)

    def forget(self) -> None:
        """In the child of a fork: all that is open is the parent's."""
        self.open.clear()
        self._waiting.clear()

    def cut(self, capture: Capture) -> None:
        """A profile pauses or ends: what it has seen of open ranges is logged."""
        for span in self.open:
            if capture in span.bounds:
                self._put_aside(span, capture)
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

    def _put_aside(self, span: StreamSpan, capture: Capture) -> None:
        first, last = span.bounds.pop(capture)
        args = span.args if capture not in span.pieces else _continued(span.args, span.pieces[capture])
        span_id = span.pieces[capture] = self._new_id()
        key = (capture, span.device_id, span.stream_id)
        self._waiting.setdefault(key, []).append(_Piece(first, -last, span_id, span.name, args))

    def _log(self, device_id: int, stream_id: int) -> None:
        if any((span.device_id, span.stream_id) == (device_id, stream_id) for span in self.open):
            return
        for capture, device, stream in list(self._waiting):
            if (device, stream) == (device_id, stream_id):
                self._write(capture, device, stream)

    def _write(self, capture: Capture, device_id: int, stream_id: int) -> None:
        pieces = self._waiting.pop((capture, device_id, stream_id))
        if not capture.closed:
            capture.recorder.stream_ranges(device_id, stream_id, list(nested(pieces, self._new_id)))


def nested(pieces: list[_Piece], new_id: Callable[[], int]) -> Iterator[RangeEvent]:
    """Begins and ends in the order of time, so that all nest: what does not is cut where the one around it ends."""
    heap = list(pieces)
    heapq.heapify(heap)
    around: list[_Piece] = []
    while heap or around:
        following = heap[0] if heap else None
        if around and (following is None or following.start >= -around[-1].negative_end):
            done = around.pop()
            yield -done.negative_end, done.span_id, done.name, done.args, True
            continue
        assert following is not None
        heapq.heappop(heap)
        if around and following.negative_end < around[-1].negative_end:
            bound = -around[-1].negative_end
            rest = _continued(following.args, following.span_id)
            heapq.heappush(heap, _Piece(bound, following.negative_end, new_id(), following.name, rest))
            following = _Piece(following.start, -bound, following.span_id, following.name, following.args)
        yield following.start, following.span_id, following.name, following.args, False
        around.append(following)


def _continued(args: str, span_id: int) -> str:
    known = json.loads(args) if args else {}
    return json.dumps({**known, "continues": span_id}, ensure_ascii=False)
