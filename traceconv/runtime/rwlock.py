"""A readers-writer lock that prefers writers: many runs at a time, or one change of what is recorded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """`shared` for runs, `exclusive` for what must not happen during a run.

    Reentrant: user code may run inside, in a signal handler or when the garbage collector finishes a generator, and
    begin or end a profile there.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: Thread → how many times it is inside, in either way.
        self.inside: dict[int, int] = {}
        self._waiting = 0
        self._owner: int | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Enter once no other thread has, or waits for, exclusive access."""
        thread = threading.get_ident()
        with self._changed:
            while thread not in self.inside and (self._owner is not None or self._waiting):
                self._changed.wait()
            self._enter(thread)
        try:
            yield
        finally:
            with self._changed:
                self._leave(thread)

    def is_inside(self) -> bool:
        """Whether this thread has entered."""
        return threading.get_ident() in self.inside

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Enter once no other thread is inside."""
        thread = threading.get_ident()
        with self._changed:
            self._waiting += 1
            try:
                while self._owner not in (None, thread) or self.inside.keys() - {thread}:
                    self._changed.wait()
            finally:
                self._waiting -= 1
                self._changed.notify_all()
            before, self._owner = self._owner, thread
            self._enter(thread)
        try:
            yield
        finally:
            with self._changed:
                self._owner = before
                self._leave(thread)

    def _enter(self, thread: int) -> None:
        self.inside[thread] = self.inside.get(thread, 0) + 1

    def _leave(self, thread: int) -> None:
        self.inside[thread] -= 1
        if not self.inside[thread]:
            del self.inside[thread]
        self._changed.notify_all()
