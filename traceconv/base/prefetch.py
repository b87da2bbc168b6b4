"""An iterator's next items are made in a thread of their own, while those before them are worked on."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Event, Thread
from typing import TypeVar

Item = TypeVar("Item")

#: So many items are made without a thread: for a few it is not worth one.
_FEW = 2


def ahead(items: Iterator[Item], depth: int = 1) -> Generator[Item, None, None]:
    """The items of `items`, in order; up to `depth` of them wait, made before they are asked for.

    It is worth it where making and using an item spend their time outside of the interpreter's lock: in numpy, Arrow,
    DuckDB. What `items` raises is raised here, behind the items before it. Closing this waits for the item that is
    being made, and closes `items`.
    """
    try:
        for _ in range(_FEW):
            item: Item | _End = next(items, _End())
            if isinstance(item, _End):
                return
            yield item
        yield from _made_beside(items, depth)
    finally:
        if isinstance(items, Generator):
            items.close()


@dataclass(frozen=True, slots=True)
class _End:
    """Stands behind the last item."""

    error: BaseException | None = None


def _made_beside(items: Iterator[Item], depth: int) -> Iterator[Item]:
    made: Queue[Item | _End] = Queue(depth)
    unwanted = Event()
    maker = Thread(target=_make, args=(items, made, unwanted), name="traceconv-ahead", daemon=True)
    maker.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        unwanted.set()
        # The maker may wait for room; behind every item it looks whether more are wanted.
        _empty(made)
        maker.join()


def _make(items: Iterator[Item], made: Queue[Item | _End], unwanted: Event) -> None:
    end = _End()
    try:
        for item in items:
            made.put(item)
            if unwanted.is_set():
                return
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the items are used
        end = _End(error)
    made.put(end)


def _empty(made: Queue[Item | _End]) -> None:
    try:
        while True:
            made.get_nowait()
    except Empty:
        return
