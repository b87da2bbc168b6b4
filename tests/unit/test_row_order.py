"""The order of slices, and whether they overlap, checked against a plain loop over sorted rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from traceconv.export import row_order
from traceconv.export.row_order import has_no_overlaps, order_of, slice_order, time_ordered
from traceconv.export.sorted_runs import one_thread
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
Slice = dict[str, int | str | None]


@pytest.mark.parametrize("seed", range(20))
def test_order_equals_that_of_sorted_tuples(seed: int) -> None:
    rng = random.Random(seed)
    rows = [(rng.randrange(8), rng.randrange(3), rng.randrange(2), number) for number in range(60)]
    rng.shuffle(rows)
    keys = [np.array(key) for key in zip(*rows, strict=True)]
    places = order_of(keys)
    assert places is not None
    assert [rows[place] for place in places] == sorted(rows)
    assert order_of([key[places] for key in keys]) is None


def test_empty_input_is_sorted() -> None:
    assert order_of([np.zeros(0, np.int64)] * 3) is None


def slices(*places: tuple[int, int, int, int | None]) -> list[Slice]:
    """Slices by track, depth, start and duration."""
    return [
        {"id": number, "track_id": track, "depth": depth, "start_ns": start, "dur_ns": length, "name": "x"}
        for number, (track, depth, start, length) in enumerate(places)
    ]


@pytest.mark.parametrize("size", [1, 8, 60, 5000])
@pytest.mark.parametrize("runs", [1, 2, 3, 6])
def test_runs_are_merged_in_time_order(make_store: MakeStore, runs: int, size: int) -> None:
    """Rows of several runs, with gaps, equal times and late rows, as threads write them."""
    rng = random.Random(runs * size)
    places = []
    for _ in range(runs):
        starts = sorted(rng.randrange(1000) for _ in range(rng.randrange(1, 120)))
        starts = [start for start in starts if start // 100 % 2 or rng.random() < 0.2]
        for _ in range(3):
            at = rng.randrange(len(starts) + 1)
            starts[at : at + 2] = starts[at : at + 2][::-1]
        places += [(1, rng.randrange(3), start, rng.choice([None, 0, 5])) for start in starts]
    rows = slices(*places)
    store = make_store(track=[{"track_id": 1, "kind": "thread", "device_id": None}], api=rows)
    source = "(SELECT rowid AS _row, * FROM api WHERE run_id = 1)"
    columns = ("start_ns", "dur_ns", "depth", "id")
    query = f"SELECT {', '.join(columns)} FROM {source} AS s WHERE"
    found: list[int] = []
    with open_store(store) as connection, one_thread(connection):
        for batch, order in time_ordered(
            connection, source, "start_ns", lambda where: f"{query} {where}",
            lambda rows: slice_order(*map(rows.column, columns)), size, {},
        ):  # fmt: skip
            ids = batch.column("id").to_numpy()
            found += (ids if order is None else ids[order]).tolist()
    unknown = 2**63
    expected = sorted(
        (start, -(unknown if dur is None else dur), depth, number)
        for number, (_, depth, start, dur) in enumerate(places)
    )
    assert found == [number for *_, number in expected]


def overlaps_absent(make_store: MakeStore, rows: list[Slice]) -> bool:
    store = make_store(track=[{"track_id": n, "kind": "thread", "device_id": None} for n in (1, 2)], api=rows)
    with open_store(store) as connection:
        return has_no_overlaps(connection, "(SELECT rowid AS _row, * FROM api WHERE run_id = 1)")


@pytest.mark.parametrize("window", [1, 2, 1000])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slices((1, 0, 0, 10), (1, 1, 2, 3), (1, 0, 10, 5), (2, 0, 4, 9)), True),
        # In two runs, as two threads write them.
        (slices((1, 0, 0, 10), (1, 0, 20, 10), (1, 0, 10, 10), (1, 0, 30, None)), True),
        (slices((1, 0, 0, 11), (1, 0, 20, 10), (1, 0, 10, 10)), False),
        (slices((1, 0, 0, 100), (2, 0, 10, 1), (2, 0, 20, 1), (1, 0, 99, 1)), False),
        (slices((1, 0, 5, 0), (1, 0, 5, 4)), True),
        (slices(), True),
    ],
)
def test_slices_without_overlaps(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, rows: list[Slice], expected: bool, window: int
) -> None:
    monkeypatch.setattr(row_order, "_NUMBERS_ROWS", window)
    assert overlaps_absent(make_store, rows) is expected


def test_unknown_values_count_as_overlaps(make_store: MakeStore) -> None:
    rows = slices((1, 0, 0, 10), (1, 0, 10, 5))
    rows[1]["depth"] = None
    assert not overlaps_absent(make_store, rows)
