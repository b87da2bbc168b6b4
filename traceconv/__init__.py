"""traceconv: profiler logs of NPUs and GPUs into one DuckDB store, and answers out of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from traceconv._version import __version__

if TYPE_CHECKING:
    from traceconv.api import Store, ingest, open_store, record
    from traceconv.profiler import Profiler, profile
    from traceconv.runtime.op_profile import profile_op
    from traceconv.runtime.spans import span
    from traceconv.runtime.training.optimizers import Optimizer
    from traceconv.runtime.training.options import TrainOptions
    from traceconv.runtime.training.user_session import TrainingSession
    from traceconv.runtime.user_session import Session

__all__ = [
    "Optimizer",
    "Profiler",
    "Session",
    "Store",
    "TrainOptions",
    "TrainingSession",
    "__version__",
    "ingest",
    "open_store",
    "profile",
    "profile_op",
    "record",
    "span",
]

#: What runs models or profiles them; all else is in traceconv.api.
_PROFILING = {
    "Profiler": "traceconv.profiler",
    "Session": "traceconv.runtime.user_session",
    "TrainingSession": "traceconv.runtime.training.user_session",
    "profile": "traceconv.profiler",
    "span": "traceconv.runtime.spans",
}
#: What has nothing to do with a recording.
_OTHERS = {
    "Optimizer": "traceconv.runtime.training.optimizers",
    "TrainOptions": "traceconv.runtime.training.options",
    "profile_op": "traceconv.runtime.op_profile",
}


def _current_folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - nothing is loaded for it
    except OSError:
        return None


#: A relative TRACECONV_OUTPUT is meant from here, wherever the program goes before it runs a model.
_STARTED_IN = _current_folder() if os.environ.get("TRACECONV_OUTPUT") else None


def __getattr__(name: str) -> object:
    # The API is imported when it is first used: `import traceconv` alone loads nothing heavy.
    if name in __all__:
        from importlib import import_module

        if name in _PROFILING and os.environ.get("TRACECONV_OUTPUT"):
            import_module("traceconv.profiler").start_from_environment(_STARTED_IN)
        found = getattr(import_module({**_PROFILING, **_OTHERS}.get(name, "traceconv.api")), name)
        globals()[name] = found  # a span may be made very often
        return found
    raise AttributeError(f"module 'traceconv' has no attribute '{name}'")
