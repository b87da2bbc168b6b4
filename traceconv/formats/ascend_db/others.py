"""Tables next to tasks, calls and ops: analyses, marks, calls of the system, garbage collection and counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import printable
from traceconv.base.int64 import Int64, Mask
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import Coded, CounterValues, Label, NamedTrack, TraceBatch, TrackName, coded, combined
from traceconv.formats.ascend_db.batches import START, TIMES, Point, Tables, device_label
from traceconv.formats.ascend_db.tables import (
    COLLECTIONS,
    COUNTERS,
    MARK_TYPE,
    MARKS,
    MEMORY,
    NOT_SERIES,
    OS_CALLS,
    OVERLAP_TRACKS,
    OVERLAPS,
    POINTS,
    TASK_COUNTERS,
    TITLE_ENUMS,
    TITLE_TEXTS,
    CounterTable,
)
from traceconv.formats.common.columns import integer_array, integers
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_database import Database
from traceconv.formats.common.sqlite_names import ById
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import pairs_of, renamed, same
from traceconv.formats.format import ReadRequest

#: Columns of a block of memory: ours, and that of the table.
_BLOCK = {
    "size_bytes": "size",
    "alloc_ns": "allocationTime",
    "free_ns": "releaseTime",
    "total_bytes": "allocationTotalAllocated",
    "reserved_bytes": "allocationTotalReserved",
    "device_id": "deviceId",
}


class OtherTables(Tables):
    """Reads these tables: events, and `DeviceTables`."""

    #: The table with counters of tasks.
    _counters_table = TASK_COUNTERS

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self.counter_names: set[str] = set()
        #: Number of a task in the database → number of its event.
        self._event_of_task = ById()
        #: Connection of an mstx event that may be on a stream, too → its message; connections of those that are.
        self._marks_of_streams, self._tasks_of_marks = ById(), np.zeros(0, np.int64)

    def _others(self) -> Iterator[tuple[str, Iterator[TraceBatch]]]:
        yield OVERLAPS, self._overlaps()
        yield MARKS, self._marks()
        yield OS_CALLS, self._spans(OS_CALLS, "osrt", "{} OS", "OS Runtime API")
        yield COLLECTIONS, self._spans(COLLECTIONS, "GC", "{} GC", "Python GC")
        for table in COUNTERS:
            yield table.table, self._counters(table)

    def _overlaps(self) -> Iterator[TraceBatch]:
        """The analysis of what overlaps, which timelines have too."""
        for rowids, row in self._rows(OVERLAPS, (*TIMES, "deviceId", "type")):
            track = pairs_of(self._overlap_track, row["deviceId"], row["type"])
            names = renamed(coded(row["type"]), _overlap_name)
            yield self._finished((OVERLAPS, rowids), None, names, track, row, {})

    def _overlap_track(self, device: object, kind: object) -> tuple[Label, Label | NamedTrack]:
        name = _overlap_name(kind)
        return self._named_track(f"{device_label(device)} overlap", "Overlap Analysis", name, name)

    def _marks(self) -> Iterator[TraceBatch]:
        """Ranges and points of the program (mstx); ranges from start to end need not nest."""
        wanted = (*TIMES, "globalTid", "eventType", "message", "domainId", "category", "connectionId")
        for rowids, row in self._rows(MARKS, wanted):
            names = renamed(self._texts(row["message"]), lambda name: name or MARKS)
            kinds = coded(row["eventType"])
            phases = renamed(kinds, lambda kind: "i" if kind in POINTS else "X")
            pids, tids = self._threads(row["globalTid"], "{}", "Python")
            keys = combined([kinds, tids])
            tracks = renamed(keys, lambda key: NamedTrack("async", f"mstx {key[1]}") if key[0] == 2 else key[1])
            args = {"domain": self._texts(row["domainId"]), "category": row["category"]}
            categories = same("mstx", len(rowids))
            connections = integer_array(row["connectionId"])
            on_streams = np.flatnonzero(np.isin(connections, self._tasks_of_marks))
            points = [Point(MARK_TYPE, on_streams, connections[on_streams], START)]
            yield self._finished((MARKS, rowids), categories, names, (pids, tracks), row, args, points, phases)

    def _spans(self, table: str, category: str, pid: str, process: str) -> Iterator[TraceBatch]:
        """Calls of the system, or collections of Python's garbage, which have no names."""
        for rowids, row in self._rows(table, (*TIMES, "globalTid", "name")):
            names = renamed(self._texts(row["name"]), lambda name: name or category)
            track = self._threads(row["globalTid"], pid, process)
            yield self._finished((table, rowids), same(category, len(rowids)), names, track, row, {})

    def _counters(self, table: CounterTable) -> Iterator[TraceBatch]:
        have = self._db.columns(table.table)
        in_title = [name for name in have if f"{{{name}}}" in table.title]
        series = [name for name in have if name not in (*in_title, *NOT_SERIES)]
        time = "timestampNs" if "timestampNs" in have else "timestamp"

        def counter(device: object, *values: object) -> tuple[str, str]:
            return self._counter(table, device, dict(zip(in_title, values, strict=True)))

        for rowids, row in self._rows(table.table, (time, "deviceId", *in_title, *series)):
            count = len(rowids)
            parts = [self._title_part(name, row[name]) for name in in_title]
            pids, names = pairs_of(counter, row["deviceId"], *parts)
            args = {name: row[name] for name in series}
            at = {"startNs": row[time], "endNs": pa.nulls(count, pa.int64())}
            track = pids, same(None, count)
            yield self._finished((table.table, rowids), None, names, track, at, args, phases=same("C", count))

    def _title_part(self, column: str, values: Values) -> Coded:
        if column in TITLE_TEXTS:
            return renamed(coded(values), lambda value: self._names.known(value) or value)
        if column in TITLE_ENUMS:
            return renamed(coded(values), lambda value: self._names.enum(TITLE_ENUMS[column], value) or value)
        return coded(values)

    def _counter(self, table: CounterTable, device: object, parts: Mapping[str, Any]) -> tuple[str, str]:
        """Return the process and name of a counter, which is described when it is first used."""
        pid, name = f"{device_label(device)} {table.process}", table.title
        for column, value in parts.items():
            name = name.replace(f"{{{column}}}", str(value))
        if (pid, name, "counter") not in self._named:
            self._named.add((pid, name, "counter"))
            self._name_once(pid, None, table.process)
            self._track_names.append(TrackName(pid, NamedTrack("counter", ""), name, unit=table.unit))
        return pid, name

    # -- what is not an event, after all batches --

    def report_to(self, log: ImportLog) -> None:
        self._log = log

    @contextmanager
    def _opened_again(self) -> Iterator[None]:
        self._db = Database(self._path)
        try:
            yield
        finally:
            self._db.close()

    def memory_blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table with a size and a time; the others are lost."""
        with self._opened_again():
            wanted = (*_BLOCK.values(), "name", "streamPtr", "allocationTotalActive")
            for rowids, columns in self._rows(MEMORY, wanted):
                rows = {ours: integers(columns[theirs]) for ours, theirs in _BLOCK.items()}
                sizes = rows["size_bytes"].fill_null(-(2**63)).to_numpy()
                times = rows["alloc_ns"].is_valid().to_numpy(zero_copy_only=False)
                times |= rows["free_ns"].is_valid().to_numpy(zero_copy_only=False)
                kept = np.flatnonzero((sizes > -(2**63)) & times)
                if len(kept) < len(rowids):
                    message = f"{MEMORY}: blocks without a size or a time"
                    self._lose(MEMORY, len(rowids) - len(kept), Code.DAMAGED_EVENT, message)
                self._accounts[f"{MEMORY} rows"].add(rows=len(kept))
                # The framework's allocator has streams and what is active; that of CANN's graphs has not.
                has_stream = _is_known(columns["streamPtr"]) | _is_known(columns["allocationTotalActive"])
                texts = [
                    _block_name(name, of_torch)
                    for name, of_torch in zip(self._texts(columns["name"]), has_stream, strict=True)
                ]
                rows["size_bytes"] = pa.array(np.abs(sizes))
                rows["id"] = pa.array(rowids)
                rows["name"] = pa.array(texts, pa.string())
                rows["pool"] = pa.array(np.where(has_stream, "PTA", "GE"))
                yield pa.RecordBatch.from_pydict(rows).take(pa.array(kept))

    def task_counters(self, is_known: Callable[[str], bool]) -> Iterator[tuple[Int64, Coded, CounterValues]]:
        self._event_of_task.sort()
        unknown: set[str] = set()
        with self._opened_again():
            for rowids, row in self._rows(TASK_COUNTERS, ("globalTaskId", "name", "value")):
                names = renamed(self._texts(row["name"]), lambda name: name or "")
                self.counter_names.update(names.distinct)
                unknown |= {name for name in names.distinct if not is_known(name)}
                ids = integer_array(row["globalTaskId"])
                events = self._event_of_task.find(ids)
                found = _listed(row["value"])
                usable = np.array([isinstance(value, int | float) and isfinite(value) for value in found], np.bool_)
                usable &= names.mask(is_known)
                is_task = (events >= 0) & ~self._event_of_task.repeated(ids)
                kept = np.flatnonzero(usable & is_task)
                lost = int(np.count_nonzero(~is_task))
                self._accounts[f"{TASK_COUNTERS} rows"].add(paired=len(kept), used=len(rowids) - len(kept) - lost)
                if lost:
                    message = f"{TASK_COUNTERS}: counters whose task is missing, or of several tasks with a number"
                    self._lose(TASK_COUNTERS, lost, Code.UNCLEAR_RECORD, message)
                yield (
                    (SOURCE_ID << ORDINAL_BITS) + events[kept],
                    names.take(kept),
                    [found[row] for row in kept.tolist()],
                )
        if unknown:
            message = f"{TASK_COUNTERS}: counters that no table has: {', '.join(sorted(map(printable, unknown)))}"
            self._log.add(Code.NOT_READ, message, source_id=SOURCE_ID)


def _is_known(column: Values) -> Mask:
    return np.array([value is not None for value in _listed(column)], np.bool_)


def _listed(column: Values) -> list[Any]:
    return column.to_pylist() if isinstance(column, pa.Array) else list(column)


def _block_name(name: str | None, of_torch: object) -> str | None:
    """The name of what requested a block, as in the CSV files of torch_npu."""
    return name if of_torch or name is None or name.startswith("cann::") else f"cann::{name}"


def _overlap_name(kind: object) -> str:
    return OVERLAP_TRACKS[kind] if isinstance(kind, int) and 0 <= kind < len(OVERLAP_TRACKS) else f"type {kind}"
