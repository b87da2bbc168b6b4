"""A rocpd database of rocprofv3 or rocprof-sys → batches of events, table by table, in integer ns.

The schema (version 3) and what is written into it: rocpd_tables.sql and generateRocpd.cpp of rocprofiler-sdk. Each
process has tables of its own. Categories and names are those of rocprofv3's JSON, so both have the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Mask
from traceconv.events.trace import Coded, Label, NamedTrack, TraceBatch, TrackName, coded, combined
from traceconv.formats.common.columns import integer_array, integers, json_objects
from traceconv.formats.common.elements import json_object
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_reader import (
    Events,
    SqliteReader,
    launch_flows,
    pairs_of,
    renamed,
    same,
    taken,
)
from traceconv.formats.common.sqlite_rows import locate_row
from traceconv.formats.format import ReadRequest
from traceconv.formats.rocpd.names import Process, counter_sums, processes_of, read_names
from traceconv.formats.rocpd.rows import ALLOCATIONS, DRIVER, Rows, Tables, by_event

_KERNELS, _COPIES, _WAITS, _REGIONS, _GRAPHS, _SAMPLES = (
    "kernel_dispatch",
    "memory_copy",
    "hip_event",
    "region",
    "graph_launch",
    "sample",
)
#: In the order in which they are read.
_EVENT_TABLES = (_KERNELS, _COPIES, _WAITS, _REGIONS, _GRAPHS, ALLOCATIONS, _SAMPLES)
_DESCRIBING = frozenset(("metadata", "string", "track", "event", "arg", "pmc_event"))
_MARKERS = "marker_api"
_CORRELATION_BITS = 48
_GRAPH_IDS = ("graph_exec_id", "graph_node_id")


@dataclass(slots=True)
class _Shown:
    """What events are made of, besides their times.

    track    process and thread of each event
    args     key → values
    details  the last key of the args, and its values
    step     of the launch flow: 0 its start, 2 its end; None: the events have none
    phases   None: complete events
    """

    categories: Coded
    names: Sequence[Any]
    track: tuple[Coded, Coded]
    args: Mapping[str, Sequence[Any]]
    details: tuple[str, Coded] | None = None
    step: int | None = None
    phases: Coded | None = None


class RocpdReader(SqliteReader):
    """Reads one database, as `TraceSource` describes."""

    def __init__(self, request: ReadRequest) -> None:
        super().__init__(request, "a rocpd database", "rocpd databases are written by rocprofv3 --output-format rocpd")
        self._pids: dict[tuple[int, object], Label] = {}
        self._used_pids: set[Label] = set()
        self._last_event: object = None
        #: The number of each GPU, by its place.
        self._devices: dict[tuple[object, object], int] = {}

    def _batches(self) -> Iterator[TraceBatch]:
        self._tables = Tables(self._db, self._log, self._report)
        processes, others = processes_of(self._db)
        if not processes:
            shown = printable(str(self._path))
            raise InputError(f"{shown} is not a rocpd database of version 3; record with --output-format json")
        wanted = [table for one in processes for what in _EVENT_TABLES if (table := one.tables.get(what))]
        shares = self._shares(wanted)
        for process in processes:
            self._check_version(process)
            read_names(self._db, process, self._log)
            self._number_devices(process)
            self._last_event = None
            self.keys["rocpd" if not process.index else f"rocpd {process.index}"] = msgspec.json.encode(
                {**process.about, "command": next(iter(process.commands.values()), None)}
            )
            readers: Mapping[str, Callable[[Process, str], Iterator[TraceBatch]]] = {
                _KERNELS: self._kernels,
                _COPIES: self._copies,
                _WAITS: self._waits,
                _REGIONS: self._regions,
                _GRAPHS: self._graphs,
                ALLOCATIONS: self._allocations,
                _SAMPLES: self._samples,
            }
            for what, read in readers.items():
                if table := process.tables.get(what):
                    self.found_events = True
                    yield from self._noted(table, read(process, table), shares)
            for what, table in process.tables.items():
                if what not in (*_EVENT_TABLES, *_DESCRIBING) and not what.startswith("info_"):
                    others.add(table)
        self._count_unread(sorted(others - {"sqlite_sequence", "sqlite_stat1"}), ())

    def _check_version(self, process: Process) -> None:
        for what in (_KERNELS, _COPIES, _REGIONS):
            table = process.tables.get(what)
            missing = {"start", "end", "pid"}.difference(self._db.columns(table)) if table is not None else ()
            if missing:
                shown, names = printable(str(self._path)), ", ".join(sorted(missing))
                raise InputError(
                    f"{shown} has another version of rocpd's schema, in which {table} has no {names}; "
                    "record with --output-format json"
                )

    def _number_devices(self, process: Process) -> None:
        """Number GPUs of other nodes, and those that only other processes of a node see, after the ones before."""
        for number, agent in process.agents.items():
            if agent.device is not None:
                taken = self._devices.values()
                free = agent.device if agent.device not in taken else max(taken) + 1
                device = self._devices.setdefault(agent.place, free)
                process.agents[number] = replace(agent, device=device)

    # -- work of devices --

    def _kernels(self, process: Process, table: str) -> Iterator[TraceBatch]:
        for rows in self._tables.rows(process, table):
            kernels = coded(rows["kernel_id"])
            args = {
                "truncated_name": renamed(kernels, process.short_kernel_name),
                "queue": rows["queue_id"],
                **rows.args("dispatch_id", "stream_id", "private_segment_size", "group_segment_size", *_GRAPH_IDS),
                **rows.args(*(f"{what}_size_{axis}" for what in ("workgroup", "grid") for axis in "xyz")),
            }
            lines = renamed(coded(rows["queue_id"]), lambda number: f"queue {number}")
            shown = self._on_device(rows, "kernel_dispatch", rows["agent_id"], lines, args)
            shown.names = renamed(kernels, process.kernel_name)
            values, streamed = self._tables.counters(rows)
            shown.details = ("counters", by_event(rows, counter_sums(process, values)))
            if streamed:
                message = f"{process.tables['pmc_event']}: samples of streaming counters (SPM) are not read"
                self._log.count(Code.UNKNOWN_RECORD, message, streamed, SOURCE_ID)
            yield self._finished(rows, shown)

    def _copies(self, process: Process, table: str) -> Iterator[TraceBatch]:
        def of_copy(agents: tuple[object, object]) -> object:
            return next((one for one in agents if process.device(one) is not None), agents[0])

        for rows in self._tables.rows(process, table):
            both = combined([coded(rows["dst_agent_id"]), coded(rows["src_agent_id"])])
            args = {
                "bytes": rows["size"],
                **rows.args("stream_id", "src_agent_id", "dst_agent_id", "src_address", "dst_address", *_GRAPH_IDS),
            }
            shown = self._on_device(rows, "memory_copy", renamed(both, of_copy), same("copies", len(rows)), args)
            shown.names = process.texts(rows["name_id"], _COPIES)
            yield self._finished(rows, shown)

    def _waits(self, process: Process, table: str) -> Iterator[TraceBatch]:
        """Barriers of queues, for events of HIP."""
        for rows in self._tables.rows(process, table):
            lines = renamed(coded(rows["queue_id"]), lambda number: f"queue {number} waits")
            more = rows.args("stream_id", "hip_event_handle", "source_queue_id")
            shown = self._on_device(rows, _WAITS, rows["agent_id"], lines, {"queue": rows["queue_id"], **more})
            shown.names = process.texts(rows["name_id"], _WAITS)
            yield self._finished(rows, shown)

    def _on_device(
        self, rows: Rows, category: str, agents: Sequence[Any], lines: Coded, args: Mapping[str, Sequence[Any]]
    ) -> _Shown:
        track = pairs_of(partial(self._stream, rows.process), rows["pid"], agents, lines)
        devices = renamed(coded(agents), rows.process.device)
        return _Shown(same(category, len(rows)), (), track, {"device": devices, **args}, step=2)

    def _stream(self, process: Process, number: object, agent: object, line: str) -> tuple[str, NamedTrack]:
        device = process.device(agent)
        pid = f"GPU {device}" if device is not None else f"CPU {agent}"
        whose = self._pid(process, number)
        known = process.agents.get(agent) if isinstance(agent, int) else None
        title = f"{pid} {known.name if known else ''}".strip()
        of_process = f" (process {whose})" if process.index else ""
        return self._named_track(pid, title, NamedTrack("stream", f"{whose}/{line}"), line.capitalize() + of_process)

    # -- the host --

    def _regions(self, process: Process, table: str) -> Iterator[TraceBatch]:
        for rows in self._tables.rows(process, table):
            names = _with_messages(rows, process.texts(rows["name_id"], _REGIONS))
            track = pairs_of(partial(self._thread, process), rows["pid"], rows["tid"])
            args = rows.args("call_stack", "line_info")
            shown = _Shown(rows.categories, names, track, args, step=0)
            if DRIVER in rows.categories.distinct:
                shown.args = {**args, DRIVER: _member(rows["event.extdata"], DRIVER)}
                starts, ends = (integer_array(rows[name]).tolist() for name in ("start", "end"))
                times = zip(rows.categories, starts, ends, strict=True)
                shown.phases = coded(["i" if one == DRIVER and start == end else "X" for one, start, end in times])
            shown.details = ("args", self._tables.arguments(rows))
            yield self._finished(rows, shown)

    def _graphs(self, process: Process, table: str) -> Iterator[TraceBatch]:
        for rows in self._tables.rows(process, table):
            count = len(rows)
            args = rows.args("agent_id", "graph_exec_id", "kernel_dispatch_count")
            track = pairs_of(partial(self._thread, process), rows["pid"], rows["tid"])
            names = same("HIP_GRAPH_OPERATION_EXEC_LAUNCH", count)
            yield self._finished(rows, _Shown(same("hip_graph", count), names, track, args))

    def _allocations(self, process: Process, table: str) -> Iterator[TraceBatch]:
        for rows in self._tables.rows(process, table):
            kinds = combined([coded(rows["level"]), coded(rows["type"])])
            categories = renamed(kinds, lambda kind: "scratch_memory" if kind[0] == "SCRATCH" else "memory_allocation")
            args = {"bytes": rows["size"], **rows.args("agent_id", "address", "queue_id", "stream_id")}
            args["flags"] = _member(rows["extdata"], "flags")
            track = pairs_of(partial(self._thread, process), rows["pid"], rows["tid"])
            yield self._finished(rows, _Shown(categories, renamed(kinds, _allocation_name), track, args))

    def _samples(self, process: Process, table: str) -> Iterator[TraceBatch]:
        """Marks, and values of counters: an event may have several counters, and a sample for the track of each."""
        for rows in self._tables.rows(process, table):
            values, _ = self._tables.counters(rows)
            yield from self._values(rows, values)
            counted = np.isin(rows.events, [row[0] for row in values])
            marks = rows.take(np.flatnonzero(~counted)) if counted.any() else rows
            if counted.any():
                self._accounts[f"{table} rows"].add(used=int(counted.sum()))
            if not len(marks):
                continue
            marks.columns["start"] = marks["timestamp"]
            tracks = coded(marks["track_id"])
            names = _with_messages(marks, renamed(tracks, process.track_name))
            threads = renamed(tracks, lambda number: process.tracks.get(number, (None, None))[0])
            owners = [next(iter(process.pids), None)] * len(marks)
            track = pairs_of(partial(self._thread, process), owners, threads)
            args = marks.args("call_stack", "line_info")
            shown = _Shown(marks.categories, names, track, args, ("args", self._tables.arguments(marks)))
            shown.phases = same("i", len(marks))
            yield self._finished(marks, shown)

    def _values(self, rows: Rows, values: Sequence[tuple[Any, ...]]) -> Iterator[TraceBatch]:
        """Yield the values of counters, those of an event once."""
        counted = {event for event, _, _ in values}
        places = reversed(list(enumerate(rows.events.tolist())))
        first_of = {event: place for place, event in places if event in counted}
        last = max(first_of, key=first_of.__getitem__, default=None)
        once = [(first_of[event], *value) for event, *value in values if event != self._last_event]
        self._last_event = last if last is not None else self._last_event
        if not once:
            return
        once.sort(key=itemgetter(0))
        first, counters, numbers = (list(column) for column in zip(*once, strict=True))
        kept = np.array(first, np.intp)
        kinds = coded(counters)
        pids = renamed(kinds, rows.process.counter_owner)
        starts = taken(rows["timestamp"], kept)
        count, names = len(once), renamed(kinds, rows.process.counter_name)
        args, none = json_objects(("value",), [numbers], count), pa.nulls(count, pa.int64())
        self.place = (rows.table, rows.rowids[kept].tolist())
        yield self._batch("counters", Events(same("C", count), names, pids, same(None, count), starts, none, args))

    def _thread(self, process: Process, number: object, thread: object) -> tuple[Label, Label]:
        pid, tid = self._pid(process, number), process.thread(thread)
        name = process.thread_names.get(thread) if isinstance(thread, int) else None
        if not isinstance(tid, int):
            return pid, None
        if name is not None:
            self._name_once(pid, tid, name)
        return pid, tid

    def _pid(self, process: Process, number: object) -> Label:
        """Return the process ID of the system; with a number if a process before has the same one, on another host."""
        key = (process.index, number)
        if key not in self._pids:
            pid: Label = process.pids.get(number) if isinstance(number, int) else None
            if pid in self._used_pids:
                pid = f"{pid} ({process.index})"
            if pid is not None:
                self._used_pids.add(pid)
            self._pids[key] = pid
            command = process.commands.get(number) if isinstance(number, int) else None
            if command:
                self._track_names.append(TrackName(pid, None, command.split(" ")[0].rsplit("/", 1)[-1]))
        return self._pids[key]

    # -- batches --

    def _finished(self, rows: Rows, shown: _Shown) -> TraceBatch:
        count = len(rows)
        calls = integer_array(integers(rows.calls))
        known = (calls > 0) & (calls < 1 << _CORRELATION_BITS)
        correlations = (rows.process.index << _CORRELATION_BITS) + calls
        args = {**shown.args, "correlation": pa.array(correlations, mask=~known)}
        if shown.details is not None:
            args[shown.details[0]] = shown.details[1]
        texts = json_objects(list(args), list(args.values()), count)
        places = np.flatnonzero(known & _has_flow(shown))
        flows = launch_flows(places, correlations[places], calls[places], shown.step or 0)
        self.place = (rows.table, rows.rowids.tolist())
        starts, ends = rows["start"], rows["end"]
        events = Events(shown.phases or same("X", count), shown.names, *shown.track, starts, ends, texts)
        return self._batch(shown.categories, events, flows)


#: Find the table and rowid of an event.
locate = partial(locate_row, open_reader=RocpdReader)


def _has_flow(shown: _Shown) -> Mask:
    """Whether events may belong to a flow from a call to what it launched."""
    if shown.step is None:
        return np.zeros(len(shown.names), np.bool_)
    tied = [shown.step > 0 or (name.endswith("_api") and name != _MARKERS) for name in shown.categories.distinct]
    found: Mask = np.array(tied, np.bool_)[shown.categories.codes]
    return found


def _allocation_name(kind: tuple[Any, Any]) -> str:
    """The operation's name in rocprofiler-sdk, which rocpd divides into a level and a type."""
    level, what = kind
    if level == "SCRATCH":
        return f"SCRATCH_MEMORY_{'ASYNC_RECLAIM' if what == 'RECLAIM' else what}"
    return f"MEMORY_ALLOCATION_{'VMEM_' if level == 'VIRTUAL' else ''}{'ALLOCATE' if what == 'ALLOC' else what}"


def _member(objects: Sequence[Any], key: str) -> Coded:
    """A member of each JSON object, as JSON."""
    texts = coded(objects)
    found = [json_object(text.encode()).get(key) if isinstance(text, str) else None for text in texts.distinct]
    return Coded(texts.codes, [None if value is None else msgspec.Raw(msgspec.json.encode(value)) for value in found])


def _with_messages(rows: Rows, names: Coded) -> Sequence[Any]:
    """The messages of markers instead of the names of the calls that write them."""
    if _MARKERS not in rows.categories.distinct:
        return names
    messages = renamed(coded(rows["event.extdata"]), _message)
    return [
        message if category == _MARKERS and message else name
        for message, category, name in zip(messages, rows.categories, names, strict=True)
    ]


def _message(extdata: object) -> str | None:
    found = json_object(extdata.encode()).get("message") if isinstance(extdata, str) else None
    return found if isinstance(found, str) else None
