"""Store the records of one CSV file of a vendor's output folder, with their accounting and byte ranges."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.diagnostics import Account, Code, ImportLog
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.common.files import TextSource
from traceconv.formats.common.limits import Limits
from traceconv.formats.vendor_folder.records import CsvRecords, RecordBatch
from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.trace.times import exact_number
from traceconv.normalize.vendor_csv.spec import FileKind, Layout, counter_title, plain, spec
from traceconv.normalize.vendor_csv.typed import CellIssues, series, typed
from traceconv.pipeline.run_sql import RunSql
from traceconv.pipeline.vendor_folder.table_sql import (
    FUSION_COLUMNS,
    MEMORY_COLUMNS,
    STEP_COLUMNS,
    add_devices,
    add_fusions,
    add_memory,
    add_steps,
)
from traceconv.pipeline.vendor_folder.task_sql import NEAR_NS, TASK_COLUMNS, attach, complete_tasks, match_tasks

_SERIES = re.compile(r"(.*?)\s*\(([^()]*)\)")
_DEVICE = re.compile(r"(?:NPU\s*:?\s*)?(\d{1,9})", re.IGNORECASE)


class FolderLog(ImportLog):
    """Assigns the entries of readers, which know only one source, to the folder's `current` source."""

    def __init__(self) -> None:
        super().__init__()
        self.current: int | None = None

    def add(self, code: Code, message: str, *, source_id: int | None = None, **where: int | None) -> None:
        """Add an entry like `ImportLog.add`, but ignore `source_id`."""
        super().add(code, message, source_id=self.current, **where)


@dataclass(slots=True)
class TableIngest:
    """Reads one file. `blocks`, `coarse_bytes`, `size_bytes` and `digest` are known after `read`.

    name  path of the file within the folder, for messages
    """

    path: Path
    name: str
    kind: FileKind
    source_id: int
    log: FolderLog
    account: Account
    target: RunSql
    blocks: list[tuple[int, int, int, int]] = field(default_factory=list)
    #: Size of the last digit of memory totals.
    coarse_bytes: int = 1
    size_bytes: int = 0
    digest: str | None = None
    _issues: CellIssues = field(default_factory=CellIssues)

    def read(self, limits: Limits, advance: Callable[[int], None], *, has_timeline: bool) -> None:
        """Store all records of the file."""
        source = TextSource(self.path, self.log, limits, advance)
        records = CsvRecords(source.chunks(), self.log, self.account, self.name)
        header = records.open()
        layout = spec().layout(self.kind, header)
        if layout.missing:
            code = Code.NO_COLUMN if header else Code.NOT_READ
            self._add(code, f"no column for {', '.join(layout.missing)}: the file is not used")
        else:
            self._store(layout, records, has_timeline)
        self.size_bytes = source.size_bytes
        self.digest = f"{source.crc:08x}"
        for name, count in self._issues.unreadable.items():
            self._add(Code.BAD_NUMBER, f"unreadable cells of {name}: NULL", count)
        if self._issues.negative:
            self._add(Code.NEGATIVE_DURATION, "durations below 0: NULL", self._issues.negative)
        for name, count in self._issues.rounded.items():
            self._add(Code.FINE_TIME, f"{name} finer than a nanosecond", count)

    def _store(self, layout: Layout, records: CsvRecords, has_timeline: bool) -> None:
        becomes = self.kind.becomes
        if becomes == "task":
            self._stage("vendor_task", TASK_COLUMNS, self._typed(layout, records, ("name|task_type", "start_ns")))
            self._tasks(layout, has_timeline)
        elif becomes == "attach":
            self._stage("vendor_task", TASK_COLUMNS, self._typed(layout, records, ("name",)))
            paired, alone = attach(self.target, self.kind.kind)
            self.account.add(paired=paired, used=alone)
            if alone:
                self._add(Code.COMPLETED, "records whose task is missing or ambiguous", alone)
        elif becomes == "counter":
            self._counters(layout, records)
        elif becomes == "step":
            self._steps(layout, records, has_timeline=has_timeline)
        elif becomes == "fusion":
            rows = self._stage("vendor_fusion", FUSION_COLUMNS, self._typed(layout, records, ("name",)))
            self.account.add(rows=rows)
            add_fusions(self.target)
        else:
            self._memory(layout, records)

    def _add(self, code: Code, text: str, count: int | None = None, *, byte_offset: int | None = None) -> None:
        """Log something about the file."""
        self.log.add(code, f"{self.name}: {text}", event_count=count, byte_offset=byte_offset)

    def _stage(self, table: str, columns: dict[str, str], batches: Iterator[pa.RecordBatch]) -> int:
        """Fill a temporary table; return the number of rows."""
        known = (batch.select([name for name in batch.schema.names if name in columns]) for batch in batches)
        return self.target.writer.stage(table, known, columns)

    def _noted(self, batch: RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = (self.source_id << ORDINAL_BITS) + batch.first_ordinal
        self.blocks.append((first, len(batch.rows), batch.byte_offset, batch.byte_count))
        return np.arange(first, first + len(batch.rows), dtype=np.int64)

    def _typed(self, layout: Layout, records: CsvRecords, needed: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Return batches without the records that lack a required value (`a|b`: either), which are lost and logged."""
        for batch in records.batches():
            rows = typed(layout, batch.rows, self._noted(batch), self._issues)
            complete = np.ones(rows.num_rows, np.bool_)
            for name in needed:
                complete &= np.logical_or.reduce(
                    [rows.column(one).is_valid().to_numpy(zero_copy_only=False) for one in name.split("|")]
                )
            for place in np.flatnonzero(~complete).tolist():
                self.account.add(lost=1)
                message = f"line {batch.lines[place]}: no readable value for {' or '.join(needed)}"
                self._add(Code.DAMAGED_EVENT, message, 1, byte_offset=batch.offsets[place])
            yield rows if complete.all() else rows.filter(pa.array(complete))

    def _tasks(self, layout: Layout, has_timeline: bool) -> None:
        found = match_tasks(self.target)
        matched = found.exact + found.near + found.by_number + found.spanning
        has_ops = "op_type" in layout.places
        steps = complete_tasks(self.target, self.kind.kind, layout.group, has_ops=has_ops)
        self.account.add(rows=found.unmatched, paired=matched, lost=found.unclear)
        if found.unclear:
            self._add(Code.UNCLEAR_RECORD, "records that match several different tasks: not used", found.unclear)
        if steps:
            self._add(Code.COMPLETED, "steps that only this file has, from their first to their last task", steps)
        if not has_timeline and not matched:
            return
        self._add(Code.COMPLETED, "records that complete a task of the timeline", matched)
        for count, text in (
            (found.near, f"of these, matched by a start less than {NEAR_NS} ns away, {found.apart_ns} ns at most"),
            (found.by_number, "of these, matched by number despite another name, or by all columns but the number"),
            (found.spanning, "of these, matched by name and number with a task that begins and ends within them"),
            (found.in_order, "of these, identical records matched with identical tasks in order"),
            (found.unmatched, "records without a task in the timeline: new tasks"),
        ):
            if count:
                self._add(Code.COMPLETED, text, count)

    def _steps(self, layout: Layout, records: CsvRecords, *, has_timeline: bool) -> None:
        self._stage("vendor_step", STEP_COLUMNS, self._typed(layout, records, ("iteration", "end_ns")))
        same, added = add_steps(self.target)
        add_devices(self.target)
        self.account.add(rows=added, paired=same)
        reduces = sum(1 for header, _ in layout.others if header.casefold().startswith("reduce start"))
        if reduces:
            why = "collectives are tasks of the timeline" if has_timeline else "they are not used without a timeline"
            self._add(Code.NOT_READ, f"{reduces} pairs of reduce columns: {why}")

    def _memory(self, layout: Layout, records: CsvRecords) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            for rows in self._typed(layout, records, ("size_bytes", "alloc_ns|free_ns")):
                devices = pa.array([_device(text) for text in rows.column("device_text").to_pylist()], pa.int64())
                own = rows.column("device_id")
                place = rows.schema.get_field_index("device_id")
                rows = rows.set_column(place, "device_id", own if own.null_count == 0 else devices)
                place = rows.schema.get_field_index("size_bytes")
                sizes = pc.abs_checked(rows.column("size_bytes"))  # a free without its allocation may be negative
                rows = rows.set_column(place, "size_bytes", sizes)
                yield rows.append_column("pool", _pools(rows.column("name"), of_torch=of_torch))

        of_torch = any(plain(header) == "stream ptr" for header, _ in layout.others)

        self.account.add(rows=self._stage("vendor_memory", MEMORY_COLUMNS, batches()))
        add_memory(self.target)
        self.coarse_bytes = max(self._issues.coarse.get(name, 1) for name in ("total_bytes", "reserved_bytes"))
        if layout.others:
            names = ", ".join(header for header, _ in layout.others)
            self._add(Code.NOT_READ, f"columns that no table has: {names}")

    def _counters(self, layout: Layout, records: CsvRecords) -> None:
        """A track for each component, device and stream; a series for each column of the vendor's own."""
        tracks: dict[tuple[str, int | None, str | None], int] = {}
        units = {header: _SERIES.fullmatch(header) for header, _ in layout.others}
        top = self.target.number("SELECT coalesce(max(track_id), 0) FROM track WHERE run_id = $run")

        def track_of(name: str | None, device: int | None, stream: str | None) -> int:
            key = (name or self.kind.kind, device, stream)
            return tracks.setdefault(key, top + len(tracks) + 1)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in records.batches():
                rows = typed(layout, batch.rows, self._noted(batch), self._issues)
                times = rows.column("ts_ns").to_pylist()
                devices = [
                    number if number is not None else _device(text)
                    for number, text in zip(
                        rows.column("device_id").to_pylist(), rows.column("device_text").to_pylist(), strict=True
                    )
                ]
                names, streams = rows.column("track").to_pylist(), rows.column("stream_text").to_pylist()
                used = [False] * len(times)
                samples: list[tuple[int, str | None, int, float, int | None]] = []
                for header, cells in series(layout, batch.rows):
                    match = units[header]
                    title = match[1] if match else header
                    for row, cell in enumerate(cells):
                        value = exact_number(cell) if cell and times[row] is not None else None
                        if value is not None:
                            integer = int(value) if value == value.to_integral_value() and abs(value) < 2**63 else None
                            track = track_of(names[row], devices[row], streams[row])
                            samples.append((track, title, times[row], float(value), integer))
                            used[row] = True
                for row, ts_ns in enumerate(times):
                    if ts_ns is None:
                        self.account.add(lost=1)
                        self._add(Code.NO_TIME, f"line {batch.lines[row]}: no time", 1, byte_offset=batch.offsets[row])
                    else:
                        self.account.add(rows=used[row], used=not used[row])
                if samples:
                    columns = ("track_id", "series", "ts_ns", "value", "value_int")
                    yield rows_from_tuples("counter", columns, samples)

        self.target.writer.insert("counter", self.target.run_id, batches())
        if tracks:
            unit = {match[2] if match else None for match in units.values()}
            one = next(iter(unit)) if len(unit) == 1 else None
            rows = [
                (number, "counter", device, counter_title(name, self.kind.kind, stream), one)
                for (name, device, stream), number in tracks.items()
            ]
            columns = ("track_id", "kind", "device_id", "name", "unit")
            batch = rows_from_tuples("track", columns, rows)
            self.target.writer.insert("track", self.target.run_id, iter([batch]))
            add_devices(self.target)


def _device(text: str | None) -> int | None:
    match = _DEVICE.fullmatch(text.strip()) if text else None
    return int(match[1]) if match else None


def _pools(names: pa.Array, *, of_torch: bool) -> pa.Array:
    """The allocator of each block: torch_npu lists its own (PTA), and that of CANN's graphs (GE) under cann:: names."""
    if not of_torch:
        return pa.nulls(len(names), pa.string())
    return pc.if_else(pc.fill_null(pc.starts_with(names, "cann::"), fill_value=False), "GE", "PTA")
