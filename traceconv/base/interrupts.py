"""Hold Ctrl-C while something starts that has to be ended, and recognise DuckDB's error for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Start processes with Ctrl-C blocked: it is for this process, which ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def are_held() -> bool:
    """Whether this process was started so, and whoever ends it ends the processes that it started."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def is_interrupt(error: BaseException) -> bool:
    """Whether `error` is DuckDB's error for Ctrl-C, which has no class of its own."""
    return isinstance(error, RuntimeError) and "interrupted" in str(error)
