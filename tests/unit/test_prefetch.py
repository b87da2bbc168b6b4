"""Prefetched items arrive in order, errors at their position, and no thread is left running."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from traceconv.base.prefetch import prefetch


def threads() -> int:
    return sum(thread.name.startswith("traceconv-prefetch") for thread in threading.enumerate())


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("depth", [1, 3])
def test_all_items_arrive_in_order(count: int, depth: int) -> None:
    assert list(prefetch(iter(range(count)), depth)) == list(range(count))
    assert threads() == 0


@pytest.mark.parametrize("place", [0, 1, 2, 3, 9])
def test_an_error_is_raised_after_the_items_before_it(place: int) -> None:
    def failing() -> Iterator[int]:
        yield from range(place)
        raise KeyError("odd")

    taken: list[int] = []
    with pytest.raises(KeyError, match="odd"):
        taken.extend(prefetch(failing()))
    items = prefetch(failing())
    assert [next(items) for _ in range(place)] == list(range(place))
    with pytest.raises(KeyError, match="odd"):
        next(items)
    assert threads() == 0


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 5])
def test_closing_early_closes_the_source_and_leaves_no_thread(taken: int) -> None:
    closed = []

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.append(True)

    source = endless()
    items = prefetch(source)
    assert [next(items) for _ in range(taken)] == list(range(taken))
    items.close()
    assert threads() == 0
    if taken:
        assert closed == [True]


def test_items_are_produced_while_earlier_ones_are_in_use() -> None:
    made = threading.Event()

    def two_steps() -> Iterator[int]:
        yield 0
        yield 1
        yield 2
        made.set()
        yield 3

    items = prefetch(two_steps())
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    assert made.wait(10), "the item after the one in use was not started"
    assert list(items) == [3]


def test_exit_handlers_prefetch_without_a_thread() -> None:
    program = (
        "import atexit; from traceconv.base.prefetch import prefetch; from traceconv.base.workers import Workers\n"
        "atexit.register(lambda: print(*prefetch(iter(range(9)))))\n"
        "atexit.register(lambda: print(repr(Workers(1).submit(int, 'x').exception())))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    failure = "ValueError(\"invalid literal for int() with base 10: 'x'\")"
    assert (done.stdout, done.stderr) == (f"{failure}\n0 1 2 3 4 5 6 7 8\n", "")
