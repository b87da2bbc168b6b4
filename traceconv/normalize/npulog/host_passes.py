"""Passes over the host's logs: ops, fusions, API calls, ranges and memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64
from traceconv.events.npu import EventBatch
from traceconv.normalize.names import EnumColumn, number_text
from traceconv.normalize.npulog.context import COUNTER_DTYPE, RunContext
from traceconv.normalize.npulog.nesting import END, Nester
from traceconv.normalize.npulog.pairing import Pairer
from traceconv.normalize.npulog.slices import (
    halves,
    json_objects,
    nested_slices,
    report_unknown,
    slice_columns,
    timed,
)
from traceconv.normalize.npulog.wall_clock import WallClock
from traceconv.normalize.rows import ColumnData, Nullable, row_batch
from traceconv.normalize.tracks import map_distinct
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of, gather

#: Asyncio tasks with spans have numbers from here on, whichever thread they are on.
_FIRST_TASK_THREAD = 3 << 30
#: The type of an op with several executions in a task, and their number; times that of its tasks, it has 64 bits.
_SEVERAL = re.compile(r"(.+) x([1-9][0-9]{0,8})")


def ops(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """op records → op."""
    schema = record("op")
    texts: tuple[str, ...] = ("name", "op_type", "scope_path")
    texts += tuple(f"{way}_{what}" for way in ("input", "output") for what in ("shapes", "dtypes", "formats"))
    numbers = ("model_id", "flops", "input_bytes", "output_bytes", "weight_bytes", "workspace_bytes")
    enums = {name: EnumColumn(schema.field(name)) for name in ("state", "phase")}
    account = context.accounts["op"]
    indices, name_hashes = [context.op_indices], [context.op_name_hashes]
    for batch in batches:
        records = batch.records
        indices.append(records["op_index"].copy())
        name_hashes.append(records["name"].copy())
        columns: dict[str, ColumnData] = {"op_id": context.number(schema, records, "op_index")}
        columns.update({name: context.texts.column(records[name]) for name in texts})
        columns["op_type"], columns["executions_per_task"] = _executions(context.texts.column(records["op_type"]))
        columns.update({name: context.number(schema, records, name) for name in numbers})
        # Fusions are logged in a model's first iteration; before that they are unknown.
        known = np.isin(records["fusion_id"], list(context.fusion_ids))
        columns["fusion_id"] = Nullable(records["fusion_id"].astype(np.int64), ~known)
        columns.update({name: enum.column(records[name]) for name, enum in enums.items()})
        typed = records["op_type"] != 0
        columns["op_type_source"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(records), np.int32), mask=~typed), pa.array(["recorded"])
        )
        columns["model_name"] = pa.array(
            [context.model_names.get(model) for model in records["model_id"].tolist()], pa.string()
        ).dictionary_encode()
        account.add(rows=len(records))
        yield row_batch("op", columns)
    report_unknown(context, "op", enums)
    all_indices, all_hashes = np.concatenate(indices), np.concatenate(name_hashes)
    order = np.argsort(all_indices, kind="stable")
    context.op_indices, context.op_name_hashes = all_indices[order], all_hashes[order]


def _executions(types: pa.DictionaryArray) -> tuple[pa.DictionaryArray, Nullable]:
    """Split types such as `MatMulV2 x900` into the type and the number of executions in a task; NULL: one."""
    words = types.dictionary.to_pylist()
    found = [_SEVERAL.fullmatch(word) for word in words]
    names = [word if match is None else match[1] for word, match in zip(words, found, strict=True)]
    distinct = {name: code for code, name in enumerate(dict.fromkeys(names))}
    new_codes = np.array([*(distinct[name] for name in names), 0], np.int32)
    counts = np.array([*(0 if match is None else int(match[2]) for match in found), 0], np.int64)
    null = np.array(types.is_null())
    codes = types.indices.fill_null(len(words)).to_numpy()
    plain = pa.DictionaryArray.from_arrays(
        pa.array(new_codes[codes], pa.int32(), mask=null), pa.array(list(distinct), pa.string())
    )
    return plain, Nullable(counts[codes], counts[codes] == 0)


def fusions(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """fusion records → fusion."""
    schema = record("fusion")
    account = context.accounts["fusion"]
    for batch in batches:
        records = batch.records
        account.add(rows=len(records))
        context.fusion_ids.update(np.unique(records["fusion_id"]).tolist())
        yield row_batch(
            "fusion",
            {
                "fusion_id": context.number(schema, records, "fusion_id"),
                "op_id": context.number(schema, records, "op_index"),
                "original_index": context.number(schema, records, "original_index"),
                "original_name": context.texts.column(records["original_name"]),
                "original_type": context.texts.column(records["original_type"]),
            },
        )


def apis(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """api records → api. Each call is indexed by its correlation ID, for the tasks that it launched."""
    schema = record("api")
    levels = EnumColumn(schema.field("level"))
    nester = Nester("thread_id", "correlation_id", dtype_of(schema))
    for slices in nested_slices(context, nester, batches):
        records = slices.begins
        call_ns = np.where(slices.unfinished, -1, slices.dur_ns)
        context.launches.add(records["correlation_id"], slices.ids, slices.start_ns, call_ns)
        columns: dict[str, ColumnData] = {
            "level": levels.column(records["level"]),
            "name": context.texts.column(records["name"]),
            "correlation_id": context.number(schema, records, "correlation_id"),
            "op_id": context.number(schema, records, "op_index"),
            "step_id": context.number(schema, records, "step_id"),
        }
        track_id = map_distinct(records["thread_id"], context.tracks.thread)
        yield row_batch("api", {**slice_columns(slices, track_id), **columns})
    report_unknown(context, "api", {"level": levels})


def ranges(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """range records → range."""
    schema = record("range")
    kinds = EnumColumn(schema.field("kind"))
    nester = Nester("thread_id", "span_id", dtype_of(schema), of_end="name")
    annotation = next(code for code, name in (schema.field("kind").values or {}).items() if name == "annotation")
    shortened = lost_ns = 0
    # With any loss so far, stops may be missing.
    wall_clock = WallClock(is_known=False) if context.log.lossy else context.wall_clock
    for slices in nested_slices(context, nester, batches):
        records = slices.begins
        wall_start, wall_dur = wall_clock.times(slices.start_ns, slices.dur_ns, slices.unfinished, context.offset_ns)
        spans = np.flatnonzero(
            (records["kind"] == annotation) & (records["thread_id"] < _FIRST_TASK_THREAD) & ~slices.unfinished
        )
        begun = slices.start_ns[spans] - context.offset_ns
        lost = wall_clock.lost_to_others(records["thread_id"][spans], begun, begun + slices.dur_ns[spans])
        shortened += int(np.count_nonzero(lost))
        lost_ns = max(lost_ns, int(lost.max(initial=0)))
        columns: dict[str, ColumnData] = {
            "wall_start_ns": wall_start,
            "wall_dur_ns": wall_dur,
            "kind": kinds.column(records["kind"]),
            "category": context.texts.column(records["category"]),
            "name": context.texts.column(records["name"]),
            "trace_id": number_text(records["trace_id"], records["trace_id"] == 0),
            "span_id": number_text(records["span_id"], None),
            "parent_span_id": number_text(records["parent_span_id"], records["parent_span_id"] == 0),
            "pe_index": context.number(schema, records, "pe_index"),
            "item_index": context.number(schema, records, "item_index"),
            "correlation_id": context.number(schema, records, "execution_id"),
            "step_id": context.number(schema, records, "step_id"),
            "exception": context.texts.column(slices.end_values),
            "args": json_objects(context.texts.column(records["args"])),
        }
        track_id = map_distinct(records["thread_id"], context.tracks.thread)
        yield row_batch("range", {**slice_columns(slices, track_id), **columns})
    report_unknown(context, "range", {"kind": kinds})
    context.note(
        "range",
        Code.CLOCK_STOPPED,
        shortened,
        "spans during emulation in another thread, which stopped the host clock, are too short, by up to "
        f"{lost_ns // 1_000_000:,} ms: see wall_dur_ns, or record with clock=wall",
    )


def memory(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """memory records → memory; used and reserved bytes are spilled as counters."""
    schema = record("memory")
    enums = {"kind": EnumColumn(schema.field("kind")), "purpose": EnumColumn(schema.field("alloc_by"))}
    pairer = Pairer("block_id", dtype_of(schema))
    account = context.accounts["memory"]

    def rows(allocs: RecordArray, frees: RecordArray | None) -> pa.RecordBatch:
        alloc_ns, _ = context.times(None, allocs)
        free = Nullable(np.zeros(len(allocs), np.int64), np.ones(len(allocs), np.bool_))
        if frees is not None:
            free_ns, _ = context.times(None, frees)
            negative = free_ns < alloc_ns
            context.note("memory", Code.NEGATIVE_DURATION, int(np.count_nonzero(negative)), "free before allocation")
            free = Nullable(free_ns, negative)
        numbers = ("block_id", "device_id", "size_bytes")
        return row_batch(
            "memory",
            {
                **{name: context.number(schema, allocs, name) for name in numbers},
                "pool": context.texts.column(allocs["pool"]),
                "tensor_name": context.texts.column(allocs["tensor_name"]),
                "address": np.ascontiguousarray(allocs["address"]),
                "alloc_ns": alloc_ns,
                "free_ns": free,
                "op_id": context.number(schema, allocs, "op_index"),
                "kind": enums["kind"].column(allocs["kind"]),
                "purpose": enums["purpose"].column(allocs["alloc_by"]),
            },
        )

    unmatched = 0
    for every in batches:
        batch, ns = timed(context, halves(context, every))
        _spill_memory_counters(context, batch.records, ns)
        pairs = pairer.feed(batch.records, batch.ids, batch.records["event"] == END)
        unmatched += pairs.unmatched_ends
        account.rows += len(pairs.starts) + len(pairs.unfinished)
        account.paired += len(pairs.ends)
        yield rows(pairs.starts, pairs.ends)
        if len(pairs.unfinished):
            yield rows(pairs.unfinished, None)
    rest, _ = pairer.finish()
    account.rows += len(rest)
    account.used += unmatched
    context.note("memory", Code.UNMATCHED_END, unmatched, "free of a block whose allocation is not in the log")
    yield rows(rest, None)
    report_unknown(context, "memory", enums)


def _spill_memory_counters(context: RunContext, records: RecordArray, ns: Int64) -> None:
    schema = record("memory")
    for field, name in (("used_bytes", "Memory used"), ("reserved_bytes", "Memory reserved")):
        track_of = partial(context.tracks.counter, name=name, unit="byte")
        value = context.number(schema, records, field)
        rows = np.empty(len(records), COUNTER_DTYPE)
        rows["track_id"] = map_distinct(records["device_id"], track_of)
        rows["ts_ns"] = ns
        rows["value"] = value.values
        context.counters.append(rows if value.null is None else gather(rows, np.flatnonzero(~value.null)))
