"""What happened, as records: the one module of the runtime that knows what the log looks like.

Rows are tuples in the order of a record's fields, kept in lists until `flush`. Several threads may record at a
time, also while one flushes. A recorder without a folder keeps nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from traceconv.runtime import counters
from traceconv.runtime.device import Slot
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record
from traceconv.schema.dtypes import dtype_of
from traceconv.wire.log_writer import CaptureWriter

NONE32 = (1 << 32) - 1
_NONE64 = (1 << 64) - 1


def _enum(record_name: str, field: str) -> dict[str, int]:
    values = record(record_name).field(field).values or {}
    return {text: number for number, text in values.items()}


_LEVELS = _enum("api", "level")
_PHASES = _enum("op", "phase")
_KINDS = _enum("range", "kind")
_TASK_TYPES = _enum("task", "task_type")
_MARKS = _enum("step_mark", "mark")
_MEMORY_EVENTS = _enum("memory", "event")
_MEMORY_KINDS = _enum("memory", "kind")
_PURPOSES = _enum("memory", "alloc_by")


class Recorder:
    """Collects the records of one capture and writes them to `folder`, if there is one."""

    def __init__(
        self,
        folder: Path | None,
        *,
        writer_id: int = 0,
        device_clock_hz: Mapping[int, int] | None = None,
        metric_group: str = counters.DEFAULT_GROUP,
    ) -> None:
        self.folder = folder
        self._metric_group = metric_group
        #: Index of an op → its counters, in the order of the record's fields; ops without some are not here.
        self._counters: dict[int, tuple[int, ...]] = {}
        self._writer = (
            CaptureWriter(folder, writer_id=writer_id, device_clock_hz=device_clock_hz or {}) if folder else None
        )
        self._rows: dict[tuple[str, int | None], list[tuple[int, ...]]] = {}
        self._hashes: dict[str, int] = {}
        self._lock = threading.Lock()
        self._api = self._list("api", None)

    # Rows

    def _list(self, name: str, device_id: int | None) -> list[tuple[int, ...]]:
        return self._rows.setdefault((name, device_id), [])

    def text(self, text: str | None) -> int:
        """The hash of a text, which the log defines once."""
        if not text or self._writer is None:
            return 0
        found = self._hashes.get(text)
        if found is None:
            with self._lock:
                found = self._hashes[text] = self._writer.text(text)
        return found

    @property
    def pending(self) -> int:
        """Records that wait for `flush`."""
        return sum(len(rows) for rows in list(self._rows.values()))

    def flush(self) -> None:
        """Writes what waits to the files. Raises OutputError when they can't be written."""
        with self._lock:
            for (name, device_id), rows in list(self._rows.items()):
                count = len(rows)  # others may add to the end meanwhile
                if count and self._writer is not None:
                    records: Any = np.array(rows[:count], dtype=dtype_of(record(name)))
                    if device_id is not None and name != "sync":
                        records = _in_tick_order(records)
                    self._writer.append(name, records, device_id)
                del rows[:count]
            if self._writer is not None:
                self._writer.flush()

    def close(self, manifest: Mapping[str, object]) -> None:
        """Writes the rest and, last, the manifest: the capture is whole."""
        self.flush()
        if self._writer is not None:
            self._writer.close(manifest)

    def abandon(self) -> None:
        """Ends without a manifest: the capture stays marked as cut off."""
        if self._writer is not None:
            self._writer.abandon()

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
        self._list("capture", None).append(row)

    def thread(self, process_id: int, process_name: str, thread_id: int, name: str, sort_index: int) -> None:
        """A host thread."""
        row = (process_id, self.text(process_name), self.text(name), thread_id, sort_index)
        self._list("thread", None).append(row)

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
        self._list("device", device_id).append(row)
        for stream_id, name in streams.items():
            self._list("stream", device_id).append((self.text(name), stream_id, 0))

    def model(self, spec: DeviceSpec, program: Program, model_id: int) -> None:
        """A loaded model, its ops and their fusions; what their tasks count on a device is worked out in advance."""
        self._counters = {
            op.index: counters.values(spec, op.cost, self._metric_group)
            for op in program.ops
            if op.cost.pmu is not None
        }
        graph = program.graph
        ops = [op for op in program.ops if not op.is_collective]
        row = (self.text(graph.name), self.text(graph.graph_name), model_id, len(ops))
        self._list("model", None).append(row)
        for op in ops:
            self._op(op, model_id)

    def _op(self, op: DeviceOp, model_id: int) -> None:
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
            op.index,
            model_id,
            NONE32 if op.fusion_id is None else op.fusion_id,
            int(op.dynamic),
            _PHASES[op.phase],
            0,
        )
        self._list("op", None).append(row)
        if op.fusion_id is not None:
            for place, node in enumerate(op.originals):
                entry = (text(node.name), text(node.op_type), op.fusion_id, op.index, place, 0)
                self._list("fusion", None).append(entry)

    # What happens on the host

    def api_begin(
        self, host_ns: int, correlation_id: int, name: str, thread_id: int, level: str, op_index: int, step_id: int
    ) -> None:
        """A call begins; `op_index` and `step_id` may be NONE32."""
        self._api.append((host_ns, correlation_id, self.text(name), thread_id, op_index, step_id, 0, _LEVELS[level], 0))

    def api_end(self, host_ns: int, correlation_id: int, thread_id: int, level: str) -> None:
        """A call ends."""
        self._api.append((host_ns, correlation_id, 0, thread_id, NONE32, NONE32, 1, _LEVELS[level], 0))

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
    ) -> None:
        """A range begins; numbers may be NONE32."""
        row = (
            host_ns,
            span_id,
            parent_span_id,
            trace_id,
            self.text(name),
            self.text(category),
            self.text(args),
            thread_id,
            step_id,
            0,
            _KINDS[kind],
            0,
            pe_index,
            item_index,
            execution_id,
        )
        self._list("range", None).append(row)

    def range_end(self, host_ns: int, span_id: int, thread_id: int, kind: str) -> None:
        """A range ends."""
        row = (host_ns, span_id, 0, 0, 0, 0, 0, thread_id, NONE32, 1, _KINDS[kind], 0, NONE32, NONE32, NONE32)
        self._list("range", None).append(row)

    def memory(self, event: MemoryEvent, device_id: int) -> None:
        """An allocation or a free."""
        row = (
            event.host_ns,
            event.block_id,
            event.address,
            event.size_bytes,
            event.used_bytes,
            event.reserved_bytes,
            self.text(event.pool),
            self.text(event.tensor_name),
            device_id,
            NONE32 if event.op_index is None else event.op_index,
            _MEMORY_EVENTS[event.event],
            _MEMORY_KINDS[event.kind],
            _PURPOSES[event.purpose],
            0,
            0,
        )
        self._list("memory", None).append(row)

    # What happens on the device

    def sync(self, device_id: int, ticks: int, host_before_ns: int, host_after_ns: int) -> None:
        """A reading of the device's counter between two of the host's clock."""
        self._list("sync", device_id).append((ticks, host_before_ns, host_after_ns))

    def task(
        self,
        device_id: int,
        slot: Slot,
        stream_id: int,
        task_type: str,
        correlation_id: int,
        *,
        name: str | None = None,
        size_bytes: int | None = None,
        op: DeviceOp | None = None,
        step_id: int = NONE32,
        execution_id: int = NONE32,
    ) -> None:
        """A task, start and end; with the counters of its op where it has some."""
        kind = _TASK_TYPES[task_type]
        size = _NONE64 if size_bytes is None else size_bytes
        rows = self._list("task", device_id)
        rows.append(
            (
                slot.start,
                correlation_id,
                self.text(name),
                size,
                slot.task_id,
                stream_id,
                NONE32,
                NONE32 if op is None else op.index,
                step_id,
                execution_id,
                op.cost.block_count if op else 0,
                op.cost.mix_block_count if op else 0,
                kind,
                0,
                int(op is not None and op.hf32_eligible),
                0,
            )
        )
        rows.append(
            (slot.end, 0, 0, _NONE64, slot.task_id, stream_id, NONE32, NONE32, NONE32, NONE32, 0, 0, kind, 1, 0, 0)
        )
        counted = None if op is None else self._counters.get(op.index)
        if counted is not None:
            rows = self._list(counters.RECORDS[self._metric_group], device_id)
            rows.append((slot.end, slot.task_id, stream_id, *counted))

    def counter(self, device_id: int, ticks: int, name: str, unit: str, value: int) -> None:
        """A sampled value."""
        self._list("counter", device_id).append((ticks, self.text(name), self.text(unit), value))

    def step_mark(self, device_id: int, ticks: int, step_id: int, model_id: int, iteration: int, mark: str) -> None:
        """The device passes a point of a step."""
        self._list("step_mark", device_id).append((ticks, step_id, model_id, iteration, _MARKS[mark], 0, 0))


def _in_tick_order(records: Any) -> Any:
    """Device records as the device would write them: by time, a task's start before its end."""
    if "ticks" not in (records.dtype.names or ()):
        return records
    return records[np.argsort(records["ticks"], kind="stable")]
