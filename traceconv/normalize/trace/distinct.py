"""Distinct values of columns, and the number of each row's value among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import Int64

Places = NDArray[np.intp]


def distinct_of(keys: Int64, limit: int) -> tuple[Places, Places]:
    """Return the first row of each distinct key, in order, and the number of each row's key. Keys are below `limit`."""
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
    """The first row of each distinct combination of the columns' numbers, in order; the number of each row's."""
    count = len(columns[0])
    word, width = np.zeros(count, np.int64), 1
    for column in columns if count else ():
        low, high = int(column.min()), int(column.max())
        if high - low < 1 << 20:
            codes, own = column.astype(np.int64) - low, high - low + 1
        else:
            distinct, codes = np.unique(column, return_inverse=True)
            own = len(distinct)
        if width > 1 and width * own > 4 * count + 1024:
            firsts, word = distinct_of(word, width)
            width = len(firsts)
        word, width = word * own + codes, width * own
    return distinct_of(word, width)
