"""What describes the events of one process in a rocpd database: its tables, and names by ID."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded, coded
from traceconv.formats.common.counter_sums import add_counter
from traceconv.formats.common.elements import json_object
from traceconv.formats.common.file_reader import SOURCE_ID
from traceconv.formats.common.sqlite_database import Damage, Database
from traceconv.formats.common.sqlite_reader import renamed

_TABLE = re.compile(r"rocpd_(?P<what>[a-z_]+?)_(?P<uuid>[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})")
_ENCODER = msgspec.json.Encoder()
#: Maximum size of all names of a process in memory; further names are unknown.
_MAX_TEXT = 1 << 28
_GPU = "GPU"


@dataclass(frozen=True, slots=True)
class Agent:
    """A processor.

    device  the number of a GPU among those of its process; None for other processors
    place   its node, and its number there
    """

    device: int | None
    name: str
    place: tuple[object, object]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The names of a kernel; `short`: without template and arguments."""

    name: str | None
    short: str | None


@dataclass(slots=True)
class Process:
    """The tables of one process, and its names by ID.

    tables   what a table contains → its name
    pids     ID in the database → process ID of the system
    threads  ID in the database → thread ID of the system
    tracks   ID → ID of the thread, ID of the name
    """

    index: int
    tables: dict[str, str]
    strings: dict[int, str] = field(default_factory=dict)
    pids: dict[int, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    thread_names: dict[int, str] = field(default_factory=dict)
    commands: dict[int, str] = field(default_factory=dict)
    agents: dict[int, Agent] = field(default_factory=dict)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    counters: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    tracks: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    about: dict[str, object] = field(default_factory=dict)

    def texts(self, numbers: Sequence[Any], unknown: str) -> Coded:
        """Return the texts of IDs."""
        return renamed(coded(numbers), lambda number: self.strings.get(number, unknown))

    def device(self, agent: object) -> int | None:
        """Return the number of a GPU."""
        known = self.agents.get(agent) if isinstance(agent, int) else None
        return known.device if known is not None else None

    def kernel_name(self, number: Any) -> str:
        """Return the name of a kernel."""
        known = self.kernels.get(number)
        return known.name if known is not None and known.name else f"kernel {number}"

    def short_kernel_name(self, number: Any) -> str | None:
        """Return the name of a kernel without template and arguments."""
        known = self.kernels.get(number)
        return known.short if known is not None else None

    def counter_name(self, number: Any) -> str:
        """Return the name of a counter."""
        return self.counters.get(number, (f"counter {number}", None))[0]

    def counter_owner(self, number: Any) -> str:
        """Return what a counter measures."""
        device = self.device(self.counters.get(number, ("", None))[1])
        return f"GPU {device}" if device is not None else "CPU"

    def track_name(self, number: Any) -> str:
        """Return the name of a track of samples."""
        return self.strings.get(self.tracks.get(number, (None, None))[1] or 0, "sample")

    def thread(self, number: object) -> object:
        """Return the thread ID of the system."""
        return self.threads.get(number, number) if isinstance(number, int) else None


def processes_of(db: Database) -> tuple[list[Process], set[str]]:
    """Return the processes of a database, which has tables for each, and the names of its other tables."""
    tables: dict[str, dict[str, str]] = {}
    others: set[str] = set()
    for name in db.tables:
        found = _TABLE.fullmatch(name)
        if found:
            tables.setdefault(found["uuid"], {})[found["what"]] = name
        else:
            others.add(name)
    # The UUIDs begin with the time of the process's start.
    return [Process(index, tables[uuid]) for index, uuid in enumerate(sorted(tables))], others


def read_names(db: Database, process: Process, log: ImportLog) -> None:
    """Read what describes the events of a process."""
    left = _MAX_TEXT

    def rows(what: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        nonlocal left
        table = process.tables.get(what)
        for some in db.scan(table, columns, report) if table is not None else ():
            left -= sum(64 + sum(len(cell) for cell in row if isinstance(cell, str)) for row in some)
            if left < 0:
                log.add(Code.TOO_MUCH_TEXT, f"{table}: more text than is kept", source_id=SOURCE_ID)
                return
            yield from (row for row in some if isinstance(row[0], int))

    def report(damage: Damage) -> None:
        message = f"{damage.table}: rows can't be read ({damage.reason}); names may be missing"
        log.add(Code.DAMAGED_BLOCK, message, source_id=SOURCE_ID, event_count=damage.count)

    for _, tag, value in rows("metadata", "id", "tag", "value"):
        process.about[str(tag)] = value
    for number, text in rows("string", "id", "string"):
        if isinstance(text, str):
            process.strings[number] = text
    for _, hostname, system, release in rows("info_node", "id", "hostname", "system_name", "release"):
        process.about["node"] = {"hostname": hostname, "system_name": system, "release": release}
    for number, pid, command in rows("info_process", "id", "pid", "command"):
        if isinstance(pid, int):
            process.pids[number] = pid
        if isinstance(command, str):
            process.commands[number] = command
    for number, tid, name in rows("info_thread", "id", "tid", "name"):
        if isinstance(tid, int):
            process.threads[number] = tid
        if isinstance(name, str):
            process.thread_names[number] = name
    agents = rows("info_agent", "id", "type", "type_index", "nid", "absolute_index", "product_name", "name")
    for number, kind, device, node, index, *names in agents:
        name = next((one for one in names if isinstance(one, str) and one), "")
        place = node, index if index is not None else number
        process.agents[number] = Agent(device if kind == _GPU and isinstance(device, int) else None, name, place)
    for number, *names, more in rows("info_kernel_symbol", "id", "display_name", "kernel_name", "extdata"):
        name = next((one for one in names if isinstance(one, str) and one), None)
        short = json_object(more.encode()).get("truncated_kernel_name") if isinstance(more, str) else None
        process.kernels[number] = Kernel(name, short if isinstance(short, str) and short else None)
    for number, name, agent in rows("info_pmc", "id", "name", "agent_id"):
        process.counters[number] = str(name), agent if isinstance(agent, int) else None
    for number, thread, name in rows("track", "id", "tid", "name_id"):
        process.tracks[number] = thread, name


def counter_sums(process: Process, rows: Sequence[tuple[Any, ...]]) -> dict[int, msgspec.Raw]:
    """Return, by event, a JSON object with each counter's sum over the parts of the device."""
    sums: dict[int, dict[str, int | float]] = {}
    for event, counter, value in rows:
        add_counter(sums.setdefault(event, {}), process.counter_name(counter), value)
    return {event: msgspec.Raw(_ENCODER.encode(found)) for event, found in sums.items() if found}


def call_arguments(events: Int64, names: Coded, values: Coded) -> dict[int, msgspec.Raw]:
    """Return, by event, a JSON object with the arguments of a call in their order."""
    order = np.argsort(events, kind="stable")
    numbers, starts = np.unique(events[order], return_index=True)
    of_event = np.searchsorted(numbers, events[order])
    keys = [str(name) for name in names.distinct]
    if not np.diff(np.sort(of_event * len(keys) + names.codes[order])).all():  # a name twice: its last value counts
        found: dict[int, dict[str, Any]] = {}
        for event, name, value in zip(events[order].tolist(), names.take(order), values.take(order), strict=True):
            found.setdefault(event, {})[str(name)] = value
        return {event: msgspec.Raw(_ENCODER.encode(members)) for event, members in found.items()}
    leads, texts = (_ENCODER.encode_lines(words).decode().split("\n")[:-1] for words in (keys, values.distinct))
    members = pc.binary_join_element_wise(
        pa.array(leads, pa.string()).take(pa.array(names.codes[order])),
        pa.array(texts, pa.string()).take(pa.array(values.codes[order])),
        ":",
    )
    lists = pa.ListArray.from_arrays(pa.array([*starts, len(order)], pa.int32()), members)
    objects = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "").to_pylist()
    return {event: msgspec.Raw(text.encode()) for event, text in zip(numbers.tolist(), objects, strict=True)}
