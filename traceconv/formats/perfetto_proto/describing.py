"""Which packets may describe tracks, threads, clocks or the trace, or hold others: told by their bytes, not fields."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.wire.protobuf import LEN, Int64, varints

#: Tags of two bytes, as little-endian numbers.
_TWO = np.zeros(1 << 16, np.bool_)
for _number in (
    pb.TRACK_DESCRIPTOR,
    pb.PROCESS_DESCRIPTOR,
    pb.THREAD_DESCRIPTOR,
    pb.PACKED,
    pb.PACKED_ZSTD,
):
    _tag = _number << 3 | LEN
    _TWO[_tag & 0x7F | 0x80 | _tag >> 7 << 8] = True
#: Tags of one byte, and the tags that such a message begins with; any byte may be such a tag.
_ONE = {
    pb.CLOCK_SNAPSHOT << 3 | LEN: (1 << 3 | LEN, 2 << 3),
    pb.CHROME_EVENTS << 3 | LEN: (2 << 3 | LEN,),
    pb.PROCESS_TREE << 3 | LEN: (1 << 3 | LEN, 2 << 3 | LEN, 3 << 3),
}


def describing(data: NDArray[np.uint8], starts: Int64, ends: Int64) -> Int64:
    """The packets among those from `starts` to `ends` that may; none that does is missing."""
    if not len(starts):
        return np.zeros(0, np.int64)
    pairs = data[:-1].astype(np.uint16) | data[1:].astype(np.uint16) << 8
    found = [np.flatnonzero(_TWO[pairs])]
    for tag, first in _ONE.items():
        at = np.flatnonzero(data[: int(ends[-1])] == tag)
        size, inner = varints(data, at + 1)
        begins = np.isin(data[np.maximum(inner, 0)], first) | (size == 0)
        found.append(at[begins & (inner > 0)])
    row = np.unique(np.searchsorted(starts, np.concatenate(found), side="right") - 1)
    return row[row >= 0]
