"""A table of Nsight Compute → an event for each launch of a kernel.

ncu runs kernels one at a time, and repeats each for several passes: a launch has a duration, but no start. Launches
follow each other in the order of the file, so that they don't overlap; the rules `ncu.toml` drop their starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN

import pyarrow as pa

from traceconv.base.diagnostics import Account, Code
from traceconv.base.errors import InputError, printable
from traceconv.events.trace import NamedTrack, TraceBatch, TrackName
from traceconv.formats.common.columns import slices
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.format import ReadRequest
from traceconv.formats.ncu_csv.launches import Launch, Launches
from traceconv.formats.ncu_csv.work import measured

_BATCH_BYTES = 4 << 20
_DEVICE_NAME = '"device__attribute_display_name"'
#: Streams, and devices, that are named.
_MOST_NAMED = 1 << 14
#: Durations add up to less than this.
_MOST_NS = 1 << 62


class NcuCsvReader(FileReader):
    """Reads one file, as `TraceSource` describes."""

    keeps_all = True

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._damaged = Account()
        self._launches = Launches(self._source.chunks(), self._log, self._damaged, self._path.name, self._limits)
        self._next_ns = 0
        self._devices: dict[str, str | None] = {}
        self._streams: set[tuple[str, str, str, str]] = set()
        self._process: str | None = None
        self._bad_durations = self._fine = self._coarse = self._bad_values = self._cut = 0

    def batches(self) -> Iterator[TraceBatch]:
        """An event for each launch, in the order of the file. InputError if the file has no table."""
        batch: list[tuple[Launch, bytes]] = []
        size = 0
        for launch in self._launches:
            dur_ns = None if launch.duration is None else launch.duration[0]
            launch.args.update(measured(launch.args, self._launches.units, dur_ns, launch.cells.get("CC", "")))
            batch.append((launch, launch.json().encode("utf-8", "replace")))
            size += len(batch[-1][1])
            if size >= _BATCH_BYTES:
                yield self._batch(batch)
                batch, size = [], 0
        if batch:
            yield self._batch(batch)
        self.found_events = self._launches.found_table
        if not self.found_events:
            raise InputError(
                f"{printable(str(self._path))} has no table of launches of Nsight Compute, only its messages or a "
                "summary of kernels; write one with ncu --csv --page raw"
            )
        devices = [
            {"id": int(number), "name": name}
            for number, name in self._devices.items()
            if number.isascii() and number.isdigit() and len(number) < 19
        ]
        self.keys["ncu_table"] = json.dumps({"units": self._launches.units}).encode()
        self.keys["ncu_devices"] = json.dumps(devices).encode()
        self._report()

    def _batch(self, batch: list[tuple[Launch, bytes]]) -> TraceBatch:
        tracks = [self._track(launch) for launch, _ in batch]
        times = [self._times(launch) for launch, _ in batch]
        self._bad_values += sum(launch.bad_values for launch, _ in batch)
        self._cut += sum(launch.is_cut for launch, _ in batch)
        columns = slices(
            [launch.cells.get("Kernel Name") for launch, _ in batch],
            ["kernel"] * len(batch),
            [pid for pid, _ in tracks],
            [tid for _, tid in tracks],
            pa.array([start for start, _ in times], pa.int64()),
            pa.array([dur for _, dur in times], pa.int64()),
            [args for _, args in batch],
        )
        first, last = batch[0][0], batch[-1][0]
        return self._next_batch(columns, first.offset, last.offset + last.byte_count - first.offset)

    def _times(self, launch: Launch) -> tuple[int, int | None]:
        """A start after the launches before, and the duration."""
        start, dur = self._next_ns, None
        if launch.duration is not None:
            exact, unit_ns = launch.duration
            if 0 <= exact < _MOST_NS - start:
                dur = int(exact.to_integral_value(ROUND_HALF_EVEN))
                self._fine += exact != dur
                self._coarse += unit_ns > 1
            else:
                self._bad_durations += 1
        self._next_ns += max(dur or 0, 1)
        return start, dur

    def _track(self, launch: Launch) -> tuple[str, NamedTrack]:
        """The device, and the track of the stream; both are named when they are first seen."""
        device, process, context, stream = (
            launch.cells.get(name, "") for name in ("Device", "Process ID", "Context", "Stream")
        )
        pid, tid = f"GPU {device}".rstrip(), NamedTrack("stream", f"{process}/{context}/{stream}")
        if device not in self._devices and len(self._devices) < _MOST_NAMED:
            name = json.loads(launch.args.get(_DEVICE_NAME, "null"))
            self._devices[device] = name if isinstance(name, str) else None
            self._track_names.append(TrackName(pid, None, f"{pid} {self._devices[device] or ''}".rstrip()))
        self._process = process if self._process is None else self._process
        stream_key = (device, process, context, stream)
        if stream_key not in self._streams and len(self._streams) < _MOST_NAMED:
            self._streams.add(stream_key)
            of_process = f" (process {process})" if process != self._process else ""
            self._track_names.append(TrackName(pid, tid, f"Stream {stream}{of_process}"))
        return pid, tid

    def _report(self) -> None:
        if self._launches.metric_records:
            self._accounts["metrics and results of rules"].add(used=self._launches.metric_records)
        if self._damaged.records:
            self._accounts.by_record["damaged records"] = self._damaged
        for code, message, count in (
            (Code.NO_START, "launches: ncu runs kernels one at a time, and records no start", self._ordinal),
            (Code.BAD_DURATION, "durations that are negative or too long", self._bad_durations),
            (Code.FINE_TIME, "durations finer than a nanosecond", self._fine),
            (
                Code.COARSE_TIME,
                "durations in a unit above ns, with two decimal places; ncu --print-units base prints ns",
                self._coarse,
            ),
            (Code.BAD_NUMBER, "values of metrics that are not numbers", self._bad_values),
            (Code.TOO_LARGE, "launches whose other metrics are lost: all exceed the limit of an event", self._cut),
            (Code.UNCLEAR_RECORD, "launches with the ID of an earlier one of their process", self._launches.repeated),
            (Code.NOT_READ, "lines between the records: messages or output of the program", self._launches.other_lines),
        ):
            self._log.count(code, message, count, SOURCE_ID)
