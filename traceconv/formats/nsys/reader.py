"""A report of Nsight Systems, exported to SQLite → batches of events, table by table, in integer ns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Int64
from traceconv.events.npu import ORDINAL_BITS
from traceconv.events.trace import Coded, EventColumns, EventFlows, NamedTrack, TraceBatch, TrackName, coded, combined
from traceconv.formats.common.columns import durations, integer_array, integers, json_objects
from traceconv.formats.common.file_reader import SOURCE_ID, keys_object
from traceconv.formats.common.files import STDIN, container_of, opened
from traceconv.formats.format import ReadRequest
from traceconv.formats.nsys.database import Damage, Database
from traceconv.formats.nsys.format import MAGIC
from traceconv.formats.nsys.names import Names, renamed
from traceconv.formats.nsys.nvtx import Events, NvtxRanges
from traceconv.formats.nsys.pages import Values
from traceconv.formats.nsys.tables import (
    CALL_TABLES,
    DESCRIBING,
    DESCRIBING_PREFIXES,
    DEVICE_TABLES,
    EVENT_TABLES,
    GPU_METRICS,
    MEMORY_USAGE,
    NVTX,
    SPAN_TABLES,
    TIME_COLUMNS,
    CallTable,
    DeviceTable,
)

#: Correlation ids below this are looked up in a bit table, so that calls that launch nothing start no flow.
_MAX_CORRELATION = 1 << 26
_FLOWS = "launch"
#: A database with one of these tables is a report.
_REPORT_TABLES = ("StringIds", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS")


class NsysReader:
    """Reads one report, as `TraceSource` describes."""

    keeps_all = False

    def __init__(self, request: ReadRequest) -> None:
        _check_file(request.path)
        self._path = request.path
        self._log = request.log
        self._accounts = request.accounts
        self._advance = request.advance
        self._ordinal = 0
        self._launching: dict[int, NDArray[np.bool_]] = {}
        self._named_tracks: set[object] = set()
        self.blocks: list[tuple[int, int, int | None, int | None]] = []
        self.size_bytes = self._path.stat().st_size
        self.digest = None
        self.container = "plain"
        self.found_events = False
        self.keys: dict[str, bytes] = {}

    def options(self) -> str | None:
        """The report's metadata, as one JSON object."""
        return keys_object(self.keys)

    def batches(self) -> Iterator[TraceBatch]:
        """All events, table by table. Raises InputError if the file is not a report of Nsight Systems."""
        self._db = Database(self._path)
        try:
            self._check_report()
            self._names = Names(self._db, self._log, self._accounts)
            self.keys["nsys_export"] = json.dumps(self._names.about).encode()
            shares = self._shares()
            for table in DEVICE_TABLES:
                self._note_launched(table)
            for device_table in DEVICE_TABLES:
                yield from self._noted(device_table.table, self._device_work(device_table), shares)
            for call_table in CALL_TABLES:
                yield from self._noted(call_table.table, self._calls(call_table), shares)
            yield from self._noted(NVTX, self._nvtx(), shares)
            yield from self._noted(GPU_METRICS, self._metrics(), shares)
            yield from self._noted(MEMORY_USAGE, self._memory_usage(), shares)
            self._count_unread()
        finally:
            self._db.close()

    def _check_report(self) -> None:
        tables = set(self._db.tables)
        if tables & set(_REPORT_TABLES) or any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in tables):
            self.found_events = not tables.isdisjoint((*SPAN_TABLES, NVTX))
            return
        is_rocpd = any(name.startswith("rocpd") for name in tables)
        what = "a rocpd database; use rocprofv3 --output-format json" if is_rocpd else "it has none of its tables"
        if "STRING_IDS" in tables:
            what = "a database of torch_npu or msprof; export text as well, and ingest that folder"
        shown = printable(str(self._path))
        raise InputError(f"{shown} is a SQLite file, but not a report of Nsight Systems ({what})")

    # -- progress, provenance, accounting --

    def _shares(self) -> dict[str, int]:
        """The bytes that count as read with each table, by its share of the rows."""
        counts = {table: self._db.row_count(table) for table in EVENT_TABLES if table in self._db.tables}
        total = sum(counts.values()) or 1
        return {table: self.size_bytes * count // total for table, count in counts.items()}

    def _noted(self, table: str, batches: Iterator[TraceBatch], shares: Mapping[str, int]) -> Iterator[TraceBatch]:
        if table not in self._db.tables:
            return
        done, share, total = 0, shares.get(table, 0), self._db.row_count(table) or 1
        for batch in batches:
            self.blocks.append(((SOURCE_ID << ORDINAL_BITS) + batch.first_ordinal, batch.columns.count, None, None))
            self._ordinal += batch.columns.count
            step = min(share - done, share * batch.columns.count // total)
            done += step
            self._advance(step)
            yield batch
        self._advance(share - done)

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[int, list[Values]]]:
        return self._db.columns_of(table, columns, self._report)

    def _report(self, damage: Damage) -> None:
        where = f"after row {damage.after}" if damage.after is not None else "from the first row on"
        until = f" up to row {damage.before}" if damage.before is not None else ""
        message = f"{damage.table}: rows {where}{until} can't be read ({damage.reason})"
        self._lose(damage.table, damage.count, Code.DAMAGED_BLOCK, message)

    def _lose(self, table: str, count: int | None, code: Code, message: str) -> None:
        self._log.add(code, message, source_id=SOURCE_ID, event_count=count)
        if count:
            self._accounts[f"{table} rows"].add(lost=count)

    def _count_unread(self) -> None:
        for table in sorted(set(self._db.tables) - {*EVENT_TABLES, *DESCRIBING}):
            if not table.startswith(DESCRIBING_PREFIXES):
                count = sum(len(rows) for rows in self._db.scan(table, (), self._report))
                message = f"{printable(table)}: unknown table, not read"
                if count and not set(TIME_COLUMNS).isdisjoint(self._db.columns(table)):
                    self._lose(table, count, Code.UNKNOWN_RECORD, message)
                else:
                    self._log.count(Code.NOT_READ, message, count, SOURCE_ID)
        for view in sorted(self._db.views)[: ImportLog.LIMIT]:
            message = f"{printable(view)}: views and virtual tables are not read"
            self._log.add(Code.NOT_READ, message, source_id=SOURCE_ID)

    # -- work of devices --

    def _note_launched(self, table: DeviceTable) -> None:
        """Note the correlation ids of device work, by process."""
        if not {"correlationId"} <= set(self._db.columns(table.table)):
            return
        for _, columns in self._db.columns_of(table.table, ("correlationId", "globalPid")):  # damage is reported later
            ids, processes = integer_array(columns[0]), self._process_indices(columns[1])
            usable = (ids >= 0) & (ids < _MAX_CORRELATION)
            for process in np.unique(processes[usable]).tolist():
                wanted = ids[usable & (processes == process)]
                bits = self._launching.get(process)
                top = int(wanted.max()) + 1
                if bits is None or len(bits) < top:
                    grown = np.zeros(max(top, 2 * len(bits) if bits is not None else 0), np.bool_)
                    if bits is not None:
                        grown[: len(bits)] = bits
                    bits = self._launching[process] = grown
                bits[wanted] = True

    def _process_indices(self, ids: Values) -> Int64:
        """The process index of each global id; 0 if unknown."""
        processes = coded(pa.array(integer_array(ids) >> 24))
        found = {one: self._names.process_index(one << 24) for one in sorted(processes.distinct)}
        return np.array([found[one] for one in processes.distinct], np.int64)[processes.codes]

    def _device_work(self, table: DeviceTable) -> Iterator[TraceBatch]:
        columns = [name for name in self._db.columns(table.table) if name not in ("start", "end")]
        place = {name: number + 2 for number, name in enumerate(columns)}
        strings = [(place[name], name) for name in ("shortName", "mangledName") if name in place]
        name_places = [place[name] for name in table.names if name in place]
        dropped = {place["demangledName"]} if "demangledName" in place else set()
        if not {"start", "end"} <= set(self._db.columns(table.table)):
            return
        for count, by_column in self._rows(table.table, ["start", "end", *columns]):
            nothing = pa.nulls(count, pa.int64())

            def column(name: str, by: list[Values] = by_column, none: Values = nothing) -> Values:
                return by[place[name]] if name in place else none

            correlations = integer_array(column("correlationId"))
            processes = self._process_indices(column("globalPid"))
            names = self._work_names(table, [by_column[at] for at in name_places], column, count)
            shown = list(by_column)
            for at, _ in strings:
                shown[at] = self._names.texts(by_column[at])
            kept = [at for at in range(2, len(shown)) if at not in dropped]
            keys = [columns[at - 2] for at in kept]
            values = [shown[at] for at in kept]
            if processes.any():
                # Makes ids of different processes distinct.
                keys.append("correlation")
                values.append(_correlation(processes, correlations))
            pids, tids, track_names = self._streams(
                table, [column(name) for name in ("deviceId", "globalPid", "contextId", "streamId")]
            )
            usable = np.flatnonzero(correlations >= 0)
            args = json_objects(keys, values, count)
            events = Events(_same("X", count), names, pids, tids, by_column[0], by_column[1], args)
            flows = self._flow_ends(usable, processes, correlations, 2) if not table.apart else None
            yield self._batch(table.category, events, flows, track_names)

    def _work_names(
        self, table: DeviceTable, ids: Sequence[Values], column: Callable[[str], Values], count: int
    ) -> Coded:
        if ids:
            found = self._names.texts(ids[0])
            if None in found.distinct:
                texts = zip(*map(self._names.texts, ids), strict=True)
                found = coded([next((name for name in names if name is not None), None) for names in texts])
            return renamed(found, lambda name: table.title if name is None else name)
        if table.enum is not None and table.enum[0] in self._db.columns(table.table):
            field, labels = table.enum[0], self._names.labels(table.enum[1])
            return renamed(coded(column(field)), lambda kind: table.title.format(labels.get(kind, f"{field} {kind}")))
        if table.number is not None and table.number in self._db.columns(table.table):
            return renamed(coded(column(table.number)), table.title.format)
        return _same(table.title.replace("{}", "").strip() or table.category, count)

    def _streams(self, table: DeviceTable, ids: Sequence[Values]) -> tuple[Coded, Coded, tuple[TrackName, ...]]:
        """The tracks of streams, by device, process, context and stream."""
        keys = combined([coded(one) for one in ids])
        tracks: list[tuple[str, NamedTrack]] = []
        track_names: list[TrackName] = []
        for device, process, context, stream in keys.distinct:
            pid = f"GPU {device}"
            suffix = " waits" if table.apart else ""
            whose = self._names.process_label(process)
            tid = NamedTrack("stream", f"{whose}/{context}/{stream}{suffix}")
            tracks.append((pid, tid))
            if tracks[-1] not in self._named_tracks:
                self._named_tracks.add(tracks[-1])
                gpu = self._names.gpu(device)
                track_names.append(TrackName(pid, None, f"{pid} {gpu}" if gpu else pid))
                of_process = f" (process {whose})" if self._names.several_processes else ""
                track_names.append(TrackName(pid, tid, f"Stream {stream}{suffix}{of_process}"))
        return *_pairs(keys, tracks), tuple(track_names)

    def _flow_ends(
        self,
        places: Int64,
        processes: Int64,
        correlations: Int64,
        step: int,
    ) -> EventFlows | None:
        if not len(places):
            return None
        keys = (processes[places] << 32) + correlations[places]
        texts = pa.array(correlations[places]).cast(pa.string())
        return EventFlows(places.astype(np.int64), keys, np.full(len(places), step, np.int32), _FLOWS, texts)

    # -- calls of the host --

    def _calls(self, table: CallTable) -> Iterator[TraceBatch]:
        have = self._db.columns(table.table)
        named = next((name for name in ("nameId", "textId") if name in have), None)
        if not {"start", "end"} <= set(have):
            return
        columns = [name for name in have if name not in ("start", "end", "globalTid", named)]
        launches = table.category == "cuda_api"
        for count, by_column in self._rows(table.table, ["start", "end", "globalTid", named or "nameId", *columns]):
            processes = self._process_indices(by_column[2])
            keys = list(columns)
            values = list(by_column[4:])
            flows = None
            if launches and "correlationId" in columns:
                correlations = integer_array(by_column[4 + columns.index("correlationId")])
                if processes.any():
                    keys.append("correlation")
                    values.append(_correlation(processes, correlations))
                flows = self._flow_ends(self._launchers(processes, correlations), processes, correlations, 0)
            threads = coded(by_column[2])
            pids, tids = _pairs(threads, [self._names.thread(one) for one in threads.distinct])
            names = renamed(self._names.texts(by_column[3]), lambda name: name or table.category)
            args = json_objects(keys, values, count)
            events = Events(_same("X", count), names, pids, tids, by_column[0], by_column[1], args)
            yield self._batch(table.category, events, flows, self._names.take_track_names())

    def _launchers(self, processes: Int64, correlations: Int64) -> Int64:
        """The calls that share their correlation id with device work."""
        launches = correlations >= _MAX_CORRELATION
        for process, bits in self._launching.items():
            mine = (processes == process) & (correlations >= 0) & (correlations < len(bits))
            launches[mine] = bits[correlations[mine]]
        return np.flatnonzero(launches)

    # -- annotations, metrics, memory --

    def _nvtx(self) -> Iterator[TraceBatch]:
        ranges = NvtxRanges(self._db, self._names)
        if "start" not in self._db.columns(NVTX):
            return
        for count, columns in self._rows(NVTX, ranges.columns):
            events = ranges.events(columns)
            used = count - len(events.names)
            if used:
                self._accounts[f"{NVTX} rows"].add(used=used)
            if len(events.names):
                yield self._batch("nvtx", events, track_names=self._names.take_track_names())

    def _metrics(self) -> Iterator[TraceBatch]:
        names = self._names.metric_names()
        for count, (times, types, metrics, values) in self._rows(
            GPU_METRICS, ("timestamp", "typeId", "metricId", "value")
        ):
            kinds = combined([coded(types), coded(metrics)])
            titles = renamed(kinds, lambda kind: names.get(kind, f"metric {kind[1]}"))
            pids = renamed(kinds, lambda kind: f"GPU {kind[0] & 0xFF}" if isinstance(kind[0], int) else "GPU")
            args = json_objects(("value",), [values], count)
            none = pa.nulls(count, pa.int64())
            events = Events(_same("C", count), titles, pids, _same(None, count), times, none, args)
            yield self._batch("gpu_metrics", events)

    def _memory_usage(self) -> Iterator[TraceBatch]:
        columns = [name for name in self._db.columns(MEMORY_USAGE) if name not in ("start", "globalPid")]
        operations = self._names.labels("ENUM_CUDA_DEV_MEM_EVENT_OPER")
        kind = columns.index("memoryOperationType") if "memoryOperationType" in columns else None
        for count, (times, processes, *values) in self._rows(MEMORY_USAGE, ["start", "globalPid", *columns]):
            kinds = _same(None, count) if kind is None else coded(values[kind])
            names = renamed(kinds, lambda operation: operations.get(operation, "memory"))
            pids = renamed(coded(processes), self._names.process_label)
            args = json_objects(columns, values, count)
            none = pa.nulls(count, pa.int64())
            events = Events(_same("i", count), names, pids, _same(None, count), times, none, args)
            yield self._batch("memory", events)

    def _batch(
        self,
        category: str,
        events: Events,
        flows: EventFlows | None = None,
        track_names: tuple[TrackName, ...] = (),
    ) -> TraceBatch:
        count = len(events.names)
        cat = _same(category, count)
        labels = {"ph": events.phases, "name": events.names, "cat": cat, "pid": events.pids, "tid": events.tids}
        start = integers(events.starts)
        raw = {"ts": start, "dur": durations(start, events.ends), "args": events.args}
        return TraceBatch(self._ordinal, None, None, EventColumns(count, labels, raw, None, flows), (), track_names)


def _same(value: str | None, count: int) -> Coded:
    """A column of one value."""
    return Coded(np.zeros(count, np.int32), [value])


def _pairs(keys: Coded, pairs: Sequence[tuple[Any, Any]]) -> tuple[Coded, Coded]:
    """The two values of each key, as two columns. `pairs`: in the order of the distinct keys."""
    first, second = coded([pair[0] for pair in pairs]), coded([pair[1] for pair in pairs])
    return Coded(first.codes[keys.codes], first.distinct), Coded(second.codes[keys.codes], second.distinct)


def _correlation(processes: Int64, correlations: Int64) -> pa.Array:
    """Ids that are distinct across processes; null for the first process, which keeps its own, and for unknown ids."""
    ids = np.where(processes > 0, (processes << 32) + correlations, 0)
    return pa.array(ids, mask=ids == 0)


def _check_file(path: Path) -> None:
    shown = printable(str(path))
    if path == STDIN:
        raise InputError("a report of Nsight Systems can't be read from standard input; specify the .sqlite file")
    with opened(path) as stream:
        head = stream.read(16)
    if container_of(head) != "plain":
        raise InputError(f"{shown} is compressed ({container_of(head)}); decompress it first")
    if not head.startswith(MAGIC):
        raise InputError(f"{shown} is not a SQLite file; export the report with: nsys export --type sqlite FILE")
