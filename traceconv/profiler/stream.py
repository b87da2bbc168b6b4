"""Profiles that are written to a file object."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import IO

from traceconv.base.errors import OutputError, UsageError
from traceconv.runtime.profile_options import ProfileOptions

_BINARY = ("perfetto", "store")


def is_binary(stream: IO[str] | IO[bytes]) -> bool:
    """Whether a file object takes bytes."""
    return isinstance(stream, (io.RawIOBase, io.BufferedIOBase)) or "b" in str(getattr(stream, "mode", ""))


def stream_options(stream: IO[str] | IO[bytes], options: ProfileOptions, start: Path) -> ProfileOptions:
    """Return options that put the log next to the stream's file, if it has one."""
    try:
        if not stream.writable():
            raise OutputError("file: not open for writing; open it for writing, or give a path")
    except (AttributeError, ValueError) as error:
        raise OutputError(f"file: give a path or a file object that is open for writing ({error})") from error
    binary = [name for name in options.formats if name in _BINARY]
    if binary and not is_binary(stream):
        raise UsageError(f"format {binary[0]} is binary: open the file with mode 'wb'")
    name = getattr(stream, "name", None)
    file = start / name if isinstance(name, str) and (start / name).is_file() else None
    return replace(options, output=None if file is None else file.parent, file=file)


def move_into(stream: IO[str] | IO[bytes], path: Path) -> None:
    """Write a file's content to the stream, as text or as bytes, and delete the file."""
    content = path.read_bytes()
    path.unlink()
    try:
        stream.write(content if is_binary(stream) else content.decode("utf-8"))  # type: ignore[arg-type]  # as checked above
        stream.flush()
    except (OSError, ValueError) as error:
        raise OutputError(f"can't write to the file object: {error}") from error
