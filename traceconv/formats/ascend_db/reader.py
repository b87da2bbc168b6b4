"""A database of torch_npu, MindSpore or msprof → batches of events, table by table, in integer ns.

What is written into it: db_assembler.cpp of msprof, and prof_db_parse of torch_npu. Processes, tracks, categories and
args are those of the timeline that the same tools write (trace_view.json, msprof_*.json), so both have the same rules.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Coded, EventFlows, Label, NamedTrack, TraceBatch, TrackName, coded, combined
from traceconv.formats.ascend_db.names import Names
from traceconv.formats.ascend_db.tables import (
    CANN,
    COLLECTIVE_ARGS,
    COMM_OP,
    COMM_TASK,
    DESCRIBING,
    DESCRIBING_PREFIXES,
    ENUM_ARGS,
    EVENT_TABLES,
    LAYERS,
    NONE,
    PART_ARGS,
    PYTHON,
    QUEUE,
    STEPS,
    TASK,
    TEXT_ARGS,
    TORCH,
)
from traceconv.formats.common.columns import integer_array, json_objects
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_database import ROWID
from traceconv.formats.common.sqlite_names import IdSet
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import Events, SqliteReader, as_columns, renamed, same, taken
from traceconv.formats.format import ReadRequest

_TASK_COLUMNS = (
    *("startNs", "endNs", "deviceId", "connectionId", "globalTaskId", "taskType"),
    *("contextId", "streamId", "taskId", "modelId"),
)
_TORCH_COLUMNS = (
    *("startNs", "endNs", "globalTid", "connectionId", "name", "type", "sequenceNumber", "fwdThreadId"),
    *("inputDtypes", "inputShapes", "callchainId"),
)
#: Rows of parts of collectives that belong to a batch of tasks.
_MOST_JOINED = 200_000
_LAUNCH, _TORCH_LAUNCH, _QUEUE, _FORWARD = "HostToDevice", "async_npu", "async_task_queue", "fwdbwd"
#: Makes the keys of flows of frameworks' ops different from those of calls with the same connection.
_OF_TORCH = 1 << 60
_START, _END = 0, 2


class _Point(NamedTuple):
    """Points of flows: their events in a batch, their connections, and which side of the flow they are."""

    category: str
    places: Int64
    connections: Int64
    step: int


class AscendDbReader(SqliteReader):
    """Reads one database, as `TraceSource` describes."""

    def __init__(self, request: ReadRequest) -> None:
        export = "torch_npu writes databases with export_type=Db, msprof with --export=on"
        super().__init__(request, "a database of torch_npu or msprof", export)
        self._named_tracks: set[object] = set()
        self._tasks, self._calls, self._ops, self._parts = IdSet(), IdSet(), IdSet(), IdSet()
        self._last_call = -1
        self._has_steps = False
        self._devices_of_ops: dict[Any, Any] = {}
        self._devices: set[object] = set()
        self._turns: dict[Any, int] = {}

    def _batches(self) -> Iterator[TraceBatch]:
        self.found_events = not set(self._db.tables).isdisjoint(EVENT_TABLES)
        if not self.found_events:
            shown = printable(str(self._path))
            raise InputError(
                f"{shown} has no events, but sums of collectives or none of the tables of a recording; "
                "ingest ascend_pytorch_profiler*.db or msprof_*.db"
            )
        self._names = Names(self._db, self._log, self._accounts)
        self._describe_recording()
        self._note_connections()
        shares = self._shares(EVENT_TABLES)
        yield from self._noted(TASK, self._device_tasks(), shares)
        self._count_parts()
        yield from self._noted(COMM_OP, self._collectives(), shares)
        yield from self._noted(CANN, self._cann_calls(), shares)
        yield from self._noted(TORCH, self._torch_ranges(), shares)
        yield from self._noted(STEPS, self._steps(), shares)
        unread = sorted(set(self._db.tables) - {*EVENT_TABLES, *DESCRIBING})
        self._count_unread([name for name in unread if not name.startswith(DESCRIBING_PREFIXES)], self._db.views)

    def _describe_recording(self) -> None:
        about: Mapping[str, Any] = self._names.about
        self.keys["ascend_db"] = msgspec.json.encode(about)
        ranks = [row["rankId"] for row in about.get("RANK_DEVICE_MAP", ())]
        rank = next((rank for rank in ranks if isinstance(rank, int) and rank >= 0), None)
        if rank is not None:
            self.keys["rank_id"] = msgspec.json.encode(rank)
        for host in about.get("HOST_INFO", ())[:1]:
            self.keys["hostname"] = msgspec.json.encode(host["hostName"])
        self.keys["npu_devices"] = msgspec.json.encode(about.get("NPU_INFO", []))

    def _note_connections(self) -> None:
        """Note which connections tasks, calls and ops have, and which tasks have parts or are those of collectives."""
        starts_of: list[tuple[Int64, Int64]] = []
        columns = ("connectionId", "contextId", "deviceId", "streamId", "taskId", "startNs")
        for _, (connections, contexts, *rest) in self._db.columns_of(TASK, columns):  # damage is reported later
            self._tasks.add(integer_array(connections))
            parts = _has_context(integer_array(contexts))
            devices, streams, numbers, starts = (integer_array(column)[parts] for column in rest)
            starts_of.append((_task_keys(devices, streams, numbers), starts))
        for table, ids in ((COMM_OP, self._tasks), (CANN, self._calls)):
            for _, (connections,) in self._db.columns_of(table, ("connectionId",)):
                ids.add(integer_array(connections))
                if table == CANN:
                    self._last_call = max(self._last_call, int(integer_array(connections).max(initial=-1)))
        for _, (ids_of_parts,) in self._db.columns_of(COMM_TASK, ("globalTaskId",)):
            self._parts.add(integer_array(ids_of_parts))
        self._ops.add(self._names.connected)
        keys, starts = (
            (np.concatenate(one) for one in zip(*starts_of, strict=True)) if starts_of else [np.zeros(0, np.int64)] * 2
        )
        order = np.lexsort((starts, keys))
        self._sub_tasks, self._sub_starts = keys[order], starts[order]

    def _rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[int, Int64, list[Values]]]:
        for count, (rowids, *found) in self._db.columns_of(table, (ROWID, *columns), self._report):
            yield count, integer_array(rowids), found

    # -- devices --

    def _device_tasks(self) -> Iterator[TraceBatch]:
        for _, rowids, columns in self._rows(TASK, _TASK_COLUMNS):
            whole = self._with_parts(columns)
            if whole.any():
                kept = np.flatnonzero(~whole)
                rowids, columns = rowids[kept], [taken(column, kept) for column in columns]
                self._accounts[f"{TASK} rows"].add(used=int(np.count_nonzero(whole)))
                message = f"{TASK}: tasks whose parts are tasks of their own, and which timelines omit"
                self._log.count(Code.NOT_READ, message, int(np.count_nonzero(whole)), SOURCE_ID)
            if len(rowids):
                yield self._task_batch(rowids, dict(zip(_TASK_COLUMNS, columns, strict=True)))
                yield from self._parts_of(rowids, dict(zip(_TASK_COLUMNS, columns, strict=True)))

    def _with_parts(self, columns: Sequence[Values]) -> Mask:
        """Tasks during which tasks of the same number, but in a context, begin: these are their parts."""
        found = np.zeros(len(columns[0]), np.bool_)
        if not len(self._sub_tasks):
            return found
        numbers = (integer_array(columns[_TASK_COLUMNS.index(name)]) for name in ("deviceId", "streamId", "taskId"))
        keys = _task_keys(*numbers)
        low, high = (np.searchsorted(self._sub_tasks, keys, side).tolist() for side in ("left", "right"))
        starts, ends = (integer_array(column).tolist() for column in columns[:2])
        contexts = integer_array(columns[_TASK_COLUMNS.index("contextId")])
        for row in np.flatnonzero(~_has_context(contexts)).tolist():
            if low[row] < high[row]:
                place = bisect.bisect_left(self._sub_starts, starts[row], low[row], high[row])
                found[row] = place < high[row] and self._sub_starts[place] <= ends[row]
        return found

    def _task_batch(self, rowids: Int64, columns: Mapping[str, Values]) -> TraceBatch:
        task_ids, connections = integer_array(columns["globalTaskId"]), integer_array(columns["connectionId"])
        facts = self._names.facts(task_ids)
        types = renamed(combined([facts.pop("Task Type"), self._texts(columns["taskType"])]), _first)
        names = renamed(combined([facts.pop("name"), types]), _first)
        contexts = integer_array(columns["contextId"])
        args = {
            "deviceId": columns["deviceId"],
            "Model Id": columns["modelId"],
            "Task Type": types,
            "Physic Stream Id": columns["streamId"],
            "Task Id": columns["taskId"],
            "Subtask Id": columns["contextId"],
            "Context ID": pa.array(contexts, mask=~_has_context(contexts)),
            "connection_id": _without_none(connections),
            **facts,
        }
        keys = combined([coded(columns["deviceId"]), coded(columns["streamId"])])
        track = as_columns(keys, [self._stream(*key) for key in keys.distinct])
        launched = np.flatnonzero(self._calls.has(connections) & (connections != NONE) & ~self._parts.has(task_ids))
        of_torch = launched[self._ops.has(connections[launched])]
        points = [
            _Point(_LAUNCH, launched, connections[launched], _END),
            _Point(_TORCH_LAUNCH, of_torch, connections[of_torch], _END),
        ]
        shown = renamed(names, lambda name: name or TASK)
        return self._finished(TASK, rowids, None, shown, track, columns, args, points)

    def _stream(self, device: object, stream: object) -> tuple[str, NamedTrack]:
        self._devices.add(device)
        known = isinstance(stream, int) and stream >= 0
        label = f"Stream {stream}" if known else "Stream not recorded"
        return self._named(_device_label(device), "Ascend Hardware", NamedTrack("stream", label), label)

    def _parts_of(self, rowids: Int64, columns: Mapping[str, Values]) -> Iterator[TraceBatch]:
        """Parts of collectives, which are also tasks: their times are those of these."""
        if not self._parts.has(integer_array(columns["globalTaskId"])).any():
            return
        have = self._db.columns(COMM_TASK)
        wanted = [
            name
            for name in ("name", "planeId", "groupName", "opId", "timestampNs", *PART_ARGS.values())
            if name in have
        ]
        bounds = range(int(rowids.min()), int(rowids.max()) + 1)
        found = self._db.joined((TASK, "globalTaskId"), (COMM_TASK, "globalTaskId"), wanted, bounds, _MOST_JOINED)
        if found is None:
            message = f"{COMM_TASK}: parts of collectives can't be read"
            self._log.count(Code.DAMAGED_BLOCK, message, len(rowids), SOURCE_ID)
            return
        place_of = {rowid: place for place, rowid in enumerate(rowids.tolist())}
        starts, task_ids = columns["startNs"], columns["globalTaskId"]
        by_place: dict[int, list[tuple[Any, ...]]] = {}
        for rowid, *part in found:
            if rowid in place_of:
                by_place.setdefault(place_of[rowid], []).append(tuple(part))
        rows: list[tuple[int, tuple[Any, ...]]] = []
        at = wanted.index("timestampNs") if "timestampNs" in wanted else None
        for place, parts in by_place.items():
            if len(parts) > 1 and at is not None:
                parts = [part for part in parts if part[at] == _value(starts, place)] or parts
            if len(parts) > 1:
                # A number that occurs again: its parts are in the order of its tasks.
                turn = self._turns.get(_value(task_ids, place), 0)
                self._turns[_value(task_ids, place)] = turn + 1
                parts = parts[turn % len(parts) :][:1]
            rows.append((place, parts[0]))
        if not rows:
            return
        places = np.array([place for place, _ in rows], np.int64)
        part_columns: dict[str, Values] = dict(zip(wanted, zip(*(part for _, part in rows), strict=True), strict=True))
        own = {name: taken(column, places) for name, column in columns.items()}
        nothing: Values = [None] * len(rows)
        devices, groups = coded(own["deviceId"]), coded(part_columns.get("groupName", nothing))
        self._devices_of_ops.update(zip(part_columns.get("opId", nothing), devices, strict=True))
        tracks = combined([devices, groups, coded(part_columns.get("planeId", nothing))])
        args = {
            "stream id": own["streamId"],
            "task id": own["taskId"],
            "context id": own["contextId"],
            **self._args(PART_ARGS, part_columns),
        }
        names = renamed(self._texts(part_columns.get("name", nothing)), lambda name: name or COMM_TASK)
        track = as_columns(tracks, [self._plane(*key) for key in tracks.distinct])
        yield self._finished(TASK, rowids[places], None, names, track, own, args)

    def _count_parts(self) -> None:
        """Account for the parts of collectives: those without a task have no times."""
        tasks = IdSet()
        for _, (task_ids,) in self._db.columns_of(TASK, ("globalTaskId",)):
            tasks.add(integer_array(task_ids))
        for count, (task_ids,) in self._db.columns_of(COMM_TASK, ("globalTaskId",), self._report):
            lost = int(np.count_nonzero(~tasks.has(integer_array(task_ids))))
            self._accounts[f"{COMM_TASK} rows"].add(used=count - lost)
            if lost:
                self._lose(COMM_TASK, lost, Code.NO_TIME, f"{COMM_TASK}: parts of collectives without a task")

    def _plane(self, device: object, group: object, plane: object) -> tuple[Label, Label | NamedTrack]:
        pid = f"{_device_label(device)} communication"
        number = plane if isinstance(plane, int) and 0 <= plane < NONE else 0
        return self._named(pid, "Communication", f"{group} plane {number}", f"Plane {number}")

    def _collectives(self) -> Iterator[TraceBatch]:
        wanted = ("startNs", "endNs", "opName", "groupName", "opId", "deviceId", *COLLECTIVE_ARGS.values())
        for _, rowids, found in self._rows(COMM_OP, wanted):
            columns = dict(zip(wanted, found, strict=True))
            devices = coded(columns["deviceId"])
            if all(device is None for device in devices.distinct):
                devices = renamed(coded(columns["opId"]), self._device_of_op)
            connections = integer_array(columns["connectionId"])
            args = {
                "deviceId": devices,
                **self._args(COLLECTIVE_ARGS, columns),
                "connection_id": _without_none(connections),
            }
            groups = renamed(coded(columns["groupName"]), lambda number: (number, self._names.known(number)))
            keys = combined([devices, groups])
            track = as_columns(keys, [self._group(*key) for key in keys.distinct])
            launched = np.flatnonzero(self._calls.has(connections) & (connections != NONE))
            of_torch = launched[self._ops.has(connections[launched])]
            points = [
                _Point(_LAUNCH, launched, connections[launched], _END),
                _Point(_TORCH_LAUNCH, of_torch, connections[of_torch], _END),
            ]
            names = renamed(self._texts(columns["opName"]), lambda name: name or COMM_OP)
            yield self._finished(COMM_OP, rowids, None, names, track, columns, args, points)

    def _device_of_op(self, op: object) -> object:
        """The device of the parts of a collective, or the only one."""
        only = next(iter(self._devices)) if len(self._devices) == 1 else None
        return self._devices_of_ops.get(op, only)

    def _group(self, device: object, group: tuple[object, str | None]) -> tuple[Label, Label | NamedTrack]:
        number, name = group
        title = f"Group {name} Communication" if name else "Communication"
        return self._named(f"{_device_label(device)} communication", "Communication", f"{number}", title)

    # -- the host --

    def _cann_calls(self) -> Iterator[TraceBatch]:
        for _, rowids, (starts, ends, kinds, threads, connections, names) in self._rows(
            CANN, ("startNs", "endNs", "type", "globalTid", "connectionId", "name")
        ):
            ids = integer_array(connections)
            levels = renamed(coded(kinds), lambda kind: self._names.enum("ENUM_API_TYPE", kind))
            titles = combined([levels, self._texts(names)])
            shown = renamed(titles, lambda title: f"{LAYERS.get(title[0], 'Api')}@{title[1] or CANN}")
            launches = np.flatnonzero(self._tasks.has(ids) & (ids != NONE))
            args = {"level": levels, "connection_id": _without_none(ids)}
            track = self._threads(threads, "{} CANN", "CANN")
            points = [_Point(_LAUNCH, launches, ids[launches], _START)]
            yield self._finished(CANN, rowids, None, shown, track, {"startNs": starts, "endNs": ends}, args, points)

    def _torch_ranges(self) -> Iterator[TraceBatch]:
        for _, rowids, found in self._rows(TORCH, _TORCH_COLUMNS):
            columns = dict(zip(_TORCH_COLUMNS, found, strict=True))
            names = renamed(self._texts(columns["name"]), lambda name: name or TORCH)
            kinds = integer_array(columns["type"])
            is_enqueue = np.array([name.startswith("Enqueue") for name in names.distinct], np.bool_)[names.codes]
            code = np.where(kinds == PYTHON, 1, np.where(kinds != QUEUE, 0, np.where(is_enqueue, 2, 3)))
            categories = Coded(code.astype(np.int32), ["cpu_op", "python_function", "enqueue", "dequeue"])
            places, connections = self._names.connections(integer_array(columns["connectionId"]))
            of_framework = connections > self._last_call
            # Its own IDs follow those of calls.
            own = np.full(len(rowids), -1)
            in_queue = code >= 2
            own[places[of_framework]] = connections[of_framework] - self._last_call - 1
            args = {
                "Sequence number": columns["sequenceNumber"],
                "Fwd thread id": columns["fwdThreadId"],
                "Input Dims": self._texts(columns["inputShapes"]),
                "Input type": self._texts(columns["inputDtypes"]),
                "Call stack": self._names.stacks(columns["callchainId"]),
                "correlation_id": pa.array(own, mask=~in_queue | (own < 0)),
            }
            is_forward = integer_array(columns["fwdThreadId"]) == 0
            sides = (
                (_TORCH_LAUNCH, ~of_framework & self._tasks.has(connections), _START),
                (_QUEUE, of_framework & (code[places] == 2), _START),
                (_QUEUE, of_framework & (code[places] == 3), _END),
                (_FORWARD, of_framework & ~in_queue[places] & is_forward[places], _START),
                (_FORWARD, of_framework & ~in_queue[places] & ~is_forward[places], _END),
            )
            points = [_Point(category, places[rows], connections[rows], step) for category, rows, step in sides]
            track = self._threads(columns["globalTid"], "{}", "Python")
            self._has_steps = self._has_steps or any(name.startswith("ProfilerStep#") for name in names.distinct)
            yield self._finished(TORCH, rowids, categories, names, track, columns, args, points)

    def _steps(self) -> Iterator[TraceBatch]:
        """Steps, which are also ranges of the framework, unless it recorded none."""
        for count, rowids, (steps, starts, ends) in self._rows(STEPS, ("id", "startNs", "endNs")):
            if self._has_steps:
                self._accounts[f"{STEPS} rows"].add(used=count)
                continue
            names = renamed(coded(steps), lambda step: f"ProfilerStep#{step}")
            track = same("Python", count), same("Steps", count)
            times = {"startNs": starts, "endNs": ends}
            yield self._finished(STEPS, rowids, same("cpu_op", count), names, track, times, {})

    def _threads(self, threads: Values, pid: str, process: str) -> tuple[Coded, Coded]:
        ids = coded(threads)
        return as_columns(ids, [self._thread(one, pid, process) for one in ids.distinct])

    def _thread(self, thread: object, pid: str, process: str) -> tuple[Label, Label | NamedTrack]:
        if not isinstance(thread, int):
            return self._named(pid.format("unknown"), process, None, None)
        number = thread & NONE
        owner = (thread >> 32) & NONE
        label: Label = owner if pid == "{}" else pid.format(owner)
        return self._named(label, process, number, f"Thread {number}")

    # -- batches --

    def _named(self, pid: Label, process: str, tid: Label | NamedTrack, thread: str | None) -> tuple[Any, Any]:
        """Return a track, which is named when it is first used."""
        if pid not in self._named_tracks:
            self._named_tracks.add(pid)
            self._track_names.append(TrackName(pid, None, process))
        if tid is not None and (pid, tid) not in self._named_tracks:
            self._named_tracks.add((pid, tid))
            self._track_names.append(TrackName(pid, tid, thread))
        return pid, tid

    def _texts(self, numbers: Values) -> Coded:
        return renamed(coded(numbers), self._names.known)

    def _args(self, keys: Mapping[str, str], columns: Mapping[str, Values]) -> dict[str, Values]:
        """The args of these columns, as far as they exist."""
        found: dict[str, Values] = {}
        for key, column in keys.items():
            if column in TEXT_ARGS and column in columns:
                found[key] = self._texts(columns[column])
            elif column in ENUM_ARGS and column in columns:
                found[key] = renamed(coded(columns[column]), partial(self._names.enum, ENUM_ARGS[column]))
            elif column in columns:
                found[key] = columns[column]
        return found

    def _finished(
        self,
        table: str,
        rowids: Int64,
        categories: Coded | None,
        names: Coded,
        track: tuple[Sequence[Any], Sequence[Any]],
        columns: Mapping[str, Values],
        args: Mapping[str, Values],
        points: Sequence[_Point] = (),
    ) -> TraceBatch:
        count = len(rowids)
        self.place = (table, rowids.tolist())
        texts = json_objects(list(args), list(args.values()), count)
        times = _integers(columns["startNs"]), _integers(columns["endNs"])
        events = Events(same("X", count), names, *track, *times, texts)
        return self._batch(categories or same(None, count), events, _flows(points))


def _flows(points: Sequence[_Point]) -> EventFlows | None:
    points = [point for point in points if len(point.places)]
    if not points:
        return None
    places = np.concatenate([point.places for point in points])
    connections = np.concatenate([point.connections for point in points])
    which = np.repeat(np.arange(len(points)), [len(point.places) for point in points])
    order = np.argsort(places, kind="stable")
    places, connections, which = places[order], connections[order], which[order]
    categories = [point.category for point in points]
    keys = connections + np.array([category == _TORCH_LAUNCH for category in categories], np.int64)[which] * _OF_TORCH
    steps = np.array([point.step for point in points], np.int32)[which]
    texts = pa.array(connections).cast(pa.string())
    return EventFlows(places, keys, steps, Coded(which.astype(np.int32), categories), texts)


def _task_keys(devices: Int64, streams: Int64, numbers: Int64) -> Int64:
    return (devices << 48) ^ (streams << 32) ^ numbers


def _has_context(contexts: Int64) -> Mask:
    found: Mask = (contexts >= 0) & (contexts != NONE)
    return found


def _without_none(ids: Int64) -> pa.Array:
    return pa.array(ids, mask=(ids < 0) | (ids == NONE))


def _first(values: tuple[Any, Any]) -> Any:
    return values[1] if values[0] is None else values[0]


def _value(column: Values, place: int) -> Any:
    value = column[place]
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _device_label(device: object) -> str:
    return f"NPU {device}" if isinstance(device, int) else "NPU"


def _integers(column: Values) -> Values:
    """Times, which older versions of torch_npu write as text."""
    values = column.distinct if isinstance(column, Coded) else column
    if isinstance(column, pa.Array) or not any(isinstance(value, str) for value in values):
        return column
    numbers = [_integer(value) for value in values]
    return [numbers[code] for code in column.codes.tolist()] if isinstance(column, Coded) else numbers


def _integer(value: object) -> object:
    is_number = isinstance(value, str) and len(value) <= 20 and value.isascii() and value.removeprefix("-").isdigit()
    return int(value) if is_number else value  # type: ignore[call-overload]
