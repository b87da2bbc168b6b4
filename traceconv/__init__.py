"""Profiler logs of NPUs and GPUs in one DuckDB store, with reports on them.

traceconv.ingest("traces/", db="trace.duckdb")
with traceconv.open_store("trace.duckdb") as store:  # or a trace file
    store.reports()  # what can be asked
    store.report("kernels", top=10).df()
    store.query("SELECT kind, sum(dur_ns) FROM task GROUP BY kind").df()
    store.advise()
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from traceconv._version import __version__
from traceconv.base.errors import (
    DataLossError,
    DataLossWarning,
    IncomparableError,
    InputError,
    ModelError,
    OutputError,
    StoreError,
    StoreMigrated,
    TraceconvError,
    UsageError,
    suggestion,
)

if TYPE_CHECKING:
    from traceconv.api import (
        compare,
        dump,
        first_answers,
        get_profile,
        info,
        ingest,
        lake_ingest,
        open_store,
        record,
        verify,
    )
    from traceconv.opened_store import Store
    from traceconv.profiler import Profiler, profile
    from traceconv.runtime.expression import profile_expression
    from traceconv.runtime.op_functions import ops
    from traceconv.runtime.op_profile import profile_op
    from traceconv.runtime.spans import span
    from traceconv.runtime.training.optimizers import Optimizer
    from traceconv.runtime.training.options import TrainOptions
    from traceconv.runtime.training.user_session import TrainingSession
    from traceconv.runtime.user_session import Session

__all__ = [
    "DataLossError",
    "DataLossWarning",
    "IncomparableError",
    "InputError",
    "ModelError",
    "Optimizer",
    "OutputError",
    "Profiler",
    "Session",
    "Store",
    "StoreError",
    "StoreMigrated",
    "TraceconvError",
    "TrainOptions",
    "TrainingSession",
    "UsageError",
    "__version__",
    "compare",
    "dump",
    "first_answers",
    "get_profile",
    "info",
    "ingest",
    "lake_ingest",
    "open_store",
    "ops",
    "profile",
    "profile_expression",
    "profile_op",
    "record",
    "span",
    "verify",
]

#: Where each name is defined; it is imported on first use, so that `import traceconv` loads nothing heavy.
_MODULES = {
    "Optimizer": "traceconv.runtime.training.optimizers",
    "Profiler": "traceconv.profiler",
    "Session": "traceconv.runtime.user_session",
    "Store": "traceconv.opened_store",
    "TrainOptions": "traceconv.runtime.training.options",
    "TrainingSession": "traceconv.runtime.training.user_session",
    "compare": "traceconv.api",
    "dump": "traceconv.api",
    "first_answers": "traceconv.api",
    "get_profile": "traceconv.api",
    "info": "traceconv.api",
    "ingest": "traceconv.api",
    "lake_ingest": "traceconv.api",
    "open_store": "traceconv.api",
    "ops": "traceconv.runtime.op_functions",
    "profile": "traceconv.profiler",
    "profile_expression": "traceconv.runtime.expression",
    "profile_op": "traceconv.runtime.op_profile",
    "record": "traceconv.api",
    "span": "traceconv.runtime.spans",
    "verify": "traceconv.api",
}
#: The first use of one of these starts the profile that TRACECONV_OUTPUT asks for.
_PROFILED = frozenset({"Profiler", "Session", "TrainingSession", "profile", "span"})


def _current_folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib is not loaded for it
    except OSError:
        return None


#: A relative TRACECONV_OUTPUT is relative to this folder, wherever the program goes before it runs a model.
_STARTED_IN = _current_folder() if os.environ.get("TRACECONV_OUTPUT") else None


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet, for the completion of names."""
    return sorted(__all__)


if not TYPE_CHECKING:  # type checkers would take any name as one of the package

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            near = "" if name.startswith("_") else suggestion(name, __all__)
            raise AttributeError(f"module 'traceconv' has no attribute '{name}'.{near}")
        from importlib import import_module

        if name in _PROFILED and os.environ.get("TRACECONV_OUTPUT"):
            import_module("traceconv.profiler").start_from_environment(_STARTED_IN)
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)  # spans are looked up often
        return value
