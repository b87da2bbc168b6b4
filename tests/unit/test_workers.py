"""Work behind its caller is done in order, one call at a time, and its errors reach the caller."""

from __future__ import annotations

import threading

import pytest

from traceconv.base.workers import AtOnce, WorkBehind, Workers


def test_calls_run_in_order_in_the_thread() -> None:
    done: list[tuple[int, str]] = []
    with Workers(1, "behind") as workers:
        behind = WorkBehind(workers)
        for number in range(20):
            behind.submit(lambda number=number: done.append((number, threading.current_thread().name)))
            assert len(done) >= number  # all calls before it have ended
        behind.wait()
    assert done == [(number, "behind_0") for number in range(20)]


def test_without_threads_calls_run_at_once() -> None:
    done: list[int] = []
    behind = WorkBehind(None)
    behind.submit(done.append, 1)
    assert done == [1]
    behind.wait()


def test_an_error_is_raised_once_by_the_next_call() -> None:
    with Workers(1, "behind") as workers:
        behind = WorkBehind(workers)
        behind.submit(int, "odd")  # type: ignore[arg-type]  # any function that fails
        with pytest.raises(ValueError, match="odd"):
            behind.submit(print)
        behind.wait()


def test_without_a_thread_calls_are_made_at_once() -> None:
    pool, seen = AtOnce(), list[int]()
    pool.submit(seen.append, 1)
    assert seen == [1]
    failed = pool.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result()
    pool.shutdown(cancel_futures=True)
    assert pool.submit(int, "7").result() == 7
