"""One writer at a time for a file that may not exist yet, by a lock file that the kernel releases with the process.

The lock is on the open file, so a lock file left by a killed program blocks nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path


class FileLock:
    """The lock of a file, held from construction until `release`.

    If no lock file can be created (no write permission, a file system without locks), nothing is locked, and writers
    must expect others.
    """

    def __init__(self, path: Path, on_wait: Callable[[], None]) -> None:
        """Wait for the lock of `path`. `on_wait` is called once if another program has it. Ctrl-C ends the wait."""
        self._path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None
        reported = False

        def report_wait() -> None:
            nonlocal reported
            if not reported:
                on_wait()
            reported = True

        while self._descriptor is None:
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            except OSError:
                return
            try:
                if not _take(descriptor, report_wait):
                    os.close(descriptor)
                    return
                if self._is_current(descriptor):
                    self._descriptor = descriptor
                else:  # its owner has removed the file
                    os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise

    def release(self) -> None:
        """Release the lock and remove the lock file."""
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
    """Try to lock; whether it succeeded."""
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
