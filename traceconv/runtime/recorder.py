"""What happened, as records: the one module of the runtime that knows what the log looks like.

A recorder writes one capture: what is logged in it itself, and what `write` hands it of an `EventStore` that several
recorders read. Several threads may log at a time, also while one flushes. A recorder without a folder keeps nothing.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from traceconv.runtime import counters
from traceconv.runtime.event_log import NONE32, EventLog, EventStore, Taken, Words, enum_values
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of
from traceconv.wire.log_writer import CaptureWriter

__all__ = ["NONE32", "Recorder", "Selection"]

_NONE64 = (1 << 64) - 1
_PHASES = enum_values("op", "phase")
_RANGE_KINDS = enum_values("range", "kind")
_RANGE_DTYPE = dtype_of(record("range"))
_BEGIN, _END, _END_APART, _BEGIN_CUT = (
    enum_values("range", "event")[half] for half in ("begin", "end", "end_apart", "begin_cut")
)
#: A record of a range from its fields, as it is in the log.
_CHARS = {"i8": "q", "u8": "Q", "u4": "I", "u2": "H", "u1": "B"}
_pack_range = struct.Struct("<" + "".join(_CHARS[_RANGE_DTYPE[name].str[1:]] for name in _RANGE_DTYPE.names or ())).pack


class RangeEvent(NamedTuple):
    """A half of a range of a stream, as its record has it. `name`: of an end, the type of the exception if any."""

    ticks: int
    span_id: int
    name: str
    args: str
    half: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What a recorder writes of what it is given. Names of the user and what describes devices it always writes."""

    calls: bool = True
    inferences: bool = True
    operators: bool = True
    modules: bool = True
    tasks: bool = True
    pmu: bool = True
    counters: bool = True
    steps: bool = True
    memory: bool = True

    def takes_range(self, kind: str) -> bool:
        """Whether ranges of a kind are written."""
        if kind in ("inference", "execution"):
            return self.inferences
        if kind == "module":
            return self.modules
        return kind == "annotation" or self.operators


ALL = Selection()

#: Shape of an event of a call → how many records it makes.
_CALL_RECORDS = np.array([1, 1, 2, 4])
#: Shape, place of the record → (which of the times, whether it is the inner call's, whether it is an end).
_CALL_PARTS = np.array(
    [
        [(0, 0, 0)] * 4,
        [(0, 0, 1)] * 4,
        [(0, 0, 0), (1, 0, 1)] * 2,
        [(0, 0, 0), (1, 1, 0), (2, 1, 1), (2, 0, 1)],
    ]
)


@dataclass(slots=True)
class _Hashes:
    """Per head of one table of an `EventStore`: the hashes of its texts, once they are in this capture's dictionary."""

    values: list[Words] = field(default_factory=list)
    defined: Any = field(default_factory=lambda: np.zeros(0, np.bool_))
    numbers: Any = None


class _TextHashes(dict[str, int]):
    """Text → its hash in the log, where it is defined when it is asked for the first time; nothing is 0."""

    def __init__(self, define: Callable[[str], int]) -> None:
        super().__init__({"": 0})
        self._define = define

    def __missing__(self, text: str) -> int:
        found = self[text] = self._define(text)
        return found


class Recorder(EventLog):
    """Collects the records of one capture and writes them to `folder`, if there is one.

    `thread_names`: (name, sort index) of a thread that no `thread` was told of; None: it stays without a name.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        writer_id: int = 0,
        device_clock_hz: Mapping[int, int] | None = None,
        metric_group: str = counters.DEFAULT_GROUP,
        selection: Selection = ALL,
        thread_names: Callable[[int], tuple[int, str, str, int]] | None = None,
    ) -> None:
        super().__init__(EventStore())
        self.folder = folder
        self.selection = selection
        self._metric_group = metric_group
        self._thread_names = thread_names
        #: Number of an op → its counters, in the order of the record's fields; ops without some are not here.
        self._counters: dict[int, tuple[int, ...]] = {}
        self._counter_table: tuple[Any, Any] | None = None
        self._writer = (
            CaptureWriter(folder, writer_id=writer_id, device_clock_hz=device_clock_hz or {}) if folder else None
        )
        #: Records of ranges, until `flush`.
        self._ranges = bytearray()
        self._range_kinds = {kind: value for kind, value in _RANGE_KINDS.items() if selection.takes_range(kind)}
        self._hashes = _TextHashes(self._define)
        self._tables: dict[tuple[int, str], _Hashes] = {}
        self._threads: set[int] = set()
        self._lock = threading.RLock()

    def text(self, text: str | None) -> int:
        """The hash of a text, which the log defines once."""
        return self._hashes[text] if text and self._writer is not None else 0

    def _define(self, text: str) -> int:
        with self._lock:
            return self._writer.text(text) if self._writer is not None else 0

    def see_text(self, text: str | None) -> None:
        self.text(text)

    @property
    def pending(self) -> int:
        """Events that wait for `flush`."""
        return self.store.pending + len(self._ranges) // _RANGE_DTYPE.itemsize

    def flush(self) -> None:
        """Writes what waits to the files. Raises OutputError when they can't be written."""
        with self._lock:
            self.write(self.store.take(), self.store)
            count = len(self._ranges)  # others may add to the end meanwhile
            if count:
                self._append("range", None, np.frombuffer(self._ranges[:count], _RANGE_DTYPE))
                del self._ranges[:count]
            if self._writer is not None:
                self._writer.flush()

    def write(self, taken: Taken, store: EventStore) -> None:
        """Takes what `selection` selects of events that wait in no store any more. `flush` brings it to the files."""
        if self._writer is None:
            return
        selection = self.selection
        with self._lock:
            for (kind, device_id), words in taken.items():
                if kind == "api" and selection.calls:
                    self._append(kind, None, self._api_records(words, store))
                elif kind == "memory" and selection.memory:
                    self._append(kind, None, self._memory_records(words, store))
                elif kind == "task" and device_id is not None and (selection.tasks or selection.pmu):
                    self._write_tasks(device_id, words, store)
                elif kind == "counter" and selection.counters:
                    self._append(kind, device_id, _in_tick_order(self._counter_records(words, store)))
                elif kind == "step_mark" and selection.steps:
                    self._append(kind, device_id, _in_tick_order(_step_mark_records(words)))
                elif kind == "sync" and device_id is not None and self._writer.has_device(device_id):
                    self._append(kind, device_id, _sync_records(words))

    def close(self, manifest: Mapping[str, object]) -> None:
        """Writes the rest and, last, the manifest: the capture is whole."""
        self.flush()
        if self._writer is not None:
            self._writer.close(manifest)

    def abandon(self) -> None:
        """Ends without a manifest: the capture stays marked as cut off."""
        if self._writer is not None:
            self._writer.abandon()

    def _append(self, name: str, device_id: int | None, records: RecordArray) -> None:
        if self._writer is not None and len(records):
            self._writer.append(name, records, device_id)

    def _row(self, name: str, device_id: int | None, row: tuple[int, ...]) -> None:
        """A record of what there is: it waits in no store."""
        if self._writer is not None:
            with self._lock:
                self._append(name, device_id, np.array([row], dtype=dtype_of(record(name))))

    # What there is

    def capture(
        self,
        host_ns: int,
        epoch_ns: int,
        process_id: int,
        host_name: str,
        model_name: str,
        writer: str,
        options: Mapping[str, object],
    ) -> None:
        """What is recorded, and how the host clock stands to the wall clock."""
        text = self.text
        row = (
            host_ns,
            epoch_ns,
            process_id,
            text(host_name),
            text(model_name),
            text(writer),
            text(json.dumps(options, sort_keys=True)),
        )
        self._row("capture", None, row)

    def thread(self, process_id: int, process_name: str, thread_id: int, name: str, sort_index: int) -> None:
        """A host thread."""
        self._threads.add(thread_id)
        row = (process_id, self.text(process_name), self.text(name), thread_id, sort_index)
        self._row("thread", None, row)

    def add_device(self, device_id: int, clock_hz: int) -> None:
        """A device that was not known when the recorder was made. Raises OutputError."""
        if self._writer is not None:
            with self._lock:
                self._writer.add_device(device_id, clock_hz)

    def device(self, spec: DeviceSpec, device_id: int, streams: Mapping[int, str]) -> None:
        """A device and its streams."""
        row = (
            self.text(spec.kind),
            self.text(spec.name),
            spec.peak_flops,
            spec.hbm_bytes_per_s,
            spec.memory_bytes,
            spec.clock_hz,
            spec.core_clock_hz,
            device_id,
            spec.cube_cores,
            spec.vector_cores,
            spec.cpu_cores,
        )
        self._row("device", device_id, row)
        for stream_id, name in streams.items():
            self._row("stream", device_id, (self.text(name), stream_id, 0))

    def model(
        self, spec: DeviceSpec, program: Program, model_id: int, *, op_base: int = 0, fusions: bool = True
    ) -> None:
        """A loaded model, its ops and their fusions; what their tasks count on a device is worked out in advance.

        op_base  the number of its first op in the capture
        fusions  False: `fusions` is called later, or never
        """
        for op in program.ops:
            if op.cost.pmu is not None:
                self._counters[op_base + op.index] = counters.values(spec, op.cost, self._metric_group)
        self._counter_table = None
        graph = program.graph
        ops = [op for op in program.ops if not op.is_collective]
        row = (self.text(graph.name), self.text(graph.graph_name), model_id, len(ops))
        self._row("model", None, row)
        for op in ops:
            self._op_row(op, model_id, op_base)
            if fusions:
                self._fusion_rows(op, op_base)

    def fusions(self, program: Program, *, op_base: int = 0) -> None:
        """The fusions of a model."""
        for op in program.ops:
            self._fusion_rows(op, op_base)

    def _op_row(self, op: DeviceOp, model_id: int, op_base: int) -> None:
        text = self.text
        row = (
            text(op.name),
            text(op.op_type),
            text(op.scope_path),
            *(text(part) for part in op.describe_operands()),
            *(text(part) for part in op.describe_results()),
            op.flops,
            sum(tensor.size_bytes for tensor in op.reads),
            sum(tensor.size_bytes for tensor in (*op.writes, *op.updates)),
            sum(tensor.size_bytes for tensor in op.weights),
            op.cost.workspace_bytes,
            op_base + op.index,
            model_id,
            _fusion_id(op, op_base),
            int(op.dynamic),
            _PHASES[op.phase],
            0,
        )
        self._row("op", None, row)

    def _fusion_rows(self, op: DeviceOp, op_base: int) -> None:
        if op.fusion_id is not None:
            for place, node in enumerate(op.originals):
                names = self.text(node.name), self.text(node.op_type)
                self._row("fusion", None, (*names, _fusion_id(op, op_base), op_base + op.index, place, 0))

    # Ranges

    def range_begin(
        self,
        host_ns: int,
        span_id: int,
        parent_span_id: int,
        trace_id: int,
        name: str,
        category: str,
        args: str,
        thread_id: int,
        step_id: int,
        kind: str,
        pe_index: int = NONE32,
        item_index: int = NONE32,
        execution_id: int = NONE32,
        *,
        cut: bool = False,
    ) -> None:
        kind_value = self._range_kinds.get(kind)
        if self._writer is None or kind_value is None:
            return
        if thread_id not in self._threads:
            self.meet_thread(thread_id)
        hashes = self._hashes
        step_id = step_id if self.selection.steps else NONE32
        self._ranges += _pack_range(
            host_ns, span_id, parent_span_id, trace_id, hashes[name], hashes[category], hashes[args], thread_id,
            step_id, _BEGIN_CUT if cut else _BEGIN, kind_value, 0, pe_index, item_index, execution_id,
        )  # fmt: skip

    def range_end(
        self, host_ns: int, span_id: int, thread_id: int, kind: str, exception: str = "", *, apart: bool = False
    ) -> None:
        kind_value = self._range_kinds.get(kind)
        if self._writer is not None and kind_value is not None:
            self._ranges += _pack_range(
                host_ns, span_id, 0, 0, self._hashes[exception], 0, 0, thread_id, NONE32,
                _END_APART if apart else _END, kind_value, 0, NONE32, NONE32, NONE32,
            )  # fmt: skip

    def stream_ranges(self, device_id: int, stream_id: int, events: Sequence[RangeEvent]) -> None:
        """Begins and ends of ranges of a stream, in order."""
        rows = [
            (event.ticks, event.span_id, self.text(event.name), self.text(event.args), stream_id, event.half, 0, 0)
            for event in events
        ]
        if rows:
            with self._lock:
                self._append("stream_range", device_id, np.array(rows, dtype=dtype_of(record("stream_range"))))

    def meet_thread(self, thread_id: int) -> None:
        """Describes a thread that has something in the log for the first time."""
        if self._thread_names is not None and thread_id not in self._threads:
            process_id, process_name, name, sort_index = self._thread_names(thread_id)
            self.thread(process_id, process_name, thread_id, name, sort_index)

    # Words of events → records

    def _heads(self, store: EventStore, table: str, used: Words) -> _Hashes:
        """The numbers and the hashes of the heads of a table, those of `used` defined in this capture."""
        heads: list[tuple[Any, ...]] = getattr(store, table)
        known = self._tables.setdefault((id(store), table), _Hashes())
        text_count = {"calls": 1, "blocks": 2, "tasks": 1, "counters": 2}[table]
        count = len(heads)
        before = len(known.defined)
        if count > before:
            grown = np.array([head[text_count:] for head in heads[before:count]], np.int64).reshape(count - before, -1)
            known.numbers = grown if known.numbers is None else np.concatenate([known.numbers, grown])
            known.defined = np.concatenate([known.defined, np.zeros(count - before, np.bool_)])
            more = np.zeros(count - before, np.uint64)
            old = known.values or [np.zeros(0, np.uint64)] * text_count
            known.values = [np.concatenate([part, more]) for part in old]
        if known.defined.all():
            return known
        met = np.flatnonzero(np.bincount(used, minlength=count) > 0)
        for head in met[~known.defined[met]].tolist():
            for place in range(text_count):
                known.values[place][head] = self.text(heads[head][place])
            if table == "calls":
                self.meet_thread(heads[head][1])
            known.defined[head] = True
        return known

    def _api_records(self, words: Words, store: EventStore) -> RecordArray:
        shape = words[:, 4] & 3
        count = _CALL_RECORDS[shape]
        row = np.repeat(np.arange(len(words)), count)
        place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        time, inner, end = _CALL_PARTS[shape[row], place].T
        head, ends = (words[:, 4] >> 2)[row] + inner, end == 1
        known = self._heads(store, "calls", head)
        records = np.zeros(len(row), dtype_of(record("api")))
        records["host_ns"] = words[row, time]
        records["correlation_id"] = words[row, 3] - inner
        records["name"] = np.where(ends, np.uint64(0), known.values[0][head])
        numbers = known.numbers[head]
        records["thread_id"] = numbers[:, 0]
        records["op_index"] = np.where(ends, NONE32, numbers[:, 1])
        records["step_id"] = np.where(ends, NONE32, self._steps(words[row, 5]))
        records["event"] = ends
        records["level"] = numbers[:, 2]
        return records

    def _steps(self, step_ids: Words) -> Words | int:
        """Steps as records name them: none where none is recorded."""
        return step_ids if self.selection.steps else NONE32

    def _memory_records(self, words: Words, store: EventStore) -> RecordArray:
        head = words[:, 6]
        known = self._heads(store, "blocks", head)
        records = np.zeros(len(words), dtype_of(record("memory")))
        names = ("host_ns", "block_id", "address", "size_bytes", "used_bytes", "reserved_bytes")
        for place, name in enumerate(names):
            records[name] = words[:, place]
        records["pool"], records["tensor_name"] = known.values[0][head], known.values[1][head]
        for place, name in enumerate(("device_id", "op_index", "event", "kind", "alloc_by")):
            records[name] = known.numbers[head, place]
        return records

    def _write_tasks(self, device_id: int, words: Words, store: EventStore) -> None:
        head = words[:, 8]
        known = self._heads(store, "tasks", head)
        numbers = known.numbers[head]
        if self.selection.tasks:
            records = np.zeros(2 * len(words), dtype_of(record("task")))
            starts, ends = records[::2], records[1::2]
            starts["ticks"], ends["ticks"] = words[:, 0], words[:, 1]
            starts["correlation_id"] = words[:, 2]
            starts["name"] = known.values[0][head]
            starts["size_bytes"], ends["size_bytes"] = words[:, 3].view(np.uint64), _NONE64
            records["context_id"] = NONE32
            starts["op_index"], ends["op_index"] = numbers[:, 0], NONE32
            starts["step_id"], ends["step_id"] = self._steps(words[:, 6]), NONE32
            starts["execution_id"], ends["execution_id"] = words[:, 7], NONE32
            starts["block_count"], starts["mix_block_count"] = numbers[:, 1], numbers[:, 2]
            starts["hf32_eligible"] = numbers[:, 4]
            ends["event"] = 1
            for half in (starts, ends):
                half["task_id"], half["stream_id"] = words[:, 4], words[:, 5]
                half["task_type"] = numbers[:, 3]
            self._append("task", device_id, _in_tick_order(records))
        if self.selection.pmu:
            self._write_counters(device_id, words, numbers[:, 0])

    def _write_counters(self, device_id: int, words: Words, op_index: Words) -> None:
        """What the device counted of tasks, which it says when they end."""
        if self._counter_table is None:
            indices = np.array(sorted(self._counters), np.int64)
            rows = [self._counters[index] for index in indices.tolist()]
            count = len(counters.names(self._metric_group))
            self._counter_table = indices, np.array(rows, np.uint64).reshape(len(rows), count)
        indices, values = self._counter_table
        if not len(indices):
            return
        place = np.minimum(np.searchsorted(indices, op_index), len(indices) - 1)
        counted = np.flatnonzero(indices[place] == op_index)
        schema = record(counters.RECORDS[self._metric_group])
        records = np.zeros(len(counted), dtype_of(schema))
        records["ticks"] = words[counted, 1]
        records["task_id"], records["stream_id"] = words[counted, 4], words[counted, 5]
        for column, name in enumerate(counters.names(self._metric_group)):
            records[name] = values[place[counted], column]
        self._append(schema.name, device_id, _in_tick_order(records))

    def _counter_records(self, words: Words, store: EventStore) -> RecordArray:
        known = self._heads(store, "counters", words[:, 2])
        records = np.zeros(len(words), dtype_of(record("counter")))
        records["ticks"], records["value"] = words[:, 0], words[:, 1]
        records["name"], records["value_unit"] = known.values[0][words[:, 2]], known.values[1][words[:, 2]]
        return records


def _fusion_id(op: DeviceOp, op_base: int) -> int:
    """A fusion is of one op, and numbered within its model: with several models it takes its op's distance."""
    return NONE32 if op.fusion_id is None else op_base + op.fusion_id


def _sync_records(words: Words) -> RecordArray:
    records = np.zeros(len(words), dtype_of(record("sync")))
    for place, name in enumerate(("ticks", "host_before_ns", "host_after_ns")):
        records[name] = words[:, place]
    return records


def _step_mark_records(words: Words) -> RecordArray:
    records = np.zeros(len(words), dtype_of(record("step_mark")))
    for place, name in enumerate(("ticks", "step_id", "model_id", "iteration", "mark")):
        records[name] = words[:, place]
    return records


def _in_tick_order(records: RecordArray) -> RecordArray:
    """Device records as the device would write them: by time, a task's start before its end."""
    ticks: Any = np.ascontiguousarray(records["ticks"])
    if np.all(ticks[1:] >= ticks[:-1]):
        return records
    order = np.argsort(ticks, kind="stable")
    # As opaque bytes: gathering a structure field by field takes twice as long.
    gathered: RecordArray = records.view(f"V{records.dtype.itemsize}")[order].view(records.dtype)
    return gathered
