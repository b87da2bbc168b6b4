"""What a prediction makes faster: slices inside a range are those below it, not those that touch its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from traceconv.analysis.faster_slices import faster_slices
from traceconv.reports.current_store import open_current_store

MakeStore = Callable[..., Path]


def test_slices_that_only_touch_a_range_are_not_inside_it(make_store: MakeStore) -> None:
    def slice_of(number: int, name: str, start: int, dur: int, *parents: int) -> dict[str, object]:
        return {
            "id": number, "track_id": 1, "name": name, "start_ns": start, "dur_ns": dur,
            "parent_id": parents[-1] if parents else None, "depth": len(parents),
        }  # fmt: skip

    # Launches without a duration at the end of mm: inside it, after it, and inside the range after it.
    ranges = [slice_of(1, "mm", 0, 10), slice_of(2, "add", 10, 5), slice_of(3, "mm", 1, 8, 1)]
    calls = [
        slice_of(11, "launch", 2, 3, 1, 3), slice_of(12, "launch", 10, 0, 1), slice_of(13, "launch", 10, 0),
        slice_of(14, "launch", 10, 0, 2),
    ]  # fmt: skip
    tasks = [
        {"id": 10 + call, "api_id": call, "track_id": 2, "start_ns": 90 * call, "dur_ns": 64, "kind": "compute"}
        for call in range(11, 15)
    ]
    tracks = [{"track_id": 1, "kind": "thread"}, {"track_id": 2, "kind": "stream"}]
    store = make_store(range=ranges, api=calls, task=tasks, track=tracks)

    with open_current_store(store) as connection:
        assert faster_slices(connection, 1, "launched_by", "mm").tolist() == [21, 22]
        assert faster_slices(connection, 1, "host_range", "mm").tolist() == [1, 3, 11, 12]
