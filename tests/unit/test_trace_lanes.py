"""Rows put aside come back: all of them or some columns, in order, by parts and by id; also when there are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from traceconv.normalize.trace.spill import END_SCHEMA, Lane


@pytest.fixture(params=[0, 1, 8192, 20_000, 60_000])
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    count: int = request.param
    lane = Lane(END_SCHEMA)
    for start in range(0, count, 5000):
        ids = np.arange(start, min(count, start + 5000)) * 3
        lane.append((pa.array(ids), pa.array(ids + 1), pa.array([f"{{{number}}}" for number in ids.tolist()])))
    lane.end()
    assert lane.count == count
    yield lane
    lane.close()


def test_all_rows_come_back_in_order(lane: Lane) -> None:
    batches = list(lane.batches())
    assert [first for first, _ in batches] == np.cumsum([0, *(batch.num_rows for _, batch in batches)])[:-1].tolist()
    rows = pa.Table.from_batches([batch for _, batch in batches], END_SCHEMA)
    assert rows.column("id").to_pylist() == list(range(0, 3 * lane.count, 3))
    assert rows.column("args").to_pylist() == [f"{{{number}}}" for number in range(0, 3 * lane.count, 3)]


def test_some_columns_are_read_alone(lane: Lane) -> None:
    whole = [batch.select(["id", "args"]) for _, batch in lane.batches()]
    assert [batch for _, batch in lane.batches("id", "args")] == whole


def test_parts_are_the_batches_read_when_asked_for(lane: Lane) -> None:
    parts = [(first, count, read()) for first, count, read in lane.parts()]
    assert parts == [(first, batch.num_rows, batch) for first, batch in lane.batches()]


def test_rows_are_found_by_id(lane: Lane) -> None:
    wanted = np.array([0, 1, 3, 24_000, 10**9])
    found = {
        int(wanted[place]): row
        for places, batch in lane.find(wanted)
        for place, row in zip(places.tolist(), batch.column("thread_end_ns").to_pylist(), strict=True)
    }
    assert found == {number: number + 1 for number in (0, 3, 24_000) if number < 3 * lane.count}


def test_a_lane_that_was_never_ended_has_nothing_to_read() -> None:
    lane = Lane(END_SCHEMA)
    assert list(lane.batches()) == []
    assert list(lane.parts()) == []
    lane.close()


def test_rows_that_wait_keep_little_of_what_they_were_cut_from() -> None:
    lane = Lane(END_SCHEMA)
    before = pa.total_allocated_bytes()
    for start in range(0, 40_000, 100):
        whole = [pa.array(np.arange(50_000) + start), pa.nulls(50_000, pa.int64()), pa.array(["{}"] * 50_000)]
        lane.append([column.slice(0, 99) for column in whole], 1)
        if start % 4_000 == 0:
            lane.append([column.slice(99, 1) for column in whole], 2)
    del whole
    assert pa.total_allocated_bytes() - before < 60 << 20  # the wholes have 600 MB
    lane.end()
    assert sum(read().num_rows for _, _, read in lane.parts()) == 400 * 99 + 10
    lane.close()


def test_one_row_keeps_little_of_what_it_was_cut_from() -> None:
    lane = Lane(END_SCHEMA)
    before = pa.total_allocated_bytes()
    count = 2_000_000
    whole = [pa.array(np.arange(count)), pa.array(np.arange(count)), pa.nulls(count, pa.string())]
    lane.append([column.slice(7, 1) for column in whole])
    del whole
    assert pa.total_allocated_bytes() - before < 1 << 20
    lane.close()


def test_rows_of_a_group_stand_together() -> None:
    lane = Lane(END_SCHEMA)
    for start in range(0, 60_000, 100):  # many small pieces, and a rare group among them
        for group, ids in ((1, np.arange(start, start + 99)), (2, np.array([start + 99]))):
            lane.append(
                (pa.array(ids), pa.array(np.full(len(ids), group)), pa.array([None] * len(ids), pa.string())), group
            )
    lane.end()
    batches = [(first, count, read()) for first, count, read in lane.parts()]
    assert [first for first, _, _ in batches] == np.cumsum([0, *(count for _, count, _ in batches)])[:-1].tolist()
    assert all(len(batch.column("thread_end_ns").unique()) == 1 for _, _, batch in batches)
    ids = np.concatenate([batch.column("id").to_numpy() for _, _, batch in batches])
    assert np.array_equal(np.sort(ids), np.arange(60_000))
    lane.close()


def test_few_rows_stay_in_the_order_of_the_source() -> None:
    lane = Lane(END_SCHEMA)
    for number in range(100):
        lane.append((pa.array([number]), pa.array([number]), pa.array(["{}"])), number % 3)
    lane.end()
    assert [batch.column("id").to_pylist() for _, batch in lane.batches()] == [list(range(100))]
    lane.close()
