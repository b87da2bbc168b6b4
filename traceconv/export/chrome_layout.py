"""The processes and threads of a Chrome trace: their IDs, names and order.

A viewer's process is a layer of the system and its threads are the tracks of that layer: ranges of the application,
runtime calls, and a process per device with its steps, streams, counters and memory. Thread IDs follow the process IDs,
so that no thread has the ID of its process, which viewers take for the main thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import duckdb

from traceconv.export.json_sql import json_text
from traceconv.export.timeline import SLICE_TABLES
from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier

#: A row of a small table, by column.
Row = Mapping[str, object]

#: Layers from the top of the screen to the bottom.
_LAYERS = ("application", "runtime", "device", "counter", "unbound")

#: Tables with a `track_id`; steps and memory are on a thread of their device instead.
TRACK_TABLES = ("range", "api", "task", "marker", "counter")
DEVICE_TABLES = ("step", "memory")


@dataclass(frozen=True, slots=True)
class Thread:
    """A viewer's thread: rows of one table (`source`) on one track, or on one device for step and memory.

    `track_id` is the device ID for DEVICE_TABLES. `lane` is above 0 for slices that overlap others. `shared`: its
    markers are on the thread of their track's slices.
    """

    source: str
    track_id: int | None
    lane: int
    layer: str
    owner: int | None
    name: str
    order: tuple[int, int, int, int]
    pid: int = 0
    tid: int = 0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """A viewer's process: a layer of one process or device of the run."""

    pid: int
    layer: str
    owner: int | None
    name: str


@dataclass(slots=True)
class Layout:
    """All processes and threads, and the rows of the small tables that describe them."""

    processes: list[Process]
    threads: list[Thread]
    tables: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def has_flows_only(self) -> bool:
        """Whether the only process is that for flows with unknown ends."""
        return len(self.processes) == 1


def make_layout(
    connection: duckdb.DuckDBPyConnection, run_id: int, sources: Mapping[str, str], first_pid: int = 1
) -> Layout:
    """Lay out a run. `sources` are FROM clauses of the rows to export, by table.

    The last thread (`flow`) is for flows with unknown ends.
    """
    tables = {name: _rows(connection, name, run_id) for name in ("run", "device", "process", "track")}
    tracks = {row["track_id"]: row for row in tables["track"]}
    found = connection.execute("SELECT source, track_id, max(lane) FROM export_lane GROUP BY source, track_id")
    lanes = {(source, track_id): lane for source, track_id, lane in found.fetchall()}
    threads = []
    for source in (*TRACK_TABLES, *DEVICE_TABLES):
        key = "track_id" if source in TRACK_TABLES else "device_id"
        found = connection.execute(f"SELECT DISTINCT {key} FROM {sources[source]} ORDER BY {key}")
        for (track_id,) in found.fetchall():
            first = _thread(source, track_id, tracks.get(track_id))
            threads.append(first)
            for lane in range(1, lanes.get((source, track_id), 0) + 1):
                name = f"{first.name} (overlap {lane})"
                threads.append(replace(first, lane=lane, name=name, order=(*first.order[:3], lane)))
    threads.append(Thread("flow", None, 0, "unbound", None, "Flows", (0, 0, 0, 0)))
    return _numbered(threads, tables, first_pid)


def _rows(connection: duckdb.DuckDBPyConnection, name: str, run_id: int) -> list[Row]:
    columns = [column.name for column in table(name).columns]
    chosen = ", ".join(map(quote_identifier, columns))
    rows = connection.execute(
        f"SELECT {chosen} FROM {quote_identifier(name)} WHERE run_id = ? ORDER BY ALL", [run_id]
    ).fetchall()
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _thread(source: str, track_id: int | None, track: Row | None) -> Thread:
    if source in DEVICE_TABLES:
        name, rank = ("Step Trace", 0) if source == "step" else ("Memory", 9)
        return Thread(source, track_id, 0, "device", track_id, name, (rank, 0, 0, 0))
    track = track or {}
    device_id, process_id = _integer(track.get("device_id")), _integer(track.get("process_id"))
    if device_id is not None or source == "task":
        layer, owner = "device", device_id
    elif source == "counter":
        layer, owner = "counter", process_id
    else:
        layer, owner = ("runtime" if source == "api" else "application"), process_id
    sort_index = _integer(track.get("sort_index"))
    order = (1, 1 << 62 if sort_index is None else sort_index, -1 if track_id is None else track_id, 0)
    return Thread(source, track_id, 0, layer, owner, _track_name(source, track_id, track), order)


def _track_name(source: str, track_id: int | None, track: Row) -> str:
    name = track.get("name")
    if source == "counter":
        unit = track.get("unit")
        return f"{name or 'counter'} ({unit})" if unit else str(name or "counter")
    stream_id = track.get("stream_id")
    if stream_id is not None:
        plain = f"Stream {stream_id}"
        return plain if name in (None, "", plain) else f"{plain} ({name})"
    return str(name or f"Thread {track.get('tid_text') or track_id}")


def _numbered(threads: list[Thread], tables: dict[str, list[Row]], first_pid: int) -> Layout:
    with_slices = {thread.track_id for thread in threads if thread.source in SLICE_TABLES}
    markers = [thread for thread in threads if thread.source == "marker" and thread.track_id in with_slices]
    threads = [thread for thread in threads if thread not in markers]
    # Unknown owners come last in their layer.
    owners = sorted(
        {(thread.layer, thread.owner) for thread in threads},
        key=lambda owner: (_LAYERS.index(owner[0]), owner[1] is None, owner[1]),
    )
    pids = {owner: pid for pid, owner in enumerate(owners, first_pid)}
    processes = [
        Process(pid, layer, owner, _process_name(layer, owner, tables)) for (layer, owner), pid in pids.items()
    ]

    def place(thread: Thread) -> tuple[int, tuple[int, int, int, int], int]:
        pid = pids[thread.layer, thread.owner]
        return (pid, thread.order, (*TRACK_TABLES, *DEVICE_TABLES, "flow").index(thread.source))

    numbered: list[Thread] = []
    names: set[tuple[int, str]] = set()
    for tid, thread in enumerate(sorted(threads, key=place), first_pid + len(pids)):
        pid, name = place(thread)[0], thread.name
        if thread.source == "counter" and (pid, name) in names:
            name = f"{name} #{thread.track_id}"  # viewers merge counters with the same name
        names.add((pid, name))
        numbered.append(replace(thread, pid=pid, tid=tid, name=name))
    slices = {thread.track_id: thread for thread in numbered if thread.source in SLICE_TABLES and not thread.lane}
    for thread in markers:
        host = slices[thread.track_id]
        numbered.append(replace(thread, pid=host.pid, tid=host.tid, shared=True))
    return Layout(processes, numbered, tables)


def _process_name(layer: str, owner: int | None, tables: Mapping[str, Sequence[Row]]) -> str:
    if layer == "unbound":
        return "Flows without a known end"
    if layer == "device":
        row = next((row for row in tables["device"] if row["device_id"] == owner), {})
        title = "Device" if owner is None else f"Device {owner}"
        return f"{title}: {row['name']}" if row.get("name") else title
    row = next((row for row in tables["process"] if row["process_id"] == owner), {})
    title = {"application": "Application", "runtime": "Runtime API", "counter": "Counters"}[layer]
    shown = [str(row["name"])] if row.get("name") else []
    shown += [f"({row['pid_text']})"] if row.get("pid_text") else []
    return f"{title}: {' '.join(shown)}" if shown else title


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) else None


def metadata_events(layout: Layout, *, unbound: bool) -> Iterator[str]:
    """Yield the M events that name and sort processes and threads. Their args also identify the rows of a thread.

    `unbound`: only those for flows with unknown ends; otherwise all others.
    """
    for process in layout.processes:
        if (process.layer == "unbound") is not unbound:
            continue
        yield _metadata("process_name", process.pid, None, {"name": process.name, "layer": process.layer})
        yield _metadata("process_sort_index", process.pid, None, {"sort_index": process.pid})
    for thread in layout.threads:
        if thread.shared or (thread.layer == "unbound") is not unbound:
            continue
        args = {"name": thread.name, "table": thread.source, "track_id": thread.track_id, "lane": thread.lane}
        if thread.source in DEVICE_TABLES:
            args["device_id"] = args.pop("track_id")
        yield _metadata("thread_name", thread.pid, thread.tid, args)
        yield _metadata("thread_sort_index", thread.pid, thread.tid, {"sort_index": thread.tid})


def _metadata(name: str, pid: int, tid: int | None, args: Mapping[str, object]) -> str:
    return json_text({"pid": pid, "tid": tid, "ph": "M", "name": name, "args": args})
