"""The device's time: concurrent tasks share resources exactly, and nothing runs out of order."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.runtime import device as dev
from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.device import EVENT, Device, Task, Work, bandwidth, capacities
from traceconv.runtime.spec import reference_npu

SPEC = dataclasses.replace(reference_npu(), dispatch_gap_ticks=0, launch_latency_ns=0)
HBM_CAPACITY = capacities(SPEC)[dev.HBM]


def new_device() -> Device:
    return Device(SPEC, DeviceClock(0, 0, 1_000_000_000, 0))  # a tick is a nanosecond


def spans(*tasks: Task) -> list[tuple[int, int]]:
    return [task.span for task in tasks]


def test_two_tasks_that_need_all_of_the_memory_take_twice_as_long() -> None:
    device = new_device()
    work = Work(1_000, ((dev.HBM, HBM_CAPACITY),))
    one, two = device.submit(0, 0, work), device.submit(1, 0, work)
    device.run_all()
    assert spans(one, two) == [(0, 2_000), (0, 2_000)]


def test_a_task_is_slow_only_while_others_run() -> None:
    device = new_device()
    work = Work(1_000, ((dev.HBM, HBM_CAPACITY),))
    one, two = device.submit(0, 0, work), device.submit(1, 600, work)
    device.run_all()
    # 600 alone, then both at half speed until the first has done its other 400, then the second's other 600 alone.
    assert spans(one, two) == [(0, 1_400), (600, 2_000)]


def test_cores_are_shared_only_between_tasks_that_need_them() -> None:
    device = new_device()
    cube = Work(1_000, ((dev.CUBE, SPEC.cube_cores * 3 // 4),))
    vector = Work(1_000, ((dev.VECTOR, SPEC.vector_cores),))
    tasks = [device.submit(stream, 0, work) for stream, work in enumerate((cube, cube, vector))]
    device.run_all()
    # Two thirds of full speed is not a multiple of 2^-24: rounded down, so a tick more.
    assert spans(*tasks) == [(0, 1_501), (0, 1_501), (0, 1_000)]


def test_tasks_that_fit_together_are_not_slowed() -> None:
    device = new_device()
    tasks = [device.submit(stream, 0, Work(700, ((dev.HBM, HBM_CAPACITY // 2), (dev.CUBE, 4)))) for stream in (0, 1)]
    device.run_all()
    assert spans(*tasks) == [(0, 700), (0, 700)]


def test_copies_in_both_directions_run_concurrently() -> None:
    device = new_device()
    tasks = [device.submit(s, 0, Work(500, ((link, 1),))) for s, link in enumerate((dev.LINK_IN, dev.LINK_OUT))]
    device.run_all()
    assert spans(*tasks) == [(0, 500), (0, 500)]


def test_a_wait_blocks_its_stream_until_the_event() -> None:
    device = new_device()
    work = device.submit(0, 0, Work(900))
    event = device.submit(0, 0, EVENT)
    wait = device.submit(1, 0, EVENT, event=event)
    after = device.submit(1, 0, Work(10))
    early = device.submit(2, 5_000, EVENT, event=event)
    device.run_all()
    assert spans(work, event, wait, after) == [(0, 900), (900, 902), (0, 904), (904, 914)]
    assert early.span == (5_000, 5_002)  # an event in the past blocks nothing


def test_time_advances_no_further_than_the_host_has_waited() -> None:
    device = new_device()
    work = Work(1_000, ((dev.HBM, HBM_CAPACITY),))
    short, long = device.submit(0, 0, Work(100)), device.submit(1, 0, work)
    assert device.done_ns(short) == 100 + SPEC.completion_latency_ns
    assert long.end is None
    late = device.submit(0, 2_000, work)  # submitted now, and too late to slow the other
    device.run_all()
    assert spans(long, late) == [(0, 1_000), (2_000, 3_000)]


def test_a_wait_for_an_event_that_never_occurs_is_detected() -> None:
    device, other = new_device(), new_device()
    wait = device.submit(0, 0, EVENT, event=other.submit(0, 0, EVENT))
    with pytest.raises(AssertionError, match="is deadlocked"):
        device.run_until(wait)


def test_a_hot_device_lowers_its_clock() -> None:
    """It gets hot by the work of its cores, not by copies and idle time. Tasks bound by memory stay as fast."""
    spec = dataclasses.replace(SPEC, clock_hz=10**9, throttle_after_ns=1_500)
    device = Device(spec, DeviceClock(0, 0, 10**9, 0))
    on_cores, copy = Work(1_000, throttled_ticks=2_000), Work(1_000, ((dev.LINK_IN, 1),))
    bound_by_memory = Work(1_000, ((dev.HBM, HBM_CAPACITY),), throttled_ticks=1_000)
    alone = [device.submit(0, at, work) for at, work in ((0, copy), (5_000, on_cores), (7_000, on_cores))]
    later = [device.submit(stream, 9_000, work) for stream, work in enumerate((on_cores, bound_by_memory, copy))]
    device.run_all()
    assert spans(*alone) == [(0, 1_000), (5_000, 6_000), (7_000, 8_500)]  # the other half takes twice as long
    assert device.throttled_at == 7_500
    assert spans(*later) == [(9_000, 11_000), (9_000, 10_000), (9_000, 10_000)]


WORKS = st.builds(
    lambda ticks, hbm, l2, cores, kind: (ticks, hbm, l2, cores, kind),
    st.integers(1, 5_000),
    st.integers(0, 4_000_000),
    st.integers(0, 4_000_000),
    st.integers(1, 8),
    st.sampled_from((dev.CUBE, dev.VECTOR, dev.CPU)),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3_000), WORKS), min_size=1, max_size=40))
def test_concurrent_tasks_never_exceed_the_resources(
    plan: list[tuple[int, int, tuple[int, int, int, int, int]]],
) -> None:
    spec = reference_npu()
    device = Device(spec, DeviceClock(10**9, 77, spec.clock_hz, 23_000))
    now, tasks = 10**9, []
    for stream, wait, (ticks, hbm, l2, cores, kind) in plan:
        now += wait
        demands = ((dev.HBM, bandwidth(hbm, ticks)), (dev.L2, bandwidth(l2, ticks)), (kind, cores))
        # As in the runtime, no task asks for more than there is when it is alone.
        capacity = capacities(spec)
        demands = tuple((r, min(amount, capacity[r])) for r, amount in demands)
        tasks.append(device.submit(stream, now, Work(ticks, demands)))
    device.run_all()
    ends = dict.fromkeys(range(6), 0)
    for (stream, _, _), task in zip(plan, tasks, strict=True):
        start, end = task.span
        assert start >= task.arrival and end - start >= task.work.ticks
        assert device.clock.ns_at(start) >= task.submit_ns + spec.launch_latency_ns
        assert not ends[stream] or start >= ends[stream] + spec.dispatch_gap_ticks
        ends[stream] = end
    moments = sorted({moment for task in tasks for moment in task.span})
    for first in moments[::3]:
        for last in moments[::-3]:
            if last <= first:
                break
            asked = [0] * len(dev.RESOURCES)
            for task in tasks:
                if first <= task.span[0] and task.span[1] <= last:
                    for resource, amount in task.work.demands:
                        asked[resource] += amount * task.work.ticks
            assert all(a <= (last - first) * c for a, c in zip(asked, capacities(spec), strict=True))
    alone = [t for t in tasks if all(o is t or o.span[1] <= t.span[0] or t.span[1] <= o.span[0] for o in tasks)]
    assert all(task.span[1] - task.span[0] == task.work.ticks for task in alone)


@given(st.lists(st.integers(1, 2_000), min_size=1, max_size=12), st.integers(1, 2_000))
def test_more_work_on_one_stream_takes_longer(sizes: list[int], more: int) -> None:
    def total(work: list[int]) -> int:
        device = new_device()
        tasks = [device.submit(0, 0, Work(ticks)) for ticks in work]
        device.run_all()
        return tasks[-1].span[1]

    assert total(sizes) == sum(sizes)
    assert total([*sizes[:-1], sizes[-1] + more]) == total(sizes) + more
