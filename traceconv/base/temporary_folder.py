"""Folders that are deleted after use, even if Ctrl-C arrives while they are created."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a new folder that only its owner can read. Raises OSError.

    `tempfile` chooses the name itself, so an interrupt between the creation and the return leaves the folder behind.
    """
    folder = Path(tempfile.gettempdir(), f"traceconv-{secrets.token_hex(8)}")
    is_own = True
    try:
        try:
            folder.mkdir(mode=0o700)
        except OSError:
            is_own = False  # somebody else's, or there is none
            raise
        yield folder
    finally:
        if is_own:
            shutil.rmtree(folder, ignore_errors=True)
