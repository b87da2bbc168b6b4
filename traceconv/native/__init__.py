"""What is written in C: the loops over a trace's text that take the most time, outside of the interpreter's lock.

It makes nothing possible: whoever calls it has another way, one by one, that gives the same. That way is taken where
one of these says None, where no C compiler was there when traceconv was installed, and where the variable
TRACECONV_NATIVE is 0: to see whether an error is here.
"""

from __future__ import annotations

import os

try:
    from traceconv.native._native import (
        Nester,
        events,
        fields,
        members,
        messages,
        patch,
        series,
        take,
        times,
        track_events,
        whole_numbers,
    )
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("TRACECONV_NATIVE") != "0"

__all__ = ["AVAILABLE", "Nester", "events", "fields", "members", "messages", "patch", "series", "take", "times",
           "track_events", "whole_numbers"]  # fmt: skip
