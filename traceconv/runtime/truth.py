"""The simulator's ground truth: the file that analyses are checked against. Ingest never reads it.

JSON Lines, each an object with a `kind`:

device     the true clock: origin_ns, offset_ticks, clock_hz, drift_ppb, jump_at, jump_ticks
task       one task: `start_ns` and `end_ns` on the host clock, exactly; `start_ticks` and `end_ticks` as its counter
           showed them; `after`: the tasks that had to end before it (the previous one on its stream, and the event
           that it waited for); `blocked_by`: what determined its start (launch: it had just arrived; stream: the
           previous task) or, for a wait, its end (event) or, for a collective, when it began to move data (peers);
           `alone_ticks`: its duration if nothing else ran
run        one run of the model: its time on the device, and the longest chain of dependent tasks in it. Each task
           counts with its duration, a wait with what remains after its event; never longer than `makespan_ticks`
busy       per device and type of task (or all that compute): the union of the tasks' times
overlap    per training step: how long collectives ran, ops of the backward pass ran, and both ran at once
queue      per stream: the most tasks that were submitted and not started, and their summed waiting time
memory     the peaks of a device's memory: used by blocks, reserved in segments
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from traceconv.base.errors import OutputError, printable, reason_of
from traceconv.runtime.device import Device, Task
from traceconv.runtime.event_log import NONE32
from traceconv.runtime.memory import MemoryEvent

TRUTH = "truth.jsonl"
#: Task types that are work on an op.
COMPUTE = ("AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "MIX_AIC", "MIX_AIV")


@dataclass(slots=True)
class _Done:
    """A finished task; `after`: ids of the tasks that it depends on."""

    task: Task
    span: tuple[int, int]
    name: str | None
    task_type: str
    op_index: int | None
    step_id: int | None
    execution_id: int | None
    correlation_id: int
    after: tuple[int, ...]
    event_end: int | None
    blocked_by: str


@dataclass(slots=True)
class DeviceTruth:
    """What happened on one device. `phases`: op index → part of a training step."""

    device: Device
    tasks: list[_Done] = field(default_factory=list)
    runs: list[tuple[int | None, int, tuple[int, ...]]] = field(default_factory=list)
    used_peak: tuple[int, int] = (0, 0)
    reserved_peak: tuple[int, int] = (0, 0)
    phases: Mapping[int, str] = field(default_factory=dict)

    def task(self, task: Task) -> None:
        """Note a task that has just finished."""
        start = task.span[0]
        before = [] if task.previous is None else [task.previous]
        blocked_by = "launch" if start == task.arrival else "stream"
        event_end = None
        if task.event is not None:
            before.append(task.event)
            event_end = task.event.span[1]
            blocked_by = "event" if event_end > start else blocked_by
        if task.begin is not None:
            event_end = task.begin
            blocked_by = "peers" if event_end > start else blocked_by
        origin, _, correlation_id, step_id, execution_id = task.note
        self.tasks.append(
            _Done(
                task,
                task.span,
                origin.name or (origin.op and origin.op.name),
                origin.task_type,
                _known(origin.op_index),
                _known(step_id),
                _known(execution_id),
                correlation_id,
                tuple(sorted(other.task_id for other in before)),
                event_end,
                blocked_by,
            )
        )

    def run(self, step_id: int, trace_id: int, execution_ids: Iterable[int]) -> None:
        """Note a finished run of the model."""
        self.runs.append((_known(step_id), trace_id, tuple(execution_ids)))

    def memory(self, event: MemoryEvent) -> None:
        """Note an allocation or a free."""
        if event.used_bytes > self.used_peak[0]:
            self.used_peak = (event.used_bytes, event.host_ns)
        if event.reserved_bytes > self.reserved_peak[0]:
            self.reserved_peak = (event.reserved_bytes, event.host_ns)

    def lines(self) -> Iterator[dict[str, object]]:
        """All objects of the file for this device."""
        clock = self.device.clock
        yield self._line("device", **asdict(clock))
        for done in self.tasks:
            start, end = done.span
            yield self._line(
                "task",
                task_id=done.task.task_id,
                stream_id=done.task.stream_id,
                name=done.name,
                task_type=done.task_type,
                op_index=done.op_index,
                step_id=done.step_id,
                execution_id=done.execution_id,
                correlation_id=done.correlation_id,
                submit_ns=done.task.submit_ns,
                start_ns=clock.ns_at(start),
                end_ns=clock.ns_at(end),
                start_ticks=clock.reading(start),
                end_ticks=clock.reading(end),
                alone_ticks=done.task.work.ticks,
                after=done.after,
                blocked_by=done.blocked_by,
            )
        yield from self._run_lines()
        yield from self._overlap_lines()
        yield from self._busy_lines()
        yield from self._queue_lines()
        for what, (peak, at_ns) in (("used_bytes", self.used_peak), ("reserved_bytes", self.reserved_peak)):
            yield self._line("memory", what=what, peak_bytes=peak, at_ns=at_ns)

    def _line(self, kind: str, **fields: object) -> dict[str, object]:
        return {"kind": kind, "device_id": self.device.device_id, **fields}

    def _ns(self, spans: Iterable[tuple[int, int]]) -> int:
        """Sum of the durations of spans."""
        ns_at = self.device.clock.ns_at
        return sum(ns_at(end) - ns_at(start) for start, end in spans)

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
            first, last = min(done.span[0] for done in tasks), max(done.span[1] for done in tasks)
            yield self._line(
                "run",
                step_id=step_id,
                trace_id=str(trace_id),
                execution_ids=execution_ids,
                start_ns=self.device.clock.ns_at(first),
                end_ns=self.device.clock.ns_at(last),
                makespan_ticks=last - first,
                critical_path=path,
                critical_path_ticks=length,
            )

    def _overlap_lines(self) -> Iterator[dict[str, object]]:
        steps = sorted({done.step_id for done in self.tasks if done.task_type == "HCCL" and done.step_id is not None})
        by_step: dict[int, list[_Done]] = {step_id: [] for step_id in steps}
        for done in self.tasks:
            if done.step_id in by_step:
                by_step[done.step_id].append(done)
        for step_id, tasks in by_step.items():
            exchanges = union(done.span for done in tasks if done.task_type == "HCCL")
            backward = union(
                done.span
                for done in tasks
                if done.op_index is not None and self.phases.get(done.op_index) == "backward"
            )
            shared = intersection(exchanges, backward)
            yield self._line(
                "overlap",
                step_id=step_id,
                communication_ticks=_ticks(exchanges),
                backward_ticks=_ticks(backward),
                overlap_ticks=_ticks(shared),
                overlap_ns=self._ns(shared),
                intervals=len(shared),
            )

    def _busy_lines(self) -> Iterator[dict[str, object]]:
        types = sorted({done.task_type for done in self.tasks})
        for what, of in [*((name, (name,)) for name in types), ("compute", COMPUTE)]:
            spans = union(done.span for done in self.tasks if done.task_type in of)
            yield self._line("busy", what=what, busy_ticks=_ticks(spans), busy_ns=self._ns(spans), intervals=len(spans))

    def _queue_lines(self) -> Iterator[dict[str, object]]:
        for stream_id in sorted({done.task.stream_id for done in self.tasks}):
            mine = [done for done in self.tasks if done.task.stream_id == stream_id]
            starts = [self.device.clock.ns_at(done.span[0]) for done in mine]
            submits = [done.task.submit_ns for done in mine]
            length = longest = 0
            for _, change in sorted([*((ns, -1) for ns in starts), *((ns, 1) for ns in submits)]):
                length += change
                longest = max(longest, length)
            yield self._line("queue", stream_id=stream_id, longest=longest, waited_ns=sum(starts) - sum(submits))


def _ticks(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def critical_path(tasks: Iterable[_Done]) -> tuple[list[int], int]:
    """Return the longest chain of dependent tasks, first to last, and its length in ticks.

    A wait counts from the end of its event. Among chains of equal length, the one whose tasks finished first wins.
    """
    longest: dict[int, tuple[int, int | None]] = {}
    for done in sorted(tasks, key=lambda d: (d.span[1], d.task.task_id)):
        start, end = done.span
        own = end - max(start, done.event_end or 0)
        length, through = max(((longest[i][0], -i) for i in done.after if i in longest), default=(0, None))
        longest[done.task.task_id] = (length + own, None if through is None else -through)
    length, last = max((found[0], -task_id) for task_id, found in longest.items())
    path: list[int] = []
    place: int | None = -last
    while place is not None:
        path.append(place)
        place = longest[place][1]
    return path[::-1], length


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of intervals as disjoint intervals, in order."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def intersection(one: list[tuple[int, int]], two: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the intersection of two results of `union`."""
    shared = []
    for start, end in one:
        for begin, stop in two:
            if max(start, begin) < min(end, stop):
                shared.append((max(start, begin), min(end, stop)))
    return shared


def write_truth(path: Path, devices: Iterable[DeviceTruth]) -> None:
    """Write the truth of all devices. Raises OutputError when the file can't be written."""
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            for truth in devices:
                for line in truth.lines():
                    file.write(json.dumps(line) + "\n")
    except OSError as error:
        raise OutputError(f"can't write {printable(str(path))}: {reason_of(error)}") from error


def _known(number: int) -> int | None:
    return None if number == NONE32 else number
