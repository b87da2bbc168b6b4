"""rocpd databases with the content of rocprofv3's JSON, as rocprofiler-sdk writes both from the same records."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

#: Columns of the tables of events and of what describes them, in version 3 of the schema.
_INFO = {
    "info_node": "hash BIGINT, machine_id TEXT, system_name TEXT, hostname TEXT, release TEXT",
    "info_process": "nid INTEGER, ppid INTEGER, pid INTEGER NOT NULL, init BIGINT, fini BIGINT, command TEXT",
    "info_thread": "nid INTEGER, pid INTEGER, tid INTEGER NOT NULL, name TEXT",
    "info_agent": "nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER, logical_index INTEGER, "
    "type_index INTEGER, name TEXT, product_name TEXT, extdata JSONB DEFAULT '{}'",
    "info_queue": "nid INTEGER, pid INTEGER, name TEXT",
    "info_stream": "nid INTEGER, pid INTEGER, name TEXT",
    "info_pmc": "nid INTEGER, pid INTEGER, agent_id INTEGER, name TEXT NOT NULL, symbol TEXT",
    "info_kernel_symbol": "nid INTEGER, pid INTEGER, code_object_id INTEGER, kernel_name TEXT, display_name TEXT, "
    "extdata JSONB DEFAULT '{}'",
    "string": "string TEXT NOT NULL UNIQUE",
    "metadata": "tag TEXT NOT NULL, value TEXT NOT NULL",
    "track": "nid INTEGER, pid INTEGER, tid INTEGER, name_id INTEGER",
    "event": "category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER, "
    "call_stack JSONB DEFAULT '{}', line_info JSONB DEFAULT '{}', extdata JSONB DEFAULT '{}'",
    "arg": "event_id INTEGER NOT NULL, position INTEGER NOT NULL, type TEXT, name TEXT NOT NULL, value TEXT",
    "pmc_event": "event_id INTEGER, pmc_id INTEGER NOT NULL, value REAL DEFAULT 0.0",
}
_OWNER = "nid INTEGER, pid INTEGER NOT NULL, tid INTEGER"
_TIMES = '"start" BIGINT NOT NULL, "end" BIGINT NOT NULL'
_SIZES = ", ".join(f"{what}_size_{axis} INTEGER" for what in ("workgroup", "grid") for axis in "xyz")
_EVENTS = {
    "region": f"{_OWNER}, {_TIMES}, name_id INTEGER NOT NULL, event_id INTEGER",
    "sample": "track_id INTEGER NOT NULL, timestamp BIGINT NOT NULL, event_id INTEGER",
    "kernel_dispatch": f"{_OWNER}, agent_id INTEGER NOT NULL, kernel_id INTEGER NOT NULL, dispatch_id INTEGER, "
    f"queue_id INTEGER, stream_id INTEGER, {_TIMES}, private_segment_size INTEGER, group_segment_size INTEGER, "
    f"{_SIZES}, region_name_id INTEGER, event_id INTEGER, graph_exec_id INTEGER, graph_node_id INTEGER",
    "hip_event": f"{_OWNER}, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER, {_TIMES}, name_id INTEGER, "
    "hip_event_handle INTEGER, source_queue_id INTEGER, event_id INTEGER",
    "graph_launch": f"{_OWNER}, agent_id INTEGER, queue_id INTEGER, {_TIMES}, graph_exec_id INTEGER, "
    "kernel_dispatch_count INTEGER, event_id INTEGER",
    "memory_copy": f"{_OWNER}, {_TIMES}, name_id INTEGER NOT NULL, dst_agent_id INTEGER, dst_address INTEGER, "
    "src_agent_id INTEGER, src_address INTEGER, size INTEGER NOT NULL, queue_id INTEGER, stream_id INTEGER, "
    "event_id INTEGER",
    "memory_allocate": f"{_OWNER}, agent_id INTEGER, type TEXT, level TEXT, {_TIMES}, address INTEGER, "
    "size INTEGER NOT NULL, queue_id INTEGER, stream_id INTEGER, event_id INTEGER, extdata JSONB DEFAULT '{}'",
}
_VIEW = "CREATE VIEW rocpd_{0} AS SELECT * FROM rocpd_{0}_{1}"


class Rocpd:
    """A database that is written, process by process."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        self._suffixes: list[str] = []

    @property
    def suffix(self) -> str:
        """What the names of the tables of the last process end with."""
        return self._suffixes[-1]

    def add_process(self, number: int = 0) -> None:
        """Create the tables of one more process."""
        self._suffixes.append(f"0199f4a2_7b1{number}_7000_8000_0123456789ab")
        for name, columns in (_INFO | _EVENTS).items():
            self.connection.execute(
                f"CREATE TABLE rocpd_{name}_{self.suffix} (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "
                f"guid TEXT DEFAULT '0199f4a2' NOT NULL, {columns})"
            )
            if not number:
                self.connection.execute(_VIEW.format(name, self.suffix))

    def add(self, table: str, **values: Any) -> int:
        """Insert a row; returns its ID."""
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO rocpd_{table}_{self.suffix} ({names}) VALUES ({marks})"
        return self.connection.execute(sql, list(values.values())).lastrowid or 0

    def string(self, text: str) -> int:
        """Return the ID of a text."""
        sql = f"SELECT id FROM rocpd_string_{self.suffix} WHERE string = ?"
        found = self.connection.execute(sql, [text]).fetchone()
        return found[0] if found else self.add("string", string=text)

    def event(self, category: str, call: int, **values: Any) -> int:
        """Insert an event; `call`: its correlation ID."""
        values = {"parent_stack_id": call, "correlation_id": 0, **values}
        return self.add("event", category_id=self.string(category), stack_id=call, **values)

    def close(self) -> None:
        """Create the indexes, as the last thing of all, and close the file."""
        for suffix in self._suffixes:
            for name in ("arg", "pmc_event"):
                self.connection.execute(f"CREATE INDEX {name}_{suffix}_idx ON rocpd_{name}_{suffix} (event_id)")
        self.connection.commit()
        self.connection.close()


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write the records of rocprofv3's JSON as a database."""
    database = Rocpd(path)
    for number, tool in enumerate(results["rocprofiler-sdk-tool"]):
        database.add_process(number)
        _write_process(database, tool)
    database.close()


def database_of_rocprof_sys(path: Path) -> None:
    """What only rocprof-sys writes: its own categories, call stacks, samples, counters of devices."""
    database = Rocpd(path)
    database.add_process()
    database.add("info_node", id=1, hostname="node-3")
    database.add("info_process", id=1, pid=70, command="/opt/train.py --fast")
    database.add("info_thread", id=1, pid=1, tid=71, name="main")
    gpu = database.add("info_agent", type="GPU", type_index=2, name="gfx942", product_name="MI300X")
    owner = {"nid": 1, "pid": 1, "tid": 1}
    call = database.event("rocm_hip_api", 5)
    database.add("region", name_id=database.string("hipMalloc"), event_id=call, start=100, end=200, **owner)
    for position, (name, value) in enumerate((("ptr", "0x7f"), ("size", "4096"))):
        database.add("arg", event_id=call, position=position, type="int", name=name, value=value)
    stack = database.event("host", 0, call_stack='{"0":"main"}')
    database.add("region", name_id=database.string("main"), event_id=stack, start=50, end=900, **owner)
    for level, kind in (("REAL", "ALLOC"), ("VIRTUAL", "FREE"), ("SCRATCH", "RECLAIM")):
        event = database.event("rocm_memory_allocate", 5)
        database.add(
            "memory_allocate", level=level, type=kind, start=110, end=120, size=64, address=1, event_id=event, **owner
        )
    busy, power = (database.add("info_pmc", name=name, agent_id=gpu) for name in ("GFX Busy", "Power"))
    for time in (300, 400):
        event = database.event("amd_smi", 0)
        for counter, name, value in ((busy, "GFX Busy [2]", time / 8), (power, "Power [2]", 250.0)):
            database.add("pmc_event", event_id=event, pmc_id=counter, value=value)
            track = database.add("track", nid=1, name_id=database.string(name))
            database.add("sample", track_id=track, timestamp=time, event_id=event)
    track = database.add("track", nid=1, pid=1, tid=1, name_id=database.string("MARKER_CORE_API"))
    mark = database.event("MARKER_CORE_API", 6, extdata='{"message":"here"}')
    database.add("sample", track_id=track, timestamp=500, event_id=mark)
    database.close()


def _write_process(database: Rocpd, tool: Mapping[str, Any]) -> None:
    pid = tool["metadata"]["pid"]
    kinds = tool["strings"]["buffer_records"]
    messages = {one["key"]: one["value"] for one in tool["strings"].get("marker_api", ())}
    hostname = tool["metadata"].get("node", {}).get("hostname")
    for tag, value in (("schema_version", "3"), ("guid", "0199f4a2")):
        database.add("metadata", tag=tag, value=value)
    database.add("info_node", id=7, hostname=hostname)
    database.add("info_process", id=pid, nid=7, pid=pid, command=" ".join(tool["metadata"]["command"]))
    for one in tool["agents"]:
        database.add(
            "info_agent", id=one["id"]["handle"], type="GPU" if one["type"] == 2 else "CPU", name=one["name"],
            type_index=one["logical_node_type_id"], product_name=one.get("product_name"))  # fmt: skip
    for one in tool["counters"]:
        database.add("info_pmc", id=one["id"]["handle"], name=one["name"])
    for one in tool["kernel_symbols"]:
        database.add(
            "info_kernel_symbol", id=one["kernel_id"], kernel_name=one["kernel_name"],
            display_name=one["formatted_kernel_name"],
            extdata=json.dumps({"truncated_kernel_name": one["truncated_kernel_name"]}))  # fmt: skip
    threads: set[int] = set()
    events: dict[int, int] = {}
    for what, record in _records(tool):
        record = record.get("record", {}).get("data", record)
        thread = record.get("thread_id", record.get("pid"))
        call = record.get("correlation_id", {"internal": 0})["internal"]
        if thread not in threads:
            threads.add(thread)
            database.add("info_thread", id=thread, pid=pid, tid=thread)
        start, end = (record.get(f"{one}_timestamp", record.get("timestamp")) for one in ("start", "end"))
        times = {"start": start, "end": end}
        owner = {"nid": 7, "pid": pid, "tid": thread, **times}
        kind = kinds[record["kind"]] if record["kind"] < len(kinds) else {"kind": what.upper(), "operations": [what]}
        name = database.string(kind["operations"][record["operation"]]) if kind["operations"] else 0
        extdata = json.dumps({"message": messages[call]}) if what == "marker_api" and call in messages else "{}"
        if what == "kfd":
            extdata = json.dumps({"kfd": {name: str(value) for name, value in record.items()}})
        event = database.event(kind["kind"] if what != "kernel_dispatch" else "KERNEL_DISPATCH", call, extdata=extdata)
        if what == "kernel_dispatch":
            info = record["dispatch_info"]
            events[info["dispatch_id"]] = event
            sizes = {
                f"{what}_size_{axis}": info.get(f"{what}_size", {}).get(axis, 1)
                for what in ("workgroup", "grid") for axis in "xyz"
            }  # fmt: skip
            database.add(
                what, id=info["dispatch_id"], agent_id=info["agent_id"]["handle"], kernel_id=info["kernel_id"],
                dispatch_id=info["dispatch_id"], queue_id=info["queue_id"]["handle"], stream_id=0, event_id=event,
                **sizes, **owner)  # fmt: skip
        elif what == "memory_copy":
            database.add(
                what, name_id=name, dst_agent_id=record["dst_agent_id"]["handle"], size=record["bytes"],
                src_agent_id=record["src_agent_id"]["handle"], stream_id=0, event_id=event, **owner)  # fmt: skip
        elif what == "hip_event":
            database.add(
                what, name_id=name, agent_id=record["agent_id"]["handle"], queue_id=record["queue_id"]["handle"],
                hip_event_handle=record["hip_event_handle"], event_id=event, **owner)  # fmt: skip
        elif what == "hip_graph":
            graph = record["graph_exec_id"]["handle"]
            database.add("graph_launch", graph_exec_id=graph, kernel_dispatch_count=2, event_id=event, **owner)
        elif what in ("memory_allocation", "scratch_memory"):
            more = {"extdata": json.dumps({"flags": str(record["flags"])})} if "flags" in record else {}
            database.add(
                "memory_allocate", type="ALLOC", level="SCRATCH" if more else "REAL", size=record["allocation_size"],
                agent_id=record["agent_id"]["handle"], event_id=event, **more, **owner)  # fmt: skip
        elif what == "kfd":
            database.add("region", name_id=name, event_id=event, **owner)
        elif what.endswith("_api"):
            database.add("region", id=call, name_id=name, event_id=event, **owner)
            for position, argument in enumerate(record.get("args", ())):
                database.add("arg", event_id=event, position=position, type="int", **argument)
    for record in tool.get("callback_records", {}).get("counter_collection", ()):
        for value in record["records"]:
            event = events[record["dispatch_data"]["dispatch_info"]["dispatch_id"]]
            database.add("pmc_event", event_id=event, pmc_id=value["counter_id"]["handle"], value=value["value"])


def _records(tool: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The records in the order in which they are written: calls, kernels, copies, others."""
    lists = tool["buffer_records"]
    calls, others = [], []
    for name in lists:
        (calls if name.endswith("_api") else others).append(name)
    for what in dict.fromkeys((*calls, "kernel_dispatch", "memory_copy", *others)):
        for record in lists.get(what, ()):
            yield what, record
