"""The device clock against exact fractions, and its error bound against simulated clocks."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.normalize.clock import LIMIT, DeviceClock, align, unsynced

Reading = tuple[int, int, int]  # ticks, host before, host after


def clock_of(readings: list[Reading], clock_hz: int = 10**9) -> DeviceClock | None:
    ticks, before, after = (list(column) for column in zip(*readings, strict=True)) if readings else ([], [], [])
    return align(np.array(ticks, np.uint64), np.array(before, np.int64), np.array(after, np.int64), clock_hz)


def exact(readings: list[Reading], tick: int) -> int:
    """Return the floor of the line through the midpoints of the two readings next to `tick`."""
    middles = [(ticks, before + (after - before) // 2) for ticks, before, after in readings]
    place = max(0, min(sum(ticks <= tick for ticks, _ in middles) - 1, len(middles) - 2))
    (t0, h0), (t1, h1) = middles[place : place + 2]
    return floor(Fraction(h0) + Fraction(tick - t0) * Fraction(h1 - h0, t1 - t0))


@st.composite
def rising_readings(draw: st.DrawFn, largest: int) -> list[Reading]:
    """2 to 6 increasing readings of both clocks, with gaps up to `largest` and equal uncertainty."""
    gap = st.integers(1, largest.bit_length()).flatmap(lambda bits: st.integers(1, min(largest, 1 << bits)))
    half = draw(st.integers(0, 1000))
    tick, host = draw(st.integers(0, largest)), draw(st.integers(-largest, largest))
    readings = []
    for _ in range(draw(st.integers(2, 6))):
        readings.append((tick, host - half, host + half))
        tick += draw(gap)
        host += draw(gap)
    return readings


@given(rising_readings(1 << 59), st.lists(st.integers(0, LIMIT), min_size=1, max_size=20))
def test_every_tick_maps_to_the_exact_floor_of_the_line(readings: list[Reading], ticks: list[int]) -> None:
    clock = clock_of(readings)
    assert clock is not None
    between = [(readings[0][0] + readings[-1][0]) // 2, readings[0][0], readings[-1][0], readings[-1][0] + 1]
    asked = [*ticks, *between]
    got, valid = clock.to_host_ns(np.array(asked, np.uint64))
    mask = [True] * len(asked) if valid is None else valid.tolist()
    for tick, host_ns, is_valid in zip(asked, got.tolist(), mask, strict=True):
        wanted = exact(readings, tick)
        if is_valid:
            assert host_ns == wanted
        else:  # only ticks beyond the limit, or too far from the nearest reading
            assert abs(wanted) >= LIMIT // 2


@given(rising_readings(1 << 40), st.lists(st.integers(0, 1 << 44), min_size=2, max_size=30))
def test_the_map_is_monotone(readings: list[Reading], ticks: list[int]) -> None:
    clock = clock_of(readings)
    assert clock is not None
    got, valid = clock.to_host_ns(np.array(sorted(ticks), np.uint64))
    assert np.all(np.diff(got if valid is None else got[valid]) >= 0)


@given(rising_readings(1 << 59), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8))
def test_one_batch_and_many_yield_the_same_times(readings: list[Reading], ticks: list[int]) -> None:
    """Other ticks of a batch (near, far, invalid) use other code paths and must not change a tick's time."""
    together, apart = clock_of(readings), clock_of(readings)
    assert together is not None
    assert apart is not None
    host_ns, valid = together.to_host_ns(np.array(ticks, np.uint64))
    mask = np.ones(len(ticks), np.bool_) if valid is None else valid
    for tick, one_ns, is_valid in zip(ticks, host_ns.tolist(), mask.tolist(), strict=True):
        single_ns, single_valid = apart.to_host_ns(np.array([tick], np.uint64))
        assert bool(single_valid is None or single_valid[0]) == is_valid
        if is_valid:
            assert single_ns.tolist() == [one_ns]
    assert together.error_bound_ns() == apart.error_bound_ns()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1) | st.integers(0, 50),
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50),
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50),
        ),
        max_size=12,
    ),
    st.lists(st.integers(0, 2**64 - 1), max_size=5),
    st.integers(1, 1 << 40),
)
def test_invalid_readings_never_raise(readings: list[Reading], ticks: list[int], clock_hz: int) -> None:
    clock = clock_of(readings, clock_hz)
    if clock is None:
        return
    summary = clock.summary
    assert summary.used + summary.delayed + summary.contradicting == len(readings)
    assert summary.used >= 1
    clock.to_host_ns(np.array(ticks, np.uint64))
    bound = clock.error_bound_ns()
    assert bound is None or 0 < bound < LIMIT


def test_without_readings_there_is_no_clock() -> None:
    assert clock_of([]) is None
    assert clock_of([(5, 10, 9)]) is None  # the host time after the reading is earlier than before it
    assert clock_of([(1 << 63, 0, 1)]) is None
    assert clock_of([(5, -(2**63), 9)]) is None


def test_one_reading_is_extrapolated_at_the_nominal_frequency() -> None:
    clock = clock_of([(1000, 5_000, 5_010)], clock_hz=100_000_000)
    assert clock is not None
    got, valid = clock.to_host_ns(np.array([1000, 1001, 999, 0], np.uint64))
    assert got.tolist() == [5_005, 5_015, 4_995, -4_995]
    assert valid is None
    assert clock.error_bound_ns() is None


def test_without_readings_the_first_tick_has_the_given_time() -> None:
    clock = unsynced(70, 1_000, 100_000_000)
    got, _ = clock.to_host_ns(np.array([70, 71], np.uint64))
    assert got.tolist() == [1_000, 1_010]
    assert clock.error_bound_ns() is None


@pytest.mark.parametrize("wrong", [0, 3, 9])
def test_one_contradicting_reading_is_ignored(wrong: int) -> None:
    """Even the first one, far ahead: the majority decides."""
    readings = [(tick, tick * 10, tick * 10) for tick in range(1000, 11_000, 1000)]
    readings[wrong] = (readings[wrong][0], 10**15, 10**15) if wrong < 9 else (readings[wrong][0], 7, 7)
    clock = clock_of(readings)
    assert clock is not None
    assert (clock.summary.used, clock.summary.contradicting) == (9, 1)
    got, _ = clock.to_host_ns(np.array([1500, 4000, 12_000], np.uint64))
    assert got.tolist() == [15_000, 40_000, 120_000]


def test_one_of_two_readings_of_a_tick_is_used() -> None:
    clock = clock_of([(0, 0, 0), (100, 1000, 1000), (100, 1010, 1010), (200, 2000, 2000)])
    assert clock is not None
    assert (clock.summary.used, clock.summary.contradicting) == (3, 1)


def test_a_delayed_reading_is_skipped() -> None:
    readings = [(tick, tick * 10 - 5, tick * 10 + 5) for tick in range(0, 1000, 100)]
    readings[4] = (400, 3_995, 900_000)
    clock = clock_of(readings)
    assert clock is not None
    assert (clock.summary.used, clock.summary.delayed) == (9, 1)
    assert clock.to_host_ns(np.array([400], np.uint64))[0].tolist() == [4_000]


def simulate(seed: int) -> tuple[int, int]:
    """Return (bound, largest true error) of a random clock with varying drift, maybe a jump, and delayed readings."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 60))
    tick_ns = float(rng.choice([1.0, 10.0, 20.0]))
    interval = float(rng.choice([1e6, 1e7, 1e8, 1e9]))
    # The true map from ticks to host time, piecewise linear with 8 knots per sync interval.
    pieces = 8 * (count + 1)
    rate = 1 + np.cumsum(rng.normal(0, float(rng.choice([0, 1e-9, 1e-7])), pieces)) + rng.normal(0, 3e-5)
    lengths_ns = np.full(pieces, interval / 8)
    knot_host = np.concatenate([[0.0], np.cumsum(lengths_ns)])
    knot_tick = np.concatenate([[0.0], np.cumsum(lengths_ns / tick_ns / rate)])
    # A jump of the counter: two knots at one host time.
    jump_at = float(rng.uniform(0.2, 0.8) * knot_host[-1])
    jump_ticks = float(rng.choice([0, 0, 1])) * rng.uniform(0, 50_000) / tick_ns
    place = int(np.searchsorted(knot_host, jump_at))
    ticks_at_jump = float(np.interp(jump_at, knot_host, knot_tick))
    knot_tick[place:] += jump_ticks
    knot_tick = np.insert(knot_tick, place, [ticks_at_jump, ticks_at_jump + jump_ticks])
    knot_host = np.insert(knot_host, place, [jump_at, jump_at + 1e-3])
    # The counter is read anywhere between the two host times, sometimes very late.
    read_at = np.linspace(knot_host[1], knot_host[-2], count)
    late = rng.random(count) < 0.1
    late[[0, -1]] = False  # errors before the first good reading or after the last one can't be detected
    wait = rng.uniform(100, 2_000, count) * np.where(late, 50, 1)
    share = rng.random(count)
    ticks = np.floor(np.interp(read_at, knot_host, knot_tick)).astype(np.uint64)
    before, after = np.floor(read_at - share * wait), np.ceil(read_at + (1 - share) * wait)
    clock = align(ticks, before.astype(np.int64), after.astype(np.int64), round(1e9 / tick_ns))
    assert clock is not None
    asked = np.sort(rng.uniform(float(ticks[0]), float(ticks[-1]), 2_000)).astype(np.uint64)
    got, _ = clock.to_host_ns(asked)
    true = np.interp(asked.astype(np.float64), knot_tick, knot_host)
    bound = clock.error_bound_ns()
    assert bound is not None
    return bound, int(np.abs(got - true).max())


def test_the_true_error_stays_within_a_tight_bound() -> None:
    results = [simulate(seed) for seed in range(1_500)]
    beyond = [(seed, *result) for seed, result in enumerate(results) if result[1] > result[0]]
    assert not beyond
    bounds, errors = zip(*results, strict=True)
    assert np.median(bounds) <= 10 * np.median(errors)
