"""One profile of a running process: its recorder, whether it is paused, and the spans that are open in it.

A span that is open when the profile ends has no end in the log. One that is open at a pause ends there in the log and
begins again at the resume; the args of later pieces have `"continues": <span_id of the previous piece>`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traceconv.base.errors import OutputError
from traceconv.runtime.event_log import EventStore, RangeBegin, Taken
from traceconv.runtime.identity import Identity, real_identity
from traceconv.runtime.memory import MemoryEvent, Origin
from traceconv.runtime.profile_options import ProfileOptions
from traceconv.runtime.recorder import LoadedModel, Recorder
from traceconv.runtime.span_base import SpanLog
from traceconv.runtime.threads import FIRST_TASK_THREAD


@dataclass(slots=True, eq=False)
class OpenSpan:
    """A span that has begun in a capture. `piece_id`: its open piece in the log; 0 for none."""

    span_id: int
    name: str
    args: str
    thread_id: int
    parent_id: int
    cut: bool
    piece_id: int
    last_piece_id: int = 0


class Capture:
    """A recording into a new folder below `parent`, beginning now.

    now, new_id      the host clock; the next number of a range
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
        #: The error that ended the recording, when records could not be written.
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
        self._lock = self.recorder.lock
        self._spans: dict[int, OpenSpan] = {}
        self._lanes: dict[int, list[OpenSpan]] = {}
        #: When the current pause began: pieces that are open in the log end there.
        self._pause_ns = 0
        self._devices: dict[int, set[int]] = {}
        self._models: dict[int, str] = {}
        self._fused: set[int] = set()
        #: Model → its device, and what was allocated when the log paused.
        self._held: dict[int, tuple[int, dict[int, MemoryEvent]]] = {}
        self.start_ns = now()
        self._describe_self()

    @property
    def recording(self) -> bool:
        """Whether events are logged at present."""
        return not self.paused and not self.closed and self.failure is None

    def _describe_self(self) -> None:
        names = set(self._models.values())
        model_name = names.pop() if len(names) == 1 else ""
        self.recorder.capture(self.start_ns, self.identity, model_name, self.options.described())

    # Sessions

    def describe(self, model: LoadedModel) -> None:
        """Describe a session: its device, streams, model and ops."""
        with self._lock:
            if model.model_id in self._models:
                return
            recorder, known = self.recorder, self._devices.setdefault(model.device_id, set())
            new = {stream: name for stream, name in model.stream_names.items() if stream not in known}
            recorder.add_device(model.device_id, model.spec.clock_hz)
            if not known or new:
                recorder.device(model.spec, model.device_id, new)
                known.update(new)
            recorder.model(model.spec, model.program, model.model_id, op_base=model.op_base, fusions=False)
            self._models[model.model_id] = model.program.graph.name
            self._describe_self()

    def knows(self, model: LoadedModel) -> bool:
        """Whether a model was described."""
        return model.model_id in self._models

    def describe_fusions(self, model: LoadedModel) -> None:
        """Describe the fusions of a model that is about to run its first iteration; they matter only then."""
        with self._lock:
            if model.model_id not in self._fused:
                self._fused.add(model.model_id)
                self.recorder.fusions(model.program, op_base=model.op_base)

    def update_memory(self, model_id: int, device_id: int, held: list[MemoryEvent]) -> None:
        """Log how a session's memory differs from the logged state, when the log begins or resumes."""
        with self._lock:
            before = self._held.get(model_id, (device_id, {}))[1]
            now = {event.block_id: event for event in held}
            used, reserved = (held[-1].used_bytes, held[-1].reserved_bytes) if held else (0, 0)
            freed = [
                MemoryEvent(
                    self._now(), block_id, event.address, event.size_bytes, used, reserved,
                    Origin("free", event.origin.kind, event.origin.pool, event.origin.purpose),
                )
                for block_id, event in before.items()
                if block_id not in now
            ]  # fmt: skip
            added = [event for block_id, event in now.items() if block_id not in before]
            self.recorder.memory([*freed, *added], device_id)
            self._held[model_id] = device_id, {}

    def remember_memory(self, model: LoadedModel, held: list[MemoryEvent]) -> None:
        """Remember what a session has allocated when the log pauses."""
        with self._lock:
            self._held[model.model_id] = model.device_id, {event.block_id: event for event in held}

    def free_all_but(self, open_models: set[int]) -> None:
        """Log that the memory of all models but these was freed during a pause."""
        for model_id, (device_id, _) in list(self._held.items()):
            if model_id not in open_models:
                self.update_memory(model_id, device_id, [])

    # Spans of the user

    def span_begin(self, span_id: int, parent_id: int, name: str, args: str, thread_id: int, cut: bool) -> None:
        """Begin a span on a thread; while paused it waits for the resume. `cut`: its texts were too long."""
        with self._lock:
            if self.closed:
                return
            span = self._add(OpenSpan(span_id, name, args, thread_id, parent_id, cut, 0))
            if self.recording:
                self._open(span, self._now())

    def _add(self, span: OpenSpan) -> OpenSpan:
        self._spans[span.span_id] = span
        # Spans that a signal handler begins meanwhile have ended by now, with their lane.
        lane = self._lanes.get(span.thread_id, [])
        lane.append(span)
        self._lanes[span.thread_id] = lane
        return span

    def adopt(self, log: SpanLog) -> None:
        """Take over the open spans that only C knows; their begins are in the log."""
        with self._lock:
            for span_id, parent_id, name, args, thread_id in log.opened():
                span = self._add(OpenSpan(span_id, name, args or "", thread_id, parent_id, False, span_id))
                if not log.forget(span_id):  # it has ended meanwhile
                    self._remove(span)

    def _remove(self, span: OpenSpan) -> None:
        del self._spans[span.span_id]
        lane = self._lanes[span.thread_id]
        lane.remove(span)
        if not lane:
            self._lanes.pop(span.thread_id, None)

    def span_end(self, span_id: int, exception: str, thread_id: int) -> None:
        """End a span that began during this capture; `exception` is the type of the exception that ended it, if any.

        thread_id  a thread on which only spans are open; 0: unknown
        """
        with self._lock:
            span = self._spans.get(span_id)
            if span is None:
                return
            only_spans = span.thread_id == thread_id or span.thread_id >= FIRST_TASK_THREAD
            apart = self._lanes[span.thread_id][-1] is not span or not only_spans
            self._remove(span)
            self._close(span, self._pause_ns if self.paused else self._now(), exception, apart)

    def parent(self, span_id: int) -> int:
        """Return the open piece of a span; 0 if it is not in this log."""
        span = self._spans.get(span_id)
        return 0 if span is None else span.piece_id

    def _open(self, span: OpenSpan, now: int) -> None:
        args = continued(span.args, span.last_piece_id) if span.last_piece_id else span.args
        span.piece_id = self._new_id() if span.last_piece_id else span.span_id
        begin = RangeBegin(
            now, span.piece_id, span.thread_id, "annotation", span.name, "annotation", args, cut=span.cut
        )
        self.recorder.range_begin(begin, self.parent(span.parent_id))

    def _close(self, span: OpenSpan, now: int, exception: str = "", apart: bool = False) -> None:
        if span.piece_id:
            self.recorder.range_end(now, span.piece_id, span.thread_id, "annotation", exception, apart=apart)
            span.last_piece_id, span.piece_id = span.piece_id, 0

    def pause_spans(self) -> None:
        """Note where open spans end, if they are still open at the resume."""
        with self._lock:
            self._pause_ns = self._now()

    def continue_spans(self) -> None:
        """End open spans where the pause began, and begin their next pieces."""
        with self._lock:
            now = self._now()
            for lane in list(self._lanes.values()):  # a signal handler may begin a span meanwhile
                for span in reversed(lane):
                    self._close(span, self._pause_ns)
                for span in lane:
                    self._open(span, now)

    # Ranges of the runtime

    def parent_of(self, kind: str, parent_id: int) -> int:
        """Return the range in this log around a range of a kind; inferences are inside the user's spans."""
        if kind == "inference":
            return self.parent(parent_id)
        return parent_id if self._has_inferences else 0

    # Files

    def write(self, taken: Taken, store: EventStore) -> None:
        """Write events, and what is pending here; keep the error when that fails."""
        if self.failure is not None or self.closed:
            return
        try:
            stops = {kind: words for kind, words in taken.items() if kind[0] == "clock_stop"}
            self.recorder.write(stops if self.paused else taken, store)
            self.recorder.flush()
        except OutputError as error:
            self.failure = error

    def close(self, ended: str) -> None:
        """Complete the log. Raises OutputError when it could not be written."""
        with self._lock:
            self.closed = True
            if self.failure is not None:
                self.recorder.abandon()
                raise self.failure
            names = sorted(set(self._models.values()))
            self.recorder.close(
                {
                    "model": names[0] if len(names) == 1 else "",
                    "device_ids": sorted(self._devices),
                    "ended": ended,
                    "options": self.options.described(),
                }
            )

    def abandon(self) -> None:
        """End the log, marked as truncated."""
        self.closed = True
        self.recorder.abandon()

    def forget(self) -> None:
        """In the child of a fork: the log belongs to the parent."""
        self.closed = True


def continued(args: str, span_id: int) -> str:
    """Return the args of the piece of a span that follows the piece `span_id`."""
    known = json.loads(args) if args else {}
    return json.dumps({**known, "continues": span_id}, ensure_ascii=False)
