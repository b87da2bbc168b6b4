"""Passes over a device's logs: its clock, tasks, their counters, steps and sampled values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64, Mask, differences
from traceconv.events.npu import EventBatch
from traceconv.normalize import clock
from traceconv.normalize.names import EnumColumn, constant, number_text
from traceconv.normalize.npulog.context import FLOW_DTYPE, RunContext
from traceconv.normalize.npulog.nesting import END, Nester
from traceconv.normalize.npulog.pairing import Pairer
from traceconv.normalize.npulog.slices import (
    TOO_LONG_MESSAGE,
    halves,
    json_objects,
    keep_valid,
    nested_slices,
    report_unknown,
    slice_columns,
    timed,
)
from traceconv.normalize.op_summary_waits import OpSummaryWaits
from traceconv.normalize.rows import ColumnData, Nullable, row_batch
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.sort.stable_order import stable_order
from traceconv.normalize.track_gaps import track_gaps
from traceconv.normalize.tracks import map_distinct
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of, gather, join

#: Task type → kind of the task, and the core that executes it.
_TASK_KINDS = {
    "AI_CORE": ("compute", "AI_CORE"),
    "AI_VECTOR_CORE": ("compute", "AI_VECTOR_CORE"),
    "AI_CPU": ("compute", "AI_CPU"),
    "MIX_AIC": ("compute", "MIX_AIC"),
    "MIX_AIV": ("compute", "MIX_AIV"),
    "SDMA": ("copy", None),
    "HCCL": ("collective", None),
    "EVENT_RECORD": ("sync", None),
    "EVENT_WAIT": ("sync", None),
}
#: PMU record → its metric group.
METRIC_GROUPS = {
    "pmu_pipe_utilization": "PipeUtilization",
    "pmu_arithmetic_utilization": "ArithmeticUtilization",
    "pmu_memory": "Memory",
    "pmu_memory_l0": "MemoryL0",
    "pmu_memory_ub": "MemoryUB",
    "pmu_resource_conflict_ratio": "ResourceConflictRatio",
    "pmu_l2_cache": "L2Cache",
}
_NO_PMU_FIELDS = frozenset({"ticks", "task_id", "stream_id"})


def align_clock(context: RunContext, device_id: int, clock_hz: int, batches: Iterable[EventBatch]) -> None:
    """sync records → the clock for all later passes of the device."""
    parts = [batch.records.copy() for batch in batches]
    records = np.concatenate(parts) if parts else np.zeros(0, dtype_of(record("sync")))
    context.accounts["sync"].add(used=len(records))
    aligned = clock.align(records["ticks"], records["host_before_ns"], records["host_after_ns"], clock_hz)
    if aligned is None:
        return
    bad = aligned.summary.contradicting
    context.note("sync", Code.BAD_CLOCK_SYNC, bad, f"device {device_id}: contradictory readings, not used")
    context.clocks[device_id] = aligned


def ensure_clock(
    context: RunContext, batches: Iterator[EventBatch], device_id: int, clock_hz: int
) -> Iterator[EventBatch]:
    """Yield `batches`; a device without sync records gets a clock that starts at the begin of the host's log."""
    for batch in batches:
        if device_id not in context.clocks:
            host_ns = (context.first_ns if context.first_ns is not None else context.offset_ns) - context.offset_ns
            first = int(batch.records["ticks"].min()) if len(batch.records) else 0
            context.clocks[device_id] = clock.unsynced(min(first, clock.LIMIT), host_ns, clock_hz)
            message = f"device {device_id} has no usable sync records: its times are only comparable to each other"
            context.log.add(Code.NO_CLOCK_SYNC, message)
        yield batch


class TaskPass:
    """task records of one device → task; flows from launches, and task IDs for PMU records, are spilled."""

    def __init__(self, context: RunContext, device_id: int) -> None:
        schema = record("task")
        self._context = context
        self._device_id = device_id
        self._schema = schema
        self._pairer = Pairer("task_id", dtype_of(schema))
        self._last_end: dict[int, int | None] = {}
        self._types = EnumColumn(schema.field("task_type"))
        self._kinds, self._cores = (
            EnumColumn(schema.field("task_type"), {name: pair[part] for name, pair in _TASK_KINDS.items()})
            for part in (0, 1)
        )
        types = schema.field("task_type").values or {}
        self._collective = next(code for code, name in types.items() if name == "HCCL")
        #: task_id → id of its row.
        self.rows_by_task = SpillIndex(("id",))
        #: Streams with tasks that were not logged in the order of their start: `stream_wait_ns` must be recomputed.
        self.unordered: set[int] = set()
        self.op_summary_waits = OpSummaryWaits()
        #: Stream → the last start or end of a task on it, on the run's clock.
        self.last_ns: dict[int, int] = {}
        self._last_start: dict[int, int] = {}
        self._overlaps: dict[int, int] = {}
        self._negative = 0

    def rows(self, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of table task."""
        context = self._context
        account = context.accounts["task"]
        unmatched = 0
        for every in batches:
            batch = halves(context, every)
            pairs = self._pairer.feed(batch.records, batch.ids, batch.records["event"] == END)
            unmatched += pairs.unmatched_ends
            account.paired += len(pairs.ends)
            yield self._batch(pairs.starts, pairs.ids, pairs.ends)
            if len(pairs.unfinished):
                yield self._batch(pairs.unfinished, pairs.unfinished_ids, None)
        rest, rest_ids = self._pairer.finish()
        yield self._batch(rest, rest_ids, None)
        account.used += unmatched
        where = f"device {self._device_id}: "
        context.note("task", Code.UNFINISHED, len(rest), where + "start without an end before the log stops")
        context.note("task", Code.UNMATCHED_END, unmatched, where + "end without a start")
        context.note("task", Code.NEGATIVE_DURATION, self._negative, where + "end before the start")
        overlaps = sum(count for stream, count in self._overlaps.items() if stream not in self.unordered)
        context.note("task", Code.OVERLAP, overlaps, where + "start before the end of the previous task on its stream")
        report_unknown(context, "task", {"task_type": self._types})

    def _batch(self, starts: RecordArray, ids: Int64, ends: RecordArray | None) -> pa.RecordBatch:
        """Return rows of started tasks, in the order of their start. `ends` None: their ends are unknown."""
        context, schema = self._context, self._schema
        start_ns, valid = context.times(self._device_id, starts)
        end_ns = start_ns
        if ends is not None:
            end_ns, end_valid = context.times(self._device_id, ends)
            valid = end_valid if valid is None else valid if end_valid is None else valid & end_valid
        order = _by_start(start_ns, ids)
        if valid is not None:
            order = order[valid[order]]
            lost = len(starts) - len(order)
            context.accounts["task"].paired -= lost if ends is not None else 0
            context.lose("task", Code.BAD_TIME, lost * (1 if ends is None else 2), "time out of range")
        starts, ids, start_ns, end_ns = gather(starts, order), ids[order], start_ns[order], end_ns[order]
        context.accounts["task"].rows += len(starts)
        context.note_times(start_ns, end_ns)
        self._note_streams(starts["stream_id"], start_ns, end_ns)
        negative = end_ns < start_ns
        self._negative += int(np.count_nonzero(negative))
        dur_ns, too_long = differences(end_ns, start_ns)
        context.note("task", Code.BAD_DURATION, int(np.count_nonzero(too_long & ~negative)), TOO_LONG_MESSAGE)
        dur_unknown = negative | too_long if ends is not None else np.ones(len(starts), np.bool_)
        dur = Nullable(dur_ns, dur_unknown)
        self.rows_by_task.add(starts["task_id"].astype(np.uint64), ids)
        launch = self._launched(starts, ids, start_ns)
        names = starts["name"]
        numbers = ("stream_id", "step_id", "execution_id", "context_id", "correlation_id", "size_bytes")
        counts = ("block_count", "mix_block_count")
        computes = starts["task_type"] <= 4  # AI_CORE … MIX_AIV: only these have blocks
        op_ids = context.number(schema, starts, "op_index")
        columns: dict[str, ColumnData] = {
            "id": ids,
            "track_id": map_distinct(starts["stream_id"], self._track),
            "device_id": np.full(len(starts), self._device_id, np.int64),
            "op_id": op_ids,
            "source_task_id": context.number(schema, starts, "task_id"),
            "name": context.texts.column(np.where(names == 0, self._op_names(starts["op_index"]), names)),
            "task_type": self._types.column(starts["task_type"]),
            "core_type": self._cores.column(starts["task_type"]),
            "kind": self._kinds.column(starts["task_type"]),
            "kind_source": constant("recorded", len(starts)),
            **launch,
            "start_ns": start_ns,
            "dur_ns": dur,
            "wait_ns": self._op_summary_waits(op_ids, starts["task_type"], ids, start_ns, end_ns, dur_unknown),
            "stream_wait_ns": self._waits(starts["stream_id"], start_ns, end_ns, dur_unknown),
            "depth": np.zeros(len(starts), np.int32),
            "self_ns": dur,
            "hf32_eligible": Nullable(starts["hf32_eligible"] == 1, ~computes),
            "comm_group": self._groups(starts["stream_id"], starts["task_type"] == self._collective),
        }
        columns.update({name: context.number(schema, starts, name) for name in numbers})
        columns.update({name: Nullable(starts[name].astype(np.int64), ~computes) for name in counts})
        return row_batch("task", columns)

    def _note_streams(self, stream: NDArray[np.uint32], start_ns: Int64, end_ns: Int64) -> None:
        if not len(stream):
            return
        order = stable_order(stream)
        by_stream = stream[order]
        heads = np.flatnonzero(np.concatenate([[True], by_stream[1:] != by_stream[:-1]]))
        firsts, lasts = start_ns[order[heads]], start_ns[order[np.append(heads[1:], len(order)) - 1]]
        ends = np.maximum.reduceat(np.maximum(start_ns, end_ns)[order], heads)
        columns = (column.tolist() for column in (by_stream[heads], firsts, lasts, ends))
        for number, first, last, end in zip(*columns, strict=True):
            if first < self._last_start.get(number, first):
                self.unordered.add(number)
            self._last_start[number] = last
            self.last_ns[number] = max(end, self.last_ns.get(number, end))

    def _track(self, stream_id: int) -> int:
        return self._context.tracks.stream(self._device_id, stream_id)

    def _groups(self, stream: NDArray[np.uint32], collective: Mask) -> pa.DictionaryArray:
        """Return the group of each collective, from the name of its stream; NULL for other tasks."""
        codes = np.full(len(stream), -1, np.int32)
        names: list[str] = []
        for number in np.unique(stream[collective]).tolist():
            name = self._context.tracks.stream_group(self._device_id, number)
            if name is not None:
                codes[collective & (stream == number)] = len(names)
                names.append(name)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(names, pa.string()))

    def _op_names(self, op_index: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the name hash of each op; 0 if the op is unknown."""
        known, hashes = self._context.op_indices, self._context.op_name_hashes
        if not len(known):
            return np.zeros(len(op_index), np.uint64)
        place = np.minimum(np.searchsorted(known, op_index), len(known) - 1)
        return np.where(known[place] == op_index, hashes[place], np.uint64(0))

    def _launched(self, starts: RecordArray, ids: Int64, start_ns: Int64) -> dict[str, ColumnData]:
        """Return the columns of each task's launch, and spill the flow from it."""
        found, launch = self._context.launches.look_up(starts["correlation_id"])
        found &= starts["correlation_id"] != 0
        flows = np.empty(int(np.count_nonzero(found)), FLOW_DTYPE)
        flows["src_id"], flows["src_ns"] = launch["id"][found], launch["start_ns"][found]
        flows["dst_id"], flows["dst_ns"] = ids[found], start_ns[found]
        self._context.flows.append(flows)
        return {
            "submit_ns": Nullable(launch["start_ns"], ~found),
            "api_id": Nullable(launch["id"], ~found),
            "call_ns": Nullable(launch["call_ns"], ~found | (launch["call_ns"] < 0)),
        }

    def _op_summary_waits(
        self, op_ids: Nullable, task_type: NDArray[np.uint8], ids: Int64, start_ns: Int64, end_ns: Int64, endless: Mask
    ) -> Nullable:
        """Return the wait of each row of op_summary, i.e. of ops and collectives; NULL for other tasks."""
        is_row = task_type == self._collective
        is_row |= ~op_ids.mask
        rows = np.flatnonzero(is_row)
        wait, unknown = np.zeros(len(ids), np.int64), np.ones(len(ids), np.bool_)
        wait[rows], unknown[rows] = self.op_summary_waits.take(ids[rows], start_ns[rows], end_ns[rows], endless[rows])
        return Nullable(wait, unknown)

    def _waits(self, stream: NDArray[np.uint32], start_ns: Int64, end_ns: Int64, end_unknown: Mask) -> Nullable:
        """Return each task's gap since the previous task on its stream; 0 for the first of a stream."""
        order = stable_order(stream)
        wait, unknown = np.zeros(len(stream), np.int64), np.zeros(len(stream), np.bool_)
        wait[order], unknown[order] = track_gaps(
            stream[order], start_ns[order], end_ns[order], end_unknown[order], self._last_end
        )
        late = stream[(wait < 0) & ~unknown]
        for number, count in zip(*(part.tolist() for part in np.unique(late, return_counts=True)), strict=True):
            self._overlaps[number] = self._overlaps.get(number, 0) + count
        return Nullable(wait, unknown)


def _by_start(start_ns: Int64, ids: Int64) -> NDArray[np.intp]:
    """Return the order of start; tasks that start at the same time are in the order of the log."""
    order = np.argsort(start_ns, kind="stable")
    ordered = start_ns[order]
    return order if np.all(ordered[1:] > ordered[:-1]) else np.lexsort((ids, start_ns))


def pmu(context: RunContext, rows_by_task: SpillIndex, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """PMU records of one device → task_pmu."""
    orphans: dict[str, int] = {}
    for batch in batches:
        schema = record(batch.kind)
        account = context.accounts[batch.kind]
        account.records += len(batch.records)
        found, values = rows_by_task.look_up(batch.records["task_id"].astype(np.uint64))
        rows = np.flatnonzero(found)
        orphans[batch.kind] = orphans.get(batch.kind, 0) + len(batch.records) - len(rows)
        account.rows += len(rows)
        records = gather(batch.records, rows)
        counters = [field.name for field in schema.fields if field.name not in _NO_PMU_FIELDS]
        columns: dict[str, ColumnData] = {name: context.number(schema, records, name) for name in counters}
        columns["id"] = values["id"][rows]
        columns["metric_group"] = constant(METRIC_GROUPS[batch.kind], len(rows))
        yield row_batch("task_pmu", columns)
    for kind, count in orphans.items():
        context.lose(kind, Code.ORPHAN_PMU, count, "counters of a task that is not in the log")


def event_waits(
    context: RunContext, rows_by_task: SpillIndex, batches: Iterable[EventBatch]
) -> Iterator[pa.RecordBatch]:
    """event_wait records of one device → event_wait."""
    orphans = 0
    for batch in batches:
        account = context.accounts["event_wait"]
        account.records += len(batch.records)
        found, waits = rows_by_task.look_up(batch.records["task_id"].astype(np.uint64))
        known, events = rows_by_task.look_up(batch.records["event_task_id"].astype(np.uint64))
        rows = np.flatnonzero(found)
        orphans += len(found) - len(rows)
        account.rows += len(rows)
        yield row_batch("event_wait", {"id": waits["id"][rows], "event_id": Nullable(events["id"][rows], ~known[rows])})
    context.lose("event_wait", Code.ORPHAN_WAIT, orphans, "event of a wait that is not in the log")


def stream_ranges(context: RunContext, device_id: int, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """stream_range records of one device → range, on the tracks of its streams."""
    nester = Nester("stream_id", "span_id", dtype_of(record("stream_range")), of_end="name")
    for slices in nested_slices(context, nester, batches):
        records = slices.begins
        columns: dict[str, ColumnData] = {
            "kind": constant("annotation", len(slices.ids)),
            "category": constant("stream", len(slices.ids)),
            "name": context.texts.column(records["name"]),
            "span_id": number_text(records["span_id"], None),
            "exception": context.texts.column(slices.end_values),
            "args": json_objects(context.texts.column(records["args"])),
        }
        track_id = map_distinct(records["stream_id"], lambda stream: context.tracks.stream(device_id, stream))
        yield row_batch("range", {**slice_columns(slices, track_id), **columns})


def counters(context: RunContext, device_id: int, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """counter records of one device → counter."""
    tracks: dict[tuple[int, int], int] = {}
    account = context.accounts["counter"]
    for every in batches:
        account.records += len(every.records)
        batch, ns = timed(context, every)
        names, place = np.unique(batch.records[["name", "value_unit"]], return_inverse=True)
        for name, unit in names.tolist():
            if (name, unit) not in tracks:
                tracks[name, unit] = context.tracks.counter(device_id, context.texts.get(name), context.texts.get(unit))
        track_ids = np.array([tracks[pair] for pair in names.tolist()], np.int64)
        account.rows += len(batch.records)
        yield counter_rows(track_ids[place], ns, np.ascontiguousarray(batch.records["value"]))


def counter_rows(track_id: Int64, ts_ns: Int64, value: Int64) -> pa.RecordBatch:
    """Return a batch of table counter from integers; `value_int` is exact."""
    return row_batch(
        "counter",
        {"track_id": track_id, "ts_ns": ts_ns, "value": value.astype(np.float64), "value_int": value},
    )


#: Columns of step, by the number of their mark.
_MARKS = ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns", "get_next_start_ns", "get_next_end_ns")
_END_MARK = _MARKS.index("end_ns")


def steps(context: RunContext, device_id: int, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """step_mark records of one device → step. A row is yielded a batch after its end mark, or when the log stops."""
    account = context.accounts["step_mark"]
    marks = np.zeros(0, dtype_of(record("step_mark")))
    ended = emitted = np.zeros(0, np.uint32)
    for batch in batches:
        account.records += len(batch.records)
        known = keep_valid(context, batch, batch.records["mark"] < len(_MARKS), Code.UNKNOWN_VALUE, "unknown mark")
        _, valid = context.times(device_id, known.records)
        timed = keep_valid(context, known, valid, Code.BAD_TIME, "time out of range")
        on_time = ~np.isin(timed.records["step_id"], emitted)
        timed = keep_valid(context, timed, on_time, Code.REPEATED_MARK, "mark long after the end of its step")
        marks = join([marks, timed.records])
        # Wait one more batch after the end mark, for marks that are slightly late.
        complete = np.isin(marks["step_id"], ended)
        yield _step_rows(context, device_id, marks[complete])
        emitted, marks = np.union1d(emitted, ended), marks[~complete]
        ended = np.unique(marks["step_id"][marks["mark"] == _END_MARK])
    yield _step_rows(context, device_id, marks)


def _step_rows(context: RunContext, device_id: int, marks: RecordArray) -> pa.RecordBatch:
    _, firsts = np.unique(marks[["step_id", "mark"]], return_index=True)
    repeated = len(marks) - len(firsts)
    context.lose("step_mark", Code.REPEATED_MARK, repeated, "repeated mark of a step")
    context.accounts["step_mark"].used += len(firsts)
    marks = marks[np.sort(firsts)]
    ns, _ = context.times(device_id, marks)
    context.note_times(ns)
    step_ids, first, place = np.unique(marks["step_id"], return_index=True, return_inverse=True)
    columns: dict[str, ColumnData] = {
        "step_id": step_ids.astype(np.int64),
        "device_id": np.full(len(step_ids), device_id, np.int64),
        "model_id": marks["model_id"][first].astype(np.int64),
        "iteration": marks["iteration"][first].astype(np.int64),
        "step_source": constant("record", len(step_ids)),
    }
    for mark, name in enumerate(_MARKS):
        here = marks["mark"] == mark
        times, missing = np.zeros(len(step_ids), np.int64), np.ones(len(step_ids), np.bool_)
        times[place[here]] = ns[here]
        missing[place[here]] = False
        columns[name] = Nullable(times, missing)
    return row_batch("step", columns)
