"""Profiles that are written to a file object."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import IO

from traceconv.base.errors import OutputError
from traceconv.runtime.profile_options import ProfileOptions


def stream_options(stream: IO[str] | IO[bytes], options: ProfileOptions, start: Path) -> ProfileOptions:
    """Return options that put the log next to the stream's file, if it has one."""
    try:
        if not stream.writable():
            raise OutputError("file: not open for writing; open it for writing, or give a path")
    except (AttributeError, ValueError) as error:
        raise OutputError(f"file: give a path or a file object that is open for writing ({error})") from error
    name = getattr(stream, "name", None)
    file = start / name if isinstance(name, str) and (start / name).is_file() else None
    return replace(options, output=None if file is None else file.parent, file=file)


def move_into(stream: IO[str] | IO[bytes], path: Path) -> None:
    """Write a file's content to the stream, as text or as bytes, and delete the file."""
    binary = isinstance(stream, (io.RawIOBase, io.BufferedIOBase)) or "b" in str(getattr(stream, "mode", ""))
    content = path.read_bytes()
    path.unlink()
    try:
        stream.write(content if binary else content.decode("utf-8"))  # type: ignore[arg-type]  # as checked above
        stream.flush()
    except (OSError, ValueError) as error:
        raise OutputError(f"can't write to the file object: {error}") from error
