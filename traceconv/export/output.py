"""Output files that appear only when complete, and standard output."""

from __future__ import annotations

import ctypes
import gzip
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOENT
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING

from traceconv.base.errors import OutputError, printable, reason_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

#: Fast rather than small: traces are so repetitive that higher levels gain little (level 6: 10 % less).
_GZIP_LEVEL = 2
#: Characters of a file's name in that of its partial file: names have 255 bytes at most, a character up to four.
_NAME_PART = 50

#: Space that is reserved at a time, in files of more than the first size.
_LEAST_RESERVED_BYTES, _RESERVED_BYTES = 16 << 20, 64 << 20
#: From Linux's falloc.h: the file ends where it did.
_KEEP_SIZE = 1
#: From Linux's fs.h: what is written leaves the system's memory when it is on the disk. Not for smaller pieces.
_DONTCACHE, _LEAST_PIECE_BYTES = 0x80, 64 << 10
#: Bytes per second; a system that has memory writes several times as much to it.
_SLOW_RATE = 1 << 30


class _LargeFile(io.FileIO):
    """A new file that, once it is large, reserves space ahead: the system writes into it in half the time.

    Where new memory costs the system much time, as in virtual machines that get it from their host, what is written
    doesn't stay in memory, unless the disk is slower.
    """

    _reserved_bytes = 0
    _written_bytes = 0
    #: Of the part that is being written.
    _part_bytes, _part_seconds = 0, 0.0
    #: The rate while what is written stays in memory, if that is slow.
    _rate: float | None = None
    _flags = 0

    def write(self, data: ReadableBuffer) -> int:
        """Write some of `data`; return how many bytes."""
        begin = perf_counter()
        written = self._write(data)
        self._part_seconds += perf_counter() - begin
        self._part_bytes += written
        self._written_bytes += written
        if self._written_bytes > max(self._reserved_bytes, _LEAST_RESERVED_BYTES):
            self._choose()
            self._reserve()
        return written

    def _write(self, data: ReadableBuffer) -> int:
        if self._flags and memoryview(data).nbytes >= _LEAST_PIECE_BYTES:
            with suppress(AttributeError, NotImplementedError, OSError):
                return os.pwritev(self.fileno(), [data], -1, self._flags)
            self._flags = 0  # not supported
        return super().write(data)

    def _choose(self) -> None:
        """Choose how to write the next part."""
        rate = self._part_bytes / self._part_seconds
        if self._rate is None and rate < _SLOW_RATE:
            self._rate, self._flags = rate, _DONTCACHE
        elif self._rate is not None and rate < self._rate:
            self._flags = 0
        self._part_bytes, self._part_seconds = 0, 0.0

    def _reserve(self) -> None:
        """Best effort, where the C library and the file system can: if not, files are written without."""
        try:
            fallocate = ctypes.CDLL(None).fallocate64
        except (AttributeError, OSError, TypeError):
            self._reserved_bytes = sys.maxsize
            return
        start, count = ctypes.c_int64(self._written_bytes), ctypes.c_int64(_RESERVED_BYTES)
        failed = fallocate(self.fileno(), _KEEP_SIZE, start, count)
        self._reserved_bytes = sys.maxsize if failed else self._written_bytes + _RESERVED_BYTES

    def close(self) -> None:
        """Close the file, and free what is reserved."""
        if not self.closed and self._reserved_bytes:
            self.truncate(os.fstat(self.fileno()).st_size)
        super().close()


class CountedFile:
    """Writes bytes to a file and counts them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write all of `data`."""
        self._file.write(data)
        self.size_bytes += len(data)


@contextmanager
def open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """Open a file to write bytes to: standard output if `path` is None, compressed if the name ends in .gz.

    The file is written next to `path` under a unique name and renamed when the `with` block succeeds. If it fails,
    nothing is left, and an existing file stays as it was. If two processes write the same file, the one that ends last
    wins. A path that is not a regular file (a pipe, a device) is written to directly. Raises OutputError.
    """
    shown = "standard output" if path is None else printable(str(path))
    # /dev/stdout and the like are links to what has no path, such as pipes.
    target = path if path is None or _is_special(path) else Path(os.path.realpath(path))
    partial = None if target is None or _is_special(target) else partial_of(target)
    try:
        raw = _open_raw(target, partial)
    except OSError as error:
        raise OutputError(f"can't write {shown}: {reason(error)}") from None
    try:
        with raw:
            if path is not None and path.name.endswith(".gz"):
                # No name or time in the header, so that the same trace gives the same bytes.
                with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as compressed:
                    yield compressed  # type: ignore[misc]  # GzipFile has all of IO[bytes] that writers use
            else:
                yield raw
        if partial is not None and target is not None:
            partial.replace(target)
    except BaseException as error:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()
        if isinstance(error, OSError) and not (path is None and isinstance(error, BrokenPipeError)):
            raise OutputError(f"can't write {shown}: {reason(error)}") from None
        raise


def partial_of(target: Path) -> Path:
    """Return a unique name next to `target`, to write it under until it is complete."""
    return target.with_name(f"{target.name[:_NAME_PART]}.{secrets.token_hex(4)}.partial")


def _open_raw(target: Path | None, partial: Path | None) -> IO[bytes]:
    if target is None:
        # Its own descriptor, so that a full disk is noticed here and not when the process ends.
        sys.stdout.flush()
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    if os.path.isdir(target):
        raise IsADirectoryError("it is a folder")
    return target.open("wb") if partial is None else io.BufferedWriter(_LargeFile(partial, "xb"))


def _is_special(target: Path) -> bool:
    with suppress(OSError):
        return not stat.S_ISREG(target.stat().st_mode)
    return False


def reason(error: OSError) -> str:
    """Return the system's words for an error of writing a file."""
    return "its folder does not exist" if error.errno == ENOENT else reason_of(error)
