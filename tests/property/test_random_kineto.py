"""Random traces of PyTorch's profiler: reports agree with sums over the nanoseconds that were written."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import traceconv

KERNELS = {
    "gemm_f32": ("kernel", "compute"),
    "Memcpy DtoH (Device -> Pageable)": ("gpu_memcpy", "copy"),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)": ("kernel", "collective"),
}
#: Starts of traces: negative, beyond the integers of floats, near the end of 64 bits, and fractions of a microsecond.
STARTS = (0, -50_000_000, 2**53 + 12_345, 9 * 10**18, 1_720_000_000_123_456_789)


@dataclass
class Task:
    device: int
    name: str
    start: int
    end: int
    call: tuple[int, int, tuple[str, ...]] | None  # start, end and the operators around it


@dataclass
class Trace:
    draw: random.Random
    granule: int
    events: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    operators: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    reached: dict[tuple[int, int], int] = field(default_factory=dict)

    def time(self, low: int, high: int) -> int:
        return self.draw.randint(low, high) // self.granule * self.granule

    def add(self, category: str, name: str, place: tuple[int, int], start: int, end: int, **args: int) -> None:
        head = {"ph": "X", "cat": category, "name": name, "pid": place[0], "tid": place[1], "args": args}
        times = ", ".join(f'"{key}": {microseconds(ns)}' for key, ns in (("ts", start), ("dur", end - start)))
        self.events.append(f"{json.dumps(head)[:-1]}, {times}}}")

    def fill(self, thread: tuple[int, int], start: int, end: int, path: tuple[str, ...]) -> None:
        """Add slices that don't touch one another or their parent: operators, and calls that launch a kernel."""
        cuts = sorted(
            {self.time(start + 1, end) for _ in range(self.draw.randrange(12 if path else 90))} - {start, end}
        )
        for low, high in zip(cuts[1::3], cuts[2::3], strict=False):
            if low <= start:
                continue
            if len(path) < 4 and self.draw.random() < 0.5:
                inner = (*path, self.draw.choice(["aten::mm", "aten::copy_", "aten::linear"]))
                self.add("cpu_op", inner[-1], thread, low, high)
                self.operators.append((inner, high - low))
                self.fill(thread, low, high, inner)
            else:
                self.launch(thread, low, high, path)

    def launch(self, thread: tuple[int, int], low: int, high: int, path: tuple[str, ...]) -> None:
        number = len(self.tasks) + 1
        device, stream = self.draw.randrange(2), self.draw.choice([7, 20])
        name = self.draw.choice(sorted(KERNELS))
        start = self.time(low - 500, low + self.draw.choice([3000, 200_000]))
        if self.draw.random() < 0.8:
            start = max(start, self.reached.get((device, stream), start))
        end = start + self.time(0, self.draw.choice([1, 3000, 90_000]))
        self.reached[device, stream] = max(end, self.reached.get((device, stream), end))
        is_lost = self.draw.random() < 0.1
        self.add(KERNELS[name][0], name, (device, stream), start, end, device=device, stream=stream, correlation=number)
        if not is_lost:
            self.add("cuda_runtime", "cudaLaunchKernel", thread, low, high, correlation=number)
        self.tasks.append(Task(device, name, start, end, None if is_lost else (low, high, path)))


def microseconds(ns: int) -> str:
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}{f'.{rest:03}' if rest else ''}"


def union(spans: list[tuple[int, int]]) -> int:
    total, reached = 0, -(2**63)
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def check(path: Path, trace: Trace) -> None:
    by_device: dict[int, list[Task]] = defaultdict(list)
    for task in trace.tasks:
        by_device[task.device].append(task)
    breakdown, gaps = {}, set()
    for device, tasks in by_device.items():
        compute, work, busy = (
            union([(one.start, one.end) for one in tasks if KERNELS[one.name][1] in kinds])
            for kinds in (("compute",), ("compute", "collective"), ("compute", "collective", "copy"))
        )
        first, last = min(one.start for one in tasks), max(one.end for one in tasks)
        breakdown[device] = (compute, work - compute, busy - work, last - first - busy)
        reached = first
        for task in sorted(tasks, key=lambda one: one.start):
            if task.start - reached >= 10_000:
                gaps.add((device, reached, task.start))
            reached = max(reached, task.end)
    launches = [(one.device, one.start, *one.call[:2]) for one in trace.tasks if one.call is not None]
    tree: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * 4)
    for operator, dur in trace.operators:
        tree[operator][0] += 1
        tree[operator][1] += dur
    for task in trace.tasks:
        around = task.call[2] if task.call is not None else ()
        for depth in range(min(1, len(around)), len(around) + 1):
            tree[around[:depth]][3] += task.end - task.start
        tree[around][2] += task.end - task.start

    def rows(report: str, *columns: str) -> list[tuple[Any, ...]]:
        return [tuple(row[column] for column in columns) for row in store.report(report)]

    with traceconv.open_store(path, cache=False) as store:
        found = rows("breakdown", "device_id", "compute_ns", "exposed_collective_ns", "exposed_copy_ns", "idle_ns")
        assert {device: tuple(parts) for device, *parts in found} == breakdown
        assert set(rows("idle-gaps", "device_id", "start_ns", "end_ns")) == gaps
        found = rows("launch", "device_id", "start_ns", "submit_ns", "call_ns", "delay_ns")
        assert sorted(found) == sorted((*one[:3], one[3] - one[2], one[1] - one[2]) for one in launches)
        found = rows("op-tree", "path", "count", "host_total_ns", "device_self_ns", "device_total_ns")
        assert {row[0] or "": tuple(number or 0 for number in row[1:]) for row in found} == {
            " > ".join(names): tuple(sums) for names, sums in tree.items()
        }


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.long)])
def test_reports_of_random_traces(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + (100 if first else 8)):
        draw = random.Random(seed)
        trace = Trace(draw, draw.choice([1, 500, 1000]))
        start = trace.time(0, 1000) + draw.choice(STARTS) // 1000 * 1000
        for thread in range(draw.choice([1, 2])):
            trace.fill((1000, 1000 + thread), start, start + draw.choice([20_000, 3_000_000]), ())
        if trace.tasks:
            draw.shuffle(trace.events)
            path = tmp_path / f"{seed}.json"
            events = ",\n".join(trace.events)
            path.write_text(f'{{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{events}]}}')
            check(path, trace)
