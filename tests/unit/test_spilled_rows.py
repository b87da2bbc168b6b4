"""Spilled rows are read back in order, by parts and by ID, with all or some columns, also if there are none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from traceconv.base.workers import Workers
from traceconv.normalize.trace.spill import END_SCHEMA, SHARED, SpilledRows


@pytest.fixture(params=[0, 1, 8192, 20_000, 60_000])
def spilled(request: pytest.FixtureRequest) -> Iterator[SpilledRows]:
    count: int = request.param
    workers = Workers(1, "spill")
    spilled = SpilledRows(END_SCHEMA, workers)
    for start in range(0, count, 5000):
        ids = np.arange(start, min(count, start + 5000)) * 3
        spilled.append((pa.array(ids), pa.array(ids + 1), pa.array([f"{{{number}}}" for number in ids.tolist()])))
    spilled.end()
    assert spilled.count == count
    yield spilled
    workers.shutdown()
    spilled.close()


def test_all_rows_are_read_in_order(spilled: SpilledRows) -> None:
    batches = list(spilled.batches())
    assert [first for first, _ in batches] == np.cumsum([0, *(batch.num_rows for _, batch in batches)])[:-1].tolist()
    rows = pa.Table.from_batches([batch for _, batch in batches], END_SCHEMA)
    assert rows.column("id").to_pylist() == list(range(0, 3 * spilled.count, 3))
    assert rows.column("args").to_pylist() == [f"{{{number}}}" for number in range(0, 3 * spilled.count, 3)]


def test_single_columns_can_be_read(spilled: SpilledRows) -> None:
    whole = [batch.select(["id", "args"]) for _, batch in spilled.batches()]
    assert [batch for _, batch in spilled.batches("id", "args")] == whole


def test_parts_are_read_on_request(spilled: SpilledRows) -> None:
    parts = [(first, count, read()) for first, count, read in spilled.parts()]
    assert parts == [(first, batch.num_rows, batch) for first, batch in spilled.batches()]


def test_rows_are_found_by_id(spilled: SpilledRows) -> None:
    wanted = np.array([0, 1, 3, 24_000, 10**9])
    found = {
        int(wanted[place]): row
        for places, batch in spilled.find(wanted)
        for place, row in zip(places.tolist(), batch.column("thread_end_ns").to_pylist(), strict=True)
    }
    assert found == {number: number + 1 for number in (0, 3, 24_000) if number < 3 * spilled.count}


def test_shared_texts_count_for_the_size_of_a_batch() -> None:
    spilled = SpilledRows(pa.schema([("id", pa.int64()), ("name", SHARED)]))
    for number in range(20):
        spilled.append((pa.array([number]), pa.array([f"{number:01000000d}"]).dictionary_encode()))
    spilled.end()
    assert [batch.num_rows for _, batch in spilled.batches()] == [6, 6, 6, 2]
    spilled.close()


def test_empty_spilled_rows_have_no_batches() -> None:
    spilled = SpilledRows(END_SCHEMA)
    assert list(spilled.batches()) == []
    assert list(spilled.parts()) == []
    spilled.close()


def test_buffered_rows_retain_little_of_the_columns_they_are_slices_of() -> None:
    spilled = SpilledRows(END_SCHEMA)
    before = pa.total_allocated_bytes()
    for start in range(0, 40_000, 100):
        whole = [pa.array(np.arange(50_000) + start), pa.nulls(50_000, pa.int64()), pa.array(["{}"] * 50_000)]
        spilled.append([column.slice(0, 99) for column in whole], 1)
        if start % 4_000 == 0:
            spilled.append([column.slice(99, 1) for column in whole], 2)
    del whole
    assert pa.total_allocated_bytes() - before < 60 << 20  # the complete columns have 600 MB
    spilled.end()
    assert sum(read().num_rows for _, _, read in spilled.parts()) == 400 * 99 + 10
    spilled.close()


def test_one_buffered_row_retains_little_of_its_columns() -> None:
    spilled = SpilledRows(END_SCHEMA)
    before = pa.total_allocated_bytes()
    count = 2_000_000
    whole = [pa.array(np.arange(count)), pa.array(np.arange(count)), pa.nulls(count, pa.string())]
    spilled.append([column.slice(7, 1) for column in whole])
    del whole
    assert pa.total_allocated_bytes() - before < 1 << 20
    spilled.close()


def test_rows_of_a_group_are_in_the_same_batches() -> None:
    spilled = SpilledRows(END_SCHEMA)
    for start in range(0, 60_000, 100):  # many small batches, including some of a rare group
        for group, ids in ((1, np.arange(start, start + 99)), (2, np.array([start + 99]))):
            spilled.append(
                (pa.array(ids), pa.array(np.full(len(ids), group)), pa.array([None] * len(ids), pa.string())), group
            )
    spilled.end()
    batches = [(first, count, read()) for first, count, read in spilled.parts()]
    assert [first for first, _, _ in batches] == np.cumsum([0, *(count for _, count, _ in batches)])[:-1].tolist()
    assert all(len(batch.column("thread_end_ns").unique()) == 1 for _, _, batch in batches)
    ids = np.concatenate([batch.column("id").to_numpy() for _, _, batch in batches])
    assert np.array_equal(np.sort(ids), np.arange(60_000))
    spilled.close()


def test_few_rows_are_one_batch_group_by_group() -> None:
    spilled = SpilledRows(END_SCHEMA)
    for number in range(100):
        spilled.append((pa.array([number]), pa.array([number]), pa.array(["{}"])), number % 3)
    spilled.end()
    groups = [number for group in range(3) for number in range(group, 100, 3)]
    assert [batch.column("id").to_pylist() for _, batch in spilled.batches()] == [groups]
    spilled.close()
