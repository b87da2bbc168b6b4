"""What an export of ours in protobuf changes, undone: times shifted so that none is below 0, arrows turned around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.int64 import LARGEST
from traceconv.events.trace import EventFlows, TraceBatch

#: Its metadata: the nanoseconds that were added to all times.
SHIFT = "traceconv-shift_ns"
#: A bit of the numbers of arrows that lead back in time: they are drawn from their end to their start.
REVERSED = 1 << 62
_START, _END, _FREEING_STEP = 0, 2, 3


def shift_of(metadata: Mapping[str, object]) -> int | None:
    """The shift of an export of ours; None: the file is another's."""
    shift = metadata.get(SHIFT)
    return shift if type(shift) is int and 0 <= shift <= LARGEST else None


def undone(batch: TraceBatch, shift_ns: int) -> TraceBatch:
    """A batch with the times and arrows that the run had."""
    columns = batch.columns
    flows = None if columns.flows is None else _turned(columns.flows)
    raw = columns.raw
    if shift_ns:
        ts = raw["ts"]
        # A shifted time has up to 64 bits, the highest of which reads as a sign: this subtraction wraps around, and
        # gives what it was. A time that was below 0 in the file is not from an export of ours.
        back = pc.subtract(ts, pa.scalar(shift_ns, pa.int64()))
        ours = pc.or_(pc.greater_equal(ts, 0), pc.greater_equal(back, 0))
        raw = {**raw, "ts": pc.if_else(ours, back, ts)}
    return replace(batch, columns=replace(columns, raw=raw, flows=flows))


def _turned(flows: EventFlows) -> EventFlows:
    back = (flows.keys & REVERSED) != 0
    if not back.any():
        return flows
    keys = np.where(back, flows.keys - REVERSED, flows.keys)
    steps = np.where(back, np.where(flows.steps == _FREEING_STEP, _END, _START), flows.steps).astype(np.int32)
    return replace(flows, keys=keys, steps=steps, texts=[str(key) for key in keys.tolist()])
