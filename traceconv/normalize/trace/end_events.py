"""What end events add to the slices that began before them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.int64 import Int64, Mask, differences
from traceconv.normalize.trace.args import merged
from traceconv.normalize.trace.complete_nesting import UNFINISHED
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.schema.dtypes import RecordArray


def with_ends(first: FirstPass, batch: pa.RecordBatch, nested: RecordArray) -> pa.RecordBatch:
    """Return the slices with what their end events add."""
    links = np.ascontiguousarray(nested["link"])
    paired = np.flatnonzero(links >= 0)
    found = first.ends.find(links[paired]) if len(paired) else []
    if not any(len(places) for places, _ in found):
        return batch
    args, durs = batch.column("args"), batch.column("thread_dur_ns")
    for places, ends in found:
        rows, of_begin = pa.array(paired[places]), np.zeros(batch.num_rows, np.bool_)
        of_begin[paired[places]] = True
        with_end = merged(args.take(rows), ends.column(2), in_depth=first.merges_in_depth)
        args = pc.replace_with_mask(args, pa.array(of_begin), with_end)
        starts = batch.column("thread_start_ns").take(rows)
        took, beyond = differences(ends.column(1).fill_null(0).to_numpy(), starts.fill_null(0).to_numpy())
        unknown = pc.or_(pc.or_(ends.column(1).is_null(), starts.is_null()), pa.array(beyond))
        took = pc.if_else(unknown, None, pa.array(took))
        durs = pc.replace_with_mask(durs, pa.array(of_begin), pc.coalesce(took, durs.take(rows)))
    names = batch.schema.names
    arrays = list(batch.columns)
    arrays[names.index("args")] = args
    arrays[names.index("thread_dur_ns")] = durs
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def durations(batch: pa.RecordBatch, nested: RecordArray) -> tuple[Int64, Mask]:
    """Return the durations of slices, and which are unknown."""
    dur = batch.column("dur_ns")
    paired = nested["link"] >= 0
    unknown = nested["kind"] == UNFINISHED
    if dur.null_count:
        unknown |= dur.is_null().to_numpy(zero_copy_only=False) & ~paired
        dur = dur.fill_null(0)
    return np.where(paired, nested["dur_ns"], dur.to_numpy()), unknown
