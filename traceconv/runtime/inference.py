"""Ranges of the log: labels of the user, inferences, their executions on the device, the host's work on tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from traceconv.runtime.clock import HostThread
from traceconv.runtime.device import Device
from traceconv.runtime.host import Host
from traceconv.runtime.launch import Execution, Run
from traceconv.runtime.recorder import NONE32


@dataclass(frozen=True, slots=True)
class CaptureIds:
    """Numbers that are unique in a capture, whichever device they are of."""

    spans: Iterator[int] = field(default_factory=lambda: count(1))
    steps: Iterator[int] = field(default_factory=lambda: count(1))
    executions: Iterator[int] = field(default_factory=lambda: count(1))
    blocks: Iterator[int] = field(default_factory=lambda: count(1))
    correlations: Iterator[int] = field(default_factory=lambda: count(1))


@lru_cache(4096)
def _module_texts(path: str) -> tuple[str, str]:
    """Name and args of the range of a module."""
    return path.rsplit("/", 1)[-1], f'{{"path": {json.dumps(path)}}}'


class RangeLog:
    """Writes the ranges of one device's host threads.

    `parent`: the range that is open where the caller is; None: the last `label` that is open.
    """

    def __init__(self, host: Host, device: Device, ids: CaptureIds, parent: Callable[[], int] | None = None) -> None:
        self._host = host
        self._device = device
        self._ids = ids
        self._parent = parent or self._last_label
        self._open: list[int] = []

    @contextmanager
    def label(self, name: str, args: str = "") -> Iterator[int]:
        """A range that the user puts around whatever is done inside."""
        with self._range(self._host.channel, "annotation", name, "annotation", args, 0, NONE32, self._parent()) as span:
            self._open.append(span)
            try:
                yield span
            finally:
                self._open.pop()

    @contextmanager
    def inference(self, run: Run) -> Iterator[None]:
        """One run of the model, from the call to its return."""
        thread = self._host.channel
        with self._range(
            thread, "inference", "Inference", "Runtime", "", run.trace_id, run.step_id, self._parent()
        ) as span:
            run.span_id = span
            yield

    @contextmanager
    def external_op(self, run: Run, thread: HostThread, kind: str, index: int) -> Iterator[None]:
        """The host's `index`-th piece of work on the tensors of a run.

        Done ahead, it is part of the run's trace, but of no range: the inference has not begun.
        """
        with self._range(
            thread, "external_op", kind, "Runtime", "", run.trace_id, run.step_id, run.span_id, item_index=index
        ):
            yield

    @contextmanager
    def host_op(self, name: str, step_id: int) -> Iterator[None]:
        """Work of the host on the data of a step, before it is handed to the device."""
        with self._range(self._host.channel, "host_op", name, "Data", "", 0, step_id, self._parent()):
            yield

    def execution(self, run: Run, execution: Execution) -> None:
        """What the device did for a run, as the driver is told: from the interrupt of its first task to its last."""
        if not execution.tasks or not self._host.recorder.store.ranges_on:
            return
        clock, latency_ns = self._device.clock, self._device.spec.completion_latency_ns
        begin, end = execution.span
        begin_ns, end_ns = clock.ns_at(begin) + latency_ns, clock.ns_at(end) + latency_ns
        recorder, thread_id, span_id = self._host.recorder, self._host.driver.thread_id, next(self._ids.spans)
        recorder.range_begin(
            begin_ns, span_id, run.span_id, run.trace_id, "Execution", "NPU", "", thread_id, run.step_id, "execution",
            self._device.device_id, execution.index, execution.execution_id,
        )  # fmt: skip
        recorder.range_end(end_ns, span_id, thread_id, "execution")

    def _last_label(self) -> int:
        return self._open[-1] if self._open else 0

    def module(self, thread: HostThread, path: str, parent: int, step_id: int) -> int:
        """A module of the model begins on a thread: the ops that are under its path come next. Returns its number."""
        span_id = next(self._ids.spans)
        name, args = _module_texts(path)
        self._host.recorder.range_begin(
            thread.now(), span_id, parent, 0, name, "module", args, thread.thread_id, step_id, "module",
        )  # fmt: skip
        return span_id

    def module_end(self, thread: HostThread, span_id: int) -> None:
        """It is over."""
        self._host.recorder.range_end(thread.now(), span_id, thread.thread_id, "module")

    @contextmanager
    def _range(
        self,
        thread: HostThread,
        kind: str,
        name: str,
        category: str,
        args: str,
        trace_id: int,
        step_id: int,
        parent: int,
        *,
        item_index: int = NONE32,
    ) -> Iterator[int]:
        recorder, span_id = self._host.recorder, next(self._ids.spans)
        thread.spend(100)
        recorder.range_begin(
            thread.now(), span_id, parent, trace_id, name, category, args, thread.thread_id, step_id, kind,
            item_index=item_index,
        )  # fmt: skip
        thread.spend(100)
        try:
            yield span_id
        finally:
            thread.spend(100)
            recorder.range_end(thread.now(), span_id, thread.thread_id, kind)
            thread.spend(100)
