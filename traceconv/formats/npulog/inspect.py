"""Check the integrity of a capture: the content of its files, compared with their headers and the manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from traceconv.base.errors import InputError, printable, reason_of
from traceconv.formats.npulog.blocks import blocks_of, dictionary_of, read_header, records_of, schema_of
from traceconv.formats.npulog.discover import CaptureFolder, LogFile
from traceconv.formats.npulog.dump import describe_damage, problems_of
from traceconv.formats.npulog.manifest import ManifestFile
from traceconv.formats.npulog.ranges import Ranges, unseen
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.frames import Damage, FileHeader, FrameDecoder

#: Maximum number of problems listed per file; further ones are only counted.
SHOWN_PROBLEMS = 10
#: Fields with host time; their range is the duration of the recording.
_HOST_TIMES = ("host_ns", "host_before_ns", "host_after_ns")

#: Sequence numbers that no earlier file contains, by device and tag.
_Seen = dict[tuple[int | None, int], Ranges]


@dataclass(slots=True)
class FileState:
    """The state of one log file.

    header        None if it is damaged
    record_count  records in intact blocks, by type
    lost_count    records that are known to be missing; there may be more
    problems      sentences, at most `SHOWN_PROBLEMS` and one that counts the rest
    scanned       False if only the header was read
    """

    file: LogFile
    header: FileHeader | None
    counted: ManifestFile | None
    scanned: bool
    block_count: int = 0
    record_count: dict[str, int] = field(default_factory=dict)
    lost_count: int = 0
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None

    @property
    def record(self) -> str:
        """The record type of the file, by its header, or by its name if that is damaged."""
        return self.header.schemas[0].name if self.header and self.header.schemas else self.file.record

    @property
    def total(self) -> int:
        """Records in intact blocks; if not scanned, as the manifest counts them."""
        if self.scanned:
            return sum(self.record_count.values())
        return self.counted.record_count if self.counted else 0

    def note(self, problem: str) -> None:
        """Add a problem."""
        self.problem_count += 1
        if self.problem_count <= SHOWN_PROBLEMS:
            self.problems.append(problem)


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The content of a device record; None where it has no value."""

    device_id: int
    name: str | None
    kind: str | None
    clock_hz: int | None


@dataclass(slots=True)
class CaptureState:
    """The state of a capture. Times are on the host's clock; `epoch_ns` is the wall clock at its start."""

    capture: CaptureFolder
    scanned: bool
    writer: str | None = None
    model_name: str | None = None
    host_name: str | None = None
    epoch_ns: int | None = None
    dur_ns: int | None = None
    devices: list[DeviceState] = field(default_factory=list)
    files: list[FileState] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Whether no problem was found."""
        return not self.problems and not any(file.problem_count for file in self.files)

    @property
    def usable(self) -> bool:
        """Whether it contains anything to read."""
        return any(file.header is not None or file.total for file in self.files)


def inspect_capture(capture: CaptureFolder, *, scan: bool = True) -> CaptureState:
    """Inspect a capture; `scan=False` reads only headers and the manifest, and trusts them."""
    state = CaptureState(capture, scan)
    state.problems.extend(problems_of(capture))
    counted = {file.path: file for file in capture.manifest.files} if capture.manifest else {}
    seen: _Seen = {}
    for file in capture.files:
        entry = counted.get(file.relative_path)
        if capture.manifest is not None and entry is None:
            state.problems.append(f"{printable(file.relative_path)} is not in the manifest")
        state.files.append(inspect_file(file, entry, scan=scan, seen=seen))
    _check_writers(state)
    _describe(state)
    times = [time for file in state.files for time in (file.first_ns, file.last_ns) if time is not None]
    state.dur_ns = max(times) - min(times) if times else None
    return state


def inspect_file(file: LogFile, counted: ManifestFile | None, *, scan: bool, seen: _Seen) -> FileState:
    """Inspect one file. `counted`: its manifest entry; `seen`: what earlier files contain."""
    state = FileState(file, read_header(file.path), counted, scan)
    if counted is not None and counted.size_bytes != file.size_bytes:
        state.note(f"has {file.size_bytes:,} bytes where the manifest says {counted.size_bytes:,}")
    if state.header is not None and state.header.device_id != file.device_id and "/" in file.relative_path:
        owner = "the host" if state.header.device_id is None else f"device {state.header.device_id}"
        state.note(f"is not in the folder of {owner}, to which it belongs by its header")
    if scan:
        _scan(state, seen)
        expected = counted.record_count if counted else None
        if expected is not None and state.total + state.lost_count != expected:
            state.note(f"has {state.total:,} records where the manifest says {expected:,}")
            state.lost_count = max(state.lost_count, expected - state.total)
    elif state.header is None:
        state.note("has a damaged file header")
    if state.problem_count > len(state.problems):
        state.problems.append(f"and {state.problem_count - len(state.problems):,} more")
    return state


def _scan(state: FileState, seen: _Seen) -> None:
    decoder = FrameDecoder(any_order=True)
    damages: list[Damage] = []
    there: list[tuple[int, int]] = []
    repeated = 0
    try:
        for item in blocks_of(state.file.path, decoder):
            if isinstance(item, Damage):
                damages.append(item)
                continue
            end = item.sequence + item.record_count
            there.append((item.sequence, end))
            device_id = decoder.header.device_id if decoder.header else state.file.device_id
            fresh = seen.setdefault((device_id, item.tag), unseen()).take(item.sequence, end)
            repeated += item.record_count - fresh
            state.block_count += 1
            schema = schema_of(item, decoder.header)
            state.record_count[schema.name] = state.record_count.get(schema.name, 0) + fresh
            _note_times(state, np.frombuffer(item.payload, dtype_of(schema, item.record_size)))
    except OSError as error:
        state.note(f"can't be read: {reason_of(error)}")
    except InputError as error:
        state.note(str(error))
    if repeated:
        state.note(f"repeats {repeated:,} records")
    missing = unseen().without(Ranges(there))
    for damage in damages:
        count = damage.event_count
        if damage.sequence is not None and count is not None:
            count = missing.take(damage.sequence, damage.sequence + count)
        if damage.byte_count or count:  # otherwise a gap whose records come later in the file
            state.note(describe_damage(replace(damage, event_count=count)))
            state.lost_count += count or 0


def _note_times(state: FileState, rows: RecordArray) -> None:
    for name in _HOST_TIMES:
        if name in (rows.dtype.names or ()) and rows.dtype[name] == np.int64:
            low, high = int(rows[name].min()), int(rows[name].max())
            state.first_ns = low if state.first_ns is None else min(low, state.first_ns)
            state.last_ns = high if state.last_ns is None else max(high, state.last_ns)


def _check_writers(state: CaptureState) -> None:
    """Report files of different captures in one folder."""
    manifest = state.capture.manifest
    writers = {file.header.writer_id for file in state.files if file.header is not None}
    if manifest is not None:
        writers.add(manifest.writer_id)
    if len(writers) > 1:
        state.problems.append(f"contains files of {len(writers)} captures (their headers name different writers)")


def _describe(state: CaptureState) -> None:
    """Fill in the content of capture and device records."""
    texts = dictionary_of(state.capture)
    for _, row in _first_rows(state.capture, "capture"):
        state.writer = texts.get(row["writer"])
        state.model_name = texts.get(row["model_name"])
        state.host_name = texts.get(row["host_name"])
        state.epoch_ns = row["epoch_ns"]
    found: dict[int, DeviceState] = {}
    for file, row in _first_rows(state.capture, "device"):
        device_id = row["device_id"]
        clock_hz = row["clock_hz"] or None
        found[file.device_id or 0] = DeviceState(device_id, texts.get(row["name"]), texts.get(row["kind"]), clock_hz)
    for device_id in {file.device_id for file in state.capture.files if file.device_id is not None} - set(found):
        found[device_id] = DeviceState(device_id, None, None, None)
    state.devices = [found[device_id] for device_id in sorted(found)]


def _first_rows(capture: CaptureFolder, record_name: str) -> Iterator[tuple[LogFile, Mapping[str, int]]]:
    """The first record of a type in each file that contains one."""
    schema = record(record_name)
    for file in capture.files:
        rows = next(records_of(file, schema), None) if file.record == record_name else None
        if rows is not None:
            yield file, dict(zip(rows.dtype.names or (), rows[0].tolist(), strict=True))


def wall_clock_text(epoch_ns: int) -> str:
    """A wall-clock time as UTC text with nine decimals, computed in integers."""
    seconds, ns = divmod(epoch_ns, 1_000_000_000)
    try:
        seconds_text = np.datetime64(seconds, "s").item().strftime("%Y-%m-%d %H:%M:%S")
    except (AttributeError, ValueError):
        return f"{epoch_ns} ns"  # beyond the calendar
    return f"{seconds_text}.{ns:09d} UTC"
