"""Profiling of a running process: its sessions, the profiles being taken, and the clock that they share.

Whatever changes what is recorded (begin, pause, resume, end of a profile) waits until no run is under way, so that a
log contains a run completely or not at all. Pending events are written to the files every fifth of a second.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.runtime.capture import Capture
from traceconv.runtime.clock import LiveClock
from traceconv.runtime.device_pool import DevicePool
from traceconv.runtime.event_log import CaptureIds, EventLog, EventStore, ModuleTarget, RangeBegin
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.profile_options import ProfileOptions
from traceconv.runtime.rwlock import Gate
from traceconv.runtime.span_base import SpanLog
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.stream_spans import StreamSpan, StreamSpans
from traceconv.runtime.threads import Threads

if TYPE_CHECKING:
    from traceconv.runtime.user_session import Session

_FLUSH_S = 0.2

#: Number of the innermost open span, per thread and asyncio task.
CURRENT_SPAN: ContextVar[int] = ContextVar("traceconv_span", default=0)


class Process:
    """The state of this process; `PROCESS` is the only instance."""

    def __init__(self) -> None:
        self.clock = LiveClock()
        self.devices = DevicePool(self.clock)
        self.ids = CaptureIds()
        self.store = EventStore(on=False)
        self.threads = Threads()
        self.captures: tuple[Capture, ...] = ()
        #: The captures that are not paused.
        self.recording: tuple[Capture, ...] = ()
        self.sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        #: Runs with the same number form one step; None: each run is a step.
        self.step_group: int | None = None
        self.stream_spans = StreamSpans(self._new_id)
        #: The last argument returns the open piece of a span in the only capture; 0 if it is not in its log.
        self.span_log = SpanLog(
            self.clock, self.ids.spans, CURRENT_SPAN, self._begin_thread,
            lambda span_id: next((capture.parent(span_id) for capture in self.captures), 0),
        )  # fmt: skip
        self._step_groups = itertools.count(1)
        self._reset()

    def _reset(self) -> None:
        """Create what belongs to the threads of this process: again in the child of a fork."""
        self.gate = Gate()
        self._write_lock = threading.RLock()
        #: Reentrant: signal handlers and the garbage collector may use it at any point.
        self._lock = threading.RLock()
        self._writer: threading.Thread | None = None
        self.refresh()

    # Profiles

    def refresh(self) -> None:
        """Set the kinds of events to keep: those that at least one recording capture selects."""
        self._leave_spans_to_python()
        self.recording = tuple(capture for capture in self.captures if capture.recording)
        if len(self.captures) == 1 and self.recording:
            self.span_log.aim(True, self.gate.inside, *self.recording[0].recorder.span_target())
        active = [capture.options.selection for capture in self.recording]
        store = self.store
        store.on = bool(active)
        store.stops_on = bool(self.captures)
        store.calls_on = any(one.calls for one in active)
        store.ranges_on = any(one.inferences or one.operators or one.calls for one in active)
        store.tasks_on = any(one.tasks or one.pmu or one.counters for one in active)
        store.memory_on = any(one.memory for one in active)
        store.steps_on = any(one.steps for one in active)

    def _leave_spans_to_python(self) -> None:
        """Until the next refresh: C logs spans only while the one profile there is records."""
        self.span_log.aim(bool(self.captures))
        self._adopt_spans()

    def _adopt_spans(self) -> None:
        for capture in self.captures:  # one, if there are any such spans
            capture.adopt(self.span_log)

    def deliver(self) -> None:
        """Write pending events to the files of all captures."""
        with self._write_lock:
            for taken in self.store.taken():
                for capture in self.captures:
                    capture.write(taken, self.store)
            if any(capture.failure is not None for capture in self.recording):
                self.refresh()

    def begin(self, options: ProfileOptions, parent: Path) -> Capture:
        """Begin a profile, with its capture below `parent`.

        Raises OutputError when nothing can be written there, UsageError for an op that no open session has.
        """
        with self.gate.exclusive():
            sessions = self._open_sessions()
            if sessions:
                self._check_points(options, sessions)
            for other in self.captures:
                if other.options.clock != options.clock:
                    open_one = f"a profile with clock={other.options.clock} is open, and there is one clock"
                    raise UsageError(f"clock {options.clock}: {open_one}; end that profile first, or use its clock")
            self.clock.is_wall = options.clock == "wall"
            capture = Capture(options, parent, self.clock.now, self._new_id, self.threads.describe)
            try:
                self._settle(sessions)
                self._leave_spans_to_python()
                self.captures = (*self.captures, capture)
                self.refresh()
                self._set_options()
                if self._writer is None:
                    self._writer = threading.Thread(target=self._write_all, name="traceconv writer", daemon=True)
                    self._writer.start()
            except BaseException:  # no thread can be started, or a signal handler raises: nobody would end the profile
                capture.abandon()
                self._remove(capture)
                raise
        return capture

    def pause(self, capture: Capture) -> None:
        """Stop logging until `resume`. Does nothing when already paused."""
        with self.gate.exclusive():
            if capture.paused or capture.closed:
                return
            self._stop(capture)
            self._leave_spans_to_python()
            capture.pause_spans()
            capture.paused = True
            self.refresh()

    def resume(self, capture: Capture) -> None:
        """Continue logging."""
        with self.gate.exclusive():
            if not capture.paused or capture.closed:
                return
            sessions = self._open_sessions()
            self._settle(sessions)
            capture.paused = False
            self.refresh()
            capture.free_all_but({session.loaded.model_id for session in sessions})
            for session in sessions:
                if capture.knows(session.loaded):
                    self._describe(capture, session)
                    session.read_clocks()
            capture.continue_spans()
            self.stream_spans.cut(capture)

    def end(self, capture: Capture, ended: str) -> None:
        """End a profile. Raises OutputError when its log could not be written."""
        with self.gate.exclusive():
            if capture.closed:
                return
            try:
                self._leave_spans_to_python()
                if capture.paused:
                    capture.write({}, self.store)
                else:
                    self._stop(capture)
                self.stream_spans.cut(capture, for_good=True)
                capture.close(ended)
            except BaseException:  # a signal handler may raise anything anywhere
                capture.abandon()
                raise
            finally:
                self._remove(capture)

    def _remove(self, capture: Capture) -> None:
        self.captures = tuple(other for other in self.captures if other is not capture)
        self.refresh()
        self._set_options()

    def next_step(self) -> None:
        """Begin a step that contains all runs until the next call."""
        with self.gate.exclusive():
            for session in self.sessions:
                session.end_step()
            self.step_group = next(self._step_groups)
            self._set_options()

    def _stop(self, capture: Capture) -> None:
        sessions = self._open_sessions()
        for session in sessions:
            session.end_step()
        self._settle(sessions, now=True)
        for session in sessions:
            if capture.knows(session.loaded):
                capture.remember_memory(session.loaded, session.held_memory())
        self.deliver()

    def _open_sessions(self) -> list[Session]:
        return [session for session in self.sessions if session.is_open]

    def _settle(self, sessions: list[Session], *, now: bool = False) -> None:
        """Deliver what was logged up to here to the captures that recorded it."""
        if self.store.on:
            for session in sessions:
                session.compare_clocks(now=now)
            self.deliver()

    def _describe(self, capture: Capture, session: Session) -> None:
        model = session.loaded
        capture.describe(model)
        if capture.options.selection.memory:
            capture.update_memory(model.model_id, model.device_id, session.held_memory())
        # The writer thread may start late while other threads hold the interpreter lock: a process killed before that
        # leaves a log that is not empty.
        capture.write({}, self.store)

    def join(self, session: Session) -> None:
        """Add a session that is about to be opened, inside `gate.shared`."""
        with self._lock:
            self.sessions.add(session)
        for capture in self.captures:
            if capture.recording:
                self._describe(capture, session)
        if self.store.on:
            session.read_clocks()
        self._set_options()

    def announce(self, session: Session, *, iteration: bool) -> None:
        """Describe a session that is about to run to captures where it is new, inside `gate.shared`."""
        for capture in self.captures:
            if not capture.recording:
                continue
            if not capture.knows(session.loaded):
                self._describe(capture, session)
                session.read_clocks()
            if iteration:
                capture.describe_fusions(session.loaded)

    def leave(self, session: Session) -> None:
        """Remove a closed session."""
        with self._lock:
            self.sessions.discard(session)

    def _new_id(self) -> int:
        return next(self.ids.spans)

    def _set_options(self) -> None:
        """Set the run options of all sessions to those of the profiles."""
        points = [(c.options.fp_point, c.options.bp_point) for c in self.captures]
        rates = [capture.options.sample_rate for capture in self.captures if capture.options.sample_rate]
        group = self.step_group if self.captures else None
        if not self.captures:
            self.step_group = None
        for session in list(self.sessions):
            fp_op = bp_op = None
            for fp_point, bp_point in points:
                fp_op = _find_op(session.loaded.program, fp_point) if fp_op is None else fp_op
                bp_op = _find_op(session.loaded.program, bp_point) if bp_op is None else bp_op
            options = session.engine.options
            session.engine.options = replace(
                options, fp_op=fp_op, bp_op=bp_op, group=group, sample_rate=min(rates, default=0)
            )

    def check_points(self) -> None:
        """Raise UsageError when a profile names an op that no session has. Called before a session's first run."""
        for capture in self.captures:
            self._check_points(capture.options, list(self.sessions))

    @staticmethod
    def _check_points(options: ProfileOptions, sessions: list[Session]) -> None:
        for option, name in (("fp_point", options.fp_point), ("bp_point", options.bp_point)):
            if name is not None and all(_find_op(session.loaded.program, name) is None for session in sessions):
                known = [known for session in sessions for op in session.loaded.program.ops for known in _names(op)]
                models = ", ".join(sorted({session.name for session in sessions}))
                raise UsageError(
                    f"{option} '{printable(name, 80)}': {models} has no such op.{suggestion(name, known)} "
                    "Omit it to find the op automatically"
                )

    # Spans

    def span_begin(self, name: str, args: str, cut: bool) -> int:
        """Begin a span and return its number; 0 without a profile. `cut`: its texts were too long."""
        captures = self.captures
        if not captures:
            return 0
        self.clock.now()  # see span_end
        self._adopt_spans()
        span_id, thread_id, parent_id = self._new_id(), self.threads.enter_lane(), CURRENT_SPAN.get()
        for capture in captures:
            capture.span_begin(span_id, parent_id, name, args, thread_id, cut)
        return span_id

    def span_end(self, span_id: int, exception: str) -> None:
        """End a span; `exception` is the type of the exception that ended it, if any."""
        # Wait for a stopped clock here: later, with the lock of a capture, this would wait for a thread that may need
        # the lock for a span of its own.
        self.clock.now()
        # Ranges of the runtime may be open on the span's thread if that is another one, or during a run, where the
        # garbage collector may finish a generator.
        self._adopt_spans()
        thread_id = 0 if self.gate.is_inside() else self.threads.current()
        for capture in self.captures:
            capture.span_end(span_id, exception, thread_id)
        self.threads.leave_lane()

    def _begin_thread(self) -> int:
        """Describe this thread to the only capture, in which C is about to begin a span; return its number."""
        thread_id = self.threads.current()
        for capture in self.captures:
            capture.recorder.describe_new_thread(thread_id)
        return thread_id

    def stream_span_begin(self, stream: object, name: str, args: str, cut: bool) -> StreamSpan:
        """Begin a span on a stream, given by number, name or a `Stream`. Raises UsageError when it is ambiguous."""
        sessions = self._open_sessions()
        if not isinstance(stream, Stream):
            if len(sessions) != 1:
                raise UsageError(f"{len(sessions)} sessions are open: name the stream as session.stream({stream!r})")
            stream = sessions[0].stream(stream)
        return self.stream_spans.begin(stream.device_id, stream.stream_id, name, args, cut)

    # Files

    def _write_all(self) -> None:
        me = threading.current_thread()
        while self._writer is me:
            time.sleep(_FLUSH_S)
            if not self.captures:
                with self._lock:
                    if not self.captures:
                        self._writer = None
                        return
            self.deliver()

    def after_fork(self) -> None:
        """In the child of a fork: the profiles stay with the parent; the sessions go on without them."""
        for capture in self.captures:
            capture.forget()
        self.captures = ()
        self.stream_spans.forget()
        self.step_group = None
        self.clock.after_fork()
        self.devices.after_fork()
        self.threads.after_fork()
        self.store.lock = threading.Lock()
        for _ in self.store.taken():
            pass
        self._reset()
        self._set_options()
        for session in list(self.sessions):
            session.after_fork()


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of a session's device."""

    device_id: int
    stream_id: int


class SessionLog(EventLog):
    """Passes what a session logs to all profiles being taken."""

    def __init__(self, process: Process, *, op_base: int, model_base: int) -> None:
        super().__init__(process.store, op_base=op_base, model_base=model_base)
        self._process = process
        self.spans_open = process.stream_spans.open

    def inner_ops(self, spec: DeviceSpec, program: Program, model_id: int) -> None:
        for capture in self._process.recording:
            capture.recorder.inner_ops(spec, program, self.model_base + model_id, self.op_base)

    def range_begin(self, begin: RangeBegin, parent_id: int) -> None:
        if self.store.ranges_on:
            log = self._process.span_log
            for capture in self._process.recording:
                parent = parent_id if log.holds(parent_id) else capture.parent_of(begin.kind, parent_id)
                capture.recorder.range_begin(begin, parent)

    def module_targets(self, thread_id: int, step_id: int) -> tuple[ModuleTarget, ...]:
        found = (capture.recorder.module_targets(thread_id, step_id) for capture in self._process.recording)
        return tuple(itertools.chain.from_iterable(found))

    def on_task(self, device_id: int, stream_id: int, start: int, end: int) -> None:
        self._process.stream_spans.add_task(device_id, stream_id, start, end, self._process.captures)

    def range_end(self, host_ns: int, span_id: int, thread_id: int, kind: str) -> None:
        if self.store.ranges_on:
            for capture in self._process.recording:
                capture.recorder.range_end(host_ns, span_id, thread_id, kind)


def _names(op: DeviceOp) -> Iterator[str]:
    """The names of an op: its own, and those of its original nodes."""
    yield op.name
    yield from (node.name for node in op.originals)


def _find_op(program: Program, name: str | None) -> int | None:
    """Return the index of the op with this name, or made from a node with this name."""
    if name is None:
        return None
    return next((op.index for op in program.ops if name in _names(op)), None)


PROCESS = Process()


# Otherwise the extension would keep all that the process refers to alive until after the interpreter's end.
atexit.register(PROCESS.span_log.close)
os.register_at_fork(after_in_child=PROCESS.after_fork)
