"""Replays of tasks that share a device: in C as in Python, as the simulated NPU shares, and as measured."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from traceconv import native
from traceconv.analysis import contention
from traceconv.analysis.contention import _CAPACITY, _NONE, Contention
from traceconv.analysis.replay import Delays
from traceconv.analysis.slices import NO_SIZE, Columns
from traceconv.analysis.vertices import find
from traceconv.base.int64 import Int64
from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.device import CUBE, Device, Task, Work
from traceconv.runtime.spec import reference_npu

_CLOCK_HZ = 10**9


def simulated(seed: int) -> tuple[Device, list[Task], list[tuple[int, int]]]:
    """Tasks on streams of the simulated device that need some of its 8 cores; (ns alone, cores) of each."""
    chance = random.Random(seed)
    spec = replace(reference_npu(), clock_hz=_CLOCK_HZ, launch_latency_ns=0, dispatch_gap_ticks=5)
    device = Device(spec, DeviceClock(0, 0, _CLOCK_HZ, 0))
    needs = [(chance.randint(1, 5_000), chance.randint(1, 8)) for _ in range(chance.randint(1, 40))]
    tasks = [
        device.submit(chance.randrange(4), chance.randint(0, 20_000), Work(ns, ((CUBE, cores),))) for ns, cores in needs
    ]
    device.run_all()
    return device, tasks, needs


def graph_of(tasks: list[Task], needs: list[tuple[int, int]]) -> tuple[Delays, Contention, Int64]:
    """Their graph: each starts after the previous one of its stream and after its arrival, a given vertex."""
    vertices = sorted(
        (time, end, n) for n, task in enumerate(tasks) for end, time in zip((2, 1), task.span, strict=True)
    )
    vertices = [(task.arrival, 0, n) for n, task in enumerate(tasks)] + vertices
    vertices.sort()
    place = {(n, what): at for at, (_, what, n) in enumerate(vertices)}
    previous, delay_ns, codes, edges = [], [], [], []
    last = {task.stream_id: -1 for task in tasks}
    before: dict[int, int] = {}
    for n, task in enumerate(tasks):
        before[n], last[task.stream_id] = last[task.stream_id], n
    for at, (_, what, n) in enumerate(vertices):
        previous.append({0: -1, 1: place[n, 2]}.get(what, place.get((before[n], 1), -1)))
        delay_ns.append(5)
        codes.append({0: _NONE, 1: ~n}.get(what, n))
        if what == 2:
            edges.append((place[n, 0], at))
    sources, targets = np.array(edges, np.int64).T.copy()
    offsets = np.searchsorted(targets, np.arange(len(vertices) + 1))
    delays = Delays(np.array(previous), np.array(delay_ns), offsets, sources.copy(), np.zeros(len(edges), np.int64))
    cores = np.array([[count * _CAPACITY // 8, 0, 0] for _, count in needs])
    bandwidths = np.zeros((len(needs), 2), np.int64)
    work = np.array([ns for ns, _ in needs]) * _CAPACITY
    zero = np.zeros(len(needs), np.int64)
    shared = Contention(np.array(codes), zero, cores, bandwidths, zero, work, np.hstack((cores, bandwidths)))
    return delays, shared, np.array([time for time, _, _ in vertices])


@pytest.mark.parametrize("in_c", [True, False])
def test_the_replay_shares_as_the_device_does(in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_c and not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    monkeypatch.setattr(contention.native, "AVAILABLE", in_c)
    slowed = 0
    for seed in range(100):
        _, tasks, needs = simulated(seed)
        delays, shared, times = graph_of(tasks, needs)
        # What is passed in for vertices with predecessors doesn't matter. Speeds are rounded here and there.
        given = np.where(shared.tasks == _NONE, times, -99)
        assert np.abs(shared.times(delays, given) - times).max() <= 2
        measured = shared.measured(times)
        alone = np.array([ns for ns, _ in needs])
        assert np.abs(measured.work // _CAPACITY - alone).max() <= 2
        assert measured.times(delays, times).tolist() == times.tolist()
        slowed += sum(task.span[1] - task.span[0] > ns for task, (ns, _) in zip(tasks, needs, strict=True))
        everything = np.ones(len(needs), bool)
        faster = measured.faster(everything, Fraction(3, 2))
        assert (faster.work <= measured.work * 2 // 3 + 1).all()
        if in_c:
            found = faster.times(delays, times)
            monkeypatch.setattr(contention.native, "AVAILABLE", False)
            assert faster.times(delays, times).tolist() == found.tolist()
            monkeypatch.setattr(contention.native, "AVAILABLE", True)
    assert slowed > 500


def test_malformed_arguments_are_refused() -> None:
    if not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    delays, shared, times = graph_of(*simulated(0)[1:])
    for name, wrong in (
        ("tasks", shared.tasks + 10**6), ("work", shared.work[:-1].copy()), ("devices", shared.devices[:-1].copy()),
        ("demands", shared.demands[:-1].copy()),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="of different lengths"):
            replace(shared, **{name: wrong}).times(delays, times)
    with pytest.raises(ValueError, match="not before its vertex"):
        shared.times(replace(delays, sources=delays.sources + 10**6), times)
    none, zero, rest = np.zeros((len(shared.work), 2), np.int64), np.zeros_like(shared.work), (1, 1)
    for codes, at, devices in (
        (shared.tasks, times[::-1].copy(), shared.devices),
        (shared.tasks + 10**6, times, shared.devices),
        (shared.tasks, times, shared.devices[:-1].copy()),
    ):
        with pytest.raises(ValueError, match="not in order"):
            native.work(codes, at, devices, none, zero, shared.demands.copy(), shared.work.copy(), *rest)


def test_work_and_bandwidths_are_the_same_in_c_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that need memory and L2, in several busy periods, of which some need more rounds than others."""
    if not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    slowed = 0
    for seed in range(60):
        chance = random.Random(seed)
        _, tasks, needs = simulated(seed)
        _, shared, times = graph_of(tasks, needs)
        span = np.array([task.span[1] - task.span[0] for task in tasks])
        busy_ns = np.array([[chance.randint(0, int(ns)), chance.choice((0, int(ns)))] for ns in span])
        devices = np.array([chance.randrange(2) for _ in tasks])
        alone_ns = np.array([chance.choice((0, chance.randint(1, int(ns)))) for ns in span])
        shared = replace(shared, busy_ns=busy_ns, devices=devices, alone_ns=alone_ns, work=span * _CAPACITY)
        found = []
        for in_c in (True, False):
            monkeypatch.setattr(contention.native, "AVAILABLE", in_c)
            measured = shared.measured(times)
            found.append((measured.work.tolist(), measured.demands.tolist()))
        assert found[0] == found[1], seed
        slowed += int((measured.work < shared.work).sum())
    assert slowed > 100


def test_a_task_within_another_one_is_not_alone() -> None:
    """Task 0 runs around task 1, then 2 alone, and 3 on another device meanwhile; 1, 2 and 3 do the same."""
    codes = np.array([0, 1, ~1, ~0, 2, 3, ~2, ~3])
    alone_ns, is_alone = contention._alone(
        codes, np.array([0, 0, 0, 1]), np.array([90, 30, 20, 25]), np.array([7, 8, 8, 8])
    )
    assert (alone_ns.tolist(), is_alone.tolist()) == ([0, 20, 20, 20], [False, False, True, True])


def test_durations_of_more_than_9_billion_bytes() -> None:
    """A number of bytes times 10^9 exceeds 64 bits from 9.22 GB on; it is divided exactly all the same."""
    chance = random.Random(0)
    edge, most = (2**63 - 1) // 10**9, 2**63 - 1
    counts = [0, 1, edge, edge + 1, 10**10, most, *(chance.randrange(2 ** chance.randrange(64)) for _ in range(2000))]
    rates = [0, 1, 3, 10**12, most, *(chance.randrange(2 ** chance.randrange(64)) for _ in range(2001))]
    found = contention._duration(np.array(counts), np.array(rates))
    longest = contention._LONGEST_NS
    expected = [
        min(count * 10**9 // rate, longest) if rate > 0 else 0 for count, rate in zip(counts, rates, strict=True)
    ]
    assert found.tolist() == expected
    assert sum(count > edge and 0 < ns < longest for count, ns in zip(counts, expected, strict=True)) > 100


def test_sums_beyond_64_bits_stay_the_largest_number() -> None:
    if not native.AVAILABLE:
        pytest.skip("needs the C extension: python setup.py build_ext --inplace")
    most = np.iinfo(np.int64).max
    codes, devices, work = np.array([0, 1, 2, ~0, ~1, ~2]), np.zeros(3, np.int64), np.zeros(3, np.int64)
    none, rest = np.zeros((3, 2), np.int64), (1, 1)
    demands = np.zeros((3, 5), np.int64)
    demands[:, 0] = 2**62
    # Three tasks ask for as much as counts, 2^36 each: they run at a speed of 2^40 / (3 × 2^36), rounded down.
    native.work(codes, np.array([0, 0, 0, 9, 9, 9]), devices, none, work.copy(), demands, work, *rest)
    assert work.tolist() == [9 * 5, 9 * 5, 9 * 5]
    # A task alone has the speed 2^20, so that its work in 2^62 ns is beyond 64 bits, as is the time.
    for begin in (0, -most):
        native.work(
            codes[[0, 3]],
            np.array([begin, 2**62]),
            devices[:1],
            none[:1],
            devices[:1],
            np.ones((1, 5), np.int64),
            work[:1],
            *rest,
        )
        assert work[0] == most


def test_tasks_do_the_same_if_their_ops_do_or_their_names_are_equal() -> None:
    """Ops 5 and 6 are alike; 7 has no type. Sizes and names count where ops don't say what a task does."""
    ops = Columns(
        id=np.array([7, 6, 5]), is_untyped=np.array([True, False, False]), bytes=np.zeros(3, np.int64),
        signature=np.array([7, 5, 5]),
    ).followed_by(contention._NO_OP)  # fmt: skip
    rows = [
        (5, 1, NO_SIZE), (6, 2, NO_SIZE),  # alike, whatever their names
        (5, 1, 64), (6, 2, 64), (5, 1, 65),  # a size of their own
        (7, 1, NO_SIZE), (7, 1, NO_SIZE), (7, 2, NO_SIZE),
        (-1, 1, NO_SIZE), (-1, 1, NO_SIZE), (-1, 1, 64),
        (9, 1, NO_SIZE),  # an op that the run doesn't have
    ]  # fmt: skip
    op, name_key, size_bytes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    tasks = Columns(op=op, name_key=name_key.astype(np.uint64), size_bytes=size_bytes)
    found = contention._signatures(tasks, ops, find(ops["id"], op)).tolist()
    places = [found.index(one) for one in found]
    assert places == [0, 0, 2, 2, 4, 5, 5, 7, 8, 8, 10, 8]
    same = contention._signatures(tasks, contention._NO_OP, np.full(len(op), -1)).tolist()
    assert [same.index(one) for one in same] == [0, 1, 2, 3, 4, 0, 0, 1, 0, 0, 2, 0]
