"""Rows placed in any order are read in the order of their places; slices are numbered by their events."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from numpy.typing import NDArray

from traceconv.base.int64 import Int64
from traceconv.normalize.sort.placed_rows import PlacedRows
from traceconv.normalize.trace.slice_numbers import SliceNumbers

_DTYPE = np.dtype([("id", "<i8"), ("depth", "<i4")])
_COUNT = 700_000
_RANDOM = np.random.default_rng(5)


def _late_parents() -> Int64:
    """In order, except for one row in ten thousand, which comes at the end."""
    late = np.arange(_COUNT) % 10_000 == 0
    return np.concatenate([np.flatnonzero(~late), np.flatnonzero(late)])


ORDERS = {
    "in order": np.arange(_COUNT),
    "backwards": np.arange(_COUNT)[::-1],
    "random": _RANDOM.permutation(_COUNT),
    "late parents": _late_parents(),
    "three threads in turn": np.arange(_COUNT - _COUNT % 3).reshape(3, -1).T.ravel(),
    "none": np.arange(0),
}


@pytest.mark.parametrize("places", ORDERS.values(), ids=ORDERS)
def test_rows_are_at_their_places(places: Int64) -> None:
    rows = np.zeros(len(places), _DTYPE)
    rows["id"], rows["depth"] = places * 7, places % 11
    with closing(PlacedRows(_DTYPE, run_rows=20_000)) as placed:
        for first in range(0, len(places), 50_000):
            placed.place(rows[first : first + 50_000], places[first : first + 50_000])
        placed.end(len(places))
        found = placed.read(0, len(places))
        assert placed.count == len(places)
        assert np.array_equal(found["id"], np.arange(len(places)) * 7)
        assert np.array_equal(found["depth"], np.arange(len(places)) % 11)


@pytest.mark.parametrize("share", [0, 0.3, 1])
@pytest.mark.parametrize("sizes", [(1,), (16, 16), (5, 1, 40, 0, 1003), (64_000, 3)])
def test_slices_are_numbered_in_the_order_of_events(share: float, sizes: tuple[int, ...]) -> None:
    numbers, ordinals, first = SliceNumbers(), [np.zeros(0, np.int64)], 0
    for size in sizes:
        first += 3  # events that were lost
        is_slice: NDArray[np.bool_] = _RANDOM.random(size) < share
        numbers.add(first, is_slice)
        ordinals.append(first + np.flatnonzero(is_slice))
        first += size
    numbers.end()
    found = numbers.of(np.concatenate(ordinals))
    assert found.tolist() == list(range(numbers.count))
