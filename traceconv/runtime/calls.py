"""The calls of a host in real time, as in C: `call_log` returns either."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from traceconv import native
from traceconv.runtime.clock import LiveClock
from traceconv.runtime.event_log import CALL_BEGINS, CALL_ENDS, NONE32, Buffer, append


class CallLog:
    """Appends the words of a host's calls to a buffer. They have the next of `numbers`."""

    def __init__(self, buffer: Buffer, clock: LiveClock, numbers: Iterator[int]) -> None:
        self._buffer, self._now, self._numbers = buffer, clock.now, numbers
        self._begin_ns = 0

    @contextmanager
    def call(self, word: int, step_id: int, has_inner: bool) -> Iterator[int]:
        """A call around a `with` block, which gets its number; `word`: 4 · head.

        has_inner  another call with the next head begins right after it and ends right before; its number is 1 less
        """
        number = next(self._numbers)
        inner = range(1 + has_inner)
        for place in inner:
            append(self._buffer, self._now(), 0, 0, number - place, word + 4 * place + CALL_BEGINS, step_id)
        try:
            yield number
        finally:
            for place in reversed(inner):
                append(self._buffer, self._now(), 0, 0, number - place, word + 4 * place + CALL_ENDS, NONE32)

    def dispatch(
        self,
        put: Callable[[Any], object],
        words: dict[int, int],
        add_word: Callable[[int], int],
        step_id: int,
        op_index: int,
        work: Any,
    ) -> None:
        """Put work into a queue, as a call. `words`: index of an op → 4 · head + shape, which `add_word` adds."""
        begin_ns = self._now()
        put(work)
        end_ns = self._now()
        word = words.get(op_index) or add_word(op_index)
        append(self._buffer, begin_ns, end_ns, 0, next(self._numbers), word, step_id)

    def enter(self) -> None:
        """Note when the worker begins a launch."""
        self._begin_ns = self._now()

    def launched(self, submit_ns: int, word: int, step_id: int) -> int:
        """Log the launch that ends now; return the number of the call inside it, which began at `submit_ns`."""
        number = next(self._numbers)
        append(self._buffer, self._begin_ns, submit_ns, self._now(), number, word, step_id)
        return number - 1


def call_log(buffer: Buffer, clock: LiveClock, numbers: Iterator[int]) -> CallLog | native.CallLog:
    """Return a log of calls."""
    return (native.CallLog if native.AVAILABLE else CallLog)(buffer, clock, numbers)
