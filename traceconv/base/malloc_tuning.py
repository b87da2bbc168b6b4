"""Limit the free memory that the process keeps. Best effort: a no-op where glibc is not the C library."""

from __future__ import annotations

import errno
import os

from traceconv.base.errors import TraceconvError

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Blocks below this size come from the heap.
_HEAP_BLOCK_BYTES = 8 << 20
#: Minimum address space: libraries and their threads take most of it before any data is read.
_LEAST_ADDRESS_SPACE = 768 << 20


def limit_arenas(count: int = 3, *, kept_bytes: int = 64 << 20) -> None:
    """Use `count` heaps for all threads and for Arrow; to be called before threads start and before Arrow is loaded.

    With a heap per thread and another for Arrow, an ingest would keep a quarter more memory than it uses. With one
    heap, they wait for each other. Up to `kept_bytes` of them stay free: otherwise the system would reclaim and zero
    the same pages over and over.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's linear algebra is not used
    _call("mallopt", _M_ARENA_MAX, count)
    _call("mallopt", _M_MMAP_THRESHOLD, _HEAP_BLOCK_BYTES)
    _call("mallopt", _M_TRIM_THRESHOLD, kept_bytes // count)


def is_starved(error: BaseException) -> bool:
    """Whether an error means that memory, or room for a thread, ran out: libraries report it in different ways."""
    if isinstance(error, MemoryError):
        return True
    words = str(error)
    if isinstance(error, ImportError):
        return "failed to map segment" in words or "annot allocate memory" in words
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return "can't start new thread" in words or "Failed to launch worker thread" in words


def require_address_space() -> None:
    """Raise TraceconvError if the address space limit (ulimit -v) is so low that libraries would crash."""
    try:
        import resource
    except ImportError:  # not a Unix system
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE:
        raise TraceconvError(
            f"the address space is limited to {limit >> 20} MB (ulimit -v), but "
            f"{_LEAST_ADDRESS_SPACE >> 20} MB are needed; raise the limit"
        )


def trim_heap() -> None:
    """Return free memory to the system, between steps that use a lot of it for different purposes."""
    _call("malloc_trim", 0)


def _call(name: str, *arguments: int) -> None:
    """Call a function of glibc, if it is the C library."""
    import ctypes

    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # TypeError: not a Unix system
        return
    function(*arguments)
