"""Ticks and nanoseconds map onto each other exactly; emulation does not move the host's clock."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
from hand_clock import turned_by_hand
from hypothesis import given
from hypothesis import strategies as st

from traceconv.runtime.clock import DeviceClock, LiveClock, LiveThread, ModelledThread, Random

CLOCKS = st.builds(
    DeviceClock,
    st.integers(0, 10**18),
    st.integers(0, 1 << 40),
    st.sampled_from((48_000_000, 50_000_000, 100_000_000, 1_000_000_000)),
    st.integers(-200_000, 200_000),
)


@given(CLOCKS, st.integers(0, 10**15))
def test_a_tick_is_the_floor_of_a_time(clock: DeviceClock, elapsed: int) -> None:
    host_ns = clock.origin_ns + elapsed
    ticks = clock.ticks_at(host_ns)
    assert clock.ns_at(ticks) <= host_ns < clock.ns_at(ticks + 1)
    assert clock.ticks_at(clock.ns_at(ticks)) == ticks
    after = clock.ticks_after(host_ns)
    assert after in (ticks, ticks + 1) and clock.ns_at(after) >= host_ns


def test_drift_has_the_given_rate() -> None:
    clock = DeviceClock(1_000, 5, 50_000_000, 23_000)
    assert clock.ticks_at(1_000) == 5
    assert clock.ticks_at(1_000 + 10**9) - 5 == 50_000_000 + 1_150  # 23 ppm of 50 million


@given(CLOCKS, st.integers(0, 10**12), st.integers(1, 1 << 40))
def test_a_jump_occurs_once_and_time_continues_evenly(clock: DeviceClock, elapsed: int, leap: int) -> None:
    at = clock.ticks_after(clock.origin_ns + elapsed)
    jumping = dataclasses.replace(clock, jump_at=at, jump_ticks=leap)
    assert [jumping.reading(t) - t for t in (at - 1, at, at + 1)] == [0, leap, leap]
    assert jumping.ns_at(at + 5) == clock.ns_at(at + 5)


def test_emulation_takes_no_host_time(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = turned_by_hand(monkeypatch)
    clock = LiveClock()
    thread = LiveThread(1, "channel", clock)
    real, before = time.monotonic_ns(), thread.now()
    with clock.stopped():
        hand.ns += 50_000_000
    moved, really = thread.now() - before, time.monotonic_ns() - real
    assert 0 <= moved <= really


def test_nobody_reads_the_clock_while_it_is_stopped() -> None:
    clock = LiveClock()
    read: list[int] = []
    with clock.stopped():
        other = threading.Thread(target=lambda: read.append(clock.now()))
        other.start()
        other.join(0.02)
        assert not read
    other.join()
    assert len(read) == 1


def test_a_thread_that_stops_the_clock_reads_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a signal handler during emulation, which would wait for itself."""
    hand = turned_by_hand(monkeypatch)
    clock = LiveClock()
    with clock.stopped():
        shown_ns = clock.now()
        hand.ns += 50_000_000
        assert clock.now() == shown_ns
    assert shown_ns <= clock.now() < shown_ns + 50_000_000


def test_no_thread_sees_the_clock_go_back_or_count_a_stop() -> None:
    clock = LiveClock()
    done = threading.Event()
    seen: list[list[int]] = [[], []]

    def read(times: list[int]) -> None:
        while not done.is_set() or len(times) < 100:
            times.extend((clock.now(), clock.now()))

    threads = [threading.Thread(target=read, args=(times,)) for times in seen]
    for thread in threads:
        thread.start()
    stopped_ns = 0
    began, real = clock.now(), time.monotonic_ns()
    for _ in range(200):
        with clock.stopped():
            before = time.monotonic_ns()
            stopped_ns += time.monotonic_ns() - before
    ran, really = clock.now() - began, time.monotonic_ns() - real
    done.set()
    for thread in threads:
        thread.join()
    assert ran <= really - stopped_ns
    assert all(times == sorted(times) for times in seen)


def test_a_fork_while_stopped_leaves_a_running_clock() -> None:
    clock = LiveClock()
    with clock.stopped():
        clock.after_fork()
        assert clock.now() <= clock.now()


def test_modelled_threads_are_reproducible_and_monotone() -> None:
    def times() -> list[int]:
        thread = ModelledThread(1, "channel", 1_000, 9)
        seen = []
        for step in range(50):
            thread.spend(step * 10)
            thread.wait_until(1_500)
            seen.append(thread.now())
        return seen

    assert times() == times() == sorted(times())


def test_the_random_numbers_are_splitmix64() -> None:
    # First outputs for seed 0, as published with the algorithm.
    random = Random(0)
    assert [random.bits64() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
