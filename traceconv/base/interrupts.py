"""Ctrl-C: hold it while something starts that has to be ended, and let it end what DuckDB computes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Start processes with Ctrl-C blocked: it is for this process, which ends them. It is raised afterwards."""
    before, handler = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), signal.getsignal(signal.SIGINT)
    held: list[tuple[int, FrameType | None]] = []
    # Another thread, in which it isn't blocked, may get it: Python handles it in the main thread all the same.
    is_handled = callable(handler) and threading.current_thread() is threading.main_thread()
    if is_handled:
        signal.signal(signal.SIGINT, lambda *interrupt: held.append(interrupt))
    try:
        yield
    finally:
        if is_handled:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if held and callable(handler):
            handler(*held[0])


def are_held() -> bool:
    """Whether this process was started so, and whoever ends it ends the processes that it started."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def is_interrupt(error: BaseException) -> bool:
    """Whether `error` is DuckDB's error for Ctrl-C, which has no class of its own."""
    return isinstance(error, RuntimeError) and "interrupted" in str(error)


#: Called on Ctrl-C, before Python raises KeyboardInterrupt.
at_interrupt: list[Callable[[], None]] = []


def heed_at_interrupt() -> None:
    """Let Ctrl-C call `at_interrupt`, for the rest of this process. Call it in the main thread.

    DuckDB 2.0 notices Ctrl-C, but then waits for its threads, which end only if the connection is interrupted.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # it is ignored
        return

    def end(number: int, frame: FrameType | None) -> None:
        for call in at_interrupt:
            call()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, end)
