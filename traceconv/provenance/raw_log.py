"""Find raw records by their id, by the start that they end, or by the values of their fields.

A record is found through its block, whose byte offset the store contains. Ends come after their starts, so only the
blocks after a start are searched, with numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.base.integers import parse_int64
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.locate import Evidence
from traceconv.formats.npulog.blocks import blocks_of, dictionary_of, read_header, schema_of
from traceconv.formats.npulog.discover import find_captures
from traceconv.provenance.files import Sources
from traceconv.schema import RecordSchema, record_by_tag
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.codec import decode_block
from traceconv.wire.frames import BLOCK_HEADER_BYTES, Block, FileHeader, FrameDecoder

_PREFIX = "npulog "
#: Values of `event` that mark an end.
_ENDS = (1, 2)
#: Fields that a start and its end share.
_PAIR_KEYS = {
    "api": ("thread_id", "correlation_id"),
    "range": ("thread_id", "span_id"),
    "stream_range": ("stream_id", "span_id"),
    "task": ("task_id",),
    "memory": ("block_id",),
}


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record: its position, layout and bytes.

    values  its fields as ingest reads them: null if the file lacks one, or has it with another type
    """

    source_id: int
    sequence: int
    schema: RecordSchema
    byte_offset: int
    data: bytes
    values: np.void


class RawLog:
    """The log files of one capture."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._headers: dict[int, FileHeader | None] = {}

    @cached_property
    def _texts(self) -> Mapping[int, str]:
        """The capture's texts by hash; empty for a log outside a capture: its names are shown as hashes."""
        try:
            captures = find_captures([self._sources.root])
        except InputError:
            captures = find_captures([self._sources.file(source_id).path for source_id in self._sources.rows])
        return dictionary_of(captures[0])

    def record(self, event_id: int) -> RawRecord:
        """Return the record with an id. Raises InputError if its bytes have changed."""
        source_id, sequence = event_id >> ORDINAL_BITS, event_id & ((1 << ORDINAL_BITS) - 1)
        block = self._sources.block_of(event_id)
        offset = block.byte_offset or 0
        for one in self._blocks(source_id, offset, offset + (block.byte_count or 0)):
            if one.sequence <= sequence < one.sequence + one.record_count:
                return self._cut(source_id, one, sequence - one.sequence)
        raise InputError(
            f"{printable(str(self._sources.file(source_id).path))} has changed since ingest: "
            f"record {sequence} is not at byte {offset:,}; ingest it again"
        )

    def end_of(self, start: RawRecord, dur_ns: int | None) -> RawRecord | None:
        """Return the end of a start; None if none follows.

        `dur_ns`: the time that it must be after the start, if the records have host times.
        """
        keys = _PAIR_KEYS.get(start.schema.name)
        names = start.values.dtype.names or ()
        if keys is None or not {*keys, "event"} <= set(names):
            return None
        wanted: dict[str, object] = {key: start.values[key] for key in keys} | {"event": np.array(_ENDS, np.uint8)}
        if dur_ns is not None and "host_ns" in names:
            wanted["host_ns"] = int(start.values["host_ns"]) + dur_ns
        for source_id in self._stream_from(start.source_id):
            own = source_id == start.source_id
            block_id = (source_id << ORDINAL_BITS) + start.sequence
            at = (self._sources.block_of(block_id).byte_offset or 0) if own else 0
            for block in self._blocks(source_id, at):
                hits = self._hits(source_id, block, start.schema.name, wanted)
                if own:
                    hits = hits[hits > start.sequence - block.sequence]
                if len(hits):
                    return self._cut(source_id, block, int(hits[0]))
        return None

    def find(
        self, record: str, wanted: Mapping[str, object], *, device_id: int | None = None, limit: int = 8
    ) -> list[RawRecord]:
        """Return the first records of a type (on one device) whose fields have these values."""
        found: list[RawRecord] = []
        for source_id, row in self._sources.rows.items():
            if row["format"] != _PREFIX + record or (device_id is not None and self._device(source_id) != device_id):
                continue
            for block in self._blocks(source_id, 0):
                for place in self._hits(source_id, block, record, wanted):
                    found.append(self._cut(source_id, block, int(place)))
                    if len(found) == limit:
                        return found
        return found

    def evidence(self, record: RawRecord, role: str) -> Evidence:
        """Return a record with its fields by name, and texts instead of hashes."""
        source = self._sources.file(record.source_id)
        written = np.frombuffer(record.data, dtype_of(record.schema, len(record.data)))[0]
        fields: dict[str, object] = {}
        for field in record.schema.fields:
            fields[field.name] = self._shown(written[field.name], field.type, field.null, field.values)
        return Evidence(
            source,
            role,
            record.byte_offset,
            len(record.data),
            where=f"record {record.sequence}",
            fields=fields,
            units={field.name: field.unit for field in record.schema.fields},
            data=record.data,
            is_text=False,
        )

    def _shown(self, value: Any, kind: str, null: int | None, names: Mapping[int, str] | None) -> object:
        if kind == "str":
            number = int(value)
            return None if number == 0 else self._texts.get(number, f"0x{number:016x}")
        if kind.startswith("bytes"):
            plain = bytes(value)
            text = plain.rstrip(b"\0")
            return text.decode() if text.isascii() else plain.hex()
        if kind == "f64":
            return float(value)
        number = int(value)
        if null is not None and number == null:
            return None
        return names.get(number, number) if names is not None else number

    # -- files and blocks --

    def _header(self, source_id: int) -> FileHeader | None:
        if source_id not in self._headers:
            self._headers[source_id] = read_header(self._sources.file(source_id).path)
        return self._headers[source_id]

    def _device(self, source_id: int) -> int | None:
        header = self._header(source_id)
        if header is not None:
            return header.device_id
        folder = str(self._sources.rows[source_id]["path"]).split("/", 1)[0]
        return parse_int64(folder.removeprefix("device_"))

    def _stream_from(self, source_id: int) -> list[int]:
        """Return this file and the following ones of its stream, which have the same type and owner."""
        of = self._sources.rows
        device = self._device(source_id)
        return [
            one
            for one, row in of.items()
            if one >= source_id and row["format"] == of[source_id]["format"] and self._device(one) == device
        ]

    def _blocks(self, source_id: int, start: int, end: int | None = None) -> Iterator[Block]:
        """Yield the intact blocks in a byte range of a file."""
        path = self._sources.file(source_id).path
        try:
            yield from (item for item in blocks_of(path, FrameDecoder(), start, end) if isinstance(item, Block))
        except OSError as error:
            raise InputError(f"can't read {printable(str(path))}: {reason_of(error)}") from error

    def _rows(self, source_id: int, block: Block) -> tuple[RecordSchema, RecordArray]:
        """The layout that a block was written in, and its records as ingest reads them."""
        schema = schema_of(block, self._header(source_id))
        return schema, decode_block(block, schema, record_by_tag().get(block.tag, schema))

    def _hits(self, source_id: int, block: Block, record: str, wanted: Mapping[str, object]) -> NDArray[np.intp]:
        schema, rows = self._rows(source_id, block)
        if schema.name != record or not set(wanted) <= set(rows.dtype.names or ()):
            return np.zeros(0, np.intp)
        mask = np.ones(len(rows), np.bool_)
        for name, value in wanted.items():
            mask &= np.isin(rows[name], value) if isinstance(value, np.ndarray) else rows[name] == value
        return np.flatnonzero(mask)

    def _cut(self, source_id: int, block: Block, place: int) -> RawRecord:
        size = block.record_size
        schema, rows = self._rows(source_id, block)
        data = bytes(block.payload[place * size : (place + 1) * size])
        offset = block.byte_offset + BLOCK_HEADER_BYTES + place * size
        return RawRecord(source_id, block.sequence + place, schema, offset, data, rows[place])
