"""Which values of columns are distinct, by numbers that stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.events.trace import Coded

Int64 = NDArray[np.int64]
Places = NDArray[np.intp]


def distinct_of(keys: Int64, limit: int) -> tuple[Places, Places]:
    """Keys from 0 up to below `limit` → the place where each distinct one comes first, in order; key → its number."""
    if limit > 4 * len(keys) + 1024:
        _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return firsts[order], rank[inverse]
    first_of = np.full(limit, -1, np.intp)
    first_of[keys[::-1]] = np.arange(len(keys))[::-1]
    present = np.flatnonzero(first_of >= 0)
    firsts = np.sort(first_of[present])
    number = np.empty(limit, np.intp)
    number[keys[firsts]] = np.arange(len(firsts))
    return firsts, number[keys]


def distinct_rows(*columns: NDArray[np.signedinteger[Any]]) -> tuple[Places, Places]:
    """The rows where each distinct combination of the columns' numbers comes first, in order; row → its number."""
    count = len(columns[0])
    firsts, word = np.arange(min(1, count)), np.zeros(count, np.intp)
    for column in columns if count else ():
        low, high = int(column.min()), int(column.max())
        if high - low < 1 << 20:
            codes, width = column.astype(np.intp) - low, high - low + 1
        else:
            distinct, codes = np.unique(column, return_inverse=True)
            width = len(distinct)
        firsts, word = distinct_of(word * width + codes, len(firsts) * width)
    return firsts, word


def distinct_pairs(one: Coded, two: Coded, places: Places) -> tuple[list[tuple[Any, Any]], Places]:
    """The pairs of values of two columns in some rows, in the order in which they come; row → its pair's number."""
    width = max(1, len(two.distinct))
    keys = one.codes[places].astype(np.int64) * width + two.codes[places]
    firsts, inverse = distinct_of(keys, len(one.distinct) * width)
    found = keys[firsts].tolist()
    return [(one.distinct[key // width], two.distinct[key % width]) for key in found], inverse
