"""traceconv: profiler logs of NPUs and GPUs into one DuckDB store, and answers out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceconv.api import Store, ingest, open_store, record
    from traceconv.profiler import Profiler, profile
    from traceconv.runtime.spans import span
    from traceconv.runtime.user_session import Session

__version__ = "0.1.0"
__all__ = ["Profiler", "Session", "Store", "__version__", "ingest", "open_store", "profile", "record", "span"]

#: What runs models or profiles them; all else is in traceconv.api.
_PROFILING = {
    "Profiler": "traceconv.profiler",
    "Session": "traceconv.runtime.user_session",
    "profile": "traceconv.profiler",
    "span": "traceconv.runtime.spans",
}


def __getattr__(name: str) -> object:
    # The API is imported when it is first used: `import traceconv` alone loads nothing heavy.
    if name in __all__:
        from importlib import import_module

        if name in _PROFILING:
            import os

            if os.environ.get("TRACECONV_OUTPUT"):
                import_module("traceconv.profiler").start_from_environment()
        return getattr(import_module(_PROFILING.get(name, "traceconv.api")), name)
    raise AttributeError(f"module 'traceconv' has no attribute '{name}'")
