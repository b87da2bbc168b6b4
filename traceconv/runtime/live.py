"""Profiling of a running process: its sessions, the profiles that are being taken, and the one clock of both.

What changes what is recorded (begin, pause, resume, end of a profile) waits until no run is under way, so that a run
is in a log whole or not at all. What is recorded reaches the files every fifth of a second.
"""

from __future__ import annotations

import heapq
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.runtime.capture import FIRST_TASK_THREAD, Capture
from traceconv.runtime.clock import LiveClock
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import EventLog, EventStore, RangeBegin
from traceconv.runtime.identity import Identity, real_identity
from traceconv.runtime.lower import Program
from traceconv.runtime.profile_options import ProfileOptions
from traceconv.runtime.ranges import CaptureIds
from traceconv.runtime.rwlock import Gate
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.stream_spans import StreamSpan, StreamSpans

if TYPE_CHECKING:
    from traceconv.runtime.user_session import Session

_FLUSH_S = 0.2
#: Threads that the operating system does not know: those of sessions.
_FIRST_SESSION_THREAD = 1 << 31

#: Number of the span that is open where the code runs, in its thread and its asyncio task.
CURRENT_SPAN: ContextVar[int] = ContextVar("traceconv_span", default=0)


class Process:
    """The state of this process; `PROCESS` is the only one."""

    def __init__(self) -> None:
        self.clock = LiveClock()
        self.ids = CaptureIds()
        self.store = EventStore(on=False)
        self.captures: tuple[Capture, ...] = ()
        #: Those of them that are not paused.
        self.recording: tuple[Capture, ...] = ()
        self.sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        #: Runs of one number are one step; None: each run is one.
        self.step_group: int | None = None
        self.stream_spans = StreamSpans(self._new_id)
        self._step_groups = itertools.count(1)
        self._identity: Identity | None = None
        self._free_devices: list[Device] = []
        self._device_ids = itertools.count()
        self._op_base = 0
        self._model_ids = itertools.count()
        self._session_threads = itertools.count(_FIRST_SESSION_THREAD)
        self._task_threads = itertools.count(FIRST_TASK_THREAD)
        self._reset()

    def _reset(self) -> None:
        """What belongs to the threads that are there: made anew in the child of a fork."""
        self.gate = Gate()
        self._write_lock = threading.RLock()
        #: Not for the same thread: a signal's handler and the garbage collector may begin and end spans inside.
        self._lock = threading.RLock()
        self._local = threading.local()
        self._thread_names: dict[int, tuple[str, int]] = {}
        self._task_lanes: weakref.WeakKeyDictionary[object, list[int]] = weakref.WeakKeyDictionary()
        self._free_lanes: dict[int, list[int]] = {}
        self._task_counts = itertools.count(1)
        self._writer: threading.Thread | None = None
        self.refresh()

    # Threads

    def thread_id(self) -> int:
        """The number of this thread, which a log knows by its name."""
        try:
            known: int = self._local.thread_id
            return known
        except AttributeError:
            found = self._local.thread_id = threading.get_native_id()
            self._thread_names[found] = threading.current_thread().name, found & 0xFFFF
            if threading.current_thread() is threading.main_thread():
                self._thread_names[found] = "MainThread", 0
            return found

    def lane(self) -> int:
        """Where a span goes that begins here: this thread, or a line of its own for an asyncio task."""
        task, thread_id = _current_task(), self.thread_id()
        if task is None:
            return thread_id
        with self._lock:
            lane = self._task_lanes.get(task)
            if lane is None:
                try:
                    number = heapq.heappop(self._free_lanes.setdefault(thread_id, []))
                except IndexError:
                    number, count = next(self._task_threads), next(self._task_counts)
                    self._thread_names[number] = f"asyncio {count}", 1000 + count
                lane = self._task_lanes[task] = [number, 1, thread_id]
            else:
                lane[1] += 1
            return lane[0]

    def leave_lane(self) -> None:
        """A span of an asyncio task is over: after its last one, its line serves another task."""
        task = _current_task()
        if task is None:
            return
        with self._lock:
            lane = self._task_lanes.get(task)
            if lane is None:
                return
            lane[1] -= 1
            if lane[1] <= 0 and self._task_lanes.pop(task, None) is not None:
                heapq.heappush(self._free_lanes.setdefault(lane[2], []), lane[0])

    def name_thread(self, thread_id: int, name: str, sort_index: int) -> None:
        """A thread that the operating system does not know by that number."""
        self._thread_names[thread_id] = name, sort_index

    def describe_thread(self, thread_id: int) -> tuple[int, str, int, str, int]:
        """Return the process and its name, and the number, name and sort index of a thread."""
        name, sort_index = self._thread_names.get(thread_id, (f"thread {thread_id}", 500))
        argv = getattr(sys, "argv", None) or [""]  # what embeds the interpreter may have none, or put anything there
        program = argv[0] if isinstance(argv[0], str) and argv[0] not in ("", "-c", "-m") else "python"
        return os.getpid(), Path(program).name, thread_id, name, sort_index

    def new_threads(self) -> tuple[int, int]:
        """Numbers for the worker and the driver of a session."""
        return next(self._session_threads), next(self._session_threads)

    # Devices and models

    def take_device(self, spec: DeviceSpec) -> Device:
        """A device that no session has: one of before, if there is one of that kind, since its clock goes on."""
        with self._lock:
            for device in self._free_devices:
                if device.spec == spec:
                    self._free_devices.remove(device)
                    return device
            if self._identity is None:
                self._identity = real_identity(Path())
            device_id = next(self._device_ids)
            return Device(spec, self._identity.device_clock(device_id, self.clock.now(), spec), device_id)

    def give_back(self, device: Device) -> None:
        """A session is over."""
        with self._lock:
            self._free_devices.append(device)
            self._free_devices.sort(key=lambda device: device.device_id)

    def number_model(self, op_count: int) -> tuple[int, int]:
        """(model base, op base): what is added to the numbers of a model, so that no two have the same."""
        with self._lock:
            op_base = self._op_base
            self._op_base += op_count
            return next(self._model_ids), op_base

    # Profiles

    def refresh(self) -> None:
        """What is wanted at all, by those that record now."""
        self.recording = tuple(capture for capture in self.captures if capture.recording)
        active = [capture.options.selection for capture in self.recording]
        store = self.store
        store.on = bool(active)
        store.calls_on = any(one.calls for one in active)
        store.ranges_on = any(one.inferences or one.operators or one.calls for one in active)
        store.tasks_on = any(one.tasks or one.pmu or one.counters for one in active)
        store.memory_on = any(one.memory for one in active)
        store.steps_on = any(one.steps for one in active)

    def deliver(self) -> None:
        """Brings what waits to the files of those that record."""
        with self._write_lock:
            taken = self.store.take()
            for capture in self.captures:
                capture.write(taken, self.store)
            if any(capture.failure is not None for capture in self.recording):
                self.refresh()

    def begin(self, options: ProfileOptions, parent: Path) -> Capture:
        """Begins a profile, whose capture goes below `parent`.

        Raises OutputError when nothing can be written there, UsageError for a point that no open session has.
        """
        with self.gate.exclusive():
            sessions = [session for session in self.sessions if session.is_open]
            if sessions:
                self._check_points(options, sessions)
            capture = Capture(options, parent, self.clock.now, self._new_id, self.describe_thread)
            try:
                self._settle(sessions)
                self.captures = (*self.captures, capture)
                self.refresh()
                self._set_options()
                if self._writer is None:
                    write = threading.Thread(target=self._write_now_and_then, name="traceconv writer", daemon=True)
                    self._writer = write
                    write.start()
            except BaseException:  # no thread can be made, or a signal's handler raises: nobody would end the profile
                capture.abandon()
                self._remove(capture)
                raise
        return capture

    def pause(self, capture: Capture) -> None:
        """Nothing that happens from now on is in the log. Does nothing when it is paused already."""
        with self.gate.exclusive():
            if capture.paused or capture.closed:
                return
            self._stop(capture)
            capture.pause_spans()
            capture.paused = True
            self.refresh()

    def resume(self, capture: Capture) -> None:
        """What happens from now on is in the log again."""
        with self.gate.exclusive():
            if not capture.paused or capture.closed:
                return
            sessions = [session for session in self.sessions if session.is_open]
            self._settle(sessions)
            capture.paused = False
            self.refresh()
            capture.hold_none({session.model_id for session in sessions})
            for session in sessions:
                if capture.knows(session.model_id):
                    self._describe(capture, session)
                    session.read_clocks()
            capture.continue_spans()
            self.stream_spans.cut(capture)

    def end(self, capture: Capture, ended: str) -> None:
        """Ends a profile. Raises OutputError when its log could not be written."""
        with self.gate.exclusive():
            if capture.closed:
                return
            try:
                if capture.paused:
                    capture.write({}, self.store)
                else:
                    self._stop(capture)
                self.stream_spans.cut(capture, for_good=True)
                capture.close(ended)
            except BaseException:  # a signal's handler may raise anything anywhere
                capture.abandon()
                raise
            finally:
                self._remove(capture)

    def _remove(self, capture: Capture) -> None:
        self.captures = tuple(other for other in self.captures if other is not capture)
        self.refresh()
        self._set_options()

    def next_step(self) -> None:
        """Runs from now on, until the next call, are one step."""
        with self.gate.exclusive():
            for session in self.sessions:
                session.end_step()
            self.step_group = next(self._step_groups)
            self._set_options()

    def _stop(self, capture: Capture) -> None:
        sessions = [session for session in self.sessions if session.is_open]
        for session in sessions:
            session.end_step()
        self._settle(sessions, now=True)
        for session in sessions:
            if capture.knows(session.model_id):
                capture.let_go(session.model_id, session.device_id, session.held_memory())
        self.deliver()

    def _settle(self, sessions: list[Session], *, now: bool = False) -> None:
        """What was logged up to here goes to those who recorded it."""
        if self.store.on:
            for session in sessions:
                session.compare_clocks(now=now)
            self.deliver()

    def _describe(self, capture: Capture, session: Session) -> None:
        capture.describe(
            session.device_id, session.spec, session.stream_names, session.model_id, session.program, session.op_base
        )
        if capture.options.selection.memory:
            capture.hold(session.model_id, session.device_id, session.held_memory())
        # The writer may be long in coming, while others hold the interpreter: a process that is killed now leaves a
        # log in which there is something.
        capture.write({}, self.store)

    def join(self, session: Session) -> None:
        """A session that is about to be opened; the gate must be shared."""
        with self._lock:
            self.sessions.add(session)
        for capture in self.captures:
            if capture.recording:
                self._describe(capture, session)
        if self.store.on:
            session.read_clocks()
        self._set_options()

    def meet(self, session: Session, *, iteration: bool) -> None:
        """A session is about to run; the gate must be shared. Profiles that don't know it yet get to know it."""
        for capture in self.captures:
            if not capture.recording:
                continue
            if not capture.knows(session.model_id):
                self._describe(capture, session)
                session.read_clocks()
            if iteration:
                capture.describe_fusions(session.model_id, session.program, session.op_base)

    def leave(self, session: Session) -> None:
        """A session is over: its device may be another's."""
        with self._lock:
            self.sessions.discard(session)

    def _new_id(self) -> int:
        return next(self.ids.spans)

    def _set_options(self) -> None:
        """Has all sessions run as the profiles want it."""
        points = [(c.options.fp_point, c.options.bp_point) for c in self.captures]
        rates = [capture.options.sample_rate for capture in self.captures if capture.options.sample_rate]
        group = self.step_group if self.captures else None
        if not self.captures:
            self.step_group = None
        for session in list(self.sessions):
            fp_op = bp_op = None
            for fp_point, bp_point in points:
                fp_op = _find_op(session.program, fp_point) if fp_op is None else fp_op
                bp_op = _find_op(session.program, bp_point) if bp_op is None else bp_op
            session.run_options = replace(
                session.run_options, fp_op=fp_op, bp_op=bp_op, group=group, sample_rate=min(rates, default=0)
            )

    def check_points(self) -> None:
        """Raises UsageError when a profile names a point that no session has. Before the first run of each session."""
        sessions = list(self.sessions)
        for capture in self.captures:
            self._check_points(capture.options, sessions)

    @staticmethod
    def _check_points(options: ProfileOptions, sessions: list[Session]) -> None:
        for option, name in (("fp_point", options.fp_point), ("bp_point", options.bp_point)):
            if name is not None and all(_find_op(session.program, name) is None for session in sessions):
                known = [known for session in sessions for op in session.program.ops for known in _names(op)]
                models = ", ".join(sorted({session.name for session in sessions}))
                raise UsageError(
                    f"{option} '{printable(name, 80)}': {models} has no such op.{suggestion(name, known)} "
                    "Leave it out to have it found"
                )

    # Spans

    def span_begin(self, name: str, args: str, cut: bool) -> int:
        """A span begins where the caller is; 0 when nobody records. `cut`: its texts were too long."""
        captures = self.captures
        if not captures:
            return 0
        span_id, thread_id, parent_id = self._new_id(), self.lane(), CURRENT_SPAN.get()
        for capture in captures:
            capture.span_begin(span_id, parent_id, name, args, thread_id, cut)
        return span_id

    def span_end(self, span_id: int, exception: str) -> None:
        """It ends, by an exception of that type if there is one.

        Something of the runtime may be open beside it on its thread when that is another, or in the midst of a run:
        there the garbage collector may finish a generator.
        """
        thread_id = 0 if self.gate.is_inside() else self.thread_id()
        for capture in self.captures:
            capture.span_end(span_id, exception, thread_id)
        self.leave_lane()

    def stream_span_begin(self, stream: object, name: str, args: str, cut: bool) -> StreamSpan:
        """A span begins on a stream: its number, its name, or what `Session.stream` gives.

        Raises UsageError when it is not clear which stream is meant.
        """
        sessions = [session for session in self.sessions if session.is_open]
        if not isinstance(stream, Stream):
            if len(sessions) != 1:
                raise UsageError(f"{len(sessions)} sessions are open: name the stream as session.stream({stream!r})")
            stream = sessions[0].stream(stream)
        return self.stream_spans.begin(stream.device_id, stream.stream_id, name, args, cut)

    def stream_span_end(self, span: StreamSpan, exception: str) -> None:
        """It ends, by an exception of that type if there is one; what ran on the stream meanwhile is known."""
        self.stream_spans.end(span, exception)

    # Files

    def _write_now_and_then(self) -> None:
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
        """In the child of a fork: the profiles are the parent's, the sessions work on without them."""
        for capture in self.captures:
            capture.forget()
        self.captures = ()
        self.stream_spans.forget()
        self.step_group = None
        self.clock.after_fork()
        self.store.lock = threading.Lock()
        self.store.take()
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
    """What a session logs goes to all profiles that are being taken."""

    def __init__(self, process: Process, *, op_base: int, model_base: int) -> None:
        super().__init__(process.store, op_base=op_base, model_base=model_base)
        self._process = process
        self.spans_open = process.stream_spans.open

    def range_begin(self, begin: RangeBegin, parent_id: int) -> None:
        if self.store.ranges_on:
            for capture in self._process.recording:
                capture.recorder.range_begin(begin, capture.parent_of(begin.kind, parent_id))

    def see_task(self, device_id: int, stream_id: int, start: int, end: int) -> None:
        self._process.stream_spans.see(device_id, stream_id, start, end, self._process.captures)

    def range_end(self, host_ns: int, span_id: int, thread_id: int, kind: str) -> None:
        if self.store.ranges_on:
            for capture in self._process.recording:
                capture.recorder.range_end(host_ns, span_id, thread_id, kind)


def _current_task() -> object:
    """The asyncio task that runs here; None where asyncio is not used, or another thread is still importing it."""
    asyncio = sys.modules.get("asyncio")
    running_loop = getattr(asyncio, "_get_running_loop", None)
    return None if asyncio is None or running_loop is None or running_loop() is None else asyncio.current_task()


def _names(op: object) -> Iterator[str]:
    """Names by which an op may be called: its own, and those of the nodes that it was made of."""
    yield str(getattr(op, "name", ""))
    for node in getattr(op, "originals", ()):
        yield node.name


def _find_op(program: Program, name: str | None) -> int | None:
    """The index of the op of that name, or that was made of a node of that name."""
    if name is None:
        return None
    return next((op.index for op in program.ops if name in _names(op)), None)


PROCESS = Process()


os.register_at_fork(after_in_child=PROCESS.after_fork)
