"""A report of Nsight Systems, exported to SQLite → batches of events, table by table, in integer ns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa

from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Coded, EventFlows, NamedTrack, TraceBatch, TrackName, coded, combined
from traceconv.formats.common.columns import integer_array, json_objects
from traceconv.formats.common.sqlite_names import IdSet
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import (
    Events,
    SqliteReader,
    launch_flows,
    pairs_of,
    renamed,
    same,
    taken,
    without,
)
from traceconv.formats.format import ReadRequest
from traceconv.formats.nsys.export import sqlite_file
from traceconv.formats.nsys.names import Names
from traceconv.formats.nsys.nvtx import NvtxRanges
from traceconv.formats.nsys.tables import (
    CALL_TABLES,
    DESCRIBING,
    DESCRIBING_PREFIXES,
    DEVICE_TABLES,
    EVENT_TABLES,
    MARKER_TABLES,
    METRIC_TABLES,
    NO_ID,
    NOTES,
    NVTX,
    SPAN_TABLES,
    TEXT_IDS,
    CallTable,
    DeviceTable,
    MarkerTable,
    MetricTable,
)

#: A database with one of these tables is a report.
_REPORT_TABLES = ("StringIds", "META_DATA_EXPORT", "TARGET_INFO_SYSTEM_ENV", "ANALYSIS_DETAILS")


class NsysReader(SqliteReader):
    """Reads one report, as `TraceSource` describes."""

    def __init__(self, request: ReadRequest) -> None:
        export = "export the report with: nsys export --type sqlite FILE"
        super().__init__(request, "a report of Nsight Systems", export)
        #: The correlation ids of device work, by process: calls that launch nothing start no flow.
        self._launching: dict[int, IdSet] = {}
        self._named_tracks: set[object] = set()

    def _file(self) -> AbstractContextManager[Path]:
        return sqlite_file(self._path)

    def _batches(self) -> Iterator[TraceBatch]:
        self._check_report()
        self._names = Names(self._db, self._log, self._accounts)
        self.keys["nsys_export"] = json.dumps(self._names.about).encode()
        shares = self._shares(EVENT_TABLES)
        for table in DEVICE_TABLES:
            if not table.apart:
                self._note_launched(table)
        for device_table in DEVICE_TABLES:
            yield from self._noted(device_table.table, self._device_work(device_table), shares)
        for call_table in CALL_TABLES:
            yield from self._noted(call_table.table, self._calls(call_table), shares)
        yield from self._noted(NVTX, self._nvtx(), shares)
        for metric_table in METRIC_TABLES:
            yield from self._noted(metric_table.table, self._metrics(metric_table), shares)
        for marker_table in MARKER_TABLES:
            yield from self._noted(marker_table.table, self._markers(marker_table), shares)
        unread = sorted(set(self._db.tables) - {*EVENT_TABLES, *DESCRIBING})
        self._count_unread([name for name in unread if not name.startswith(DESCRIBING_PREFIXES)], self._db.views)

    def _check_report(self) -> None:
        tables = set(self._db.tables)
        if tables & set(_REPORT_TABLES) or any(name.startswith("CUPTI_ACTIVITY_KIND_") for name in tables):
            self.found_events = not tables.isdisjoint((*SPAN_TABLES, NVTX))
            return
        what = "it has none of its tables"
        if "rocpd_op" in tables:
            what = "a database of rocmProfileData; specify --reader rpd"
        shown = printable(str(self._path))
        raise InputError(f"{shown} is a SQLite file, but not a report of Nsight Systems ({what})")

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[int, list[Values]]]:
        return self._db.columns_of(table, columns, self._report)

    # -- work of devices --

    def _note_launched(self, table: DeviceTable) -> None:
        """Note the correlation ids of device work."""
        if "correlationId" not in self._db.columns(table.table):
            return
        for _, columns in self._db.columns_of(table.table, ("correlationId", "globalPid")):  # damage is reported later
            ids, processes = integer_array(columns[0]), self._process_indices(columns[1])
            for process in np.unique(processes).tolist():
                self._launching.setdefault(process, IdSet()).add(ids[processes == process])

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
            for name in place.keys() & NO_ID.keys():
                by_column[place[name]] = without(by_column[place[name]], NO_ID[name])

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
            devices = column("deviceId")
            gpus = self._names.gpu_numbers(devices, column("globalPid"))
            if gpus is not None and "deviceId" in keys:
                keys[keys.index("deviceId")] = "cudaId"
                keys.append("gpuId")
                values.append(gpus)
                devices = gpus
            pids, tids, track_names = self._streams(
                table, [devices, *(column(name) for name in ("globalPid", "contextId", "streamId"))]
            )
            usable = np.flatnonzero(correlations >= 0)
            args = json_objects(keys, values, count)
            events = Events(same("X", count), names, pids, tids, by_column[0], by_column[1], args)
            flows = None if table.apart else _flows(usable, processes, correlations, 2)
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
        return same(table.title.replace("{}", "").strip() or table.category, count)

    def _streams(self, table: DeviceTable, ids: Sequence[Values]) -> tuple[Coded, Coded, tuple[TrackName, ...]]:
        """The tracks of streams, by device, process, context and stream."""
        track_names: list[TrackName] = []

        def track(device: object, process: object, context: object, stream: object) -> tuple[str, NamedTrack]:
            pid = "GPU" if device is None else f"GPU {device}"
            suffix = " waits" if table.apart else ""
            whose = self._names.process_label(process)
            tid = NamedTrack("stream", f"{whose}/{context}/{stream}{suffix}")
            if (pid, tid) not in self._named_tracks:
                self._named_tracks.add((pid, tid))
                gpu = self._names.gpu(device)
                track_names.append(TrackName(pid, None, f"{pid} {gpu}" if gpu else pid))
                of_process = f" (process {whose})" if self._names.several_processes else ""
                which = "No stream" if stream is None else f"Stream {stream}"
                track_names.append(TrackName(pid, tid, f"{which}{suffix}{of_process}"))
            return pid, tid

        return *pairs_of(track, *ids), tuple(track_names)

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
            values = [self._shown(name, value) for name, value in zip(columns, by_column[4:], strict=True)]
            flows, phases = None, same("X", count)
            if "eventClass" in columns:
                classes = coded(values[columns.index("eventClass")])
                phases = renamed(classes, lambda number: "i" if number in NOTES else "X")
            if launches and "correlationId" in columns:
                at = columns.index("correlationId")
                values[at] = without(values[at], NO_ID["correlationId"])
                correlations = integer_array(values[at])
                if processes.any():
                    keys.append("correlation")
                    values.append(_correlation(processes, correlations))
                is_call = phases.mask(lambda phase: phase == "X")
                launchers = np.flatnonzero(self._launches(processes, correlations) & is_call)
                flows = _flows(launchers, processes, correlations, 0)
            pids, tids = pairs_of(self._names.thread, by_column[2])
            names = renamed(self._names.texts(by_column[3]), lambda name: name or table.category)
            args = json_objects(keys, values, count)
            events = Events(phases, names, pids, tids, by_column[0], by_column[1], args)
            yield self._batch(table.category, events, flows, self._names.take_track_names())

    def _launches(self, processes: Int64, correlations: Int64) -> Mask:
        """Whether each call shares its correlation id with device work."""
        launches = IdSet().has(correlations)
        for process, ids in self._launching.items():
            launches |= (processes == process) & ids.has(correlations)
        return launches

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

    def _metrics(self, table: MetricTable) -> Iterator[TraceBatch]:
        names = self._names.metric_names(table)
        cards = self._names.network_cards()

        def process(place: tuple[object, ...]) -> str:
            match table.table, *place:
                case "GPU_METRICS", int(type_id):
                    return f"GPU {type_id & 0xFF}"
                case "GPU_METRICS", _:
                    return "GPU"
                case "SOC_METRICS", *_:
                    return "SoC"
                case "NET_NIC_METRIC", card, port:
                    return f"NIC {cards.get(card, card)} port {port}"
                case _:
                    return "InfiniBand switch {} port {}".format(*place)

        for count, (times, values, *by_column) in self._rows(
            table.table, (table.time, "value", *table.kind, *table.place)
        ):
            keys = [coded(column) for column in by_column]
            titles = renamed(combined(keys[:2]), lambda kind: names.get(kind, f"metric {kind[1]}"))
            places = combined(keys[2:]) if table.place else Coded(np.zeros(count, np.int32), [()])
            args = json_objects(("value",), [values], count)
            none = pa.nulls(count, pa.int64())
            events = Events(same("C", count), titles, renamed(places, process), same(None, count), times, none, args)
            yield self._batch(table.table.lower(), events)

    def _markers(self, table: MarkerTable) -> Iterator[TraceBatch]:
        have = self._db.columns(table.table)
        if table.time not in have:
            self._count_unread([table.table], ())
            return
        place = "globalTid" if "globalTid" in have else "globalPid"
        columns = [name for name in have if name not in (table.time, place)]
        enums = dict(table.labelled)
        for count, by_column in self._rows(table.table, [table.time, place, *columns]):
            if table.zero_is_unknown:
                kept = np.flatnonzero(integer_array(by_column[0]) > 0)
                self._accounts[f"{table.table} rows"].add(used=count - len(kept))
                by_column = [taken(column, kept) for column in by_column]
                count = len(kept)
            times, places, *values = by_column
            if place == "globalTid":
                pids, tids = pairs_of(self._names.thread, places)
            else:
                pids, tids = renamed(coded(places), self._names.process_label), same(None, count)
            shown = [
                self._labelled(value, enums[name]) if name in enums else self._shown(name, value)
                for name, value in zip(columns, values, strict=True)
            ]
            names = self._marker_names(table, dict(zip(columns, values, strict=True)), count)
            args = json_objects(columns, shown, count)
            events = Events(same("i", count), names, pids, tids, times, pa.nulls(count, pa.int64()), args)
            yield self._batch(table.category, events, track_names=self._names.take_track_names())

    def _marker_names(self, table: MarkerTable, columns: Mapping[str, Values], count: int) -> Coded:
        if table.enum is None:
            return same(table.title, count)
        field, labels = table.enum[0], self._names.labels(table.enum[1])
        if field not in columns:
            return same(table.category, count)
        return renamed(
            coded(columns[field]),
            lambda value: table.title.format(labels[value]) if value in labels else table.category,
        )

    def _shown(self, name: str, column: Values) -> Values:
        """The texts of a column with IDs of texts, or else the column."""
        return self._names.texts(column) if name in TEXT_IDS else column

    def _labelled(self, column: Values, enum: str) -> Coded:
        """The labels of numbers; those without one stay."""
        labels = self._names.labels(enum)
        return renamed(coded(column), lambda value: labels.get(value, value))


def _flows(places: Int64, processes: Int64, correlations: Int64, step: int) -> EventFlows | None:
    """The flows of events at these places, with keys that are unique over processes."""
    return launch_flows(places, (processes[places] << 32) + correlations[places], correlations[places], step)


def _correlation(processes: Int64, correlations: Int64) -> pa.Array:
    """Ids that are distinct across processes; null for the first process, which keeps its own, and for unknown ids."""
    ids = np.where((processes > 0) & (correlations >= 0), (processes << 32) + correlations, 0)
    return pa.array(ids, mask=ids == 0)
