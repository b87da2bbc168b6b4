"""Values of many events as codes: each distinct value is looked at once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.formats.perfetto_proto.sequences import Texts

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt64 = NDArray[np.uint64]

_NARROW = (1 << 31) - 1


class Change(NamedTuple):
    """A number of a text that says something else from a packet on: what it said before (None: nothing), and after."""

    packet: int
    iid: int
    before: str | None
    after: str


class Coder:
    """Numbers values in the order in which they come."""

    def __init__(self, values: Iterable[Hashable] = ()) -> None:
        self.distinct: list[Any] = []
        self._known: dict[Hashable, int] = {}
        for value in values:
            self.code(value)

    def code(self, value: Hashable) -> int:
        """The number of a value."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = len(self.distinct)
            self.distinct.append(value)
        return found

    def codes(self, values: Sequence[Hashable]) -> Int32:
        """The numbers of a list of values."""
        return np.fromiter(map(self.code, values), np.int32, len(values))

    def used(self, codes: Int32, values: Sequence[Hashable]) -> Int32:
        """The numbers of `values[code]`; values that no code names are not numbered."""
        table = np.zeros(max(len(values), 1), np.int32)
        for at in np.flatnonzero(np.bincount(codes, minlength=len(values))).tolist():
            table[at] = self.code(values[at])
        return table[codes]


def distinct(values: NDArray[Any]) -> tuple[Int32, list[Any]]:
    """The place of each number among the distinct ones, and those."""
    found = pa.array(values).dictionary_encode()
    return found.indices.to_numpy(), found.dictionary.to_pylist()


def resolve(
    known: Mapping[int, str], changes: Sequence[Change], iids: UInt64, packets: Int64
) -> tuple[Int32, list[str | None]]:
    """Texts by their numbers, as of the packets in which they are named: codes, and their texts (None: not known).

    known    what the numbers say after all packets
    changes  in the order of their packets
    """
    codes, listed = distinct(iids)
    texts: list[str | None] = [known.get(iid) for iid in listed]
    place = {iid: code for code, iid in enumerate(listed)}
    of_iids = sorted(((place[one.iid], one) for one in changes if one.iid in place), key=lambda pair: pair[0])
    if not of_iids:
        return codes, texts
    # The last change of the same number that is not behind the packet; none: what was before the first one.
    of = np.array([code for code, _ in of_iids], np.int64)
    when = np.array([one.packet for _, one in of_iids], np.int64)
    span = int(max(packets.max(), when.max())) + 1
    here = np.searchsorted(of * span + when, codes.astype(np.int64) * span + packets, side="right") - 1
    last = len(of) - 1
    holds = (here >= 0) & (of[np.maximum(here, 0)] == codes)
    early = ~holds & (here < last) & (of[np.minimum(here + 1, last)] == codes)
    base = len(texts)
    texts += [one.after for _, one in of_iids]
    texts += [one.before for _, one in of_iids]
    found = np.where(holds, base + here, np.where(early, base + len(of) + here + 1, codes))
    return found.astype(np.int32), texts


def pieces(data: bytes, at: Int64, sizes: Int64) -> pa.Array:
    """Pieces of the data as a binary array."""
    ends = at + sizes
    if len(data) > _NARROW or bool((at[1:] < ends[:-1]).any()):
        listed = zip(at.tolist(), ends.tolist(), strict=True)
        return pa.array([data[start:stop] for start, stop in listed], pa.binary())
    # What lies between the pieces is every other value of an array of all bytes.
    bounds = np.empty(2 * len(at), np.int32)
    bounds[0::2], bounds[1::2] = at, ends
    whole = pa.Array.from_buffers(
        pa.binary(), max(len(bounds) - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(data)], null_count=0
    )
    return whole.take(pa.array(np.arange(0, len(bounds), 2)))


def decoded(data: bytes, at: Int64, sizes: Int64, texts: Texts) -> tuple[Int32, list[str]]:
    """Pieces of the data as texts: codes, and the distinct ones."""
    found = pieces(data, at, sizes).dictionary_encode()
    codes: Int32 = found.indices.to_numpy()
    words, bad = [], []
    for value in found.dictionary.to_pylist():
        before = texts.bad
        words.append(texts.text(value))
        if texts.bad != before:
            bad.append(len(words) - 1)
    if bad:
        # Said of each text, not of each distinct one.
        texts.bad += int(np.bincount(codes, minlength=len(words))[bad].sum()) - len(bad)
    return codes, words
