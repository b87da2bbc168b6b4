"""traceconv: profiler logs of NPUs and GPUs into one DuckDB store, and answers out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceconv.api import Store, ingest, open_store, record

__version__ = "0.1.0"
__all__ = ["Store", "__version__", "ingest", "open_store", "record"]


def __getattr__(name: str) -> object:
    # The API is imported when it is first used: `import traceconv` alone loads nothing heavy.
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("traceconv.api"), name)
    raise AttributeError(f"module 'traceconv' has no attribute '{name}'")
