"""The user's cache folder, for files that can be regenerated."""

from __future__ import annotations

import os
from pathlib import Path

#: Environment variable that sets the folder; empty: nothing is cached.
CACHE_VARIABLE = "TRACECONV_CACHE"


def cache_folder() -> Path | None:
    """$TRACECONV_CACHE, or `traceconv` in $XDG_CACHE_HOME or ~/.cache; None when caching is off.

    The folder may be missing or read-only: callers then work without a cache.
    """
    named = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        if named is not None:
            return Path(named).expanduser() if named else None
        return Path(base).expanduser() / "traceconv"
    except RuntimeError:  # the home folder is unknown
        return None
