"""One profile of a running process: its recorder, whether it is paused, and the spans that are open in it.

A span that is open when the profile ends has no end in the log. One that is open at a pause ends there in the log, and
begins again at the resume: pieces after the first say so in their args: `"continues": <span_id of the piece before>`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traceconv._version import __version__
from traceconv.base.errors import OutputError
from traceconv.runtime.event_log import EventStore, RangeBegin, Taken
from traceconv.runtime.identity import Identity, real_identity
from traceconv.runtime.lower import Program
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.profile_options import ProfileOptions
from traceconv.runtime.recorder import Recorder
from traceconv.runtime.spec import DeviceSpec

#: Lines of asyncio tasks have numbers from here on: only spans are on them.
FIRST_TASK_THREAD = 3 << 30
WRITER = f"traceconv {__version__} reference NPU"


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that has begun in a capture. `piece_id`: its piece in the log that is open; 0 while there is none."""

    span_id: int
    name: str
    args: str
    thread_id: int
    parent_id: int
    cut: bool
    piece_id: int
    last_piece_id: int = 0


class Capture:
    """What is being recorded into one folder below `parent`, from now on.

    now, new_id    the host clock; the next number of a range
    describe_thread  the arguments of `Recorder.thread` for a thread
    """

    def __init__(
        self,
        options: ProfileOptions,
        parent: Path,
        now: Callable[[], int],
        new_id: Callable[[], int],
        describe_thread: Callable[[int], tuple[int, str, int, str, int]],
    ) -> None:
        self.options = options
        self.identity: Identity = real_identity(parent)
        self.folder = parent / self.identity.folder_name
        self.paused = False
        self.closed = False
        #: What went wrong when records were written; nothing is recorded any more then.
        self.failure: OutputError | None = None
        self.recorder = Recorder(
            self.folder,
            writer_id=self.identity.writer_id,
            metric_group=options.aic_metrics,
            selection=options.selection,
            describe_thread=describe_thread,
        )
        self._has_inferences = options.selection.inferences
        self._now = now
        self._new_id = new_id
        self._lock = threading.RLock()
        self._spans: dict[int, OpenSpan] = {}
        self._lanes: dict[int, list[OpenSpan]] = {}
        #: When the pause began that is not over: pieces that are open in the log end there.
        self._pause_ns = 0
        self._devices: dict[int, set[int]] = {}
        self._models: dict[int, str] = {}
        self._fused: set[int] = set()
        self._held: dict[int, tuple[int, dict[int, MemoryEvent]]] = {}
        self.start_ns = now()
        self._tell_capture()

    @property
    def recording(self) -> bool:
        """Whether what happens now is logged."""
        return not self.paused and not self.closed and self.failure is None

    def _tell_capture(self) -> None:
        names = set(self._models.values())
        identity = self.identity
        self.recorder.capture(
            self.start_ns, identity.epoch_ns, identity.process_id, identity.host_name,
            names.pop() if len(names) == 1 else "", WRITER, self.options.described(),
        )  # fmt: skip

    # Sessions

    def describe(
        self, device_id: int, spec: DeviceSpec, streams: dict[int, str], model_id: int, program: Program, op_base: int
    ) -> None:
        """A session that runs from now on, or was there before: its device, streams, model and ops."""
        with self._lock:
            if model_id in self._models:
                return
            recorder, known = self.recorder, self._devices.setdefault(device_id, set())
            new = {stream: name for stream, name in streams.items() if stream not in known}
            recorder.add_device(device_id, spec.clock_hz)
            if not known or new:
                recorder.device(spec, device_id, new)
                known.update(new)
            recorder.model(spec, program, model_id, op_base=op_base, fusions=False)
            self._models[model_id] = program.graph.name
            self._tell_capture()

    def knows(self, model_id: int) -> bool:
        """Whether `describe` was told of a model."""
        return model_id in self._models

    def describe_fusions(self, model_id: int, program: Program, op_base: int) -> None:
        """A model runs its first iteration: only then its fusions are of interest."""
        with self._lock:
            if model_id not in self._fused:
                self._fused.add(model_id)
                self.recorder.fusions(program, op_base=op_base)

    def hold(self, model_id: int, device_id: int, held: list[MemoryEvent]) -> None:
        """What a session has allocated now, where the log begins or goes on: it gets what differs."""
        with self._lock:
            before = self._held.get(model_id, (device_id, {}))[1]
            now = {event.block_id: event for event in held}
            for block_id, event in before.items():
                if block_id not in now:
                    gone = MemoryEvent(
                        self._now(), "free", event.kind, block_id, event.address, event.size_bytes,
                        held[-1].used_bytes if held else 0, held[-1].reserved_bytes if held else 0,
                        event.pool, event.purpose, None, None,
                    )  # fmt: skip
                    self.recorder.memory([gone], device_id)
            for block_id, event in now.items():
                if block_id not in before:
                    self.recorder.memory([event], device_id)
            self._held[model_id] = device_id, {}

    def let_go(self, model_id: int, device_id: int, held: list[MemoryEvent]) -> None:
        """What a session has allocated when the log stops for a while."""
        with self._lock:
            self._held[model_id] = device_id, {event.block_id: event for event in held}

    def hold_none(self, open_models: set[int]) -> None:
        """The log goes on, and of the models that it knew only these are still there: the others' memory is free."""
        for model_id, (device_id, _) in list(self._held.items()):
            if model_id not in open_models:
                self.hold(model_id, device_id, [])

    # Spans of the user

    def span_begin(self, span_id: int, parent_id: int, name: str, args: str, thread_id: int, cut: bool) -> None:
        """A span begins on a thread now; while paused it waits for the resume. `cut`: its texts were too long."""
        with self._lock:
            if self.closed:
                return
            span = OpenSpan(span_id, name, args, thread_id, parent_id, cut, 0)
            self._spans[span_id] = span
            # Spans that a signal's handler begins meanwhile have ended by now, with their lane.
            lane = self._lanes.get(thread_id, [])
            lane.append(span)
            self._lanes[thread_id] = lane
            if self.recording:
                self._open(span, self._now())

    def span_end(self, span_id: int, exception: str, thread_id: int) -> None:
        """A span that began while this was recorded ends, by an exception of that type if there is one.

        thread_id  the thread on which nothing else is open but spans; 0: none that is known
        """
        with self._lock:
            span = self._spans.pop(span_id, None)
            if span is None:
                return
            lane = self._lanes[span.thread_id]
            only_spans = span.thread_id == thread_id or span.thread_id >= FIRST_TASK_THREAD
            apart = lane[-1] is not span or not only_spans
            lane.remove(span)
            if not lane:
                self._lanes.pop(span.thread_id, None)
            self._close(span, self._pause_ns if self.paused else self._now(), exception, apart)

    def parent(self, span_id: int) -> int:
        """The open piece of a span of the user; 0 where it is not in this log."""
        span = self._spans.get(span_id)
        return 0 if span is None else span.piece_id

    def _open(self, span: OpenSpan, now: int) -> None:
        args = span.args
        if span.last_piece_id:
            known = json.loads(args) if args else {}
            args = json.dumps({**known, "continues": span.last_piece_id}, ensure_ascii=False)
            span.piece_id = self._new_id()
        else:
            span.piece_id = span.span_id
        begin = RangeBegin(
            now, span.piece_id, span.thread_id, "annotation", span.name, "annotation", args, cut=span.cut
        )
        self.recorder.range_begin(begin, self.parent(span.parent_id))

    def _close(self, span: OpenSpan, now: int, exception: str = "", apart: bool = False) -> None:
        if span.piece_id:
            self.recorder.range_end(now, span.piece_id, span.thread_id, "annotation", exception, apart=apart)
            span.last_piece_id, span.piece_id = span.piece_id, 0

    def pause_spans(self) -> None:
        """Open spans end here, if they are there at the end of the pause."""
        with self._lock:
            self._pause_ns = self._now()

    def continue_spans(self) -> None:
        """Open spans end where the pause began, and go on in the log."""
        with self._lock:
            now = self._now()
            for lane in list(self._lanes.values()):  # a handler that runs meanwhile may begin a span
                for span in reversed(lane):
                    self._close(span, self._pause_ns)
                for span in lane:
                    self._open(span, now)

    # Ranges of the runtime

    def parent_of(self, kind: str, parent_id: int) -> int:
        """The range in the log that a range of a kind is part of; the user's code surrounds inferences."""
        if kind == "inference":
            return self.parent(parent_id)
        return parent_id if self._has_inferences else 0

    # Files

    def write(self, taken: Taken, store: EventStore) -> None:
        """Writes what was logged, and what waits here. Keeps the error when the disk refuses."""
        if self.failure is not None or self.closed:
            return
        try:
            if not self.paused:
                self.recorder.write(taken, store)
            self.recorder.flush()
        except OutputError as error:
            self.failure = error

    def close(self, ended: str) -> None:
        """The log is whole. Raises OutputError when it could not be written."""
        with self._lock:
            self.closed = True
            if self.failure is not None:
                self.recorder.abandon()
                raise self.failure
            names = sorted(set(self._models.values()))
            self.recorder.close(
                {
                    "writer": WRITER,
                    "model": names[0] if len(names) == 1 else "",
                    "device_ids": sorted(self._devices),
                    "ended": ended,
                    "options": self.options.described(),
                }
            )

    def abandon(self) -> None:
        """The log ends in the midst of it, and is marked as cut off."""
        self.closed = True
        self.recorder.abandon()

    def forget(self) -> None:
        """In the child of a fork: the log is the parent's."""
        self.closed = True
