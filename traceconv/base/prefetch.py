"""Produce an iterator's next items in a background thread while earlier ones are in use."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
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
        with closing(ReadAhead(items, depth)) as rest:
            yield from rest
    finally:
        if isinstance(items, Generator):
            items.close()


class ReadAhead(Iterator[Item]):
    """Yields `items` in order. A thread produces them from now on, and is up to `depth` of them ahead.

    at_first  the number of items that it produces before the first is asked for; of these, two are used for each new
              one, until only `depth` are left

    An error in `items` is raised after the items before it. Closing waits for the item in production, then closes
    `items`.
    """

    def __init__(self, items: Iterator[Item], depth: int, at_first: int = 0) -> None:
        self._items = items
        self._depth = depth
        self._used = 0
        self._pool = Workers(1, "traceconv-prefetch")
        self._waiting = deque(self._pool.submit(next, items) for _ in range(max(depth, at_first) + 1))

    def __next__(self) -> Item:
        item = self._waiting.popleft().result()
        self._used += 1
        if len(self._waiting) <= self._depth or self._used % 2:
            self._waiting.append(self._pool.submit(next, self._items))
        return item

    def close(self) -> None:
        """Stop producing items."""
        self._pool.shutdown(cancel_futures=True)
        if isinstance(self._items, Generator):
            self._items.close()
