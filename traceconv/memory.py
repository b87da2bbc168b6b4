"""How little memory the process keeps beyond what it uses. All of it is advice: where it can't be given, it is not."""

from __future__ import annotations

import os

_M_ARENA_MAX = -8  # of glibc's malloc.h


def keep_little() -> None:
    """For programs, before they start threads or load Arrow: one heap for all threads, and Arrow takes from it too.

    Each thread having a heap of its own, and Arrow one more, an ingest would keep a quarter more memory than it uses.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _call("mallopt", _M_ARENA_MAX, 1)


def give_back() -> None:
    """Gives memory that is free back to the system: between steps that use much of it for different things."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Calls a function of glibc; other C libraries do not have it."""
    import ctypes

    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # TypeError: there is no C library to be found by no name
        return
    function(*arguments)
