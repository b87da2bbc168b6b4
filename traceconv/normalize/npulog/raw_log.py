"""Events of the raw NPU log → rows of every table, one pass per record type.

The reader yields what others refer to first: texts, threads, ops, then host calls, then each device with its
sync records before everything that has its ticks. What a later pass needs from an earlier one is kept on disk
(`SpillIndex`, `Spool`), so that memory does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.base.integers import is_time
from traceconv.events.npu import EventBatch
from traceconv.normalize.names import Texts, constant
from traceconv.normalize.npulog import device_passes, host_passes
from traceconv.normalize.npulog.context import RunContext
from traceconv.normalize.npulog.device_passes import TaskPass
from traceconv.normalize.npulog.slices import as_json_object, json_object_of
from traceconv.normalize.npulog.wall_clock import WallClock
from traceconv.normalize.op_summary_waits import OpSummaryWaits
from traceconv.normalize.rows import row_batch, rows_from_tuples
from traceconv.schema.dtypes import RecordArray
from traceconv.wire.text import TextCollector

#: Limit for dictionary text: it must fit in memory.
TEXT_LIMIT_BYTES = 256 << 20
#: Assumed frequency of a device that does not specify its own.
_DEFAULT_CLOCK_HZ = 1_000_000_000
#: No counter is faster than this: a header with a higher frequency is wrong.
_MAX_CLOCK_HZ = 1 << 40

#: Host clocks, as in a capture's options, whose relation to the wall clock is known.
_WALL_CLOCKS = ("virtual", "wall")

TableRows = tuple[str, Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about the run. Times are on the run's clock; None: unknown."""

    start_ns: int | None
    end_ns: int | None
    epoch_known: bool
    host: str | None
    writer: str | None
    model_name: str | None
    options: str | None


class RawLogNormalizer:
    """Turns the events of one capture into rows. Use `tables` once, then `facts`, then `close`."""

    def __init__(self, log: ImportLog, accounts: Accounts, clock_hz: Mapping[int, int]) -> None:
        """`clock_hz`: device_id → nominal frequency of its counter, from the file headers."""
        self._context = RunContext(log, accounts)
        self._clock_hz = dict(clock_hz)
        self._devices: dict[int, tuple[object, ...]] = {}
        self._tasks: dict[int, TaskPass] = {}
        self._capture: tuple[str | None, ...] = (None, None, None, None)

    def tables(self, events: Iterable[EventBatch]) -> Iterator[TableRows]:
        """Yield tables with their batches. Read each to its end before asking for the next.

        A table may come more than once. Columns that a batch does not have are NULL.
        """
        for (kind, device_id), batches in groupby(events, lambda batch: (batch.kind, batch.device_id)):
            yield from self._pass(kind, device_id, batches)
        yield from self._late_tables()

    def close(self) -> None:
        """Free the disk space."""
        self._context.close()
        for tasks in self._tasks.values():
            tasks.rows_by_task.close()

    @property
    def facts(self) -> RunFacts:
        """Facts about the run, after `tables` was read to its end."""
        context = self._context
        host, model_name, writer, options = self._capture
        options = as_json_object(options)
        return RunFacts(context.first_ns, context.last_ns, context.epoch_known, host, writer, model_name, options)

    @property
    def unordered_streams(self) -> Mapping[int, frozenset[int]]:
        """device_id → streams with tasks that were not logged in the order of their start: stream_wait_ns is wrong."""
        return {device_id: frozenset(tasks.unordered) for device_id, tasks in self._tasks.items() if tasks.unordered}

    @property
    def op_summary_waits(self) -> Mapping[int | None, OpSummaryWaits]:
        """device_id → corrections of waits of rows that were already yielded."""
        return {device_id: tasks.op_summary_waits for device_id, tasks in self._tasks.items()}

    @property
    def last_times(self) -> Iterator[tuple[int, int, int]]:
        """(device, stream, last start or end of a task there), after `tables` was read to its end."""
        for device_id, tasks in sorted(self._tasks.items()):
            for stream_id, last_ns in sorted(tasks.last_ns.items()):
                yield device_id, stream_id, last_ns

    def _pass(self, kind: str, device_id: int | None, batches: Iterator[EventBatch]) -> Iterator[TableRows]:
        context = self._context
        if device_id is None:
            if kind in _HOST_TABLES:
                table, rows = _HOST_TABLES[kind]
                yield table, rows(context, batches)
            elif kind == "clock_stop":
                context.read_clock_stops(self._used_records(kind, batches))
            elif kind == "dictionary":
                self._read_dictionary(batches)
            elif kind in ("thread", "model", "capture"):
                self._read_records(kind, None, batches)
            else:
                self._refuse(kind, "the host", batches)
            return
        self._devices.setdefault(device_id, ())
        clock_hz = self._clock_hz.get(device_id, 0)
        clock_hz = clock_hz if 0 < clock_hz <= _MAX_CLOCK_HZ else _DEFAULT_CLOCK_HZ
        if kind == "sync":
            device_passes.align_clock(context, device_id, clock_hz, batches)
            return
        if kind in ("device", "stream"):
            self._read_records(kind, device_id, batches)
            return
        timed = device_passes.ensure_clock(context, batches, device_id, clock_hz)
        if kind == "task":
            yield "task", self._tasks_of(device_id).rows(timed)
        elif kind in device_passes.METRIC_GROUPS:
            yield "task_pmu", device_passes.pmu(context, self._tasks_of(device_id).rows_by_task, batches)
        elif kind == "event_wait":
            yield kind, device_passes.event_waits(context, self._tasks_of(device_id).rows_by_task, batches)
        elif kind == "stream_range":
            yield "range", device_passes.stream_ranges(context, device_id, timed)
        elif kind == "counter":
            yield "counter", device_passes.counters(context, device_id, timed)
        elif kind == "step_mark":
            yield "step", device_passes.steps(context, device_id, timed)
        else:
            self._refuse(kind, f"device {device_id}", batches)

    def _tasks_of(self, device_id: int) -> TaskPass:
        return self._tasks.setdefault(device_id, TaskPass(self._context, device_id))

    def _refuse(self, kind: str, owner: str, batches: Iterable[EventBatch]) -> None:
        """Count records that a log of this owner can't contain as lost."""
        count = sum(len(batch.records) for batch in batches)
        self._context.accounts[kind].records += count
        self._context.lose(kind, Code.UNKNOWN_RECORD, count, f"record that a log of {owner} can't contain")

    def _read_dictionary(self, batches: Iterable[EventBatch]) -> None:
        context = self._context
        collector = TextCollector(TEXT_LIMIT_BYTES)
        for records in self._used_records("dictionary", batches):
            collector.add(records)
        context.texts = Texts(collector.texts)
        for code, count in (
            (Code.BAD_TEXT, collector.bad + collector.unfinished),
            (Code.TOO_MUCH_TEXT, collector.refused),
        ):
            context.accounts["dictionary"].used -= count
            context.lose("dictionary", code, count, code.doc.rstrip("."))

    def _used_records(self, kind: str, batches: Iterable[EventBatch]) -> Iterator[RecordArray]:
        """Yield records that have no rows of their own. They are few, so Python loops over them will do."""
        account = self._context.accounts[kind]
        for batch in batches:
            account.add(used=len(batch.records))
            yield batch.records

    def _read_records(self, kind: str, device_id: int | None, batches: Iterable[EventBatch]) -> None:
        for records in self._used_records(kind, batches):
            for row in records:
                self._read_record(kind, device_id, row)

    def _read_record(self, kind: str, device_id: int | None, row: np.void) -> None:
        context = self._context

        def text(field: str) -> str | None:
            return context.texts.get(int(row[field]))

        if kind == "thread":
            process_id = context.tracks.process(str(int(row["process_id"])), text("process_name"))
            sort_index = int(row["sort_index"])
            context.tracks.describe_thread(int(row["thread_id"]), process_id, text("thread_name"), sort_index)
        elif kind == "model":
            context.model_names[int(row["model_id"])] = text("name")
        elif kind == "capture":
            offset = int(row["epoch_ns"]) - int(row["host_ns"])
            if is_time(offset):
                context.offset_ns, context.epoch_known = offset, True
            context.capture_ns = int(row["host_ns"])
            options = json_object_of(text("options")) or {}
            context.wall_clock = WallClock(is_known=options.get("clock") in _WALL_CLOCKS)
            self._capture = tuple(text(name) for name in ("host_name", "model_name", "writer", "options"))
        elif kind == "stream" and device_id is not None:
            context.tracks.describe_stream(device_id, int(row["stream_id"]), text("name"))
        elif kind == "device" and device_id is not None:
            numbers = tuple(context.small(int(row[name])) for name in _DEVICE_NUMBERS)
            self._devices[device_id] = (text("kind"), text("name"), *numbers)
            if row["clock_hz"]:
                self._clock_hz[device_id] = int(row["clock_hz"])

    def _late_tables(self) -> Iterator[TableRows]:
        """Yield what is known only after all events."""
        context = self._context
        yield "flow", self._flow_rows()
        yield (
            "counter",
            (
                device_passes.counter_rows(rows["track_id"].copy(), rows["ts_ns"].copy(), rows["value"].copy())
                for rows in context.counters
            ),
        )
        yield "process", context.tracks.process_rows()
        yield "track", context.tracks.track_rows()
        yield "device", iter([self._device_rows()])
        context.report_values()

    def _flow_rows(self) -> Iterator[pa.RecordBatch]:
        first = 1
        for rows in self._context.flows:
            columns = {name: rows[name].copy() for name in rows.dtype.names or ()}
            flow_id = np.arange(first, first + len(rows), dtype=np.int64)
            first += len(rows)
            yield row_batch("flow", {"flow_id": flow_id, "kind": constant("launch", len(rows)), **columns})

    def _device_rows(self) -> pa.RecordBatch:
        empty = (None,) * (2 + len(_DEVICE_NUMBERS))
        rows = []
        for device_id, facts in sorted(self._devices.items()):
            aligned = self._context.clocks.get(device_id)
            error_ns = None if aligned is None else aligned.error_bound_ns()
            rows.append((device_id, *(facts or empty), error_ns))
        return rows_from_tuples("device", ("device_id", "kind", "name", *_DEVICE_NUMBERS, "clock_error_ns"), rows)


_HOST_TABLES = {
    "op": ("op", host_passes.ops),
    "fusion": ("fusion", host_passes.fusions),
    "api": ("api", host_passes.apis),
    "range": ("range", host_passes.ranges),
    "memory": ("memory", host_passes.memory),
}
_DEVICE_NUMBERS = (
    "peak_flops",
    "peak_bytes_per_s",
    "memory_bytes",
    "clock_hz",
    "core_clock_hz",
    "ai_core_count",
    "ai_vector_core_count",
    "ai_cpu_count",
)
