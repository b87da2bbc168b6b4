"""Begin and end records of a raw log → timed events and nested slices, with the accounting of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64, Mask
from traceconv.events.npu import EventBatch
from traceconv.normalize.names import EnumColumn
from traceconv.normalize.npulog.context import RunContext
from traceconv.normalize.npulog.nesting import BEGIN, NO_PARENT, Nester, Slices
from traceconv.normalize.rows import ColumnData, Nullable
from traceconv.schema import record
from traceconv.schema.dtypes import gather

#: Value of the field `event`, next to those that nesting knows; ranges only.
BEGIN_CUT = 3
TOO_LONG_MESSAGE = "duration from begin to end exceeds 64 bits"


def keep_valid(context: RunContext, batch: EventBatch, valid: Mask | None, code: Code, message: str) -> EventBatch:
    """Return the valid events of `batch`; count the others as lost."""
    if valid is None or valid.all():
        return batch
    context.lose(batch.kind, code, int(np.count_nonzero(~valid)), message)
    keep = np.flatnonzero(valid)
    return EventBatch(batch.kind, batch.device_id, batch.ids[keep], gather(batch.records, keep))


def halves(context: RunContext, batch: EventBatch) -> EventBatch:
    """Count the events of `batch`, and drop those that are neither a begin nor an end."""
    context.accounts[batch.kind].records += len(batch.records)
    known = len(record(batch.kind).field("event").values or {})
    return keep_valid(context, batch, batch.records["event"] < known, Code.UNKNOWN_VALUE, "neither begin nor end")


def timed(context: RunContext, batch: EventBatch) -> tuple[EventBatch, Int64]:
    """Return the events of `batch` with a valid time, and their times; count the others as lost."""
    ns, valid = context.times(batch.device_id, batch.records)
    if valid is not None:
        batch, ns = keep_valid(context, batch, valid, Code.BAD_TIME, "time out of range"), ns[valid]
    context.note_times(ns)
    return batch, ns


def nested_slices(
    context: RunContext,
    nester: Nester,
    batches: Iterable[EventBatch],
) -> Iterator[Slices]:
    """Nest begin and end events, and account for them."""
    kind, cut = "", 0
    for every in batches:
        kind = every.kind
        batch, ns = timed(context, halves(context, every))
        event = batch.records["event"]
        cut_begins = event == BEGIN_CUT
        cut += int(np.count_nonzero(cut_begins))
        half = np.where(cut_begins, np.uint8(BEGIN), event)
        slices = nester.feed(batch.records, batch.ids, half, ns)
        context.accounts[kind].rows += len(slices.ids)
        context.accounts[kind].paired += slices.paired
        yield slices
    rest = nester.finish()
    account = context.accounts[kind]
    account.rows += len(rest.ids)
    account.used += nester.unmatched_ends
    context.note(kind, Code.UNMATCHED_END, nester.unmatched_ends, "end without a begin")
    context.note(kind, Code.NEGATIVE_DURATION, nester.negative, "end before its begin")
    context.note(kind, Code.BAD_DURATION, nester.too_long, TOO_LONG_MESSAGE)
    context.note(kind, Code.CUT_TEXT, cut, "name or attributes were truncated when recorded: too long for the log")
    context.note(kind, Code.UNFINISHED, len(rest.ids), "begin without an end before the log stops")
    yield rest


def slice_columns(slices: Slices, track_id: Int64) -> dict[str, ColumnData]:
    """Return the columns that all slices share."""
    return {
        "id": slices.ids,
        "track_id": track_id,
        "parent_id": Nullable(slices.parent_id, slices.parent_id == NO_PARENT),
        "depth": slices.depth,
        "start_ns": slices.start_ns,
        "dur_ns": Nullable(slices.dur_ns, slices.unfinished),
        "self_ns": Nullable(slices.self_ns, slices.unfinished),
    }


def report_unknown(context: RunContext, kind: str, enums: dict[str, EnumColumn]) -> None:
    """Log how many values of each enum have no name."""
    for name, enum in enums.items():
        context.note(kind, Code.UNKNOWN_VALUE, enum.unknown, f"{name} has an unknown value: NULL")


def json_objects(texts: pa.DictionaryArray) -> pa.Array:
    """Return args as plain text; text that is not a JSON object is kept under the key `text`."""
    used = texts.dictionary_decode().dictionary_encode()  # without the texts of all other columns
    distinct = [as_json_object(text) for text in used.dictionary.to_pylist()]
    if not distinct:
        return pa.nulls(len(texts), pa.string())
    return pa.DictionaryArray.from_arrays(used.indices, pa.array(distinct, pa.string())).dictionary_decode()


def as_json_object(text: str | None) -> str | None:
    """Return the text of a JSON object: `text` itself if it is one, else an object with it under the key `text`."""
    return text if text is None or json_object_of(text) is not None else json.dumps({"text": text})


def json_object_of(text: str | None) -> dict[str, object] | None:
    """Return the JSON object that a text is, if it is one."""
    try:
        value = json.loads(text or "", parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
