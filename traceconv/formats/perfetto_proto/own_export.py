"""Our own protobuf exports: packets that other readers skip, timestamps shifted above 0, and reversed flows.

A packet with the field OWN has either a header, which identifies the file, or rows of a table:

    message Own {
      optional string header = 1;  // JSON, as otherData of our Chrome traces, with a list of the tracks of slices
      optional string table = 2;
      optional string rows = 3;    // JSON: names of columns, and rows as arrays of their values
      optional uint32 count = 4;   // rows in the columns
      repeated Column column = 5;  // others are NULL
    }
    message Column {
      optional string name = 1;
      optional bytes known = 2;         // a bit per row, from the lowest: whether it has a value; absent: all do
      repeated string texts = 3;        // distinct texts; the numbers are places in them
      repeated sint64 differences = 4;  // packed: each number minus the one before, mod 2^64; 0 at the end is omitted
      repeated double doubles = 5;      // packed, unless all are integers, which are in differences
    }

See docs/how-to/export-a-timeline.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.integers import LARGEST
from traceconv.events.trace import EventFlows, TraceBatch
from traceconv.formats.perfetto_proto.message import Message
from traceconv.wire.protobuf import WireError, decode_differences

#: Metadata key: nanoseconds added to all timestamps.
SHIFT = "traceconv-shift_ns"
#: Fields of our packets.
HEADER, TABLE, ROWS, COUNT, COLUMN = 1, 2, 3, 4, 5
#: Fields of a column.
NAME, KNOWN, TEXTS, DIFFERENCES, DOUBLES = 1, 2, 3, 4, 5
#: Bytes of the texts of a column and values of a packet, at most, unless its texts occur once.
MOST_TEXT_BYTES, MOST_VALUES = 64 << 20, 1 << 22
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
    return batch._replace(columns=replace(columns, raw=raw, flows=flows, pairs_neighbors=True))


def _turned(flows: EventFlows) -> EventFlows:
    back = (flows.keys & REVERSED) != 0
    if not back.any():
        return flows
    keys = np.where(back, flows.keys - REVERSED, flows.keys)
    steps = np.where(back, np.where(flows.steps == _FREEING_STEP, _END, _START), flows.steps).astype(np.int32)
    return flows._replace(keys=keys, steps=steps, texts=[str(key) for key in keys.tolist()])


def columns_text(packet: Message) -> str:
    """Return the columns in a packet as JSON: their names, and the `values` of each. Raises WireError."""
    count, spans = packet.number(COUNT) or 0, packet.spans(COLUMN)
    if count * len(spans) > MOST_VALUES:
        raise WireError("too many rows in a packet")
    columns = [Message(packet.data, start, end) for start, end in spans]
    found = {
        "columns": [(column.text(NAME) or b"").decode() for column in columns],
        "values": [_values(column, count) for column in columns],
    }
    return msgspec.json.encode(found).decode()


def _values(column: Message, count: int) -> list[Any]:
    bits = column.text(KNOWN)
    if bits is None:
        return _known_values(column, count)
    if 8 * len(bits) < count:
        raise WireError("not a bit per row")
    is_known = np.unpackbits(np.frombuffer(bits, np.uint8), count=count, bitorder="little").tolist()
    known = iter(_known_values(column, sum(is_known)))
    return [next(known) if bit else None for bit in is_known]


def _known_values(column: Message, count: int) -> list[Any]:
    doubles, texts = column.text(DOUBLES), column.texts(TEXTS)
    if doubles is not None:
        if len(doubles) != 8 * count:
            raise WireError("not a double per row")
        return [one if isfinite(one) else str(one) for one in np.frombuffer(doubles, "<f8").tolist()]
    numbers = decode_differences(column.text(DIFFERENCES) or b"", count)
    places: list[int] = numbers.tolist()
    if not texts or not count:
        return places
    if numbers.min() < 0 or numbers.max() >= len(texts):
        raise WireError("a text that is not in the column")
    if int(np.array(list(map(len, texts)))[numbers].sum()) > max(MOST_TEXT_BYTES, sum(map(len, texts))):
        raise WireError("texts that expand too much")
    words = [text.decode() for text in texts]
    return [words[place] for place in places]
