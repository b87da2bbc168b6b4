"""Overlaps, the slices of flow points, and flows, compared with oracles that check all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traceconv import native
from traceconv.normalize.trace.complete_nesting import (
    NO_PARENT,
    POINT,
    SLICE,
    SPAN_DTYPE,
    CompleteNester,
)
from traceconv.normalize.trace.flows import Flows
from traceconv.normalize.trace.launch_flows import END, POINT_DTYPE, START, STEP
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.schema.dtypes import RecordArray

#: Slices as (start, duration), flow points as timestamps. There are few different times, so that many coincide.
SLICES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), max_size=9)
IN_C = [False, *([True] if native.AVAILABLE else [])]


def nested(in_c: bool, slices: list[tuple[int, int]], points: list[int], cut: int) -> tuple[list[RecordArray], int]:
    """Return the rows of slices and points, whose IDs are indices, and the number of overlaps.

    Spans are fed in two windows.
    """
    rows = [(start, dur, at, -1, 0, SLICE) for at, (start, dur) in enumerate(slices)]
    rows += [(ts, 0, len(slices) + at, -1, 0, POINT) for at, ts in enumerate(points)]
    spans = np.array(sorted(rows), SPAN_DTYPE)
    edge = int(np.searchsorted(spans["start_ns"], cut))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "AVAILABLE", in_c)
        nester = CompleteNester()
    parts = [nester.feed(spans[:edge]), nester.feed(spans[edge:]), nester.finish()]
    return [np.concatenate(rows) for rows in zip(*parts, strict=True)], nester.overlaps


@given(SLICES, st.integers(0, 12))
@example([(0, 100), (10, 40), (40, 20)], 30)
@example([(0, 10), (5, 15), (8, 4)], 6)
def test_a_slice_that_begins_inside_an_earlier_one_and_ends_after_it_overlaps(
    slices: list[tuple[int, int]], cut: int
) -> None:
    wanted = {
        at
        for at, (start, dur) in enumerate(slices)
        if any(other < start < other + length < start + dur for other, length in slices)
    }
    for in_c in IN_C:
        (rows, _), overlaps = nested(in_c, slices, [], cut)
        assert set(rows["id"][rows["overlap"] == 1].tolist()) == wanted
        assert overlaps == len(wanted)


@given(SLICES, st.integers(0, 12))
@example([(0, 20), (2, 6), (5, 10), (6, 3), (16, 2)], 6)
def test_self_time_is_the_time_without_a_child(slices: list[tuple[int, int]], cut: int) -> None:
    for in_c in IN_C:
        (rows, _), _ = nested(in_c, slices, [], cut)
        for id_, own in zip(rows["id"].tolist(), rows["self_ns"].tolist(), strict=True):
            times = set(range(slices[id_][0], sum(slices[id_])))
            for child in rows["id"][rows["parent_id"] == id_].tolist():
                times -= set(range(slices[child][0], sum(slices[child])))
            assert own == len(times)


@given(SLICES, st.lists(st.integers(0, 20), max_size=4), st.integers(0, 12))
@example([(0, 10)], [10], 10)
@example([(0, 10), (2, 8)], [10], 4)
def test_a_point_belongs_to_an_open_slice_or_else_to_one_that_ends_then(
    slices: list[tuple[int, int]], points: list[int], cut: int
) -> None:
    for in_c in IN_C:
        (_, rows), _ = nested(in_c, slices, points, cut)
        found = dict(zip((rows["id"] - len(slices)).tolist(), rows["slice_id"].tolist(), strict=True))
        for at, ts in enumerate(points):
            going_on = {n for n, (start, dur) in enumerate(slices) if start <= ts < start + dur or start == ts}
            ending = {n for n, (start, dur) in enumerate(slices) if start + dur == ts}
            assert found[at] in (going_on or ending or {NO_PARENT})


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 6), st.sampled_from([START, STEP, END])), min_size=1, max_size=9
    ),
    st.booleans(),
)
@example([(1, 10, START), (1, 30, END), (1, 50, STEP), (1, 55, END)], False)
def test_flows_start_at_the_last_start_or_step_in_time(points: list[tuple[int, int, int]], chains: bool) -> None:
    rows = np.array([(key, ts, row, row, step, 0) for row, (key, ts, step) in enumerate(points)], POINT_DTYPE)
    flows = Flows(None, TraceTracks())
    arrows = flows._match(rows[np.argsort(rows["key"], kind="stable")], chains)
    flows.close()
    wanted = []
    for key in {key for key, *_ in points}:
        own = [(ts, step, row) for row, (of, ts, step) in enumerate(points) if of == key]
        starts = [one for one in own if one[1] == START]
        own.sort()
        if len(starts) == 1:  # it is the first, whatever its time
            own.remove(starts[0])
            own.insert(0, starts[0])
        source = None
        for _, step, row in own:
            if source is not None and (chains or step != START):
                wanted.append((source, row))
            source = row if step != END else source
    assert sorted(zip(arrows["src_id"].tolist(), arrows["dst_id"].tolist(), strict=True)) == sorted(wanted)
