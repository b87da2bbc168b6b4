"""Profiling overhead: ns of a span and of a task record, and profiled ÷ plain time of a host-bound model.

python -m benchmarks.overhead          about a minute
python -m benchmarks.overhead --json   the results as JSON

The model is a chain of small ops that runs without computing kernels and without waiting for the device, so only
host time is measured: launching, managing device memory, and simulating the device, which takes about half of it.
Plain and profiled blocks of runs alternate; the result is the median ratio of adjacent blocks. A profiled block ends
when its log is in the files. A block takes 0.2 s, the time between two deliveries of a profile: in shorter ones, what
each delivery takes, however few events it has, would weigh more than in a program. A block does not include starting
and ending the profile, nor the first profiled run, which logs the model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import traceconv
from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.device import EVENT, Device
from traceconv.runtime.event_log import NONE32, EventLog, EventStore, TaskOrigin
from traceconv.runtime.live import PROCESS
from traceconv.runtime.spec import reference_npu

#: Level → largest accepted profiled ÷ plain.
GOALS = {1: 1.03, 2: 1.08}
#: Longest accepted span in a profile.
SPAN_GOAL_NS = 1_000


@dataclass(frozen=True)
class Ratio:
    """Profiled ÷ plain: median and quartiles of the pairs. `plain_us`: time per op of the plain run."""

    wall: float
    wall_quartiles: tuple[float, float]
    cpu: float
    plain_us: float


@dataclass(frozen=True)
class Overhead:
    """All results. Ratios by level; `computing`: a model that computes its kernels, at level 2."""

    span_off_ns: float
    span_on_ns: float
    task_off_ns: float
    task_on_ns: float
    op_count: int
    levels: Mapping[int, Ratio]
    computing: Ratio


def chain(ops: int) -> onnx.ModelProto:
    """Build a chain of ops that are not fused, eight per module."""
    nodes = []
    for number in range(ops):
        name = f"layer{number // 8}/op{number % 8}"
        kind = "Softmax" if number % 2 else "CumSum"
        inputs = [f"t{number}"] if number % 2 else [f"t{number}", "axis"]
        nodes.append(helper.make_node(kind, inputs, [f"t{number + 1}"], name=name))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("t0", TensorProto.FLOAT, [1, 64])],
        [value(f"t{ops}", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor("axis", TensorProto.INT64, [], [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def profiled_over_plain(session: traceconv.Session, inputs: Any, level: int, pairs: int, runs: int) -> Ratio:
    """Measure the ratio between a block of runs profiled at a level and an adjacent plain block."""

    def block() -> None:
        for _ in range(runs):
            session.run(inputs)
        PROCESS.deliver()  # does nothing without a profile

    def profiled() -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder, traceconv.profile(folder, level=level):
            session.run(inputs)
            PROCESS.deliver()  # writes the model's records and creates the files
            return _seconds(block)

    wall, cpu, plain_s = [], [], []
    for number in range(pairs):
        # Alternate, so that a change in the machine's speed affects both.
        if number % 2:
            plain, with_it = _seconds(block), profiled()
        else:
            with_it, plain = profiled(), _seconds(block)
        wall.append(with_it[0] / plain[0])
        cpu.append(with_it[1] / plain[1])
        plain_s.append(plain[0])
    low, middle, high = statistics.quantiles(wall, n=4)
    plain_us = statistics.median(plain_s) / runs / len(session.op_names) * 1e6
    return Ratio(middle, (low, high), statistics.median(cpu), plain_us)


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the (wall, CPU) time of a function, in seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _ns_each(work: Callable[[int], object], count: int, times: int = 40) -> float:
    """Return the ns per item of `work(count)`, the best of `times`."""
    return min(_seconds(lambda: work(count))[0] for _ in range(times)) / count * 1e9


def _spans(count: int) -> None:
    """Run empty spans."""
    for _ in range(count):
        with traceconv.span("span"):
            pass


def _task_records(log: EventLog) -> Callable[[int], None]:
    """Return a function that logs tasks as a session does."""

    device = Device(reference_npu(), DeviceClock(0, 0, 10**9, 0))
    tasks = [device.submit(0, 0, EVENT)]
    device.run_all()
    tasks[0].note = TaskOrigin("MemcpyH2D", NONE32, "SDMA"), 64, 1, 1, 1

    def work(count: int) -> None:
        for number in range(count):
            tasks[0].task_id = number
            log.tasks(device, tasks)
        for _ in log.store.taken():
            pass

    return work


def measure(ops: int, runs: int, pairs: int) -> Overhead:
    """Run all measurements, in about a minute."""
    span_off = _ns_each(_spans, 2_000)
    with tempfile.TemporaryDirectory() as folder, traceconv.profile(folder):
        span_on = _ns_each(_spans, 500)
    task_off = _ns_each(_task_records(EventLog(EventStore(tasks_on=False))), 2_000)
    task_on = _ns_each(_task_records(EventLog(EventStore())), 2_000)
    with traceconv.Session(chain(ops), compute=False) as session:
        session._host.waits = False
        op_count = len(session.op_names)
        inputs = {"t0": np.zeros((1, 64), np.float32)}
        for _ in range(3):
            session.run(inputs)
        levels = {level: profiled_over_plain(session, inputs, level, pairs, runs) for level in GOALS}
    with traceconv.Session("mini_resnet") as session:
        images = session.random_inputs()
        session.run(images)
        computing = profiled_over_plain(session, images, 2, pairs // 2, 4 * runs)
    return Overhead(span_off, span_on, task_off, task_on, op_count, levels, computing)


def shown(ratio: Ratio) -> str:
    """Format a ratio."""
    low, high = ratio.wall_quartiles
    return (
        f"{_percent(ratio.wall)} wall (quartiles {_percent(low)} … {_percent(high)}), {_percent(ratio.cpu)} CPU, "
        f"of {ratio.plain_us:.0f} µs per op"
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=200, help="ops of the model (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=100, help="runs in a block (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of blocks (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    found = measure(options.ops, options.runs, options.pairs)
    if options.json:
        print(json.dumps(asdict(found)))
        return
    verdict = "met" if found.span_on_ns <= SPAN_GOAL_NS else "MISSED"
    print(
        f"span           {found.span_off_ns:,.0f} ns without a profile, {found.span_on_ns:,.0f} ns with one; "
        f"goal {SPAN_GOAL_NS:,} ns: {verdict}"
    )
    print(f"task record    {found.task_off_ns:,.0f} ns off, {found.task_on_ns:,.0f} ns on, without writing to files")
    for level, ratio in found.levels.items():
        verdict = "met" if ratio.wall <= GOALS[level] else "MISSED"
        print(f"level {level}        {shown(ratio)}; goal {_percent(GOALS[level])}: {verdict}")
    print(f"with kernels   {shown(found.computing)} (mini_resnet with kernels and waits, level 2)")


if __name__ == "__main__":
    main()
