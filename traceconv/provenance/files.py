"""The sources of a run where they lie now: found, held against what was ingested, and read at a place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import duckdb

from traceconv.base.deflate import crc32
from traceconv.base.diagnostics import ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.common.files import TextSource, container_of, encoding_of
from traceconv.formats.common.limits import Limits
from traceconv.formats.npulog.discover import find_captures
from traceconv.provenance.rows import fetch

#: Larger files are held against their size only; what is shown of them is still looked for by its content.
_MAX_CHECKED_BYTES = 1 << 30
_CHUNK = 1 << 20
#: The file was read once: a place in it may be as far in as its text is long.
_LIMITS = Limits(ratio=1 << 40)


@dataclass(frozen=True, slots=True)
class Block:
    """A row of source_block."""

    first_id: int
    event_count: int
    byte_offset: int | None
    byte_count: int | None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source as it lies there now, the same as it was ingested."""

    source_id: int
    name: str
    path: Path
    format: str
    container: str

    def text(self, offset: int, count: int) -> bytes:
        """A stretch of its text: of the unpacked one, where it is packed. Shorter when the text ends before."""
        if offset < 0 or count < 0:
            raise InputError(f"the store's place of it in {printable(self.name)} is none: byte {offset}, {count} bytes")
        if self.container == "plain":
            with _opened(self.path) as stream:
                size = self.path.stat().st_size
                stream.seek(min(offset, size))
                return stream.read(min(count, size))
        parts: list[bytes] = []
        at, end = 0, offset + count
        for chunk in self.source_text().chunks():
            if at + len(chunk) > offset:
                parts.append(chunk[max(0, offset - at) : end - at])
            at += len(chunk)
            if at >= end:
                break
        return b"".join(parts)

    def source_text(self) -> TextSource:
        """All of its text, from the beginning."""
        return TextSource(self.path, ImportLog(), _LIMITS, lambda count: None)


class Sources:
    """The sources of one run. Each is looked for and checked when it is first asked for."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, run_id: int, store_path: Path, moved_to: Path | None
    ) -> None:
        """`moved_to`: where the run's source lies now, if not where it was."""
        self._connection = connection
        self._store_path = store_path
        self._moved_to = moved_to
        self._found: dict[int, SourceFile] = {}
        self.run_id = run_id
        (self.run,) = fetch(connection, "SELECT * FROM run WHERE run_id = ?", [run_id])
        listed = fetch(connection, "SELECT * FROM source WHERE run_id = ? ORDER BY source_id", [run_id])
        self.rows = {int(row["source_id"]): row for row in listed}

    @property
    def reader(self) -> str:
        """Name of the reader that read the run."""
        return str(self.run["source_format"])

    @cached_property
    def root(self) -> Path:
        """What was ingested: a folder or a file, where it lies now. InputError when it is not there."""
        if self._moved_to is not None:
            if not os.path.exists(self._moved_to):
                raise InputError(f"there is nothing at {printable(str(self._moved_to))}")
            return self._capture_in(self._moved_to)
        path = Path(str(self.run["source_path"]))
        if str(path) == "-":
            raise InputError(
                "the run was read from standard input: its bytes are not kept. If they lie in a file: --source FILE"
            )
        for one in (path, self._store_path.parent / path):
            if os.path.exists(one):
                return one
        raise InputError(f"{printable(str(path))} is not there any more; if it was moved: --source PATH")

    def _capture_in(self, path: Path) -> Path:
        """The capture at or below a path; for other sources the path itself."""
        if self.reader != "npulog" or not os.path.isdir(path):
            return path
        captures = find_captures([path])
        return next((one.path for one in captures if one.path.name == self.run["label"]), captures[0].path)

    def file(self, source_id: int) -> SourceFile:
        """A source by its number. InputError when it is gone, can't be read, or was changed since it was ingested."""
        if source_id not in self._found:
            row = self.rows.get(source_id)
            if row is None:
                raise InputError(f"run {self.run_id} has no source {source_id}")
            path = self._path(str(row["path"]))
            container = _check(path, row, is_log=self.reader == "npulog")
            self._found[source_id] = SourceFile(source_id, str(row["path"]), path, str(row["format"]), container)
        return self._found[source_id]

    def _path(self, name: str) -> Path:
        inside = self.root / name
        parts = Path(name).parts
        if os.path.isdir(self.root) and not Path(name).is_absolute() and ".." not in parts:
            return inside
        return self.root

    def block_of(self, event_id: int) -> Block | None:
        """The block that an event came from; None when it came from none."""
        found = self._connection.execute(
            "SELECT first_id, event_count, byte_offset, byte_count FROM source_block WHERE run_id = ? "
            "AND source_id = ? AND first_id <= ? AND first_id + event_count > ? ORDER BY first_id DESC LIMIT 1",
            [self.run_id, event_id >> ORDINAL_BITS, event_id, event_id],
        ).fetchone()
        return None if found is None else Block(*found)


def _check(path: Path, row: dict[str, object], *, is_log: bool) -> str:
    """How a file is packed, if it is still what was ingested. Blocks of logs have checksums of their own."""
    shown = printable(str(path))
    known, digest = row["size_bytes"], row["digest"]
    with _opened(path) as stream:
        head = stream.read(64)
        size = path.stat().st_size
        if isinstance(known, int):
            # A file that grew since is fine as long as its beginning is what was read.
            if size < known:
                raise InputError(
                    f"{shown} was changed since it was ingested: "
                    f"it has {size:,} bytes and had {known:,}; ingest it again"
                )
            if isinstance(digest, str) and not is_log and known <= _MAX_CHECKED_BYTES:
                stream.seek(0)
                crc, left = 0, known
                while left and (data := stream.read(min(left, _CHUNK))):
                    crc, left = crc32(data, crc), left - len(data)
                if f"{crc:08x}" != digest:
                    raise InputError(
                        f"{shown} was changed since it was ingested: its checksum is {crc:08x} and was "
                        f"{printable(digest)}; ingest it again"
                    )
    if not is_log and encoding_of(head) != "utf-8":
        return encoding_of(head)  # its text is another than its bytes
    return container_of(head)


def _opened(path: Path) -> BinaryIO:
    try:
        if not path.is_file():
            raise InputError(f"{printable(str(path))} is not there any more; if it was moved: --source PATH")
        return path.open("rb")
    except OSError as error:
        raise InputError(f"can't read {printable(str(path))}: {error.strerror or error}") from error
