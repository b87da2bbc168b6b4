"""Find the sources of a run on disk, check that they are unchanged since ingest, and locate events in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from traceconv.base.deflate import crc32
from traceconv.base.errors import InputError, option, printable
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.common.files import container_of, encoding_of, file_size, opened
from traceconv.formats.format import Format
from traceconv.formats.locate import Evidence, SourceFile, Wanted
from traceconv.formats.npulog.discover import find_captures
from traceconv.formats.registry import format_of, locate_event, parts_of
from traceconv.provenance.rows import fetch

#: For larger files, only the size is compared.
_MAX_CHECKED_BYTES = 1 << 30
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """A row of source_block."""

    first_id: int
    event_count: int
    byte_offset: int | None
    byte_count: int | None


@dataclass
class Sources:
    """The sources of one run. Each is found and checked on first use.

    moved_to  where the run's source is now, if it was moved
    """

    connection: duckdb.DuckDBPyConnection
    run_id: int
    store_path: Path
    moved_to: Path | None

    def __post_init__(self) -> None:
        self._found: dict[int, SourceFile] = {}
        (self.run,) = fetch(self.connection, "SELECT * FROM run WHERE run_id = ?", [self.run_id])
        listed = fetch(self.connection, "SELECT * FROM source WHERE run_id = ? ORDER BY source_id", [self.run_id])
        self.rows = {int(row["source_id"]): row for row in listed}
        # An export of ours keeps the format of the exported run; the sources have their own.
        first = listed[0]["format"] if listed else self.run["source_format"]
        self.reader = str(first).partition(" ")[0]
        run_format = format_of(self.reader)
        self.in_captures = run_format is not None and run_format.in_captures

    @cached_property
    def root(self) -> Path:
        """Return the ingested folder or file. Raises InputError if it is missing."""
        if self.moved_to is not None:
            if not os.path.exists(self.moved_to):
                raise InputError(f"{printable(str(self.moved_to))} does not exist")
            return self._capture_in(self.moved_to)
        path = Path(str(self.run["source_path"]))
        if str(path) == "-":
            raise InputError(
                "the run was read from standard input, which is not kept; if its bytes are in a file, use "
                + option("--source FILE", "source=FILE")
            )
        for one in (path, self.store_path.parent / path):
            if os.path.exists(one):
                return one
        raise InputError(_missing(path))

    def _capture_in(self, path: Path) -> Path:
        """Return the capture at or below a path; for other sources the path itself."""
        if not self.in_captures or not os.path.isdir(path):
            return path
        captures = find_captures([path])
        return next((one.path for one in captures if one.path.name == self.run["label"]), captures[0].path)

    def file(self, source_id: int) -> SourceFile:
        """Return a source by its number. Raises InputError if it is missing, unreadable or has changed since ingest."""
        if source_id not in self._found:
            row = self.rows.get(source_id)
            if row is None:
                raise InputError(f"run {self.run_id} has no source {source_id}")
            path = self._path(str(row["path"]))
            container = _check(path, row, is_log=self.in_captures)
            self._found[source_id] = SourceFile(source_id, str(row["path"]), path, str(row["format"]), container)
        return self._found[source_id]

    def _path(self, name: str) -> Path:
        parts = Path(name).parts
        is_inside = os.path.isdir(self.root) and not Path(name).is_absolute() and ".." not in parts
        is_whole = parts_of(self.root) != (self.root,)  # several files that are read as one
        return self.root / name if is_inside and not is_whole else self.root

    def format_of(self, source_id: int) -> Format | None:
        """Return the format of a source; None for tables of a vendor's folder and formats unknown to this version."""
        return format_of(str(self.rows[source_id]["format"]).partition(" ")[0])

    def fetch(self, sql: str, values: list[object]) -> list[dict[str, Any]]:
        """Return the rows of a query, by column."""
        return fetch(self.connection, sql, values)

    def row(self, table: str, key: str, value: object) -> dict[str, Any]:
        """Return the first row of the run with a value in a column; empty if there is none, or the value is None."""
        sql = f'SELECT * FROM "{table}" WHERE run_id = ? AND {key} = ? LIMIT 1'  # noqa: S608 - names of ours
        found = self.fetch(sql, [self.run_id, value]) if value is not None else []
        return found[0] if found else {}

    def block_of(self, event_id: int) -> Block:
        """Return the block that an event came from. Raises InputError if there is none."""
        found = self.connection.execute(
            "SELECT first_id, event_count, byte_offset, byte_count FROM source_block WHERE run_id = ? "
            "AND source_id = ? AND first_id <= ? AND first_id + event_count > ? ORDER BY first_id DESC LIMIT 1",
            [self.run_id, event_id >> ORDINAL_BITS, event_id, event_id],
        ).fetchone()
        if found is None:
            raise InputError(f"run {self.run_id} has no block for event {event_id}; ingest it again")
        return Block(*found)

    def wanted(self, event_id: int, role: str, row: Mapping[str, Any]) -> Wanted:
        """Return what the `locate` of an event's format needs."""
        source_id, ordinal = event_id >> ORDINAL_BITS, event_id & ((1 << ORDINAL_BITS) - 1)
        source, block, options = self.file(source_id), self.block_of(event_id), self.run["options"]
        place = (event_id - block.first_id, block.event_count, block.byte_offset, block.byte_count)
        return Wanted(source, ordinal, *place, role, row, None if options is None else str(options))

    def locate(self, event_id: int, role: str, row: Mapping[str, Any]) -> list[Evidence]:
        """Locate an event in its source. `row`: columns of the row that was made from it."""
        return locate_event(self.wanted(event_id, role, row))


def _check(path: Path, row: Mapping[str, object], *, is_log: bool) -> str:
    """Return how a file is compressed. Raises InputError if it has changed since ingest.

    The content of logs is not compared here: their blocks have checksums.
    """
    shown = printable(str(path))
    size_then, digest = row["size_bytes"], row["digest"]
    if os.path.isdir(path) and (parts := parts_of(path)) != (path,):  # read as one
        if (size := sum(map(file_size, parts))) != size_then:
            raise InputError(_changed_size(shown, size, size_then))
        return "plain"
    if not os.path.isfile(path):
        raise InputError(_missing(path))
    with opened(path) as stream:
        head = stream.read(64)
        size = path.stat().st_size
        if isinstance(size_then, int):
            # A file that has grown is fine if it begins with what was read.
            if size < size_then:
                raise InputError(_changed_size(shown, size, size_then))
            if isinstance(digest, str) and not is_log and size_then <= _MAX_CHECKED_BYTES:
                stream.seek(0)
                crc, left = 0, size_then
                while left and (data := stream.read(min(left, _CHUNK))):
                    crc, left = crc32(data, crc), left - len(data)
                if f"{crc:08x}" != digest:
                    raise InputError(
                        f"{shown} has changed since ingest: its checksum is {crc:08x} and was {printable(digest)}; "
                        "ingest it again"
                    )
    encoding = encoding_of(head)
    return container_of(head) if is_log or encoding == "utf-8" else encoding


def _changed_size(shown: str, size: int, size_then: object) -> str:
    return f"{shown} has changed since ingest: it has {size:,} bytes and had {size_then:,}; ingest it again"


def _missing(path: Path) -> str:
    return f"{printable(str(path))} does not exist; if it was moved, use {option('--source PATH', 'source=PATH')}"
