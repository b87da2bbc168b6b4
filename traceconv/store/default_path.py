"""The path of the store that is used by default."""

from __future__ import annotations

import os
from pathlib import Path

#: Environment variable with the path of the store, and the default file name.
STORE_VARIABLE = "TRACECONV_DB"
STORE_NAME = "trace.duckdb"


def default_store_path() -> Path:
    """Return the default path: $TRACECONV_DB, or trace.duckdb in the current folder."""
    return named_store(Path(os.environ.get(STORE_VARIABLE) or STORE_NAME))


def named_store(path: Path) -> Path:
    """Expand `~` in a user's path if there is a home folder."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
