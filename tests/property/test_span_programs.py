"""Spans of random programs, against what a list remembers of them: one row each, whatever their order and thread."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import pytest

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
    """Two threads, two asyncio tasks of a third, and the main thread, which do what they are told, one at a time."""

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
