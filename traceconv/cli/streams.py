"""Standard streams that are closed, full or abandoned by their reader.

If standard output can't be written, the command fails with one line. Its reader may stop early (`| head`), which ends
the command silently. If standard error can't be written, nothing else changes.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
from contextlib import suppress
from typing import NoReturn, TextIO

from traceconv.base.errors import OutputError, reason_of


class ReaderLeft(Exception):
    """The reader of standard output has closed it."""


class _Results(io.FileIO):
    """Standard output. OSErrors become our own errors, which no library handles as its own."""

    def write(self, data: object, /) -> int:
        """Write, or raise ReaderLeft or OutputError."""
        try:
            return super().write(data)  # type: ignore[arg-type]  # any buffer, as its base takes
        except BrokenPipeError:
            raise ReaderLeft from None
        except OSError as error:
            raise OutputError(f"can't write standard output: {reason_of(error)}") from None


class _Diagnostics(io.FileIO):
    """Standard error. Text that can't be written is dropped."""

    def write(self, data: object, /) -> int:
        """Write as much as possible; return the full size."""
        rest = memoryview(data).cast("B")  # type: ignore[arg-type]  # any buffer, as its base takes
        size = len(rest)
        with suppress(OSError):
            while rest and (written := super().write(rest)):
                rest = rest[written:]
        return size


def guard_streams() -> None:
    """Make the three standard streams usable. Call it before any file is opened.

    The next file opened would get a closed descriptor, and results would be written into it.
    """
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # Standard output is opened for reading, so that writing to it fails.
            os.open(os.devnull, mode)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    sys.stdout = _text(io.BufferedWriter(_Results(1, "w", closefd=False)), sys.stdout)
    # Unbuffered: text interrupted by Ctrl-C would be written twice.
    sys.stderr = _text(_Diagnostics(2, "w", closefd=False), sys.stderr)


def finish(code: int) -> int:
    """Flush standard output and detach it; return the exit code."""
    try:
        sys.stdout.flush()
    except ReaderLeft:
        pass
    except OutputError as error:
        if not code:
            code = error.exit_code
            sys.stderr.write(f"traceconv: {error}\n")
    # The interpreter would try to flush again when it exits.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def leave(code: int) -> NoReturn:
    """End the process. All other threads have ended, and what was registered to run at exit runs.

    The interpreter would scan and free every loaded object, which takes a seventh of the time of a short command.
    """
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _text(binary: io.BufferedWriter | io.FileIO, before: TextIO | None) -> TextIO:
    """Wrap a binary stream as text in the encoding of `before`; characters that it lacks are escaped."""
    encoding, errors = ("utf-8", None) if before is None else (before.encoding, before.errors)
    return io.TextIOWrapper(
        binary,  # a raw file works because of write_through
        encoding,
        "backslashreplace" if errors in (None, "strict") else errors,
        line_buffering=binary.isatty(),
        write_through=isinstance(binary, io.FileIO),
    )
