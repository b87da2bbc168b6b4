"""A file that appears whole or not at all, or standard output: where exporters write to."""

from __future__ import annotations

import gzip
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from traceconv.base.errors import OutputError, printable

#: Fast rather than small: a trace has so much repetition that higher levels gain little (level 6: 10 % less).
_GZIP_LEVEL = 2
#: So much of a file's name is in that of its partial file: a name has 255 bytes at most, a character up to four.
_NAME_PART = 50


@contextmanager
def open_output(path: Path | None) -> Iterator[IO[bytes]]:
    """The file to write bytes to; `path` None is standard output, a name that ends in .gz is compressed.

    A file is written beside its name, under one that nobody else uses, and takes the name when the `with` block ends
    well; when it does not, nothing is left, and a file that was there before is as it was. Of two that write the same
    file at the same time, the one that ends later stays. What exists and is no plain file (a pipe, a device) is
    written to directly. Raises OutputError when it can't be written.
    """
    shown = "standard output" if path is None else printable(str(path))
    target = None if path is None else Path(os.path.realpath(path))
    partial = None if target is None or _is_special(target) else partial_of(target)
    try:
        raw = _open_raw(target, partial)
    except OSError as error:
        raise OutputError(f"can't write {shown}: {_reason(error)}") from None
    try:
        with raw:
            if path is not None and path.name.endswith(".gz"):
                # Neither name nor time in the header: the same trace gives the same bytes.
                with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as packed:
                    yield packed  # type: ignore[misc]  # GzipFile has all of IO[bytes] that writers use
            else:
                yield raw
        if partial is not None and target is not None:
            partial.replace(target)
    except BaseException as error:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()
        if isinstance(error, OSError) and not (path is None and isinstance(error, BrokenPipeError)):
            raise OutputError(f"can't write {shown}: {_reason(error)}") from None
        raise


def partial_of(target: Path) -> Path:
    """A name beside `target` under which it can be written until it is whole: another one each time."""
    return target.with_name(f"{target.name[:_NAME_PART]}.{secrets.token_hex(4)}.partial")


def _open_raw(target: Path | None, partial: Path | None) -> IO[bytes]:
    if target is None:
        # A descriptor of its own, so that a full disk is noticed here and not when the process ends.
        sys.stdout.flush()
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    if os.path.isdir(target):
        raise IsADirectoryError("it is a folder")
    return target.open("wb") if partial is None else partial.open("xb")


def _is_special(target: Path) -> bool:
    with suppress(OSError):
        return not stat.S_ISREG(target.stat().st_mode)
    return False


def _reason(error: OSError) -> str:
    return printable(error.strerror or str(error))
