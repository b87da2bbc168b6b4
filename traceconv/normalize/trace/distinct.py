"""Distinct values of columns, and the number of each row's value among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from traceconv.base.arrays import NDArray

Places = NDArray[np.intp]

#: Rows that are numbered in Python.
_FEW_ROWS = 128


def distinct_of(keys: NDArray[np.signedinteger[Any]], limit: int) -> tuple[Places, Places]:
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


def _of_few(*columns: NDArray[np.signedinteger[Any]]) -> tuple[Places, Places]:
    """Do it for few rows, for which a dozen calls of numpy would take longer."""
    keys = zip(*(one.tolist() for one in columns), strict=True)
    first_of: dict[tuple[int, ...], int] = {}
    firsts = [first_of.setdefault(key, row) for row, key in enumerate(keys)]
    number = {row: place for place, row in enumerate(first_of.values())}
    return np.array(list(number), np.intp), np.array([number[row] for row in firsts], np.intp)


def distinct_rows(*columns: NDArray[np.signedinteger[Any]]) -> tuple[Places, Places]:
    """The first row of each distinct combination of the columns' numbers, in order; the number of each row's."""
    count = len(columns[0])
    if count <= _FEW_ROWS:
        return _of_few(*columns)
    word, width = np.zeros(count, np.int64), 1
    for column in columns if count else ():
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
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
