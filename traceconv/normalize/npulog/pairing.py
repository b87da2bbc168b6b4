"""Pair starts and ends by key, in any order; only records without a partner are carried."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.normalize.sort.stable_order import stable_order
from traceconv.schema.dtypes import RecordArray, gather, join


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of records, `starts[i]` (with its ID) and `ends[i]`, and starts that will not get an end.

    unmatched_ends  number of ends without a start
    """

    starts: RecordArray
    ids: Int64
    ends: RecordArray
    unfinished: RecordArray
    unfinished_ids: Int64
    unmatched_ends: int


class Pairer:
    """Pairs starts and ends with the same key, over any number of batches.

    Of several starts of a key before its end, the last one gets the end, and the others are unfinished.
    """

    def __init__(self, key: str, dtype: np.dtype[np.void]) -> None:
        self._key = key
        self._open = np.zeros(0, dtype)
        self._open_ids = np.zeros(0, np.int64)

    def feed(self, records: RecordArray, ids: Int64, is_end: NDArray[np.bool_]) -> Pairs:
        """Take the next records in the order of the log; return those that can be paired now."""
        waiting = len(self._open)
        if waiting:
            records = join([self._open, records])
            ids = np.concatenate([self._open_ids, ids])
            is_end = np.concatenate([np.zeros(waiting, np.bool_), is_end])
        keys = np.ascontiguousarray(records[self._key])
        order = stable_order(keys)
        sorted_keys = keys[order]
        sorted_end = is_end[order]
        same = np.zeros(len(order), np.bool_)  # whether the next record has the same key
        same[:-1] = sorted_keys[1:] == sorted_keys[:-1]
        next_is_end = np.zeros(len(order), np.bool_)
        next_is_end[:-1] = sorted_end[1:]
        first = ~sorted_end & same & next_is_end
        second = np.zeros(len(order), np.bool_)
        second[1:] = first[:-1]
        superseded = ~sorted_end & same & ~next_is_end
        still_open = order[~sorted_end & ~same]
        still_open.sort()
        starts, ends, lost = order[first], order[second], order[superseded]
        self._open, self._open_ids = gather(records, still_open), ids[still_open]
        return Pairs(
            gather(records, starts),
            ids[starts],
            gather(records, ends),
            gather(records, lost),
            ids[lost],
            int(np.count_nonzero(sorted_end & ~second)),
        )

    def finish(self) -> tuple[RecordArray, Int64]:
        """Return the starts without an end, and their IDs."""
        rest = self._open, self._open_ids
        self._open, self._open_ids = self._open[:0], self._open_ids[:0]
        return rest
