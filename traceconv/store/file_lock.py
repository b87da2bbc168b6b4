"""One writer at a time for a file that may not exist yet: a lock file beside it, freed by the kernel with the process.

The lock is on the open file, not on its being there: what a killed program leaves behind keeps nobody out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path


class FileLock:
    """The lock of one file, held from the making of this object until `release`.

    Where no lock can be made (a folder that is not ours to write in, a file system without locks) nothing is held:
    whoever writes the file must bear with others.
    """

    def __init__(self, path: Path, on_wait: Callable[[], None]) -> None:
        """Waits for the lock of `path`; `on_wait` is told once when another has it. Ctrl-C ends the waiting."""
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None
        told = False

        def tell() -> None:
            nonlocal told
            if not told:
                on_wait()
            told = True

        while self._descriptor is None:
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            except OSError:
                return
            try:
                if not _take(descriptor, tell):
                    os.close(descriptor)
                    return
                if self._is_current(descriptor):
                    self._descriptor = descriptor
                else:  # whoever had it took the file away
                    os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise

    def release(self) -> None:
        """Lets the next one in, and takes the lock file away."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        ours = os.fstat(descriptor)
        try:
            there = self._path.stat()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _take(descriptor: int, on_wait: Callable[[], None]) -> bool:
    """Whether the lock could be had, when nobody else has it any more."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
    except OSError:
        return False
    else:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        return False
    return True
