"""Ranges of a session: spans, inferences, executions, work of the host on tensors, and modules of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from traceconv import native
from traceconv.runtime.clock import HostThread
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import NONE32, Buffer, CaptureIds, RangeBegin, module_texts
from traceconv.runtime.host import Host
from traceconv.runtime.launch import Execution, Run

_CATEGORIES = {"annotation": "annotation", "inference": "Runtime", "external_op": "Runtime", "host_op": "Data"}


class RangeLog:
    """Logs the ranges of one device's host threads.

    `parent` returns the range that is open where the caller is; None: the latest open `label`.
    """

    def __init__(self, host: Host, device: Device, ids: CaptureIds, parent: Callable[[], int] | None = None) -> None:
        self._host = host
        self._device = device
        self._ids = ids
        self._parent = parent or (lambda: self._open[-1] if self._open else 0)
        self._open: list[int] = []

    @contextmanager
    def label(self, name: str, args: str = "") -> Iterator[int]:
        """A range that the user puts around a block of code."""
        with self._range(self._host.channel, "annotation", name, self._parent(), args=args) as span:
            self._open.append(span)
            try:
                yield span
            finally:
                self._open.pop()

    def inference(self, run: Run) -> AbstractContextManager[int]:
        """One run of the model, from the call to its return."""
        return self._range(self._host.channel, "inference", "Inference", self._parent(), run)

    def external_op(self, run: Run, thread: HostThread, kind: str, index: int) -> AbstractContextManager[int]:
        """The host's `index`-th piece of work on the tensors of a run.

        Work done ahead belongs to the run's trace but has no parent, since the inference has not begun.
        """
        return self._range(thread, "external_op", kind, run.span_id, run, item_index=index)

    def host_op(self, name: str, step_id: int) -> AbstractContextManager[int]:
        """Work of the host on the data of a step, before the device gets them."""
        return self._range(self._host.channel, "host_op", name, self._parent(), step_id=step_id)

    def execution(self, run: Run, execution: Execution) -> None:
        """Log a run's execution on the device as the driver sees it: from its first task's interrupt to its last's."""
        log = self._host.recorder
        if not execution.tasks or not log.store.ranges_on:
            return
        clock, latency_ns = self._device.clock, self._device.spec.completion_latency_ns
        begin_ns, end_ns = (clock.ns_at(ticks) + latency_ns for ticks in execution.span)
        thread_id, span_id = self._host.driver.thread_id, next(self._ids.spans)
        begin = RangeBegin(
            begin_ns, span_id, thread_id, "execution", "Execution", "NPU", trace_id=run.trace_id, step_id=run.step_id,
            pe_index=self._device.device_id, item_index=execution.index, execution_id=execution.execution_id,
        )  # fmt: skip
        log.range_begin(begin, run.span_id)
        log.range_end(end_ns, span_id, thread_id, "execution")

    def modules(self, thread: HostThread, run: Run) -> Callable[[int, tuple[str, ...]], None]:
        """Return `Modules.change` for a run on a thread."""
        if not native.AVAILABLE or self._host.clock is None:
            return Modules(self, thread, run).change
        targets = self._host.recorder.module_targets(thread.thread_id, run.step_id)
        return partial(native.change_modules, self._host.clock, self._ids.spans, Buffer(), run.span_id, targets)

    def module(self, thread: HostThread, path: str, parent: int, step_id: int) -> int:
        """Begin a module of the model on a thread; return its number."""
        span_id = next(self._ids.spans)
        name, args = module_texts(path)
        begin = RangeBegin(thread.now(), span_id, thread.thread_id, "module", name, "module", args, 0, step_id)
        self._host.recorder.range_begin(begin, parent)
        return span_id

    def module_end(self, thread: HostThread, span_id: int) -> None:
        """End a module."""
        self._host.recorder.range_end(thread.now(), span_id, thread.thread_id, "module")

    @contextmanager
    def _range(
        self,
        thread: HostThread,
        kind: str,
        name: str,
        parent: int,
        run: Run | None = None,
        *,
        args: str = "",
        step_id: int = NONE32,
        item_index: int = NONE32,
    ) -> Iterator[int]:
        log, span_id, trace_id = self._host.recorder, next(self._ids.spans), 0
        if run is not None:
            trace_id, step_id = run.trace_id, run.step_id
        thread.spend(100)
        begin = RangeBegin(
            thread.now(), span_id, thread.thread_id, kind, name, _CATEGORIES[kind], args, trace_id, step_id,
            item_index=item_index,
        )  # fmt: skip
        log.range_begin(begin, parent)
        thread.spend(100)
        try:
            yield span_id
        finally:
            thread.spend(100)
            log.range_end(thread.now(), span_id, thread.thread_id, kind)
            thread.spend(100)


class Moves(NamedTuple):
    """How a run gets from the modules of one op to those of the next: it leaves some, then enters these paths."""

    leave: int
    paths: tuple[str, ...]


def moves_between(scopes: Sequence[tuple[str, ...]]) -> dict[int, Moves]:
    """Return the moves by the index of the op they precede, given the modules of each op from the outermost on.

    Those after the last op have the number of ops as their index.
    """
    moves = {}
    for index, (before, now) in enumerate(pairwise([(), *scopes, ()])):
        if before != now:
            kept = sum(one == other for one, other in zip(before, now, strict=False))  # paths of nested modules
            moves[index] = Moves(len(before) - kept, now[kept:])
    return moves


class Modules:
    """The modules that a run is in on one of its threads: the channel or, with a lag, the worker."""

    def __init__(self, ranges: RangeLog, thread: HostThread, run: Run) -> None:
        self._ranges, self._thread, self._run = ranges, thread, run
        self._open: list[int] = []

    def change(self, leave: int, paths: tuple[str, ...]) -> None:
        """Leave as many modules, then enter those with these paths."""
        for _ in range(leave):
            self._ranges.module_end(self._thread, self._open.pop())
        for path in paths:
            parent = self._open[-1] if self._open else self._run.span_id
            self._open.append(self._ranges.module(self._thread, path, parent, self._run.step_id))


def scopes_of(path: str | None) -> tuple[str, ...]:
    """`a/b` → (`a`, `a/b`)."""
    parts = [part for part in (path or "").split("/") if part]
    return tuple("/".join(parts[: count + 1]) for count in range(len(parts)))
