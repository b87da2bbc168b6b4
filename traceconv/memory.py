"""How little memory the process keeps beyond what it uses. All of it is advice: where it can't be given, it is not."""

from __future__ import annotations

import os

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Smaller blocks come from the heap, and so much of it is kept free: else the system would take them back, and clear
#: them anew, each time.
_HEAP_BLOCK_BYTES, _KEPT_BYTES = 8 << 20, 64 << 20


def keep_little() -> None:
    """For programs, before they start threads or load Arrow: one heap for all threads, and Arrow takes from it too.

    Each thread having a heap of its own, and Arrow one more, an ingest would keep a quarter more memory than it uses.
    What columns of a batch take and free again and again stays with the heap.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's algebra is not used: its threads would only be started
    _call("mallopt", _M_ARENA_MAX, 1)
    _call("mallopt", _M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
    _call("mallopt", _M_TRIM_THRESHOLD, _KEPT_BYTES)


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
