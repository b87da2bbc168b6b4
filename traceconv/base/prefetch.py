"""Produce an iterator's next items in a background thread while earlier ones are in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from typing import TypeVar

from traceconv.base.workers import Workers

Item = TypeVar("Item")

#: Items produced without a thread: for so few, it would cost more than it saves.
_FEW = 2


def prefetch(items: Iterator[Item], depth: int = 1) -> Generator[Item, None, None]:
    """Yield `items` in order, with up to `depth` of them waiting and one in production.

    Use it where producing and using an item release the interpreter lock: numpy, Arrow, DuckDB. An error in `items`
    is raised after the items before it. Closing waits for the item in production, then closes `items`.
    """
    try:
        for _ in range(_FEW):
            try:
                item = next(items)
            except StopIteration:
                return
            yield item
        yield from _in_thread(items, depth)
    finally:
        if isinstance(items, Generator):
            items.close()


def _in_thread(items: Iterator[Item], depth: int) -> Iterator[Item]:
    pool = Workers(1, "traceconv-prefetch")
    try:
        waiting: deque[Future[Item]] = deque(pool.submit(next, items) for _ in range(depth + 1))
        while True:
            try:
                item = waiting.popleft().result()
            except StopIteration:
                return
            waiting.append(pool.submit(next, items))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
