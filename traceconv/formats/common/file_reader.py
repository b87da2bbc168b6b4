"""Base of the readers of one file: size, digest and batches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from traceconv.base.diagnostics import ImportLog
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import EventColumns, Label, MoreSource, NamedTrack, Segment, TraceBatch, TrackName
from traceconv.formats.common.files import TextSource
from traceconv.formats.format import ReadRequest

#: The number of the one source of a run that is read from one file.
SOURCE_ID = 1


class FileReader:
    """A `TraceSource` without its `batches`, which make their batches with `_next_batch`.

    A reader sets `found_events` and `keys` as it finds them.
    """

    keeps_all = False

    def __init__(self, request: ReadRequest, *, is_text: bool = True) -> None:
        self._path = request.path
        self._log = request.log
        self._accounts = request.accounts
        self._limits = request.limits
        self._is_text = is_text
        self._source = TextSource(request.path, request.log, request.limits, request.advance, is_text=is_text)
        self._ordinal = 0
        self.blocks: list[tuple[int, int, int | None, int | None]] = []
        self.found_events = False
        self.more_sources: list[MoreSource] = []
        self.keys: dict[str, bytes] = {}
        #: Names of tracks, for the next batch.
        self._track_names: list[TrackName] = []
        self._named: set[object] = set()

    def options(self) -> str | None:
        """The metadata of the file as one JSON object; None if it has none."""
        return keys_object(self.keys)

    def _named_track(self, pid: Label, process: str, tid: Label | NamedTrack, name: str) -> tuple[Any, Any]:
        """Return a track, which is named when it is first used, as is its process."""
        self._name_once(pid, None, process)
        self._name_once(pid, tid, name)
        return pid, tid

    def _name_once(self, pid: Label, tid: Label | NamedTrack, name: str) -> None:
        """Name a track, or a process (`tid` None), unless it has a name."""
        if (pid, tid) not in self._named:
            self._named.add((pid, tid))
            self._track_names.append(TrackName(pid, tid, name))

    def _next_batch(
        self,
        columns: EventColumns,
        byte_offset: int | None,
        byte_count: int | None,
        *,
        segments: tuple[Segment, ...] = (),
    ) -> TraceBatch:
        """The next batch, from a byte range of the text; noted as a block."""
        names, self._track_names = tuple(self._track_names), []
        batch = TraceBatch(self._ordinal, byte_offset, byte_count, columns, segments, names)
        self._note_block(batch)
        self._ordinal += columns.count
        return batch

    def _note_block(self, batch: TraceBatch) -> None:
        first_id = (SOURCE_ID << ORDINAL_BITS) + batch.first_ordinal
        self.blocks.append((first_id, batch.columns.count, batch.byte_offset, batch.byte_count))

    def _second_pass(self) -> TextSource:
        """The text once more, without diagnostics and progress."""
        return TextSource(self._path, ImportLog(), self._limits, lambda byte_count: None, is_text=self._is_text)

    @property
    def size_bytes(self) -> int:
        """Bytes of the file that were read."""
        return self._source.size_bytes

    @property
    def digest(self) -> str | None:
        """CRC-32 of the bytes that were read."""
        return f"{self._source.crc:08x}"

    @property
    def container(self) -> str:
        """plain, gzip, zstd or xz."""
        return self._source.container


def keys_object(keys: Mapping[str, bytes]) -> str | None:
    """Keys and the texts of their values as one JSON object; invalid JSON as strings. None for no keys."""
    members = [f"{json.dumps(key)}:{_sound(value)}" for key, value in keys.items()]
    return "{" + ",".join(members) + "}" if members else None


def _sound(value: bytes) -> str:
    try:
        msgspec.json.decode(value)
        return value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return json.dumps(value.decode("utf-8", "replace"))
