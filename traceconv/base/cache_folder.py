"""Where things are kept that can be made again: one folder of the user's, which need not be there."""

from __future__ import annotations

import os
from pathlib import Path

#: Name of the variable that says where the folder is; empty: nothing is kept.
CACHE_VARIABLE = "TRACECONV_CACHE"


def cache_folder() -> Path | None:
    """$TRACECONV_CACHE, or `traceconv` in $XDG_CACHE_HOME, or in ~/.cache; None when nothing is to be kept.

    The folder may not be there yet, and it may be one that can't be written: whoever uses it goes on without.
    """
    named = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        if named is not None:
            return Path(named).expanduser() if named else None
        return Path(base).expanduser() / "traceconv"
    except RuntimeError:  # no home that is known
        return None
