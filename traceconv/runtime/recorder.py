"""Write events as records. With `event_records`, the only module of the runtime that depends on the log's layout.

A recorder writes one capture: records logged through it, and those that `write` passes it from an `EventStore` shared
by several recorders. Several threads may log at the same time, also while one flushes.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from traceconv._version import __version__
from traceconv.runtime import counters
from traceconv.runtime.event_log import (
    NONE32,
    Buffer,
    EventLog,
    EventStore,
    ModuleTarget,
    RangeBegin,
    Taken,
    enum_values,
    module_texts,
)
from traceconv.runtime.event_records import EventRecords
from traceconv.runtime.expand import Room
from traceconv.runtime.identity import Identity
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of, gather
from traceconv.wire.log_writer import CaptureWriter

WRITER = f"traceconv {__version__} reference NPU"
_NONE64 = (1 << 64) - 1
_PHASES = enum_values("op", "phase")
_RANGE_KINDS = enum_values("range", "kind")
_RANGE_DTYPE = dtype_of(record("range"))
_BEGIN, _END, _END_APART, _BEGIN_CUT = (
    enum_values("range", "event")[half] for half in ("begin", "end", "end_apart", "begin_cut")
)
_CHARS = {"i8": "q", "u8": "Q", "u4": "I", "u2": "H", "u1": "B"}
_pack_range = struct.Struct("<" + "".join(_CHARS[_RANGE_DTYPE[name].str[1:]] for name in _RANGE_DTYPE.names or ())).pack


class RangeEvent(NamedTuple):
    """One half of a span on a stream, as in its record. The `name` of an end is the exception's type, if any."""

    ticks: int
    span_id: int
    name: str
    args: str
    half: int


@dataclass(frozen=True, slots=True)
class Selection:
    """What a recorder writes. The user's spans and the descriptions of devices are always written."""

    calls: bool = True
    inferences: bool = True
    operators: bool = True
    tasks: bool = True
    pmu: bool = True
    counters: bool = True
    steps: bool = True
    memory: bool = True

    def takes_range(self, kind: str) -> bool:
        """Whether ranges of a kind are written."""
        runs = self.inferences
        selected = {"annotation": True, "emulation": True, "module": self.calls, "inference": runs, "execution": runs}
        return selected.get(kind, self.operators)


ALL = Selection()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model of a session on its device; `model_id`, `op_base`: its number and that of its first op in logs."""

    program: Program
    spec: DeviceSpec
    device_id: int
    stream_names: Mapping[int, str]
    model_id: int
    op_base: int


class Recorder(EventLog):
    """Collects the records of one capture and writes them to `folder`.

    `describe_thread`: the arguments of `thread` for a thread that has not been described yet.
    """

    def __init__(
        self,
        folder: Path,
        *,
        writer_id: int = 0,
        device_clock_hz: Mapping[int, int] | None = None,
        metric_group: str = counters.DEFAULT_GROUP,
        selection: Selection = ALL,
        describe_thread: Callable[[int], tuple[int, str, int, str, int]] | None = None,
    ) -> None:
        super().__init__(EventStore())
        self.folder = folder
        self.selection = selection
        self._metric_group = metric_group
        self._describe_thread = describe_thread
        self._writer = CaptureWriter(folder, writer_id=writer_id, device_clock_hz=device_clock_hz or {})
        #: Where records are until `flush`.
        self._room, self._room_users = Room(), 0
        #: Records of ranges, until `flush`.
        self._ranges = Buffer()
        self._range_kinds = {kind: value for kind, value in _RANGE_KINDS.items() if selection.takes_range(kind)}
        #: The hash of a text, which the log defines on first use; 0 for none.
        self.text: Callable[[str | None], int] = cache(self._define)
        self._events = EventRecords(metric_group, self.text, self.describe_new_thread)
        #: Thread → the records of modules on it, what adds some, and the record of an end.
        self._modules: dict[int, tuple[dict[tuple[str, ...], bytes], Callable[[tuple[str, ...]], bytes], bytes]] = {}
        #: First number of a model's ops → how many of its ops in bodies are described.
        self._inner_counts: dict[int, int] = {}
        self._threads: set[int] = set()
        #: Also the lock of the capture. The garbage collector, which may run at any point in any thread, may end a
        #: span: with two locks, it would take them in another order than the beginning of a span does.
        self.lock = threading.RLock()

    def _define(self, text: str | None) -> int:
        with self.lock:
            return self._writer.text(text)

    def on_text(self, text: str) -> None:
        self.text(text)

    @property
    def pending(self) -> int:
        """Number of events that wait for `flush`."""
        return self.store.pending + len(self._ranges) // _RANGE_DTYPE.itemsize

    def flush(self) -> None:
        """Write everything pending to the files. Raises OutputError when that fails."""
        with self._using_room():
            for taken in self.store.taken():
                self.write(taken, self.store)
                self._flush_room()
            for ranges in self._room.pieces(self._ranges, _RANGE_DTYPE.itemsize):
                self._append("range", None, ranges.view(_RANGE_DTYPE))
                self._flush_room()

    def _flush_room(self) -> None:
        self._writer.flush()
        if self._room_users == 1:
            self._room.clear()

    @contextmanager
    def _using_room(self) -> Iterator[None]:
        """Keep records in the room during a block. A signal handler or the garbage collector may flush meanwhile."""
        with self.lock:
            self._room_users += 1
            try:
                yield
            finally:
                self._room_users -= 1

    def write(self, taken: Taken, store: EventStore) -> None:
        """Add the selected ones of the events taken from `store`. `flush` writes them to the files."""
        selected = self.selection
        wanted = {
            "api": selected.calls,
            "memory": selected.memory,
            "task": selected.tasks or selected.pmu,
            "event_wait": selected.tasks,
            "counter": selected.counters,
            "step_mark": selected.steps,
        }
        with self._using_room():
            for (kind, device_id), words in taken.items():
                if not wanted.get(kind, True) or (device_id is not None and not self._writer.has_device(device_id)):
                    continue
                if kind != "task" or selected.tasks:
                    records = self._events.of_events(kind, words, store, self._room, with_steps=selected.steps)
                    self._append(kind, device_id, records)
                if kind == "task" and selected.pmu:
                    records = self._events.of_counters(words, store, self._room)
                    self._append(counters.RECORDS[self._metric_group], device_id, records)

    def close(self, manifest: Mapping[str, object]) -> None:
        """Write the rest and finally the manifest, which marks the capture as complete."""
        self.flush()
        self._writer.close({"writer": WRITER, **manifest})

    def abandon(self) -> None:
        """End without a manifest: the capture stays marked as truncated."""
        self._writer.abandon()

    def _append(self, name: str, device_id: int | None, records: RecordArray) -> None:
        if len(records):
            self._writer.append(name, records if device_id is None else _in_tick_order(records), device_id)

    def _row(self, name: str, device_id: int | None, row: tuple[int, ...]) -> None:
        """Add a record at once, without an event."""
        with self.lock:
            self._writer.append(name, np.array([row], dtype=dtype_of(record(name))), device_id)

    # Descriptions

    def capture(self, host_ns: int, identity: Identity, model_name: str, options: Mapping[str, object]) -> None:
        """Describe the capture, and relate the host clock to the wall clock."""
        texts = identity.host_name, model_name, WRITER, json.dumps(options, sort_keys=True)
        self._row("capture", None, (host_ns, identity.epoch_ns, identity.process_id, *map(self.text, texts)))

    def thread(self, process_id: int, process_name: str, thread_id: int, name: str, sort_index: int) -> None:
        """Describe a host thread."""
        self._threads.add(thread_id)
        self._row("thread", None, (process_id, self.text(process_name), self.text(name), thread_id, sort_index))

    def add_device(self, device_id: int, clock_hz: int) -> None:
        """Add a device that was unknown when the recorder was created. Raises OutputError."""
        with self.lock:
            self._writer.add_device(device_id, clock_hz)

    def device(self, spec: DeviceSpec, device_id: int, streams: Mapping[int, str]) -> None:
        """Describe a device and its streams."""
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
        """Describe a loaded model, its ops and fusions, and compute the counters of its tasks in advance.

        op_base  number of its first op in the capture
        fusions  False: `fusions` is called later, or never
        """
        graph = program.graph
        ops = [op for op in program.ops if not op.is_collective]
        count = len(ops) + len(program.inner)
        self._row("model", None, (self.text(graph.name), self.text(graph.graph_name), model_id, count))
        self._describe(spec, ops, model_id, op_base, fusions=fusions)
        self.inner_ops(spec, program, model_id, op_base)

    def inner_ops(self, spec: DeviceSpec, program: Program, model_id: int, op_base: int = 0) -> None:
        with self.lock:
            done = self._inner_counts.get(op_base, 0)
            new = program.inner[done:]
            self._inner_counts[op_base] = done + len(new)
            if new:
                self._describe(spec, new, model_id, op_base, fusions=True)

    def _describe(
        self, spec: DeviceSpec, ops: Sequence[DeviceOp], model_id: int, op_base: int, *, fusions: bool
    ) -> None:
        for op in ops:
            if op.cost.pmu is not None:
                numbers = counters.values(spec, op.cost, self._metric_group)
                self._events.set_counters(op_base + op.index, tuple(op.repeats * number for number in numbers))
            self._op_row(op, model_id, op_base)
            if fusions:
                self._fusion_rows(op, op_base)

    def fusions(self, program: Program, *, op_base: int = 0) -> None:
        """Describe the fusions of a model."""
        for op in program.ops:
            self._fusion_rows(op, op_base)

    def _op_row(self, op: DeviceOp, model_id: int, op_base: int) -> None:
        # The number of executions in a task is part of the type in the log; ingest splits them.
        op_type = f"{op.op_type} x{op.repeats}" if op.repeats > 1 else op.op_type
        row = (
            *map(self.text, (op.name, op_type, op.scope_path, *op.describe_operands(), *op.describe_results())),
            op.flops,
            op.input_bytes,
            op.output_bytes,
            op.weight_bytes,
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

    def range_begin(self, begin: RangeBegin, parent_id: int) -> None:
        # Unpacked once: reading a field of a named tuple takes as long as packing it.
        (
            host_ns, span_id, thread_id, kind, name, category, args, trace_id, step_id, pe_index, item_index,
            execution_id, cut,
        ) = begin  # fmt: skip
        kind_value = self._range_kinds.get(kind)
        if kind_value is None:
            return
        if thread_id not in self._threads:
            self.describe_new_thread(thread_id)
        text = self.text
        self._ranges.extend(_pack_range(
            host_ns, span_id, parent_id, trace_id, text(name), text(category), text(args), thread_id,
            step_id if self.selection.steps else NONE32, _BEGIN_CUT if cut else _BEGIN, kind_value, 0, pe_index,
            item_index, execution_id,
        ))  # fmt: skip

    def range_end(
        self, host_ns: int, span_id: int, thread_id: int, kind: str, exception: str = "", *, apart: bool = False
    ) -> None:
        kind_value = self._range_kinds.get(kind)
        if kind_value is not None:
            self._ranges.extend(_pack_range(
                host_ns, span_id, 0, 0, self.text(exception), 0, 0, thread_id, NONE32,
                _END_APART if apart else _END, kind_value, 0, NONE32, NONE32, NONE32,
            ))  # fmt: skip

    def module_targets(self, thread_id: int, step_id: int) -> tuple[ModuleTarget, ...]:
        kind, step_id = self._range_kinds.get("module"), step_id if self.selection.steps else NONE32
        if kind is None:
            return ()
        known = self._modules.get(thread_id)
        if known is None:
            end = _pack_range(0, 0, 0, 0, 0, 0, 0, thread_id, NONE32, _END, kind, 0, NONE32, NONE32, NONE32)
            known = self._modules[thread_id] = {}, partial(self._add_modules, thread_id, kind), end
        return ((self._ranges, *known, self.selection.inferences, step_id),)

    def _add_modules(self, thread_id: int, kind: int, paths: tuple[str, ...]) -> bytes:
        """Return the begins of modules that are entered together, without what differs from run to run."""
        self.describe_new_thread(thread_id)
        begins, text = b"", self.text
        for path in paths:
            name, args = module_texts(path)
            begins += _pack_range(
                0, 0, 0, 0, text(name), text("module"), text(args), thread_id, NONE32, _BEGIN, kind, 0, NONE32, NONE32,
                NONE32,
            )  # fmt: skip
        self._modules[thread_id][0][paths] = begins
        return begins

    def span_target(self) -> tuple[Buffer, Callable[[str | None], int], bytes]:
        """Return where C appends the records of spans, the hashes of texts, and what a begin, an end and an end_apart
        have in common.
        """
        kind, category = _RANGE_KINDS["annotation"], self.text("annotation")
        shared = (
            _pack_range(0, 0, 0, 0, 0, of, 0, 0, NONE32, half, kind, 0, NONE32, NONE32, NONE32)
            for half, of in ((_BEGIN, category), (_END, 0), (_END_APART, 0))
        )
        return self._ranges, self.text, b"".join(shared)

    def stream_ranges(self, device_id: int, stream_id: int, events: Sequence[RangeEvent]) -> None:
        """Log begins and ends of spans on a stream, in order."""
        rows = [
            (ticks, span_id, self.text(name), self.text(args), stream_id, half, 0, 0)
            for ticks, span_id, name, args, half in events
        ]
        with self.lock:
            self._append("stream_range", device_id, np.array(rows, dtype=dtype_of(record("stream_range"))))

    def describe_new_thread(self, thread_id: int) -> None:
        """Describe a thread that logs something for the first time."""
        if self._describe_thread is not None and thread_id not in self._threads:
            self.thread(*self._describe_thread(thread_id))


def _fusion_id(op: DeviceOp, op_base: int) -> int:
    """Return the number of an op's fusion in the capture. Fusions are numbered within their model, as ops are."""
    return NONE32 if op.fusion_id is None else op_base + op.fusion_id


def _in_tick_order(records: RecordArray) -> RecordArray:
    """Sort records as a device would write them: by time, a task's start before its end."""
    ticks: Any = records["ticks"]
    if np.all(ticks[1:] >= ticks[:-1]):
        return records
    return gather(records, np.argsort(ticks, kind="stable"))
