"""A database of torch_npu, MindSpore or msprof → batches of events, table by table, in integer ns.

What is written into it: db_assembler.cpp of msprof, and prof_db_parse of torch_npu. Processes, tracks, categories and
args are those of the timeline that the same tools write (trace_view.json, msprof_*.json), so both have the same rules.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Coded, Label, NamedTrack, TraceBatch, coded, combined
from traceconv.formats.ascend_db.batches import (
    END,
    FORWARD,
    LAUNCH,
    QUEUED,
    START,
    TIMES,
    TORCH_LAUNCH,
    Point,
    device_label,
)
from traceconv.formats.ascend_db.others import OtherTables
from traceconv.formats.ascend_db.tables import (
    CANN,
    COLLECTIVE_ARGS,
    COMM_OP,
    COMM_TASK,
    DESCRIBING,
    DESCRIBING_PREFIXES,
    EVENT_TABLES,
    FIRST_OF_TORCH,
    GRAPH_MEMORY,
    LAYERS,
    MARK_TYPE,
    MARKS,
    MEMORY,
    NO_STREAM,
    NONE,
    PART_ARGS,
    PYTHON,
    QUEUE,
    STEPS,
    TASK,
    TORCH,
)
from traceconv.formats.common.columns import integer_array
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_names import IdSet
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import pairs_of, renamed, same, taken
from traceconv.formats.common.sqlite_rows import locate_row
from traceconv.formats.format import ReadRequest

_TASK_COLUMNS = (
    *(*TIMES, "deviceId", "connectionId", "globalTaskId", "taskType"),
    *("contextId", "streamId", "taskId", "modelId"),
)
_TORCH_COLUMNS = (
    *(*TIMES, "globalTid", "connectionId", "name", "type", "sequenceNumber", "fwdThreadId"),
    *("inputDtypes", "inputShapes", "callchainId"),
)
#: Rows of parts of collectives that belong to a batch of tasks.
_MOST_JOINED = 200_000


class AscendDbReader(OtherTables):
    """Reads one database, as `TraceSource` describes."""

    _event_tables = EVENT_TABLES

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request)
        self._tasks, self._calls, self._ops, self._parts = IdSet(), IdSet(), IdSet(), IdSet()
        self._last_call = -1
        self._has_steps = False
        self._devices_of_ops: dict[Any, Any] = {}
        self._devices: set[object] = set()
        self._turns: dict[Any, int] = {}

    def _batches(self) -> Iterator[TraceBatch]:
        self.found_events = not set(self._db.tables).isdisjoint(self._event_tables)
        if not self.found_events:
            shown = printable(str(self._path))
            raise InputError(
                f"{shown} has no events, but sums of collectives or none of the tables of a recording; "
                "ingest ascend_pytorch_profiler*.db or msprof_*.db"
            )
        self._describe_recording()
        self._note_connections()
        shares = self._shares(EVENT_TABLES)
        yield from self._noted(TASK, self._device_tasks(), shares)
        self._count_parts()
        yield from self._noted(COMM_OP, self._collectives(), shares)
        yield from self._noted(CANN, self._cann_calls(), shares)
        yield from self._noted(TORCH, self._torch_ranges(), shares)
        yield from self._noted(STEPS, self._steps(), shares)
        for table, batches in self._others():
            yield from self._noted(table, batches, shares)
        read = {*EVENT_TABLES, *DESCRIBING, *(GRAPH_MEMORY for table in self._db.tables if table == MEMORY)}
        unread = sorted(set(self._db.tables) - read)
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
        for _, columns_of_marks in self._db.columns_of(MARKS, ("connectionId", "message")):
            connections, messages = map(integer_array, columns_of_marks)
            on_streams = (connections >= 0) & (connections != NO_STREAM)
            self._marks_of_streams.add(connections[on_streams], messages[on_streams])
        self._marks_of_streams.sort()

    # -- devices --

    def _device_tasks(self) -> Iterator[TraceBatch]:
        for rowids, columns in self._rows(TASK, _TASK_COLUMNS):
            whole = self._with_parts(columns)
            if whole.any():
                rowids, columns = _chosen(rowids, columns, ~whole)
                self._accounts[f"{TASK} rows"].add(used=int(np.count_nonzero(whole)))
                message = f"{TASK}: tasks whose parts are tasks of their own, and which timelines omit"
                self._log.count(Code.NOT_READ, message, int(np.count_nonzero(whole)), SOURCE_ID)
            types = self._texts(columns["taskType"])
            marks = types.mask(lambda text: text == MARK_TYPE)
            if marks.any():
                yield self._mark_batch(*_chosen(rowids, columns, marks))
                rowids, columns = _chosen(rowids, columns, ~marks)
            if len(rowids):
                yield self._task_batch(rowids, columns)
                yield from self._parts_of(rowids, columns)

    def _with_parts(self, columns: Mapping[str, Values]) -> Mask:
        """Tasks during which tasks of the same number, but in a context, begin: these are their parts."""
        found = np.zeros(len(columns["startNs"]), np.bool_)
        if not len(self._sub_tasks):
            return found
        keys = _task_keys(*(integer_array(columns[name]) for name in ("deviceId", "streamId", "taskId")))
        low, high = (np.searchsorted(self._sub_tasks, keys, side).tolist() for side in ("left", "right"))
        starts, ends = (integer_array(columns[name]).tolist() for name in TIMES)
        contexts = integer_array(columns["contextId"])
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
            "Task Id": _without_none(integer_array(columns["taskId"])),
            "Subtask Id": columns["contextId"],
            "Context ID": pa.array(contexts, mask=~_has_context(contexts)),
            "connection_id": _without_none(connections),
            **self._names.copies(task_ids),
            **facts,
        }
        track = pairs_of(self._stream, columns["deviceId"], columns["streamId"])
        points = self._launches(connections, ~self._parts.has(task_ids))
        if self._counters_table in self._db.tables:
            self._event_of_task.add(task_ids, np.arange(self._ordinal, self._ordinal + len(rowids)))
        shown = renamed(names, lambda name: name or TASK)
        return self._finished((TASK, rowids), None, shown, track, columns, args, points)

    def _launches(self, connections: Int64, chosen: Mask) -> list[Point]:
        """The ends of the flows from the calls and ops that launched the chosen events."""
        launched = np.flatnonzero(self._calls.has(connections) & (connections != NONE) & chosen)
        of_torch = launched[self._ops.has(connections[launched])]
        return [
            Point(LAUNCH, launched, connections[launched], END),
            Point(TORCH_LAUNCH, of_torch, connections[of_torch], END),
        ]

    def _mark_batch(self, rowids: Int64, columns: Mapping[str, Values]) -> TraceBatch:
        """Ranges and points of the program on a stream, named like those on the host."""
        connections = integer_array(columns["connectionId"])
        messages = coded(pa.array(self._marks_of_streams.find(connections)))
        names = renamed(messages, lambda message: self._names.known(message) or MARK_TYPE)
        # Without a type, as in timelines.
        args = {"Physic Stream Id": columns["streamId"], "Task Id": columns["taskId"]}
        track = pairs_of(self._stream, columns["deviceId"], columns["streamId"])
        points = [Point(MARK_TYPE, np.arange(len(rowids)), connections, END)]
        self._tasks_of_marks = np.concatenate([self._tasks_of_marks, connections])
        return self._finished((TASK, rowids), None, names, track, columns, args, points)

    def _stream(self, device: object, stream: object) -> tuple[str, NamedTrack]:
        self._devices.add(device)
        known = isinstance(stream, int) and stream >= 0
        label = f"Stream {stream}" if known else "Stream not recorded"
        return self._named_track(device_label(device), "Ascend Hardware", NamedTrack("stream", label), label)

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
        args = {
            "stream id": own["streamId"],
            "task id": own["taskId"],
            "context id": own["contextId"],
            **self._args(PART_ARGS, part_columns),
        }
        names = renamed(self._texts(part_columns.get("name", nothing)), lambda name: name or COMM_TASK)
        track = pairs_of(self._plane, devices, groups, part_columns.get("planeId", nothing))
        yield self._finished((TASK, rowids[places]), None, names, track, own, args)

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
        pid = f"{device_label(device)} communication"
        number = plane if isinstance(plane, int) and 0 <= plane < NONE else 0
        return self._named_track(pid, "Communication", f"{group} plane {number}", f"Plane {number}")

    def _collectives(self) -> Iterator[TraceBatch]:
        wanted = (*TIMES, "opName", "groupName", "opId", "deviceId", *COLLECTIVE_ARGS.values())
        for rowids, columns in self._rows(COMM_OP, wanted):
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
            track = pairs_of(self._group, devices, groups)
            points = self._launches(connections, np.ones(len(rowids), np.bool_))
            names = renamed(self._texts(columns["opName"]), lambda name: name or COMM_OP)
            yield self._finished((COMM_OP, rowids), None, names, track, columns, args, points)

    def _device_of_op(self, op: object) -> object:
        """The device of the parts of a collective, or the only one."""
        only = next(iter(self._devices)) if len(self._devices) == 1 else None
        return self._devices_of_ops.get(op, only)

    def _group(self, device: object, group: tuple[object, str | None]) -> tuple[Label, Label | NamedTrack]:
        number, name = group
        title = f"Group {name} Communication" if name else "Communication"
        return self._named_track(f"{device_label(device)} communication", "Communication", f"{number}", title)

    # -- the host --

    def _cann_calls(self) -> Iterator[TraceBatch]:
        for rowids, row in self._rows(CANN, (*TIMES, "type", "globalTid", "connectionId", "name")):
            ids = integer_array(row["connectionId"])
            levels = renamed(coded(row["type"]), lambda kind: self._names.enum("ENUM_API_TYPE", kind))
            titles = combined([levels, self._texts(row["name"])])
            shown = renamed(titles, lambda title: f"{LAYERS.get(title[0], 'Api')}@{title[1] or CANN}")
            launches = np.flatnonzero(self._tasks.has(ids) & (ids != NONE))
            args = {"level": levels, "connection_id": _without_none(ids)}
            track = self._threads(row["globalTid"], "{} CANN", "CANN")
            points = [Point(LAUNCH, launches, ids[launches], START)]
            yield self._finished((CANN, rowids), None, shown, track, row, args, points)

    def _torch_ranges(self) -> Iterator[TraceBatch]:
        for rowids, columns in self._rows(TORCH, _TORCH_COLUMNS):
            names = renamed(self._texts(columns["name"]), lambda name: name or TORCH)
            kinds = integer_array(columns["type"])
            is_enqueue = names.mask(lambda name: name.startswith("Enqueue"))
            code = np.where(kinds == PYTHON, 1, np.where(kinds != QUEUE, 0, np.where(is_enqueue, 2, 3)))
            categories = Coded(code.astype(np.int32), ["cpu_op", "python_function", "enqueue", "dequeue"])
            places, connections = self._names.connections(integer_array(columns["connectionId"]))
            of_calls = self._marks_of_streams.find(connections) < 0
            places, connections = places[of_calls], connections[of_calls]
            of_framework = connections > self._last_call
            # Its own IDs follow those of calls, or have a fixed start in newer versions.
            own = np.full(len(rowids), -1)
            in_queue = code >= 2
            first = np.where(connections >= FIRST_OF_TORCH, FIRST_OF_TORCH, self._last_call + 1)
            own[places[of_framework]] = (connections - first)[of_framework]
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
                (TORCH_LAUNCH, ~of_framework & self._tasks.has(connections), START),
                (QUEUED, of_framework & (code[places] == 2), START),
                (QUEUED, of_framework & (code[places] == 3), END),
                (FORWARD, of_framework & ~in_queue[places] & is_forward[places], START),
                (FORWARD, of_framework & ~in_queue[places] & ~is_forward[places], END),
            )
            points = [Point(category, places[rows], connections[rows], step) for category, rows, step in sides]
            track = self._threads(columns["globalTid"], "{}", "Python")
            self._has_steps = self._has_steps or any(name.startswith("ProfilerStep#") for name in names.distinct)
            yield self._finished((TORCH, rowids), categories, names, track, columns, args, points)

    def _steps(self) -> Iterator[TraceBatch]:
        """Steps, which are also ranges of the framework, unless it recorded none."""
        for rowids, row in self._rows(STEPS, ("id", *TIMES)):
            count = len(rowids)
            if self._has_steps:
                self._accounts[f"{STEPS} rows"].add(used=count)
                continue
            names = renamed(coded(row["id"]), lambda step: f"ProfilerStep#{step}")
            track = same("Python", count), same("Steps", count)
            yield self._finished((STEPS, rowids), same("cpu_op", count), names, track, row, {})


#: Find the table and rowid of an event.
locate = partial(locate_row, open_reader=AscendDbReader)


def _task_keys(devices: Int64, streams: Int64, numbers: Int64) -> Int64:
    return (devices << 48) ^ (streams << 32) ^ numbers


def _chosen(rowids: Int64, columns: Mapping[str, Values], rows: Mask) -> tuple[Int64, dict[str, Values]]:
    places = np.flatnonzero(rows)
    return rowids[places], {name: taken(column, places) for name, column in columns.items()}


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
