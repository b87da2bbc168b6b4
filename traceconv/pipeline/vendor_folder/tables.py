"""One CSV file of a vendor's output folder → rows of the open transaction, with its books and its place in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.diagnostics import Account, Accounts, Code, ImportLog
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.common.files import TextSource
from traceconv.formats.common.limits import Limits
from traceconv.formats.vendor_folder.records import CsvRecords, RecordBatch
from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.trace.times import exact_number
from traceconv.normalize.vendor_csv.spec import FileKind, Layout, counter_title, plain, spec
from traceconv.normalize.vendor_csv.typed import Odd, series, typed
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
from traceconv.store.writer import StoreWriter

_SERIES = re.compile(r"(.*?)\s*\(([^()]*)\)")
_DEVICE = re.compile(r"(?:NPU\s*:?\s*)?(\d{1,9})", re.IGNORECASE)


class FolderLog(ImportLog):
    """Entries of the readers, which know one source, are those of the `current` one of the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.current: int | None = None

    def add(
        self,
        code: Code,
        message: str,
        *,
        source_id: int | None = None,
        byte_offset: int | None = None,
        byte_count: int | None = None,
        event_count: int | None = None,
    ) -> None:
        """As `ImportLog.add`; `source_id` is not asked for."""
        super().add(
            code,
            message,
            source_id=self.current,
            byte_offset=byte_offset,
            byte_count=byte_count,
            event_count=event_count,
        )


class TableIngest:
    """Reads one file. After `read`, the rest is known."""

    def __init__(
        self,
        path: Path,
        name: str,
        kind: FileKind,
        source_id: int,
        log: FolderLog,
        accounts: Accounts,
        writer: StoreWriter,
        run_id: int,
    ) -> None:
        """`name`: of the file inside of the folder, for people."""
        self._path = path
        self._name = name
        self._kind = kind
        self._first_id = source_id << ORDINAL_BITS
        self._log = log
        self._account: Account = accounts[f"{kind.kind} records"]
        self._writer = writer
        self._run_id = run_id
        self._odd = Odd()
        self._lacking: dict[str, int] = {}
        self.blocks: list[tuple[int, int, int, int]] = []
        #: Of blocks of memory: how many bytes the last digit of the totals is worth.
        self.coarse_bytes = 1
        self.size_bytes = 0
        self.digest: str | None = None

    def read(self, limits: Limits, advance: Callable[[int], None], *, has_timeline: bool) -> None:
        """All records of the file into the store."""
        source = TextSource(self._path, self._log, limits, advance)
        records = CsvRecords(source.chunks(), self._log, self._account, self._name)
        header = records.open()
        layout = spec().layout(self._kind, header)
        if layout.missing:
            message = f"{self._name}: no column for {', '.join(layout.missing)}: the file is not used"
            self._log.add(Code.NO_COLUMN if header else Code.NOT_READ, message)
        else:
            self._take(layout, records, has_timeline)
        self.size_bytes = source.size_bytes
        self.digest = f"{source.crc:08x}"
        self._say_odd()

    def _take(self, layout: Layout, records: CsvRecords, has_timeline: bool) -> None:
        becomes = self._kind.becomes
        if becomes == "task":
            self._writer.stage(
                "vendor_task",
                _only(self._typed(layout, records, ("name|task_type", "start_ns")), TASK_COLUMNS),
                TASK_COLUMNS,
            )
            self._tasks(layout, has_timeline)
        elif becomes == "attach":
            count = self._writer.stage(
                "vendor_task", _only(self._typed(layout, records, ("name",)), TASK_COLUMNS), TASK_COLUMNS
            )
            found, alone = attach(self._writer, self._run_id, self._kind.kind)
            self._account.paired += found
            self._account.used += alone
            self._account.records += count
            if alone:
                message = f"{self._name}: records of tasks that are not there, or of which several could be meant"
                self._log.add(Code.COMPLETED, message, event_count=alone)
        elif becomes == "counter":
            self._counters(layout, records)
        elif becomes == "step":
            self._steps(layout, records, has_timeline=has_timeline)
        elif becomes == "fusion":
            batches = self._typed(layout, records, ("name",))
            count = self._writer.stage("vendor_fusion", _only(batches, FUSION_COLUMNS), FUSION_COLUMNS)
            add_fusions(self._writer, self._run_id)
            self._account.records += count
            self._account.rows += count
        else:
            self._memory(layout, records)

    # -- the file's records, typed --

    def _noted(self, batch: RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        first = self._first_id + batch.first_ordinal
        self.blocks.append((first, len(batch.rows), batch.byte_offset, batch.byte_count))
        return np.arange(first, first + len(batch.rows), dtype=np.int64)

    def _typed(self, layout: Layout, records: CsvRecords, needed: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Batches without the records that lack a needed value (`a|b`: either): those are lost, the log says where."""
        for batch in records.batches():
            rows = typed(layout, batch.rows, self._noted(batch), self._odd)
            whole = np.ones(rows.num_rows, np.bool_)
            for name in needed:
                whole &= np.logical_or.reduce(
                    [rows.column(one).is_valid().to_numpy(zero_copy_only=False) for one in name.split("|")]
                )
            for place in np.flatnonzero(~whole).tolist():
                self._account.records += 1
                self._account.lost += 1
                message = (
                    f"{self._name}: line {batch.lines[place]}: no value that can be read for {' or '.join(needed)}"
                )
                self._log.add(Code.DAMAGED_EVENT, message, byte_offset=batch.offsets[place], event_count=1)
            yield rows if whole.all() else rows.filter(pa.array(whole))

    def _say_odd(self) -> None:
        for name, count in self._odd.unreadable.items():
            self._log.add(Code.BAD_NUMBER, f"{self._name}: cells of {name} that can't be read: NULL", event_count=count)
        if self._odd.negative:
            message = f"{self._name}: durations below 0: NULL"
            self._log.add(Code.NEGATIVE_DURATION, message, event_count=self._odd.negative)
        for name, count in self._odd.rounded.items():
            self._log.add(Code.FINE_TIME, f"{self._name}: {name} finer than a nanosecond", event_count=count)

    # -- what they become --

    def _tasks(self, layout: Layout, has_timeline: bool) -> None:
        found = match_tasks(self._writer, self._run_id)
        matched = found.exact + found.near + found.by_number + found.spanning
        has_ops = "op_type" in layout.places
        steps = complete_tasks(self._writer, self._run_id, self._kind.kind, layout.group, has_ops=has_ops)
        self._account.records += matched + found.unclear + found.unmatched
        self._account.paired += matched
        self._account.lost += found.unclear
        self._account.rows += found.unmatched
        if found.unclear:
            message = f"{self._name}: records that could belong to several tasks, which differ: not used"
            self._log.add(Code.UNCLEAR_RECORD, message, event_count=found.unclear)
        if steps:
            message = f"{self._name}: steps that only it knows, from the first to the last of their tasks"
            self._log.add(Code.COMPLETED, message, event_count=steps)
        if not has_timeline and not matched:
            return
        message = f"{self._name}: records that complete a task of the timeline"
        self._log.add(Code.COMPLETED, message, event_count=matched)
        if found.near:
            message = f"of these, by a start less than {NEAR_NS} ns away, {found.apart_ns} ns at most"
            self._log.add(Code.COMPLETED, f"{self._name}: {message}", event_count=found.near)
        if found.by_number:
            message = f"{self._name}: of these, by the number of the task under another name, or by all but the number"
            self._log.add(Code.COMPLETED, message, event_count=found.by_number)
        if found.spanning:
            message = f"{self._name}: of these, by a task of their name and number that begins and ends inside of them"
            self._log.add(Code.COMPLETED, message, event_count=found.spanning)
        if found.in_order:
            message = f"{self._name}: of these, records that are alike: with tasks that are alike, in order"
            self._log.add(Code.COMPLETED, message, event_count=found.in_order)
        if found.unmatched:
            message = f"{self._name}: records that the timeline has no task for: tasks of their own"
            self._log.add(Code.COMPLETED, message, event_count=found.unmatched)

    def _steps(self, layout: Layout, records: CsvRecords, *, has_timeline: bool) -> None:
        reduces = sum(1 for header, _ in layout.others if header.casefold().startswith("reduce start"))
        batches = self._typed(layout, records, ("iteration", "end_ns"))
        self._writer.stage("vendor_step", _only(batches, STEP_COLUMNS), STEP_COLUMNS)
        same, fresh = add_steps(self._writer, self._run_id)
        add_devices(self._writer, self._run_id)
        self._account.records += same + fresh
        self._account.paired += same
        self._account.rows += fresh
        if reduces:
            why = (
                "collectives are tasks of the timeline"
                if has_timeline
                else "without a timeline no task is made of them"
            )
            self._log.add(Code.NOT_READ, f"{self._name}: {reduces} pairs of reduce columns: {why}")

    def _memory(self, layout: Layout, records: CsvRecords) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            for rows in self._typed(layout, records, ("size_bytes", "alloc_ns|free_ns")):
                devices = pa.array([_device(text) for text in rows.column("device_text").to_pylist()], pa.int64())
                own = rows.column("device_id")
                place = rows.schema.get_field_index("device_id")
                rows = rows.set_column(place, "device_id", own if own.null_count == 0 else devices)
                place = rows.schema.get_field_index("size_bytes")
                sizes = pc.abs_checked(rows.column("size_bytes"))  # a free alone may be written as less than nothing
                rows = rows.set_column(place, "size_bytes", sizes)
                yield rows.append_column("pool", _pools(rows.column("name"), of_torch=of_torch))

        of_torch = any(plain(header) == "stream ptr" for header, _ in layout.others)

        count = self._writer.stage("vendor_memory", _only(batches(), MEMORY_COLUMNS), MEMORY_COLUMNS)
        add_memory(self._writer, self._run_id)
        self.coarse_bytes = max(
            (self._odd.coarse.get(name, 1) for name in ("total_bytes", "reserved_bytes")), default=1
        )
        self._account.records += count
        self._account.rows += count
        if layout.others:
            names = ", ".join(header for header, _ in layout.others)
            self._log.add(Code.NOT_READ, f"{self._name}: columns that no table has a place for: {names}")

    def _counters(self, layout: Layout, records: CsvRecords) -> None:
        """A track for each component (and device, and stream), a series for each column that is none of ours."""
        tracks: dict[tuple[str, int | None, str | None], int] = {}
        units = {header: _SERIES.fullmatch(header) for header, _ in layout.others}
        top = self._writer.fetch(
            "SELECT coalesce(max(track_id), 0) FROM track WHERE run_id = $run", {"run": self._run_id}
        )[0][0]

        def track_of(name: str | None, device: int | None, stream: str | None) -> int:
            key = (name or self._kind.kind, device, stream)
            return tracks.setdefault(key, int(top) + len(tracks) + 1)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in records.batches():
                rows = typed(layout, batch.rows, self._noted(batch), self._odd)
                moments = rows.column("ts_ns").to_pylist()
                devices = [
                    number if number is not None else _device(text)
                    for number, text in zip(
                        rows.column("device_id").to_pylist(), rows.column("device_text").to_pylist(), strict=True
                    )
                ]
                names, streams = rows.column("track").to_pylist(), rows.column("stream_text").to_pylist()
                used = [False] * len(moments)
                samples: list[tuple[int, str | None, int, float, int | None]] = []
                for header, cells in series(layout, batch.rows):
                    match = units[header]
                    title = match[1] if match else header
                    for row, cell in enumerate(cells):
                        value = exact_number(cell) if cell and moments[row] is not None else None
                        if value is not None:
                            whole = int(value) if value == value.to_integral_value() and abs(value) < 2**63 else None
                            track = track_of(names[row], devices[row], streams[row])
                            samples.append((track, title, moments[row], float(value), whole))
                            used[row] = True
                for row, moment in enumerate(moments):
                    self._account.records += 1
                    if moment is None:
                        self._account.lost += 1
                        message = f"{self._name}: line {batch.lines[row]}: no time"
                        self._log.add(Code.NO_TIME, message, byte_offset=batch.offsets[row], event_count=1)
                    elif used[row]:
                        self._account.rows += 1
                    else:
                        self._account.used += 1
                if samples:
                    columns = ("track_id", "series", "ts_ns", "value", "value_int")
                    yield rows_from_tuples("counter", columns, samples)

        self._writer.insert("counter", self._run_id, batches())
        if tracks:
            unit = {match[2] if match else None for match in units.values()}
            one = next(iter(unit)) if len(unit) == 1 else None
            rows = [
                (number, "counter", device, counter_title(name, self._kind.kind, stream), one)
                for (name, device, stream), number in tracks.items()
            ]
            columns = ("track_id", "kind", "device_id", "name", "unit")
            self._writer.insert("track", self._run_id, iter([rows_from_tuples("track", columns, rows)]))
            add_devices(self._writer, self._run_id)


def _device(text: str | None) -> int | None:
    match = _DEVICE.fullmatch(text.strip()) if text else None
    return int(match[1]) if match else None


def _pools(names: pa.Array, *, of_torch: bool) -> pa.Array:
    """The allocator of each block: torch_npu lists its own (PTA) and that of CANN's graphs (GE), under cann:: names."""
    if not of_torch:
        return pa.nulls(len(names), pa.string())
    return pc.if_else(pc.fill_null(pc.starts_with(names, "cann::"), fill_value=False), "GE", "PTA")


def _only(batches: Iterator[pa.RecordBatch], columns: dict[str, str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        names = [name for name in batch.schema.names if name in columns]
        yield batch.select(names)
