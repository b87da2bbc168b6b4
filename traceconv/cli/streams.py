"""Standard streams that are closed, full or left by their reader: what a command does must not depend on them.

Standard output is for results: when it can't be written, the command fails with one line. Whoever reads it may stop
early (`| head`), which ends the command quietly. Standard error is for diagnostics: when it can't be written, nothing
else changes.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from traceconv.base.errors import OutputError


class ReaderLeft(Exception):
    """Nobody reads standard output any more."""


class _Results(io.FileIO):
    """Standard output: an error of the system becomes one of ours, which no library takes for one of its own."""

    def write(self, data: object, /) -> int:
        """Writes, or raises ReaderLeft or OutputError."""
        try:
            return super().write(data)  # type: ignore[arg-type]  # any buffer, as its base takes
        except BrokenPipeError:
            raise ReaderLeft from None
        except OSError as error:
            raise OutputError(f"can't write standard output: {error.strerror or error}") from None


class _Diagnostics(io.FileIO):
    """Standard error: what can't be written is dropped."""

    def write(self, data: object, /) -> int:
        """Writes as much as can be, and says that it was all."""
        rest = memoryview(data).cast("B")  # type: ignore[arg-type]  # any buffer, as its base takes
        size = len(rest)
        with suppress(OSError):
            while rest and (written := super().write(rest)):
                rest = rest[written:]
        return size


def guard_streams() -> None:
    """Makes the three standard streams usable, whatever they are. To be called before any file is opened.

    A descriptor that is closed would be taken by the next file that is opened, and results be written into that.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # Standard output is opened for reading, so that what is written there fails.
            os.open(os.devnull, mode)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = _text(io.BufferedWriter(_Results(1, "w", closefd=False)), sys.stdout)
    # Without a buffer: what Ctrl-C interrupts would be written once more.
    sys.stderr = _text(_Diagnostics(2, "w", closefd=False), sys.stderr)


def finish(code: int) -> int:
    """Writes out what is left in standard output, and gives it up; returns the exit code."""
    try:
        sys.stdout.flush()
    except ReaderLeft:
        pass
    except OutputError as error:
        if not code:
            code = error.exit_code
            sys.stderr.write(f"traceconv: {error}\n")
    # What could not be written would be tried again when the interpreter ends.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _text(binary: io.BufferedWriter | io.FileIO, before: TextIO | None) -> TextIO:
    """A text stream over a binary one, with the encoding of the one before; what that lacks is escaped."""
    encoding, errors = ("utf-8", None) if before is None else (before.encoding, before.errors)
    return io.TextIOWrapper(
        binary,  # with write_through a raw file does
        encoding,
        "backslashreplace" if errors in (None, "strict") else errors,
        line_buffering=binary.isatty(),
        write_through=isinstance(binary, io.FileIO),
    )
