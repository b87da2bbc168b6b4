"""Make imports quick in processes that run only our code: the command line, and what it starts."""

from __future__ import annotations

from traceconv.base.lazy_compute import wrap_functions_on_use
from traceconv.base.unused_modules import hide_unused_modules


def make_imports_quick() -> None:
    """Prepare this process, before it imports other packages."""
    hide_unused_modules()
    wrap_functions_on_use()
