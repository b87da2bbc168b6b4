"""Passes over the host's logs: metadata, API calls, ranges and memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.events.npu import EventBatch
from traceconv.normalize.names import EnumColumn, number_text
from traceconv.normalize.npulog.context import COUNTER_DTYPE, Int64, Mask, RunContext
from traceconv.normalize.npulog.nesting import NO_PARENT, Nester, Slices
from traceconv.normalize.npulog.pairing import Pairer
from traceconv.normalize.rows import ColumnData, Nullable, row_batch
from traceconv.normalize.tracks import map_distinct
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of, gather

#: Halves of a record. END_APART and BEGIN_CUT are of ranges only.
BEGIN, END, END_APART, BEGIN_CUT = range(4)
TOO_LONG_MESSAGE = "from begin to end are more than 2^63 - 1 ns"
CUT_MESSAGE = "a name or attributes too long for the log were cut when they were recorded"


def keep_valid(context: RunContext, batch: EventBatch, valid: Mask | None, code: Code, message: str) -> EventBatch:
    """The events of `batch` that are valid; the others are booked as lost."""
    if valid is None or valid.all():
        return batch
    context.lose(batch.kind, code, int(np.count_nonzero(~valid)), message)
    keep = np.flatnonzero(valid)
    return EventBatch(batch.kind, batch.device_id, batch.ids[keep], gather(batch.records, keep))


def halves(context: RunContext, batch: EventBatch) -> EventBatch:
    """Counts the events of `batch`, and drops those that are neither a begin nor an end."""
    context.accounts[batch.kind].records += len(batch.records)
    known = len(record(batch.kind).field("event").values or {})
    return keep_valid(context, batch, batch.records["event"] < known, Code.UNKNOWN_VALUE, "neither begin nor end")


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
        columns.update({name: context.number(schema, records, name) for name in numbers})
        # Fusions are logged when a model runs its first iteration: before, nothing is known of them.
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
        account.records += len(records)
        account.rows += len(records)
        yield row_batch("op", columns)
    report_unknown(context, "op", enums)
    all_indices, all_hashes = np.concatenate(indices), np.concatenate(name_hashes)
    order = np.argsort(all_indices, kind="stable")
    context.op_indices, context.op_name_hashes = all_indices[order], all_hashes[order]


def fusions(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """fusion records → fusion."""
    schema = record("fusion")
    account = context.accounts["fusion"]
    for batch in batches:
        records = batch.records
        account.records += len(records)
        account.rows += len(records)
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
    """api records → api; each call is put aside under its correlation id, for the tasks that it launched."""
    schema = record("api")
    levels = EnumColumn(schema.field("level"))

    def columns(slices: Slices) -> dict[str, ColumnData]:
        records = slices.begins
        return {
            "level": levels.column(records["level"]),
            "name": context.texts.column(records["name"]),
            "correlation_id": context.number(schema, records, "correlation_id"),
            "op_id": context.number(schema, records, "op_index"),
            "step_id": context.number(schema, records, "step_id"),
        }

    def put_aside(begins: RecordArray, ids: Int64, ns: Int64) -> None:
        context.launches.add(begins["correlation_id"], ids, ns)

    nester = Nester("thread_id", "correlation_id", dtype_of(schema))
    for slices in _nested(context, nester, batches, put_aside):
        yield row_batch("api", {**_slice_columns(context, slices), **columns(slices)})
    report_unknown(context, "api", {"level": levels})


def ranges(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """range records → range."""
    schema = record("range")
    kinds = EnumColumn(schema.field("kind"))

    def columns(slices: Slices) -> dict[str, ColumnData]:
        records = slices.begins
        return {
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

    nester = Nester("thread_id", "span_id", dtype_of(schema), of_end="name")
    for slices in _nested(context, nester, batches):
        yield row_batch("range", {**_slice_columns(context, slices), **columns(slices)})
    report_unknown(context, "range", {"kind": kinds})


def _nested(
    context: RunContext,
    nester: Nester,
    batches: Iterable[EventBatch],
    see_begins: Callable[[RecordArray, Int64, Int64], None] | None = None,
) -> Iterator[Slices]:
    """Runs begin and end events through `nester` and keeps the books. `see_begins` gets records, ids and times."""
    kind, cut = "", 0
    for whole in batches:
        kind = whole.kind
        batch = halves(context, whole)
        ns, valid = context.host_times(batch.records["host_ns"])
        if valid is not None:
            batch, ns = keep_valid(context, batch, valid, Code.BAD_TIME, "time out of range"), ns[valid]
        context.note_times(ns)
        event = batch.records["event"]
        is_end, apart = (event == END) | (event == END_APART), event == END_APART
        cut += int(np.count_nonzero(event == BEGIN_CUT))
        if see_begins is not None:
            begins = np.flatnonzero(~is_end)
            see_begins(gather(batch.records, begins), batch.ids[begins], ns[begins])
        slices = nester.feed(batch.records, batch.ids, is_end, ns, apart if apart.any() else None)
        context.accounts[kind].rows += len(slices.ids)
        context.accounts[kind].paired += slices.merged
        yield slices
    rest = nester.finish()
    account = context.accounts[kind]
    account.rows += len(rest.ids)
    account.used += nester.unmatched_ends
    context.note(kind, Code.UNMATCHED_END, nester.unmatched_ends, "ends without a begin")
    context.note(kind, Code.NEGATIVE_DURATION, nester.negative, "ends before the begin")
    context.note(kind, Code.BAD_DURATION, nester.too_long, TOO_LONG_MESSAGE)
    context.note(kind, Code.CUT_TEXT, cut, CUT_MESSAGE)
    context.note(kind, Code.UNFINISHED, len(rest.ids), "begins without an end when the log stops")
    yield rest


def _slice_columns(context: RunContext, slices: Slices) -> dict[str, ColumnData]:
    """The columns that api and range share."""
    return {
        "id": slices.ids,
        "track_id": map_distinct(slices.begins["thread_id"], context.tracks.thread),
        "parent_id": Nullable(slices.parent_id, slices.parent_id == NO_PARENT),
        "depth": slices.depth,
        "start_ns": slices.start_ns,
        "dur_ns": Nullable(slices.dur_ns, slices.unfinished),
        "self_ns": Nullable(slices.self_ns, slices.unfinished),
    }


def memory(context: RunContext, batches: Iterable[EventBatch]) -> Iterator[pa.RecordBatch]:
    """memory records → memory; used and reserved bytes are put aside as counters."""
    schema = record("memory")
    enums = {"kind": EnumColumn(schema.field("kind")), "purpose": EnumColumn(schema.field("alloc_by"))}
    pairer = Pairer("block_id", dtype_of(schema))
    account = context.accounts["memory"]

    def rows(allocs: RecordArray, frees: RecordArray | None) -> pa.RecordBatch:
        alloc_ns, _ = context.host_times(allocs["host_ns"])
        free = Nullable(np.zeros(len(allocs), np.int64), np.ones(len(allocs), np.bool_))
        if frees is not None:
            free_ns, _ = context.host_times(frees["host_ns"])
            negative = free_ns < alloc_ns
            context.note("memory", Code.NEGATIVE_DURATION, int(np.count_nonzero(negative)), "freed before its alloc")
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
    for whole in batches:
        batch = halves(context, whole)
        ns, valid = context.host_times(batch.records["host_ns"])
        if valid is not None:
            batch, ns = keep_valid(context, batch, valid, Code.BAD_TIME, "time out of range"), ns[valid]
        context.note_times(ns)
        _put_memory_counters(context, batch.records, ns)
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
    context.note("memory", Code.UNMATCHED_END, unmatched, "frees of blocks whose alloc is not in the log")
    yield rows(rest, None)
    report_unknown(context, "memory", enums)


def _put_memory_counters(context: RunContext, records: RecordArray, ns: Int64) -> None:
    schema = record("memory")
    for field, name in (("used_bytes", "Memory used"), ("reserved_bytes", "Memory reserved")):
        track_of = partial(context.tracks.counter, name=name, unit="byte")
        value = context.number(schema, records, field)
        rows = np.empty(len(records), COUNTER_DTYPE)
        rows["track_id"] = map_distinct(records["device_id"], track_of)
        rows["ts_ns"] = ns
        rows["value"] = value.values
        context.counters.append(rows if value.null is None else rows[~value.null])


def json_objects(texts: pa.DictionaryArray) -> pa.Array:
    """Args as plain text; what is not the text of a JSON object is kept as the value of a key `text`."""
    distinct = [json_object(text) for text in texts.dictionary.to_pylist()]
    if not distinct:
        return pa.nulls(len(texts), pa.string())
    return pa.DictionaryArray.from_arrays(texts.indices, pa.array(distinct, pa.string())).dictionary_decode()


def json_object(text: str | None) -> str | None:
    """The text of a JSON object: `text` itself where it is one, else an object with it under the key `text`."""
    return text if text is None or _is_object(text) else json.dumps({"text": text})


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def report_unknown(context: RunContext, kind: str, enums: dict[str, EnumColumn]) -> None:
    """Says how many values of each enum had no name."""
    for name, enum in enums.items():
        context.note(kind, Code.UNKNOWN_VALUE, enum.unknown, f"{name} has a value without a name: NULL")
