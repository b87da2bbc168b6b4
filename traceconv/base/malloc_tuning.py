"""How little memory the process keeps beyond what it uses. All of it is advice: where it can't be given, it is not."""

from __future__ import annotations

import errno
import os

from traceconv.base.errors import TraceconvError

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Smaller blocks come from the heap, and so much of it is kept free: else the system would take them back, and clear
#: them anew, each time.
_HEAP_BLOCK_BYTES, _KEPT_BYTES = 8 << 20, 64 << 20
#: Libraries and their threads take most of it, long before there are any data.
_LEAST_ADDRESS_SPACE = 768 << 20


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


def is_starved(error: BaseException) -> bool:
    """Whether there was no memory, or no room for a thread: libraries say it in ways of their own."""
    if isinstance(error, MemoryError):
        return True
    words = str(error)
    if isinstance(error, ImportError):
        return "failed to map segment" in words or "annot allocate memory" in words
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return "can't start new thread" in words or "Failed to launch worker thread" in words


def require_address_space() -> None:
    """Refuses to begin where the limit of the address space (ulimit -v) is too low: libraries would crash."""
    try:
        import resource
    except ImportError:  # not a Unix system
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise TraceconvError(
            f"the address space of the process is limited to {limit >> 20} MB (ulimit -v), and "
            f"{_LEAST_ADDRESS_SPACE >> 20} MB are needed; raise the limit"
        )


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
