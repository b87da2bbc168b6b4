"""Write a capture: a folder with files of blocks that roll over at a size, and the manifest last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import BinaryIO

from traceconv.base.errors import OutputError, reason_of
from traceconv.schema import RecordSchema, record
from traceconv.schema.dtypes import RecordArray, join
from traceconv.wire.codec import encode_block, null_records
from traceconv.wire.frames import FORMAT_VERSION, FileHeader, encode_file_header
from traceconv.wire.text import TextTable

MANIFEST = "manifest.json"
FORMAT_NAME = "npulog"
_HOST_HZ = 1_000_000_000


def new_records(record_name: str, count: int) -> RecordArray:
    """Return `count` records of a type, each field null, or 0 if it has no null value."""
    return null_records(record(record_name), count)


@dataclass
class _Stream:
    """The records of one type from the host or one device: the buffer and the open file."""

    schema: RecordSchema
    device_id: int | None
    clock_hz: int
    sequence: int = 0
    slice_index: int = 0
    buffered: list[RecordArray] = field(default_factory=list)
    buffered_count: int = 0
    file: BinaryIO | None = None
    path: str = ""
    file_bytes: int = 0
    file_first: int = 0


@dataclass
class CaptureWriter:
    """Writes one capture folder.

    folder           is created, and must not exist
    writer_id        64 bits that identify this capture in the header of each file
    device_clock_hz  device_id → nominal frequency of its counter
    slice_bytes      size at which a file rolls over to the next slice
    block_bytes      size of a full block's payload

    All methods raise OutputError if a file can't be written.
    """

    folder: Path
    writer_id: int
    device_clock_hz: InitVar[Mapping[int, int]]
    slice_bytes: int = 256 << 20
    block_bytes: int = 1 << 20

    def __post_init__(self, device_clock_hz: Mapping[int, int]) -> None:
        self._device_clock_hz: dict[int, int] = {}
        self._texts = TextTable()
        self._streams: dict[tuple[str, int | None], _Stream] = {}
        self._files: list[dict[str, object]] = []
        with _as_output_error(self.folder):
            (self.folder / "host" / "data").mkdir(parents=True)
        for device_id, clock_hz in device_clock_hz.items():
            self.add_device(device_id, clock_hz)

    def add_device(self, device_id: int, clock_hz: int) -> None:
        """Add a device: create its folder and set its clock frequency."""
        if device_id in self._device_clock_hz:
            return
        folder = self.folder / f"device_{device_id}" / "data"
        with _as_output_error(folder):
            folder.mkdir(parents=True)
        self._device_clock_hz[device_id] = clock_hz

    def has_device(self, device_id: int) -> bool:
        """Whether records of a device can be written."""
        return device_id in self._device_clock_hz

    def text(self, text: str | None) -> int:
        """Return the value of a str field for `text`; 0 for None and for an empty text."""
        if not text:
            return 0
        text_hash, records = self._texts.hash(text)
        if records is not None:
            self.append("dictionary", records)
        return text_hash

    def append(self, record_name: str, records: RecordArray, device_id: int | None = None) -> None:
        """Add records to the log of a device, or of the host (None). The array must not be changed before `flush`."""
        stream = self._streams.get((record_name, device_id))
        if stream is None:
            clock_hz = _HOST_HZ if device_id is None else self._device_clock_hz[device_id]
            stream = _Stream(record(record_name), device_id, clock_hz)
            self._streams[record_name, device_id] = stream
        stream.buffered.append(records)
        stream.buffered_count += len(records)
        per_block = max(1, self.block_bytes // stream.schema.size_bytes)
        if stream.buffered_count >= per_block:
            self._write(stream, per_block, keep_rest=True)

    def flush(self) -> None:
        """Write all buffered records; the last blocks may be short."""
        for stream in self._streams.values():
            self._write(stream, max(1, self.block_bytes // stream.schema.size_bytes), keep_rest=False)

    def close(self, manifest: Mapping[str, object]) -> None:
        """Write buffered records, then the manifest, by rename: a folder with a manifest is complete."""
        self.flush()
        for stream in self._streams.values():
            self._close_file(stream)
        content = {
            **manifest,
            "format": FORMAT_NAME,
            "version": FORMAT_VERSION,
            "writer_id": f"{self.writer_id:016x}",
            "files": sorted(self._files, key=lambda entry: str(entry["path"])),
        }
        path = self.folder / MANIFEST
        partial = path.with_suffix(".json.partial")
        with _as_output_error(path):
            with partial.open("x", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps(content, indent=1, sort_keys=True) + "\n")
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)

    def abandon(self) -> None:
        """Close the files without a manifest: the capture is incomplete."""
        for stream in self._streams.values():
            if stream.file is not None:
                stream.file.close()
                stream.file = None

    def _write(self, stream: _Stream, per_block: int, *, keep_rest: bool) -> None:
        if not stream.buffered_count:
            return
        # A signal handler or the garbage collector may append to the stream meanwhile; the next call writes that.
        buffered, stream.buffered, stream.buffered_count = stream.buffered, [], 0
        records = join(buffered)
        end = len(records) - len(records) % per_block if keep_rest else len(records)
        for first in range(0, end, per_block):
            part = records[first : min(first + per_block, end)]
            header, payload = encode_block(stream.schema, part, stream.sequence)
            self._write_block(stream, header, payload, len(part))
        if end < len(records):
            stream.buffered.insert(0, records[end:])
            stream.buffered_count += len(records) - end

    def _write_block(self, stream: _Stream, header: bytes, payload: memoryview, record_count: int) -> None:
        size = len(header) + len(payload)
        full = stream.sequence > stream.file_first and stream.file_bytes + size > self.slice_bytes
        if stream.file is not None and full:
            self._close_file(stream)
        if stream.file is None:
            self._open_file(stream)
        assert stream.file is not None
        try:
            _write_all(stream.file, header, payload)
        except OSError as error:
            raise _output_error(self.folder / stream.path, error) from error
        stream.file_bytes += size
        stream.sequence += record_count

    def _open_file(self, stream: _Stream) -> None:
        owner = "host" if stream.device_id is None else f"device_{stream.device_id}"
        stream.path = f"{owner}/data/{stream.schema.name}.slice_{stream.slice_index}.bin"
        header = encode_file_header(
            FileHeader(
                self.writer_id,
                stream.device_id,
                stream.schema.clock,
                stream.clock_hz,
                stream.sequence,
                stream.slice_index,
                (stream.schema,),
            )
        )
        path = self.folder / stream.path
        with _as_output_error(path):
            # Unbuffered: blocks survive a crash of this process.
            stream.file = path.open("xb", buffering=0)
            _write_all(stream.file, header)
        stream.slice_index += 1
        stream.file_bytes = len(header)
        stream.file_first = stream.sequence

    def _close_file(self, stream: _Stream) -> None:
        if stream.file is None:
            return
        with _as_output_error(self.folder / stream.path):
            os.fsync(stream.file.fileno())
            stream.file.close()
        stream.file = None
        self._files.append(
            {
                "path": stream.path,
                "record": stream.schema.name,
                "size_bytes": stream.file_bytes,
                "first_sequence": stream.file_first,
                "record_count": stream.sequence - stream.file_first,
            }
        )


def _write_all(file: BinaryIO, *parts: bytes | memoryview) -> None:
    """Write all bytes: an unbuffered file may accept only a part, before it reports a full disk."""
    done = os.writev(file.fileno(), parts) if len(parts) > 1 and hasattr(os, "writev") else 0
    for part in parts:
        rest = memoryview(part)[done:]
        done = max(0, done - len(part))
        while rest:
            rest = rest[file.write(rest) :]


@contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _output_error(path, error) from error


def _output_error(path: Path, error: OSError) -> OutputError:
    return OutputError(f"can't write {path}: {reason_of(error)}; choose another folder or free disk space")
