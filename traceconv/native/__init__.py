"""The C extension: the loops over a trace's bytes that take the most time, outside of the interpreter lock.

It is optional: each caller has an equivalent in Python, for what a function here returns None for, for installations
without a C compiler, and for TRACECONV_NATIVE=0, which shows whether a fault is here.
"""

from __future__ import annotations

import os

try:
    from traceconv.native._native import (
        Buffer,
        CallLog,
        Clock,
        Nester,
        Paths,
        Span,
        SpanLog,
        apart,
        append,
        append_memory,
        append_tasks,
        causes,
        change_modules,
        delays,
        differences,
        end_of_bracketed,
        events,
        expand,
        extend,
        find,
        fit,
        integers,
        members,
        merge,
        messages,
        nest,
        objects,
        order,
        packets,
        pair,
        patch,
        records,
        replay,
        series,
        simulate,
        sqlite_rows,
        take,
        times,
        track_events,
        walk,
        work,
    )
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("TRACECONV_NATIVE") != "0"

__all__ = [
    "AVAILABLE",
    "Buffer",
    "CallLog",
    "Clock",
    "Nester",
    "Paths",
    "Span",
    "SpanLog",
    "apart",
    "append",
    "append_memory",
    "append_tasks",
    "causes",
    "change_modules",
    "delays",
    "differences",
    "end_of_bracketed",
    "events",
    "expand",
    "extend",
    "find",
    "fit",
    "integers",
    "members",
    "merge",
    "messages",
    "nest",
    "objects",
    "order",
    "packets",
    "pair",
    "patch",
    "records",
    "replay",
    "series",
    "simulate",
    "sqlite_rows",
    "take",
    "times",
    "track_events",
    "walk",
    "work",
]  # fmt: skip
