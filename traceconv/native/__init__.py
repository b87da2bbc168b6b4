"""The C extension: the loops over a trace's bytes that take the most time, outside of the interpreter lock.

It is optional: each caller has an equivalent in Python, for what a function here returns None for, for installations
without a C compiler, and for TRACECONV_NATIVE=0, which shows whether a fault is here.
"""

from __future__ import annotations

import os

try:
    from traceconv.native._native import *  # noqa: F403 - its stub has all names
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("TRACECONV_NATIVE") != "0"
