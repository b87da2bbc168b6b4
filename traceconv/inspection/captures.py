"""Captures, as `traceconv info` shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from traceconv.base.errors import printable
from traceconv.formats.npulog.inspect import CaptureState, FileState, wall_clock_text
from traceconv.inspection.traces import listed, seconds

_NAME_WIDTH = 30
_WIDTHS = (6, 14, 7, 13, 8)


def capture_lines(state: CaptureState) -> Iterator[str]:
    """Describe a capture in lines of 80 columns."""
    capture = state.capture
    single = len(capture.files) == 1
    name = capture.files[0].relative_path if single else capture.path.name or str(capture.path)
    yield printable(name, 80)
    yield f"  {'a log file' if single else 'a capture'} of the NPU runtime: {_verdict(state)}"
    facts = {
        "writer": state.writer,
        "model": state.model_name,
        "host": state.host_name,
        "start": None if state.epoch_ns is None else wall_clock_text(state.epoch_ns),
        "duration": None if state.dur_ns is None else seconds(state.dur_ns),
        "manifest": "present" if capture.manifest else capture.manifest_problem,
    }
    for title, fact in facts.items():
        if fact is not None:
            yield f"  {title:<9} {printable(fact, 68)}"
    for device in state.devices:
        known = [device.name, device.kind, None if device.clock_hz is None else f"counter {device.clock_hz:,} Hz"]
        text = ", ".join(filter(None, known)) or "no description"
        yield f"  {'device ' + str(device.device_id):<9} {printable(text, 66)}"
    yield _counts("record", ("files", "bytes", "blocks", "records", "lost"))
    for stream, files in _streams(state).items():
        numbers = (
            len(files),
            sum(file.file.size_bytes for file in files),
            sum(file.block_count for file in files) if state.scanned else None,
            sum(file.total for file in files) if state.scanned or capture.manifest else None,
            sum(file.lost_count for file in files) if state.scanned else None,
        )
        yield _counts(printable(stream, _NAME_WIDTH), ["-" if number is None else f"{number:,}" for number in numbers])
    if not state.scanned:
        yield "  (--quick: record counts are from the manifest; blocks were not read)"
    if single:
        yield from _header_lines(state.files[0])
    problems = [*state.problems]
    for file in state.files:
        problems += [f"{printable(file.file.relative_path)}: {problem}" for problem in file.problems]
    yield from listed([("!", problem) for problem in problems])


def _header_lines(state: FileState) -> Iterator[str]:
    """The header of a file and the layout of its records."""
    header = state.header
    if header is None:
        return
    clock = f"{header.clock}, {header.clock_hz:,} Hz"
    yield f"  format version {header.version}, writer {header.writer_id:016x}, clock {clock}"
    yield f"  slice {header.slice_index}, first record {header.first_sequence:,} of its stream"
    for schema in header.schemas:
        yield f"  schema {schema.name}: tag {schema.tag}, {schema.size_bytes} bytes per record"
        for field in schema.fields:
            yield f"    {field.name:<26} {field.type:<10} {printable(field.unit, 30)}"


def _counts(name: str, cells: Iterable[str]) -> str:
    return f"  {name:<{_NAME_WIDTH}}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _verdict(state: CaptureState) -> str:
    if state.intact:
        return "intact" if state.scanned else "no problems found"
    return "damaged" if state.usable else "nothing readable"


def _streams(state: CaptureState) -> dict[str, list[FileState]]:
    """Group the files by owner and record type."""
    streams: dict[str, list[FileState]] = {}
    for file in state.files:
        owner = "host" if file.file.device_id is None else f"device_{file.file.device_id}"
        streams.setdefault(f"{owner}/{file.record}", []).append(file)
    return streams


def describe_capture(state: CaptureState) -> dict[str, Any]:
    """Describe it for --json."""
    capture = state.capture
    manifest = capture.manifest
    return {
        "kind": "capture",
        "path": str(capture.path),
        "intact": state.intact,
        "usable": state.usable,
        "scanned": state.scanned,
        "manifest": "present" if manifest else capture.manifest_problem,
        "manifest_extra": dict(manifest.extra) if manifest else {},
        "writer": state.writer,
        "model_name": state.model_name,
        "host_name": state.host_name,
        "start_epoch_ns": state.epoch_ns,
        "dur_ns": state.dur_ns,
        "devices": [asdict(device) for device in state.devices],
        "files": [_describe_file(file) for file in state.files],
        "missing": list(capture.missing),
        "problems": state.problems,
    }


def _describe_file(state: FileState) -> dict[str, Any]:
    header = state.header
    about = header and {
        "version": header.version,
        "writer_id": f"{header.writer_id:016x}",
        "clock": header.clock,
        "clock_hz": header.clock_hz,
        "first_sequence": header.first_sequence,
        "slice_index": header.slice_index,
        "schemas": [schema.to_wire() for schema in header.schemas],
    }
    return {
        "path": state.file.relative_path,
        "record": state.record,
        "device_id": state.file.device_id,
        "size_bytes": state.file.size_bytes,
        "header": about,
        "block_count": state.block_count if state.scanned else None,
        "record_count": state.record_count if state.scanned else None,
        "lost_count": state.lost_count if state.scanned else None,
        "manifest_record_count": state.counted.record_count if state.counted else None,
        "problems": state.problems,
    }
