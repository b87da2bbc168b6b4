"""Files of torch_npu: records of a tag (16 bits), a size (32 bits), fixed fields, and fields with a tag and a size.

Records are found one after the other; everything else is done for all of a piece of the file at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64

_HEAD = struct.Struct("<HI")
#: A record is damaged if it is larger: call stacks have a few KB.
_MOST_BYTES = 1 << 26
#: Fields of a record; more are not read.
_MOST_FIELDS = 64


class DamagedRecords(Exception):
    """From here on, no record can be found. `args[0]`: the number of bytes that are left."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of a piece: its bytes, and where each begins and ends, after tag and size."""

    data: NDArray[np.uint8]
    starts: Int64
    ends: Int64

    def fixed(self, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        """Return the fixed fields with which each record begins; records must be as large."""
        return self._gathered(self.starts, dtype.itemsize).view(dtype).reshape(len(self.starts))

    def fields(self, first: int) -> tuple[dict[int, pa.Array], bool]:
        """Return the texts of the fields after as many fixed bytes, by tag, and whether all of them are complete.

        A text is NULL in records without the field.
        """
        at = self.starts + first
        found: dict[int, tuple[Int64, Int64]] = {}
        for _ in range(_MOST_FIELDS):
            rows = np.flatnonzero(at + _HEAD.size <= self.ends)
            if not len(rows):
                break
            heads = self._gathered(at[rows], _HEAD.size)
            tags = heads[:, :2].copy().view("<u2").ravel()
            sizes = heads[:, 2:].copy().view("<u4").ravel().astype(np.int64)
            begins = at[rows] + _HEAD.size
            complete = begins + sizes <= self.ends[rows]
            for tag in np.unique(tags[complete]).tolist():
                offsets, lengths = found.setdefault(tag, (np.zeros(len(at), np.int64), np.full(len(at), -1)))
                chosen = complete & (tags == tag)
                offsets[rows[chosen]], lengths[rows[chosen]] = begins[chosen], sizes[chosen]
            at[rows] = np.where(complete, begins + sizes, self.ends[rows] + 1)
        return {tag: self._texts(*places) for tag, places in found.items()}, bool((at == self.ends).all())

    def _texts(self, offsets: Int64, lengths: Int64) -> pa.Array:
        missing, sizes = lengths < 0, np.maximum(lengths, 0)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(offsets - ends[:-1], sizes) + np.arange(int(ends[-1]))
        data, bounds = self.data[places], ends.astype(np.int64)
        texts = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(offsets), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        )
        return texts if not missing.any() else pa.array(texts.to_pylist(), pa.large_binary(), mask=missing)

    def _gathered(self, places: Int64, size: int) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = self.data[places[:, None] + np.arange(size)]
        return found


def tagged_records(pieces: Iterable[bytes]) -> Iterator[Records]:
    """Yield the records of a file. Raises DamagedRecords, after all that are intact."""
    rest = b""
    for piece in pieces:
        data = rest + piece
        starts, ends, at = [], [], 0
        unpack, head, most = _HEAD.unpack_from, _HEAD.size, len(data)
        damaged = False
        while at + head <= most:
            size = unpack(data, at)[1]
            if size > _MOST_BYTES:
                damaged = True
                break
            if at + head + size > most:
                break
            starts.append(at + head)
            at += head + size
            ends.append(at)
        if starts:
            yield Records(np.frombuffer(data, np.uint8), np.array(starts), np.array(ends))
        if damaged:
            raise DamagedRecords(most - at)
        rest = data[at:]
    if rest:
        raise DamagedRecords(len(rest))
