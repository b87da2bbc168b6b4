"""Many may run at a time, or one may change what is recorded: a lock for readers and a writer, who goes first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """`shared` for runs, `exclusive` for what must see no run under way. Not reentrant."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._sharing: dict[int, int] = {}
        self._waiting = 0
        self._owner: int | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Waits while somebody has, or waits for, the gate alone."""
        thread = threading.get_ident()
        with self._changed:
            while self._owner is not None or self._waiting:
                self._changed.wait()
            self._sharing[thread] = self._sharing.get(thread, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing[thread] -= 1
                if not self._sharing[thread]:
                    del self._sharing[thread]
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Waits until nobody else is inside."""
        with self._changed:
            self._waiting += 1
            try:
                while self._owner is not None or self._sharing:
                    self._changed.wait()
            finally:
                self._waiting -= 1
                self._changed.notify_all()
            self._owner = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._owner = None
                self._changed.notify_all()
