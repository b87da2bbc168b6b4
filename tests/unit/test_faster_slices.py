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


def test_tasks_of_inferences_and_modules_of_the_npu(make_store: MakeStore) -> None:
    """Another thread launches them: the task belongs to the inference by its execution, and to modules by its op."""
    ranges = [
        {"id": 1, "track_id": 1, "name": "step", "kind": "annotation", "start_ns": 0, "dur_ns": 90, "depth": 0},
        {"id": 2, "track_id": 1, "name": "Inference", "kind": "inference", "start_ns": 1, "dur_ns": 80, "depth": 1,
         "parent_id": 1, "span_id": "7"},
        {"id": 3, "track_id": 1, "name": "Execution", "kind": "execution", "start_ns": 5, "dur_ns": 8, "depth": 0,
         "parent_span_id": "7", "correlation_id": 4},
    ]  # fmt: skip
    tasks = [
        {"id": 10 + op, "op_id": op, "track_id": 2, "start_ns": 90 * op, "dur_ns": 64, "kind": "compute",
         "execution_id": 4 + (op == 3)} for op in (1, 2, 3)
    ]  # fmt: skip
    ops = [{"op_id": op, "scope_path": path} for op, path in ((1, "layer0/ffn"), (2, "layer1/attention"), (3, "ffn"))]
    tracks = [{"track_id": 1, "kind": "thread"}, {"track_id": 2, "kind": "stream"}]
    with open_current_store(make_store(range=ranges, task=tasks, op=ops, track=tracks)) as connection:
        found = {
            name: faster_slices(connection, 1, "launched_by", name).tolist() for name in ("step", "Inference", "ffn")
        }
    assert found == {"step": [11, 12], "Inference": [11, 12], "ffn": [11, 13]}
