"""The JSON results of rocprofv3 (rocprofiler-sdk-tool) → batches of events, in integer ns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
#: name, category, phase, pid, tid, start, end, correlation ID, step of its flow, args
_Row: TypeAlias = "tuple[str, str, str, Label, Label | NamedTrack, int, int | None, int | None, int, bytes]"
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
    #: Tracks of devices, and the names of kernels, each with members of args.
    tracks: dict[tuple[int | None, str], tuple[Label, NamedTrack, bytes]] = field(default_factory=dict)
    names: dict[int, tuple[str, bytes]] = field(default_factory=dict)


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
                    if data is not None and data.dispatch_info is not None and data.start_timestamp is not None:
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
            elif record is not None and _repeats_launch(process, record):
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
        lead = b""
        if record.dispatch_data is not None:
            data = record.dispatch_data
            start, end, correlation = data.start_timestamp, data.end_timestamp, data.correlation_id
            dispatch, category = data.dispatch_info, "kernel_dispatch"
            if dispatch is not None and start is not None:
                process.dispatches.add(dispatch.dispatch_id)
            lead = _members(counters=_sums(process, record))
        elif _repeats_launch(process, record):
            return None
        phase = "X"
        if start is None:
            start, phase = record.timestamp, "i"
        if start is None:
            return None
        number = correlation.internal if correlation is not None else None
        pid: Label = process.pid
        tid: Label | NamedTrack = record.thread_id if record.thread_id is not None else record.pid
        step, of_track = 2, b""
        if dispatch is not None:
            name, of_name = process.names.get(dispatch.kernel_id) or _kernel_name(process, dispatch.kernel_id)
            lead += of_name
            pid, tid, of_track = self._device_track(process, dispatch.agent_id, dispatch.queue_id)
        elif what == "hip_event":
            name = self._operation(process, where, what, record)
            pid, tid, of_track = self._device_track(process, record.agent_id, record.queue_id, " waits")
        elif what == "memory_copy":
            name = self._operation(process, where, what, record)
            agents = (record.dst_agent_id, record.src_agent_id)
            agent = next((one for one in agents if _is_gpu(process, one)), agents[0])
            pid, tid, of_track = self._device_track(process, agent, None, "copies")
        else:
            name, step = self._operation(process, where, what, record), 0
            if what == "marker_api":
                name = process.messages.get(number or 0, name)
        lead += of_track
        if number is not None:
            lead += b'"correlation":%d,' % ((process.index << 48) + number)
        return name, category, phase, pid, tid, start, end, number, step, _args(lead, text)

    def _operation(self, process: _Process, where: str, what: str, record: Record) -> str:
        kinds = process.operations.get(where, [])
        if record.kind is None or not 0 <= record.kind < len(kinds):
            return what
        kind, operations = kinds[record.kind]
        if record.operation is not None and 0 <= record.operation < len(operations):
            return operations[record.operation]
        return kind

    def _device_track(
        self, process: _Process, agent: Handle | None, queue: Handle | None, suffix: str = ""
    ) -> tuple[Label, NamedTrack, bytes]:
        """Return the track of a queue, or of copies, and members of args. `suffix`: of the queue's name."""
        handle, number = agent.handle if agent is not None else None, queue.handle if queue is not None else None
        line = suffix if suffix == "copies" else f"queue {number}{suffix}"
        found = process.tracks.get((handle, line))
        if found is None:
            known = process.agents.get(handle) if handle is not None else None
            device = known.logical_node_type_id if known is not None and known.type == _GPU else None
            pid = f"GPU {device}" if device is not None else f"CPU {'' if handle is None else handle}".strip()
            title = (known.product_name or known.name) if known is not None else ""
            of_process = f" (process {process.pid})" if process.index else ""
            tid = NamedTrack("stream", f"{process.pid}/{line}")
            self._named_track(pid, f"{pid} {title}".strip(), tid, line.capitalize() + of_process)
            found = process.tracks[handle, line] = (pid, tid, _members(device=device, queue=number))
        return found

    def _batch(self, process: _Process, what: str, rows: Sequence[_Row], item: Elements) -> TraceBatch:
        names, categories, phases, pids, tids, times, ends, numbers, steps, args = zip(*rows, strict=True)
        starts = integers(times)
        tied = what.endswith("_api") or what in ("kernel_dispatch", "memory_copy", "hip_event", "counter_collection")
        usable = [place for place, number in enumerate(numbers) if number] if tied else []
        known = [numbers[place] for place in usable]
        keys = integers([(process.index << 48) + number if number < 1 << 48 else None for number in known])
        flows = EventFlows(
            np.array(usable, np.int64),
            keys.fill_null(0).to_numpy(),
            np.array([steps[place] for place in usable], np.int32),
            _FLOWS,
            list(map(str, known)),
        )
        labels = {"name": names, "ph": phases, "cat": categories, "pid": pids, "tid": tids}
        raw = {"ts": starts, "dur": durations(starts, ends), "args": binary_column(args)}
        columns = EventColumns(len(rows), labels, raw, None, flows if usable else None)
        return self._next_batch(columns, item.byte_offset, item.byte_count)


def _shape(path: JsonPath) -> str:
    """The parts of the document that are entered or streamed."""
    if len(path) < 3:
        return ENTER if not path or path[0] == _ROOT else KEEP
    if path[2] in _RECORD_LISTS:
        return ENTER if len(path) == 3 else STREAM
    return STREAM if path[2] in _STREAMED else KEEP


def _members(**values: object) -> bytes:
    """Members of a JSON object that are not None, each with a comma."""
    text = msgspec.json.encode({key: value for key, value in values.items() if value is not None})
    return text[1:-1] + b"," if len(text) > 2 else b""


def _args(lead: bytes, text: Any) -> bytes:
    """The text of the record, with what rules need as its first members."""
    body = bytes(text).strip()
    if not lead:
        return body
    rest = body[1:].lstrip()
    return b"{" + (lead[:-1] if rest.startswith(b"}") else lead) + rest


def _kernel_name(process: _Process, number: int) -> tuple[str, bytes]:
    symbol = process.kernels.get(number)
    name = symbol.formatted_kernel_name or symbol.kernel_name if symbol is not None else None
    short = symbol.truncated_kernel_name or None if symbol is not None else None
    found = process.names[number] = (name or f"kernel {number}", _members(truncated_name=short))
    return found


def _is_gpu(process: _Process, handle: Handle | None) -> bool:
    agent = process.agents.get(handle.handle) if handle is not None else None
    return agent is not None and agent.type == _GPU


def _repeats_launch(process: _Process, record: Record) -> bool:
    """Whether a record is about a launch that has a record of counters."""
    return record.dispatch_info is not None and record.dispatch_info.dispatch_id in process.dispatches


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
