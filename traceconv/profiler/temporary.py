"""Files that are deleted with their profiler, except unread logs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from traceconv.base.errors import OutputError, printable, reason_of


class TemporaryFiles:
    """A temporary folder, created on first use, for logs of profiles without an output and the store for reports.

    unread  unread logs, to be moved to a new folder in `start`
    """

    def __init__(self, start: Path) -> None:
        self.start = start
        self.unread: list[Path] = []
        self._process_id = os.getpid()
        self._lock = threading.RLock()
        self._folder: Path | None = None

    @property
    def are_own(self) -> bool:
        """Whether this process created the files. A forked child must leave them to its parent."""
        return os.getpid() == self._process_id

    def folder(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="traceconv-"))
            return self._folder

    def remove(self) -> None:
        """Delete the files, but keep unread logs and print their path on stderr."""
        folder, unread = self._folder, [path for path in self.unread if path.exists()]
        if folder is None or not self.are_own:
            return
        self._folder = None
        self.unread.clear()
        if unread:
            count = "a profile" if len(unread) == 1 else f"{len(unread)} profiles"
            try:
                kept = new_folder(self.start)
                for path in unread:
                    shutil.move(path, kept / path.name)
            except (OSError, OutputError) as error:
                print_stderr(f"not read: {count}, left in {printable(str(folder))}: {printable(str(error))}")
                return
            print_stderr(f"not read: {count}, kept in {printable(str(kept))}")
        shutil.rmtree(folder, ignore_errors=True)


def new_folder(parent: Path) -> Path:
    """Create a new folder that is named after the current time. Raises OutputError."""
    folder = first = parent / time.strftime("traceconv-%Y%m%d-%H%M%S")
    number = 1
    while True:
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
        except OSError as error:
            shown = printable(str(folder))
            raise OutputError(f"can't write {shown}: {reason_of(error)}; give an output") from error


def print_stderr(text: str) -> None:
    """Print a line on stderr, if there is one."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"traceconv: {text}\n")
