"""Our own protobuf exports: packets that other readers skip, timestamps shifted above 0, and reversed flows.

A packet with the field OWN has either a header, which identifies the file, or rows of a table:

    message Own {
      optional string header = 1;  // JSON, as otherData of our Chrome traces, with a list of the tracks of slices
      optional string table = 2;
      optional string rows = 3;    // JSON: names of columns, and rows as arrays of their values
    }

See docs/how-to/export-a-timeline.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.integers import LARGEST
from traceconv.events.trace import EventFlows, TraceBatch

#: Metadata key: nanoseconds added to all timestamps.
SHIFT = "traceconv-shift_ns"
#: Fields of our packets.
HEADER, TABLE, ROWS = 1, 2, 3
#: How the header begins.
HEADER_START = b'{"writer":"traceconv '
#: Bit of the IDs of flows back in time, which are drawn from their end to their start.
REVERSED = 1 << 62
_START, _END, _FREEING_STEP = 0, 2, 3


def shift_of(metadata: Mapping[str, object]) -> int | None:
    """Return the shift of an export of ours; None: another writer's file."""
    shift = metadata.get(SHIFT)
    return shift if type(shift) is int and 0 <= shift <= LARGEST else None


def undone(batch: TraceBatch, shift_ns: int) -> TraceBatch:
    """Return a batch with the timestamps, flows and pairs of the run."""
    columns = batch.columns
    flows = None if columns.flows is None else _turned(columns.flows)
    raw = columns.raw
    if shift_ns:
        ts = raw["ts"]
        # A shifted timestamp has up to 64 bits, the highest of which reads as a sign: this subtraction wraps around to
        # the original. A timestamp below 0 in the file is not from an export of ours.
        back = pc.subtract(ts, pa.scalar(shift_ns, pa.int64()))
        ours = pc.or_(pc.greater_equal(ts, 0), pc.greater_equal(back, 0))
        raw = {**raw, "ts": pc.if_else(ours, back, ts)}
    # Our exports write the end of a slice after its begin, and the slices in the order of their tables.
    return replace(batch, columns=replace(columns, raw=raw, flows=flows, pairs_neighbors=True))


def _turned(flows: EventFlows) -> EventFlows:
    back = (flows.keys & REVERSED) != 0
    if not back.any():
        return flows
    keys = np.where(back, flows.keys - REVERSED, flows.keys)
    steps = np.where(back, np.where(flows.steps == _FREEING_STEP, _END, _START), flows.steps).astype(np.int32)
    return replace(flows, keys=keys, steps=steps, texts=[str(key) for key in keys.tolist()])
