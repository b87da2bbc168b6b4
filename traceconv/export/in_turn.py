"""Work that threads share, with its results in the order of what was given to them, and little of it waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 2


def in_turn(work: Callable[[Item], Result], items: Iterable[Item], ahead: int = _THREADS) -> Iterator[Result]:
    """The result of `work` for each item, in order; at most `ahead` items are worked on or wait to be taken.

    `items` is asked by the thread that takes the results. What `work` raises is raised here. When the results are no
    longer wanted, what is being worked on is waited for.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(_THREADS, "export") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                del item
                if len(waiting) >= ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
