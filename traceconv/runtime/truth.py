"""What really happened, as the simulator knows it: the file that analyses are checked against, never read by ingest.

JSON Lines, each an object with a `kind`:

device     the clock as it is: origin_ns, offset_ticks, clock_hz, drift_ppb, jump_at, jump_ticks
task       one task: `start_ns` and `end_ns` on the host clock, exactly; `start_ticks` and `end_ticks` as its counter
           showed them; `after`: the tasks that had to end before it (on its stream, and the event that it waited for);
           `held_by`: what its start came of (launch: it was just then there; stream: the task before it), or, of a
           wait, its end (event), or, of a collective, when it began to move data (peers); `alone_ticks`: how long it
           would take with nothing beside it
run        one run of the model: when it was on the device, and the longest chain of dependent tasks in it: each task
           counts with its duration, a wait with what is left of it after its event; no longer than `makespan_ticks`
busy       of one device, how long tasks of a type (or any that computes) were running: the union of their times
overlap    of one training step: how long collectives ran, ops of the backward pass did, and both at the same time
queue      of one stream, tasks that were submitted and had not started: the most at a time, and the sum over time
memory     the peaks of a device's memory: used by blocks, reserved in segments
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from traceconv.base.errors import OutputError, printable
from traceconv.runtime.device import Device, Task
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.recorder import NONE32

TRUTH = "truth.jsonl"
#: Types of tasks that are work on an op.
COMPUTE = ("AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "MIX_AIC", "MIX_AIV")


@dataclass(slots=True)
class _Done:
    """A task that is done, with the ids of those that it depends on."""

    task_id: int
    stream_id: int
    name: str | None
    task_type: str
    op_index: int | None
    step_id: int | None
    execution_id: int | None
    correlation_id: int
    submit_ns: int
    arrival: int
    start: int
    end: int
    alone_ticks: int
    after: tuple[int, ...]
    event_end: int | None
    held_by: str


@dataclass(slots=True)
class DeviceTruth:
    """What happened on one device. `task` and `memory` are told of things as they happen.

    `phases`: op index → part of a training step that it belongs to.
    """

    device: Device
    tasks: list[_Done] = field(default_factory=list)
    runs: list[tuple[int | None, int, tuple[int, ...]]] = field(default_factory=list)
    used_peak: tuple[int, int] = (0, 0)
    reserved_peak: tuple[int, int] = (0, 0)
    phases: Mapping[int, str] = field(default_factory=dict)

    def task(
        self,
        task: Task,
        name: str | None,
        task_type: str,
        op_index: int,
        step_id: int,
        execution_id: int,
        correlation_id: int,
    ) -> None:
        """A task is done."""
        start, end = task.span
        before = [] if task.previous is None else [task.previous]
        held_by = "launch" if start == task.arrival else "stream"
        event_end = None
        if task.event is not None:
            before.append(task.event)
            event_end = task.event.span[1]
            held_by = "event" if event_end > start else held_by
        if task.begin is not None:
            event_end = task.begin
            held_by = "peers" if event_end > start else held_by
        self.tasks.append(
            _Done(
                task.task_id,
                task.stream_id,
                name,
                task_type,
                _known(op_index),
                _known(step_id),
                _known(execution_id),
                correlation_id,
                task.submit_ns,
                task.arrival,
                start,
                end,
                task.work.ticks,
                tuple(sorted(other.task_id for other in before)),
                event_end,
                held_by,
            )
        )

    def run(self, step_id: int, trace_id: int, execution_ids: Iterable[int]) -> None:
        """A run of the model is over."""
        self.runs.append((_known(step_id), trace_id, tuple(execution_ids)))

    def memory(self, event: MemoryEvent) -> None:
        """An allocation or a free."""
        if event.used_bytes > self.used_peak[0]:
            self.used_peak = (event.used_bytes, event.host_ns)
        if event.reserved_bytes > self.reserved_peak[0]:
            self.reserved_peak = (event.reserved_bytes, event.host_ns)

    def lines(self) -> Iterator[dict[str, object]]:
        """All that is known, as objects."""
        clock, device_id = self.device.clock, self.device.device_id
        yield {
            "kind": "device",
            "device_id": device_id,
            "origin_ns": clock.origin_ns,
            "offset_ticks": clock.offset_ticks,
            "clock_hz": clock.clock_hz,
            "drift_ppb": clock.drift_ppb,
            "jump_at": clock.jump_at,
            "jump_ticks": clock.jump_ticks,
        }
        for done in self.tasks:
            yield {
                "kind": "task",
                "device_id": device_id,
                "task_id": done.task_id,
                "stream_id": done.stream_id,
                "name": done.name,
                "task_type": done.task_type,
                "op_index": done.op_index,
                "step_id": done.step_id,
                "execution_id": done.execution_id,
                "correlation_id": done.correlation_id,
                "submit_ns": done.submit_ns,
                "start_ns": clock.ns_at(done.start),
                "end_ns": clock.ns_at(done.end),
                "start_ticks": clock.reading(done.start),
                "end_ticks": clock.reading(done.end),
                "alone_ticks": done.alone_ticks,
                "after": done.after,
                "held_by": done.held_by,
            }
        yield from self._run_lines()
        yield from self._overlap_lines()
        yield from self._busy_lines()
        yield from self._queue_lines()
        for what, (peak, at_ns) in (("used_bytes", self.used_peak), ("reserved_bytes", self.reserved_peak)):
            yield {"kind": "memory", "device_id": device_id, "what": what, "peak_bytes": peak, "at_ns": at_ns}

    def _run_lines(self) -> Iterator[dict[str, object]]:
        by_execution: dict[int, list[_Done]] = {}
        for done in self.tasks:
            if done.execution_id is not None:
                by_execution.setdefault(done.execution_id, []).append(done)
        for step_id, trace_id, execution_ids in self.runs:
            tasks = [done for execution_id in execution_ids for done in by_execution.get(execution_id, [])]
            if not tasks:
                continue
            path, length = critical_path(tasks)
            first, last = min(done.start for done in tasks), max(done.end for done in tasks)
            yield {
                "kind": "run",
                "device_id": self.device.device_id,
                "step_id": step_id,
                "trace_id": str(trace_id),
                "execution_ids": execution_ids,
                "start_ns": self.device.clock.ns_at(first),
                "end_ns": self.device.clock.ns_at(last),
                "makespan_ticks": last - first,
                "critical_path": path,
                "critical_path_ticks": length,
            }

    def _overlap_lines(self) -> Iterator[dict[str, object]]:
        ns_at, device_id = self.device.clock.ns_at, self.device.device_id
        steps = sorted({done.step_id for done in self.tasks if done.task_type == "HCCL" and done.step_id is not None})
        by_step: dict[int, list[_Done]] = {step_id: [] for step_id in steps}
        for done in self.tasks:
            if done.step_id in by_step:
                by_step[done.step_id].append(done)
        for step_id, tasks in by_step.items():
            exchanges = union((done.start, done.end) for done in tasks if done.task_type == "HCCL")
            backward = union(
                (done.start, done.end)
                for done in tasks
                if done.op_index is not None and self.phases.get(done.op_index) == "backward"
            )
            shared = intersection(exchanges, backward)
            yield {
                "kind": "overlap",
                "device_id": device_id,
                "step_id": step_id,
                "communication_ticks": sum(end - start for start, end in exchanges),
                "backward_ticks": sum(end - start for start, end in backward),
                "overlap_ticks": sum(end - start for start, end in shared),
                "overlap_ns": sum(ns_at(end) - ns_at(start) for start, end in shared),
                "intervals": len(shared),
            }

    def _busy_lines(self) -> Iterator[dict[str, object]]:
        types = sorted({done.task_type for done in self.tasks})
        for what, of in [*((name, (name,)) for name in types), ("compute", COMPUTE)]:
            spans = union((done.start, done.end) for done in self.tasks if done.task_type in of)
            ns_at = self.device.clock.ns_at
            yield {
                "kind": "busy",
                "device_id": self.device.device_id,
                "what": what,
                "busy_ticks": sum(end - start for start, end in spans),
                "busy_ns": sum(ns_at(end) - ns_at(start) for start, end in spans),
                "intervals": len(spans),
            }

    def _queue_lines(self) -> Iterator[dict[str, object]]:
        for stream_id in sorted({done.stream_id for done in self.tasks}):
            mine = [done for done in self.tasks if done.stream_id == stream_id]
            starts = [self.device.clock.ns_at(done.start) for done in mine]
            moments = sorted([*((ns, -1) for ns in starts), *((done.submit_ns, 1) for done in mine)])
            length = most = 0
            for _, change in moments:
                length += change
                most = max(most, length)
            yield {
                "kind": "queue",
                "device_id": self.device.device_id,
                "stream_id": stream_id,
                "longest": most,
                "waited_ns": sum(starts) - sum(done.submit_ns for done in mine),
            }


def critical_path(tasks: Iterable[_Done]) -> tuple[list[int], int]:
    """The longest chain of dependent tasks, first to last, and its length in ticks.

    A wait counts from the end of its event. Of chains of one length, the one through the tasks that were done first.
    """
    known = {done.task_id: done for done in tasks}
    longest: dict[int, tuple[int, int | None]] = {}
    for done in sorted(known.values(), key=lambda d: (d.end, d.task_id)):
        own = done.end - max(done.start, done.event_end or 0)
        length, through = max(((longest[i][0], -i) for i in done.after if i in longest), default=(0, None))
        longest[done.task_id] = (length + own, None if through is None else -through)
    length, last = max((found[0], -task_id) for task_id, found in longest.items())
    path: list[int] = []
    place: int | None = -last
    while place is not None:
        path.append(place)
        place = longest[place][1]
    return path[::-1], length


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of intervals, as intervals that do not touch, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def intersection(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where both are: of unions, as `union` gives them."""
    shared = []
    for start, end in one:
        for begin, stop in two:
            if max(start, begin) < min(end, stop):
                shared.append((max(start, begin), min(end, stop)))
    return shared


def write_truth(path: Path, devices: Iterable[DeviceTruth]) -> None:
    """Writes the truth of all devices. Raises OutputError when the file can't be written."""
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            for truth in devices:
                for line in truth.lines():
                    file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise OutputError(f"can't write {printable(str(path))}: {error.strerror or error}") from error


def _known(number: int) -> int | None:
    return None if number == NONE32 else number
