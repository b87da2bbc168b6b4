"""Pairing and spilled rows compared with plain dicts, in any order and any split."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from traceconv.normalize.npulog.pairing import Pairer
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.sort.stable_order import stable_order
from traceconv.schema import record
from traceconv.schema.dtypes import dtype_of

DTYPE = dtype_of(record("memory"))
keys = st.one_of(st.integers(1, 4), st.integers(0, 2**64 - 1))
events = st.lists(st.tuples(keys, st.booleans()), max_size=40)
splits = st.lists(st.integers(0, 99), max_size=5)


def oracle(log: list[tuple[int, bool]]) -> tuple[set[tuple[int, int]], set[int], int]:
    """Return (start, end) positions of pairs, positions of unfinished starts, and the number of unmatched ends."""
    waiting: dict[int, int] = {}
    pairs: set[tuple[int, int]] = set()
    unfinished: set[int] = set()
    unmatched = 0
    for place, (key, is_end) in enumerate(log):
        if not is_end:
            if key in waiting:
                unfinished.add(waiting[key])
            waiting[key] = place
        elif key in waiting:
            pairs.add((waiting.pop(key), place))
        else:
            unmatched += 1
    return pairs, unfinished | set(waiting.values()), unmatched


@given(events, splits)
def test_pairs_of_any_split_agree_with_the_oracle(log: list[tuple[int, bool]], cuts: list[int]) -> None:
    pairer = Pairer("block_id", DTYPE)
    records = np.zeros(len(log), DTYPE)
    records["block_id"] = [key for key, _ in log]
    records["host_ns"] = np.arange(len(log))
    is_end = np.array([end for _, end in log], np.bool_)
    pairs: list[tuple[int, int]] = []
    unfinished: list[int] = []
    unmatched = 0
    bounds = [0, *sorted(cut % (len(log) + 1) for cut in cuts), len(log)]
    for first, last in pairwise(bounds):
        got = pairer.feed(records[first:last], np.arange(first, last), is_end[first:last])
        assert got.ids.tolist() == got.starts["host_ns"].tolist()
        assert got.unfinished_ids.tolist() == got.unfinished["host_ns"].tolist()
        pairs += zip(got.ids.tolist(), got.ends["host_ns"].tolist(), strict=True)
        unfinished += got.unfinished_ids.tolist()
        unmatched += got.unmatched_ends
    rest, rest_ids = pairer.finish()
    assert rest_ids.tolist() == rest["host_ns"].tolist()
    unfinished += rest_ids.tolist()
    wanted_pairs, wanted_unfinished, wanted_unmatched = oracle(log)
    assert sorted(pairs) == sorted(wanted_pairs)
    assert sorted(unfinished) == sorted(wanted_unfinished)
    assert unmatched == wanted_unmatched
    assert 2 * len(pairs) + len(unfinished) + unmatched == len(log)


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1)), max_size=50))
def test_stable_order_agrees_with_sorted(values: list[int]) -> None:
    assert stable_order(np.array(values, np.uint64)).tolist() == sorted(range(len(values)), key=values.__getitem__)


@given(
    st.lists(st.lists(st.tuples(keys, st.integers(-(2**63), 2**63 - 1)), max_size=20), max_size=6),
    st.lists(st.lists(keys, max_size=20), max_size=3),
)
def test_a_spill_index_keeps_the_first_value_of_each_key(
    added: list[list[tuple[int, int]]], asked: list[list[int]]
) -> None:
    index = SpillIndex(("value",), run_rows=8, part_rows=4)  # small, so that several runs are merged
    wanted: dict[int, int] = {}
    try:
        for part in added:
            index.add(np.array([key for key, _ in part], np.uint64), np.array([value for _, value in part], np.int64))
            for key, value in part:
                wanted.setdefault(key, value)
        for keys_asked in [*asked, list(wanted)]:
            found, values = index.look_up(np.array(keys_asked, np.uint64))
            assert found.tolist() == [key in wanted for key in keys_asked]
            assert values["value"].tolist() == [wanted.get(key, 0) for key in keys_asked]
    finally:
        index.close()


@pytest.mark.parametrize(("run_rows", "part_rows"), [(64, 1000), (1 << 16, 1 << 18)])
@pytest.mark.parametrize("step", [1, 3])  # consecutive keys are looked up without a search
def test_a_spill_index_of_many_runs_in_random_order(run_rows: int, part_rows: int, step: int) -> None:
    rng = np.random.default_rng(3)
    index = SpillIndex(("id", "start_ns"), run_rows, part_rows)
    everything = rng.permutation(20_000).astype(np.uint64) * np.uint64(step) + np.uint64(600)
    for first in range(0, len(everything), 50):
        part = everything[first : first + 50]
        index.add(part, part.astype(np.int64) + 1, part.astype(np.int64) * 2)
    asked = np.append(rng.integers(0, 61_000, 5_000).astype(np.uint64), np.uint64(2**64 - 1))
    found, values = index.look_up(asked)
    assert np.array_equal(found, np.isin(asked, everything))
    assert np.array_equal(values["id"], np.where(found, asked.view(np.int64) + 1, 0))
    assert np.array_equal(values["start_ns"], np.where(found, asked.view(np.int64) * 2, 0))
    index.close()


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), max_size=9), st.booleans(), st.integers(0, 99))
def test_a_spool_returns_its_rows_in_order(parts: list[list[int]], read_between: bool, kept_bytes: int) -> None:
    spool = Spool(np.dtype([("value", "<i8")]))
    spool.KEPT_BYTES = kept_bytes  # type: ignore[misc]
    spool.CHUNK_ROWS = 4  # type: ignore[misc]
    whole: list[int] = []
    for part in parts:
        rows = np.zeros(len(part), spool.dtype)
        rows["value"] = part
        spool.append(rows)
        whole += part
        if read_between:
            assert [value for chunk in spool for value in chunk["value"].tolist()] == whole
    assert spool.count == len(whole)
    assert [value for chunk in spool for value in chunk["value"].tolist()] == whole
    spool.close()


@given(st.sets(st.integers(0, 99)))
def test_rows_of_a_spool_are_found_at_any_distance(places: set[int]) -> None:
    """At most one chunk is read at a time, because rows of a rare kind may be spread over gigabytes."""
    spool = Spool(np.dtype([("value", "<i8")]))
    spool.CHUNK_ROWS = 10
    spool.append(np.arange(1000, 1100).astype(spool.dtype))
    read_counts = []
    read = spool.read

    def counted(first: int, count: int) -> NDArray[np.void]:
        read_counts.append(count)
        return read(first, count)

    spool.read = counted  # type: ignore[method-assign]
    rows = np.array(sorted(places), np.int64)
    assert spool.take(rows)["value"].tolist() == (rows + 1000).tolist()
    assert max(read_counts, default=0) <= 10
    spool.close()
