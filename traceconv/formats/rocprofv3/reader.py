"""The JSON results of rocprofv3 (rocprofiler-sdk-tool) → batches of events, in integer ns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.errors import InputError
from traceconv.events.trace import (
    EventColumns,
    EventFlows,
    Label,
    NamedTrack,
    TraceBatch,
    TrackName,
    binary_column,
)
from traceconv.formats.common.columns import durations, integers
from traceconv.formats.common.counter_sums import add_counter
from traceconv.formats.common.elements import json_object
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.json_document import (
    ENTER,
    KEEP,
    STREAM,
    Elements,
    JsonDocument,
    JsonPath,
    Value,
    decode_all,
)
from traceconv.formats.rocprofv3.records import Agent, CounterSymbol, Handle, KernelSymbol, Record

_ROOT = "rocprofiler-sdk-tool"
_GPU = 2
_FLOWS = "launch"
#: Lists of records; everything else describes them.
_RECORD_LISTS = ("buffer_records", "callback_records")
#: They describe records, and come before them where rocprofv3 has written the file.
_DESCRIPTIONS = frozenset(("metadata", "agents", "strings", "kernel_symbols"))
_STREAMED = ("agents", "counters", "kernel_symbols", "code_objects", "host_functions", "summary")
_MAX_NAMES = 4_000_000
_UNORDERED = "names and devices come after the records, which standard input can't read twice; specify the file's path"


@dataclass(slots=True)
class _Process:
    """A process in the results."""

    index: int
    pid: int | None = None
    agents: dict[int, Agent] = field(default_factory=dict)
    kernels: dict[int, KernelSymbol] = field(default_factory=dict)
    counters: dict[int, str] = field(default_factory=dict)
    operations: dict[str, list[tuple[str, list[str]]]] = field(default_factory=dict)
    messages: dict[int, str] = field(default_factory=dict)
    dispatches: set[int] = field(default_factory=set)


class Rocprofv3Reader(FileReader):
    """Reads one file, as `TraceSource` describes."""

    def batches(self) -> Iterator[TraceBatch]:
        """All records, in the order of the text. Raises InputError if the file can't be read."""
        chunks, damaged = self._source.chunks(), "damaged records"
        document = JsonDocument(chunks, _shape, self._log, self._limits, self._accounts, damaged)
        process = _Process(-1)
        described: set[str] = set()
        is_known = False
        for item in document.items():
            if len(item.path) < 3 or item.path[0] != _ROOT or not isinstance(item.path[1], int):
                continue
            if item.path[1] != process.index:
                process, described, is_known = _Process(item.path[1]), set(), False
            what = str(item.path[2])
            if what not in _RECORD_LISTS:
                described.add(what)
                if not is_known:
                    self._take_description(process, what, item)
                elif self._path == STDIN:
                    raise InputError(_UNORDERED)
            elif isinstance(item, Elements):
                if not is_known and not described.issuperset(_DESCRIPTIONS):
                    self._read_ahead(process)
                is_known = True
                yield from self._records(process, str(item.path[3]), item)

    # -- descriptions --

    def _take_description(self, process: _Process, what: str, item: Elements | Value) -> None:
        if isinstance(item, Elements):
            self._describe(process, what, item.texts)
        elif what == "metadata":
            self._metadata(process, item.text)
        elif what == "strings":
            self._strings(process, item.text)

    def _read_ahead(self, process: _Process) -> None:
        """Read what describes records and comes after them, as in files whose keys a program has sorted."""
        if self._path == STDIN:  # an error once anything comes after them
            return
        document = JsonDocument(self._second_pass().chunks(), _shape, ImportLog(), self._limits, Accounts(), "")
        for item in document.items():
            if len(item.path) < 3 or item.path[:2] != (_ROOT, process.index):
                continue
            what = str(item.path[2])
            if what not in _RECORD_LISTS:
                self._take_description(process, what, item)
            elif what == "callback_records" and isinstance(item, Elements):
                for record in decode_all(Record, item.texts):
                    data = record.dispatch_data if record is not None else None
                    if data is not None and data.dispatch_info is not None:
                        process.dispatches.add(data.dispatch_info.dispatch_id)

    def _metadata(self, process: _Process, text: bytes) -> None:
        found = json_object(text)
        if found:
            self.keys[_ROOT if process.index == 0 else f"{_ROOT} {process.index}"] = msgspec.json.encode(found)
        pid, command = found.get("pid"), found.get("command")
        process.pid = pid if type(pid) is int else None
        if isinstance(command, list) and command and isinstance(command[0], str):
            self._track_names.append(TrackName(process.pid, None, command[0].rsplit("/", 1)[-1]))

    def _strings(self, process: _Process, text: bytes) -> None:
        found = json_object(text)
        if not found:
            self._log.add(Code.DAMAGED_TEXT, "the names of operations can't be read", source_id=SOURCE_ID)
        for what in _RECORD_LISTS:
            process.operations[what] = [
                (str(one.get("kind")), [str(name) for name in _listed(one.get("operations"))])
                for one in _listed(found.get(what))
                if isinstance(one, dict)
            ]
        for one in _listed(found.get("marker_api")):
            if isinstance(one, dict) and isinstance(one.get("key"), int) and isinstance(one.get("value"), str):
                process.messages[one["key"]] = one["value"]

    def _describe(self, process: _Process, what: str, texts: Sequence[Any]) -> None:
        if what == "agents":
            process.agents.update((one.id.handle, one) for one in decode_all(Agent, texts) if one is not None)
        elif what == "kernel_symbols":
            found = [one for one in decode_all(KernelSymbol, texts) if one is not None]
            if len(process.kernels) < _MAX_NAMES:
                process.kernels.update((one.kernel_id, one) for one in found)
        elif what == "counters":
            found = [one for one in decode_all(CounterSymbol, texts) if one is not None]
            process.counters.update((one.id.handle, one.name) for one in found)

    # -- records --

    def _records(self, process: _Process, what: str, item: Elements) -> Iterator[TraceBatch]:
        self.found_events = True
        records: list[Record | None] = decode_all(Record, item.texts)
        rows: list[_Row] = []
        lost = used = 0
        for record, text in zip(records, item.texts, strict=True):
            row = self._row(process, str(item.path[2]), what, record, text) if record is not None else None
            if row is not None:
                rows.append(row)
            elif record is not None and record.dispatch_info is not None:
                used += 1
            else:
                lost += 1
        if lost or used:
            self._accounts[f"{what} records"].add(used=used, lost=lost)
        if lost:
            code, message, offset = Code.UNKNOWN_RECORD, f"{what}: unknown records", item.byte_offset
            self._log.add(code, message, source_id=SOURCE_ID, byte_offset=offset, event_count=lost)
        if rows:
            yield self._batch(process, what, rows, item)

    def _row(self, process: _Process, where: str, what: str, record: Record, text: Any) -> _Row | None:
        """The row of a record; None if it has no times, or repeats a launch."""
        if record.record is not None and record.record.data is not None:
            record = record.record.data
        start, end, correlation = record.start_timestamp, record.end_timestamp, record.correlation_id
        dispatch, category = record.dispatch_info, what
        lead: dict[str, object] = {}
        if record.dispatch_data is not None:
            data = record.dispatch_data
            start, end, correlation = data.start_timestamp, data.end_timestamp, data.correlation_id
            dispatch, category = data.dispatch_info, "kernel_dispatch"
            if dispatch is not None:
                process.dispatches.add(dispatch.dispatch_id)
            lead["counters"] = _sums(process, record)
        elif dispatch is not None and dispatch.dispatch_id in process.dispatches:
            return None
        phase = "X"
        if start is None:
            start, phase = record.timestamp, "i"
        if start is None:
            return None
        number = correlation.internal if correlation is not None else None
        name = self._operation(process, where, what, record)
        track: tuple[Label, Label | NamedTrack] = (
            process.pid,
            record.thread_id if record.thread_id is not None else record.pid,
        )
        step = 0
        if dispatch is not None:
            symbol = process.kernels.get(dispatch.kernel_id)
            name = _name_of(symbol) or f"kernel {dispatch.kernel_id}"
            lead["truncated_name"] = symbol.truncated_kernel_name or None if symbol is not None else None
            track, step = self._queue_track(process, dispatch.agent_id, dispatch.queue_id, "", lead), 2
        elif what == "hip_event":
            track, step = self._queue_track(process, record.agent_id, record.queue_id, " waits", lead), 2
        elif what == "memory_copy":
            agents = (record.dst_agent_id, record.src_agent_id)
            agent = next((one for one in agents if _is_gpu(process, one)), agents[0])
            track, step = self._device_track(process, agent, "copies", lead), 2
        elif what == "marker_api":
            name = process.messages.get(number or 0, name)
        if number is not None:
            lead["correlation"] = (process.index << 48) + number
        return _Row(name, category, phase, track, start, end, number, step, _args(lead, text))

    def _operation(self, process: _Process, where: str, what: str, record: Record) -> str:
        kinds = process.operations.get(where, [])
        if record.kind is None or not 0 <= record.kind < len(kinds):
            return what
        kind, operations = kinds[record.kind]
        if record.operation is not None and 0 <= record.operation < len(operations):
            return operations[record.operation]
        return kind

    def _queue_track(
        self, process: _Process, agent: Handle | None, queue: Handle | None, suffix: str, lead: dict[str, object]
    ) -> tuple[Label, Label | NamedTrack]:
        number = queue.handle if queue is not None else None
        track = self._device_track(process, agent, f"queue {number}{suffix}", lead)
        lead["queue"] = number
        return track

    def _device_track(
        self, process: _Process, agent: Handle | None, line: str, lead: dict[str, object]
    ) -> tuple[Label, Label | NamedTrack]:
        known = process.agents.get(agent.handle) if agent is not None else None
        device = known.logical_node_type_id if known is not None and known.type == _GPU else None
        lead["device"] = device
        kind = "GPU" if device is not None else "CPU"
        pid = f"{kind} {device if device is not None else agent.handle if agent is not None else ''}".strip()
        title = (known.product_name or known.name) if known is not None else ""
        of_process = f" (process {process.pid})" if process.index else ""
        tid = NamedTrack("stream", f"{process.pid}/{line}")
        return self._named_track(pid, f"{pid} {title}".strip(), tid, line.capitalize() + of_process)

    def _batch(self, process: _Process, what: str, rows: Sequence[_Row], item: Elements) -> TraceBatch:
        starts = integers([row.start for row in rows])
        tied = what.endswith("_api") or what in ("kernel_dispatch", "memory_copy", "hip_event", "counter_collection")
        usable = [(place, row.correlation) for place, row in enumerate(rows) if tied and row.correlation]
        keys = integers([(process.index << 48) + number if number < 1 << 48 else None for _, number in usable])
        flows = EventFlows(
            np.array([place for place, _ in usable], np.int64),
            keys.fill_null(0).to_numpy(),
            np.array([rows[place].step for place, _ in usable], np.int32),
            _FLOWS,
            [str(number) for _, number in usable],
        )
        labels: dict[str, Sequence[Any]] = {
            "name": [row.name for row in rows],
            "ph": [row.phase for row in rows],
            "cat": [row.category for row in rows],
            "pid": [row.track[0] for row in rows],
            "tid": [row.track[1] for row in rows],
        }
        args = binary_column([row.args for row in rows])
        raw = {"ts": starts, "dur": durations(starts, [row.end for row in rows]), "args": args}
        columns = EventColumns(len(rows), labels, raw, None, flows if usable else None)
        return self._next_batch(columns, item.byte_offset, item.byte_count)


@dataclass(slots=True)
class _Row:
    name: str
    category: str
    phase: str
    track: tuple[Label, Label | NamedTrack]
    start: int
    end: int | None
    correlation: int | None
    step: int
    args: bytes


def _shape(path: JsonPath) -> str:
    """The parts of the document that are entered or streamed."""
    if len(path) < 3:
        return ENTER if not path or path[0] == _ROOT else KEEP
    if path[2] in _RECORD_LISTS:
        return ENTER if len(path) == 3 else STREAM
    return STREAM if path[2] in _STREAMED else KEEP


def _args(lead: dict[str, object], text: Any) -> bytes:
    """The text of the record, with what rules need as its first members."""
    first = msgspec.json.encode({key: value for key, value in lead.items() if value is not None})
    body = bytes(text).strip()
    rest = body[1:].lstrip()
    if len(first) <= 2:
        return body
    return first[:-1] + (b"," if not rest.startswith(b"}") else b"") + rest


def _name_of(symbol: KernelSymbol | None) -> str | None:
    return symbol.formatted_kernel_name or symbol.kernel_name or None if symbol is not None else None


def _is_gpu(process: _Process, handle: Handle | None) -> bool:
    agent = process.agents.get(handle.handle) if handle is not None else None
    return agent is not None and agent.type == _GPU


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _sums(process: _Process, record: Record) -> dict[str, int | float] | None:
    """Each counter's sum over the parts of the device; an integer if all of its values are."""
    sums: dict[str, int | float] = {}
    for one in record.records or ():
        if one.counter_id is None:
            continue
        name = process.counters.get(one.counter_id.handle, f"counter {one.counter_id.handle}")
        try:
            value = msgspec.json.decode(one.value)
        except msgspec.DecodeError:
            continue
        add_counter(sums, name, value)
    return sums or None
