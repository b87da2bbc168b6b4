"""Spans of random programs, compared with a plain list: one row each, whatever their order and thread."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import pytest
from references import dangling

import traceconv

LANES = 5
ERRORS = (None, None, None, KeyError, asyncio.CancelledError)


@dataclass
class Remembered:
    """A span: its lane, when it began and ended among all that happened, and by what."""

    name: str
    lane: int
    begin: int
    span: Any
    end: int | None = None
    exception: str | None = None


class Lanes:
    """Two threads, two asyncio tasks of a third, and the main thread, which execute commands, one at a time."""

    def __init__(self) -> None:
        self._queues: list[SimpleQueue[Any]] = [SimpleQueue(), SimpleQueue()]
        self._loop = asyncio.new_event_loop()
        self._async_queues = [asyncio.Queue[Any]() for _ in range(2)]
        self._threads = [
            *(threading.Thread(target=self._serve, args=(queue,)) for queue in self._queues),
            threading.Thread(target=lambda: self._loop.run_until_complete(self._serve_tasks())),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _serve(queue: SimpleQueue[Any]) -> None:
        while (order := queue.get()) is not None:
            order()

    async def _serve_tasks(self) -> None:
        async def serve(queue: asyncio.Queue[Any]) -> None:
            while (order := await queue.get()) is not None:
                order()

        await asyncio.gather(*(serve(queue) for queue in self._async_queues))

    def _put(self, lane: int, order: Callable[[], object] | None) -> None:
        if lane < 2:
            self._queues[lane].put(order)
        else:
            self._loop.call_soon_threadsafe(self._async_queues[lane - 2].put_nowait, order)

    def do(self, lane: int, work: Callable[[], object]) -> None:
        if lane == LANES - 1:
            work()
            return
        done = threading.Event()
        self._put(lane, lambda: (work(), done.set()))
        assert done.wait(60)

    def close(self) -> None:
        for lane in range(LANES - 1):
            self._put(lane, None)
        for thread in self._threads:
            thread.join()
        self._loop.close()


def play(seed: int, lanes: Lanes) -> list[Remembered]:
    """A program of a few hundred begins and ends; some spans stay open, some are ended by another lane."""
    choose = random.Random(seed)
    spans: list[Remembered] = []
    for moment in range(400):
        is_open = [one for one in spans if one.end is None]
        if not is_open or (len(is_open) < 12 and choose.random() < 0.55):
            name, lane = f"name {choose.randrange(6)}", choose.randrange(LANES)
            made = Remembered(name, lane, moment, traceconv.span(name, moment=moment))
            spans.append(made)
            lanes.do(lane, made.span.__enter__)
            continue
        one, error = choose.choice(is_open), choose.choice(ERRORS)
        one.end, one.exception = moment, None if error is None else error.__name__
        lane = one.lane if choose.random() < 0.9 else choose.randrange(LANES)
        lanes.do(lane, lambda one=one, error=error: one.span.__exit__(error, None, None))  # type: ignore[misc]
    return spans


@pytest.mark.parametrize("seed", range(4))
def test_each_span_is_one_row(seed: int) -> None:
    lanes = Lanes()
    try:
        with traceconv.profile() as p:
            spans = play(seed, lanes)
    finally:
        lanes.close()
    rows = p.arrow(
        "SELECT name, (args->>'$.moment')::INT AS moment, track_id, depth, parent_id, id, start_ns, dur_ns, exception, "
        "json_keys(args) AS keys FROM range ORDER BY moment"
    ).to_pylist()
    assert [(row["moment"], row["name"], row["dur_ns"] is None, row["exception"]) for row in rows] == [
        (one.begin, one.name, one.end is None, one.exception) for one in spans
    ]
    assert {tuple(row["keys"]) for row in rows} == {("moment",)}
    # Times are in the order in which all happened.
    times = {one.begin: row["start_ns"] for one, row in zip(spans, rows, strict=True)}
    times |= {one.end: row["start_ns"] + row["dur_ns"] for one, row in zip(spans, rows, strict=True) if one.end}
    assert [times[moment] for moment in sorted(times)] == sorted(times.values())
    # Depth counts what encloses it on its lane; the parent is the latest of that.
    ids = {row["id"]: one for one, row in zip(spans, rows, strict=True)}
    tracks: dict[int, int] = {}
    for one, row in zip(spans, rows, strict=True):
        if one.lane not in (2, 3):  # a line of asyncio is another task's when none is open
            assert tracks.setdefault(one.lane, row["track_id"]) == row["track_id"]
        if one.end is None:
            continue
        around = [
            other for other, its in zip(spans, rows, strict=True)
            if its["track_id"] == row["track_id"] and other.begin < one.begin and (other.end or 1_000) > one.end
        ]  # fmt: skip
        assert row["depth"] == len(around)
        assert ids.get(row["parent_id"]) is (around[-1] if around else None)
    assert not p.arrow("SELECT * FROM import_log WHERE severity <> 'info'").to_pylist()


@dataclass
class Taken:
    """A profile, and what a list remembers of it: the moments between which it records."""

    profiler: traceconv.Profiler
    begin: int
    periods: list[tuple[int, int]]
    recording_since: int | None
    end: int | None = None

    def pieces(self, one: Remembered) -> list[tuple[int, int | None, str | None]]:
        """(first moment, last moment, exception) of the rows that a span is in this profile."""
        assert self.end is not None
        if one.begin < self.begin or one.begin > self.end:
            return []
        is_open = one.end is None or one.end > self.end
        until = self.end if one.end is None else one.end
        found: list[tuple[int, int | None, str | None]] = [
            (max(one.begin, first), min(until, last), None)
            for first, last in self.periods
            if one.begin < last and until > first
        ]
        if found:
            found[-1] = (found[-1][0], None if is_open else found[-1][1], None if is_open else one.exception)
        return found


def play_profiles(seed: int, lanes: Lanes) -> tuple[list[Remembered], list[Taken]]:
    """As `play`, in profiles that begin, pause, go on and end at any moment; all of them end."""
    choose = random.Random(seed)
    spans: list[Remembered] = []
    profiles: list[Taken] = []

    def stop(taken: Taken, moment: int) -> None:
        if taken.recording_since is not None:
            taken.periods.append((taken.recording_since, moment))
            taken.recording_since = None

    def end(taken: Taken, moment: int) -> None:
        taken.profiler.stop()
        stop(taken, moment)
        taken.end = moment

    for moment in range(300):
        taken = [one for one in profiles if one.end is None]
        what = choose.choice(["begin", "pause", "pause", "resume", "resume", "end", *["span"] * 20])
        if what == "begin" and len(taken) < 3 and len(profiles) < 6:
            profiles.append(Taken(traceconv.profile(), moment, [], moment))
            profiles[-1].profiler.start()
        elif what == "pause" and taken:
            paused = choose.choice(taken)
            lanes.do(choose.randrange(LANES), paused.profiler.pause)
            stop(paused, moment)
        elif what == "resume" and taken:
            resumed = choose.choice(taken)
            lanes.do(choose.randrange(LANES), resumed.profiler.resume)
            resumed.recording_since = moment if resumed.recording_since is None else resumed.recording_since
        elif what == "end" and taken:
            end(choose.choice(taken), moment)
        elif what == "span":
            is_open = [one for one in spans if one.end is None]
            if not is_open or (len(is_open) < 8 and choose.random() < 0.55):
                lane = choose.randrange(LANES)
                spans.append(Remembered("span", lane, moment, traceconv.span("span", moment=moment)))
                lanes.do(lane, spans[-1].span.__enter__)
            else:
                one, error = choose.choice(is_open), choose.choice(ERRORS)
                one.end, one.exception = moment, None if error is None else error.__name__
                lane = one.lane if choose.random() < 0.9 else choose.randrange(LANES)
                lanes.do(lane, lambda one=one, error=error: one.span.__exit__(error, None, None))  # type: ignore[misc]
    for taken_still in [one for one in profiles if one.end is None]:
        end(taken_still, 1_000)
    return spans, profiles


#: More of them are run by `make test-long`.
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 6))]


@pytest.mark.parametrize("seed", SEEDS)
def test_profiles_that_pause_and_overlap(seed: int) -> None:
    lanes = Lanes()
    try:
        spans, profiles = play_profiles(seed, lanes)
    finally:
        lanes.close()
    assert len(profiles) > 1
    for taken in profiles:
        rows = taken.profiler.arrow(
            "SELECT (args->>'$.moment')::INT AS moment, span_id, args->>'$.continues' AS continues, "
            "start_ns, dur_ns, exception FROM range ORDER BY moment, start_ns, span_id"
        ).to_pylist()
        expected = [(one.begin, *piece) for one in spans for piece in taken.pieces(one)]
        found = [(row["moment"], row["dur_ns"] is None, row["exception"]) for row in rows]
        assert found == [(moment, last is None, exception) for moment, _, last, exception in expected]
        # Each piece continues the one before it, and all times are in the order in which all happened.
        times: list[tuple[int, int]] = []
        before: dict[int, int] = {}
        for row, (moment, first, last, _) in zip(rows, expected, strict=True):
            assert row["continues"] == before.get(moment)
            before[moment] = row["span_id"]
            times.append((first, row["start_ns"]))
            times += [] if last is None else [(last, row["start_ns"] + row["dur_ns"])]
        assert [ns for _, ns in sorted(times)] == sorted(ns for _, ns in times)
        assert not taken.profiler.arrow("SELECT * FROM import_log WHERE severity <> 'info'").to_pylist()
        assert dangling(taken.profiler.store.connection) == []
