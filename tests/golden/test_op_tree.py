"""The reports op-tree and modules, and the view task_module: rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stores import query as ask

import traceconv

MakeStore = Callable[..., Path]


def span(id_: int, parent: int | None, name: str, start: int, dur: int, own: int, **more: object) -> dict[str, object]:
    times = {"start_ns": start, "dur_ns": dur, "self_ns": own}
    return {"id": id_, "parent_id": parent, "name": name, "kind": "host_op", "track_id": 1, **times, **more}


def call(id_: int, parent: int | None, start: int) -> dict[str, object]:
    return {"id": id_, "parent_id": parent, "start_ns": start, "dur_ns": 1, "correlation_id": id_, "track_id": 1}


def task(id_: int, call_id: int | None, submit: int | None, dur: int | None, **more: object) -> dict[str, object]:
    return {"id": id_, "correlation_id": call_id, "submit_ns": submit, "start_ns": 1000 + id_, "dur_ns": dur,
            "kind": "compute", "track_id": 2, **more}  # fmt: skip


TRACKS = [
    {"track_id": 1, "kind": "thread", "device_id": None},
    {"track_id": 2, "kind": "stream", "device_id": 0},
    {"track_id": 3, "kind": "thread", "device_id": None},
]
#: Two steps of a module with a matrix product, and the backward pass of the first on another thread.
RANGES = [
    span(1, None, "ProfilerStep#4", 0, 100, 60, kind="annotation", step_id=4),
    span(2, 1, "nn.Module: Linear_0", 10, 40, 10, kind="module", step_id=4),
    span(3, 2, "aten::linear", 20, 30, 5, step_id=4),
    span(4, 3, "aten::mm", 25, 24, 23, step_id=4),
    span(5, None, "ProfilerStep#5", 100, 50, 20, kind="annotation", step_id=5),
    span(6, 5, "nn.Module: Linear_0", 110, 30, 10, kind="module", step_id=5),
    span(7, 6, "aten::linear", 115, 20, 20, step_id=5),
    span(8, None, "MmBackward0", 60, 20, 8, track_id=3, step_id=4),
    span(9, 8, "aten::mm", 65, 12, 11, track_id=3, step_id=4),
    span(10, None, "ProfilerStep#4", 1000, 50, 50, kind="annotation", track_id=2, step_id=4),
]
CALLS = [call(21, 4, 30), call(22, 7, 120), call(23, 9, 70)]
TASKS = [
    task(31, 21, 30, 100, step_id=4),
    task(32, 22, 120, 10, step_id=5),
    task(33, 23, 70, 200, step_id=4),
    task(34, None, None, 7),
    task(35, 21, 30, 1000, kind="sync", step_id=4),
    task(36, 21, 30, None, step_id=4),
]
FLOWS = [{"flow_id": 1, "kind": "other", "name": "fwdbwd", "src_id": 4, "dst_id": 8}]
COLUMNS = "label, count, host_total_ns, host_self_ns, task_count, self_task_count, device_total_ns, device_self_ns"


def test_tree_of_names_with_inclusive_and_exclusive_times(make_store: MakeStore) -> None:
    store = make_store(track=TRACKS, range=RANGES, api=CALLS, task=TASKS, flow=FLOWS)
    assert ask(store, f"SELECT {COLUMNS} FROM op_tree") == [
        ("MmBackward0", 1, 20, 8, 1, 0, 200, 0),
        ("  aten::mm", 1, 12, 11, 1, 1, 200, 200),
        ("ProfilerStep*", 2, 150, 80, 3, 0, 110, 0),
        ("  nn.Module: Linear_0", 2, 70, 20, 3, 0, 110, 0),
        ("    aten::linear", 2, 50, 25, 3, 1, 110, 10),
        ("      aten::mm", 1, 24, 23, 2, 2, 100, 100),
        ("(no range)", 0, 0, 0, 1, 1, 7, 7),
    ]
    assert ask(store, "SELECT depth, kind, path FROM op_tree WHERE position = 5") == [
        (2, "host_op", "ProfilerStep* > nn.Module: Linear_0 > aten::linear")
    ]
    # 317 ns in total
    assert ask(store, "SELECT round(device_percent, 3) FROM op_tree WHERE depth = 0") == [(63.091,), (34.7,), (2.208,)]


def test_small_ranges_are_summed(make_store: MakeStore) -> None:
    store = make_store(track=TRACKS, range=RANGES, api=CALLS, task=TASKS, flow=FLOWS)
    assert ask(store, f"SELECT {COLUMNS} FROM op_tree(min_percent := 40)") == [
        ("MmBackward0", 1, 20, 8, 1, 0, 200, 0),
        ("  aten::mm", 1, 12, 11, 1, 1, 200, 200),
        ("ProfilerStep*", 2, 150, 80, 3, 0, 110, 0),
        ("  nn.Module: Linear_0", 2, 70, 20, 3, 0, 110, 0),
        ("    (1 smaller)", 2, 50, 48, 3, 3, 110, 110),
        ("(no range)", 0, 0, 0, 1, 1, 7, 7),
    ]


def test_slices_that_repeat_others_are_left_out(make_store: MakeStore) -> None:
    """The second one has the name of the first, and encloses a slice."""
    ranges = [
        span(1, None, "mm", 0, 10, 10),
        span(2, None, "mm", 20, 10, 10, kind="summary", track_id=3),
        span(3, None, "all", 40, 10, 6, kind="summary"),
        span(4, 3, "add", 42, 4, 4),
    ]
    store = make_store(track=TRACKS, range=ranges)
    assert ask(store, "SELECT label, kind, count, host_total_ns FROM op_tree") == [
        ("all", "summary", 1, 10),
        ("  add", "host_op", 1, 4),
        ("mm", "host_op", 1, 10),
    ]


def test_a_step_of_the_tree(make_store: MakeStore) -> None:
    outer = span(11, None, "training", 0, 1000, 850, kind="annotation")
    ranges = [{**one, "parent_id": 11} if one["id"] in (1, 5) else one for one in RANGES]
    store = make_store(track=TRACKS, range=[outer, *ranges], api=CALLS, task=TASKS, flow=FLOWS)
    assert ask(store, f"SELECT {COLUMNS} FROM op_tree(step := 5)") == [
        ("training", 0, 0, 0, 1, 0, 10, 0),
        ("  ProfilerStep*", 1, 50, 20, 1, 0, 10, 0),
        ("    nn.Module: Linear_0", 1, 30, 10, 1, 0, 10, 0),
        ("      aten::linear", 1, 20, 20, 1, 1, 10, 10),
    ]
    assert ask(store, "FROM op_tree(run := 2)") == []


def test_tasks_of_the_npu_are_in_their_inference(make_store: MakeStore) -> None:
    """Another thread launches them. Of the second execution, no inference is known; of the third, nothing is."""
    ranges = [
        span(1, None, "train", 0, 100, 40, kind="annotation"),
        span(2, 1, "Inference", 10, 60, 60, kind="inference", span_id="8"),
        span(3, None, "Execution", 30, 20, 20, track_id=3, kind="execution", parent_span_id="8", correlation_id=5),
        span(4, None, "Execution", 90, 20, 20, track_id=3, kind="execution", parent_span_id="9", correlation_id=6),
    ]
    tasks = [
        task(id_, 21, 30, 10 * id_, execution_id=execution, kind=kind)
        for id_, execution, kind in (
            (31, 5, "compute"),
            (32, 5, "copy"),
            (33, 5, "sync"),
            (34, 6, "compute"),
            (35, 7, "copy"),
        )
    ]
    store = make_store(track=TRACKS, range=ranges, api=[{**call(21, None, 30), "track_id": 3}], task=tasks)
    assert ask(store, f"SELECT {COLUMNS} FROM op_tree") == [
        ("(no range)", 0, 0, 0, 2, 2, 690, 690),
        ("train", 1, 100, 40, 2, 0, 630, 0),
        ("  Inference", 1, 60, 60, 2, 2, 630, 630),
        ("Execution", 2, 40, 40, 0, 0, 0, 0),
    ]
    assert ask(store, "SELECT id, range_id, found_by FROM launching_range ORDER BY id") == [
        (31, 2, "flow"), (32, 2, "flow"), (33, 2, "flow"), (34, None, "call"), (35, None, "call"),
    ]  # fmt: skip


def test_module_of_forward_and_backward_tasks(make_store: MakeStore) -> None:
    store = make_store(
        track=TRACKS, range=RANGES, api=CALLS, flow=FLOWS,
        task=[*TASKS[:4], task(40, None, None, 5, op_id=1)], op=[{"op_id": 1, "scope_path": "stem/conv"}],
    )  # fmt: skip
    assert ask(store, "SELECT id, module_id, module_name, found_by, range_id FROM task_module ORDER BY id") == [
        (31, 2, "nn.Module: Linear_0", "launch", 4),
        (32, 6, "nn.Module: Linear_0", "launch", 7),
        (33, 2, "nn.Module: Linear_0", "backward", 9),
        (34, None, None, None, None),
        (40, None, "stem/conv", "op", None),
    ]


MODULES = """label, call_count, host_forward_ns, host_backward_ns, task_count, forward_ns, backward_ns, device_total_ns,
    device_self_ns"""


def test_modules_with_their_backward_passes(make_store: MakeStore) -> None:
    ranges = [
        *RANGES,
        span(11, 2, "nn.Module: Dropout_0", 12, 4, 4, kind="module", step_id=4),
        span(12, None, "Optimizer.step#SGD.step", 90, 8, 8, kind="annotation", step_id=4),
        span(13, None, "ReluBackward0", 200, 9, 9, track_id=3),
    ]
    calls = [*CALLS, call(24, 12, 91), call(25, 11, 13), call(26, 13, 201)]
    tasks = [*TASKS, task(41, 24, 91, 50), task(42, 25, 13, 3, step_id=4), task(43, 26, 201, 20)]
    store = make_store(track=TRACKS, range=ranges, api=calls, task=tasks, flow=FLOWS)
    assert ask(store, f"SELECT {MODULES} FROM modules") == [
        ("nn.Module: Linear_0", 2, 70, 20, 5, 113, 200, 313, 310),
        ("  nn.Module: Dropout_0", 1, 4, None, 1, 3, 0, 3, 3),
        ("(optimizer)", None, None, None, 1, 0, 0, 50, 50),
        ("(no module)", None, None, None, 2, 0, 20, 27, 27),
    ]
    assert ask(store, f"SELECT {MODULES} FROM modules(step := 5)") == [
        ("nn.Module: Linear_0", 1, 30, None, 1, 10, 0, 10, 10)
    ]
    assert ask(store, "SELECT depth, path FROM modules WHERE position = 2") == [
        (1, "nn.Module: Linear_0 > nn.Module: Dropout_0")
    ]
    assert ask(store, "FROM modules(run := 2)") == []
    with traceconv.open_store(store) as opened:  # the largest rows are in the order of the tree
        assert [row["label"] for row in opened.report("modules", top=4)][1] == "  nn.Module: Dropout_0"
        assert [row["label"] for row in opened.report("modules", top=2)] == ["nn.Module: Linear_0", "(optimizer)"]


def test_modules_of_model_ops(make_store: MakeStore) -> None:
    tasks = [
        task(id_, None, None, dur, op_id=op_id) for id_, op_id, dur in ((1, 1, 5), (2, 2, 6), (3, 1, 7), (4, 3, 8))
    ]
    ops = [{"op_id": 1, "scope_path": "stem/conv"}, {"op_id": 2, "scope_path": "stem"}, {"op_id": 3}]
    assert ask(make_store(task=tasks, op=ops), f"SELECT {MODULES} FROM modules") == [
        ("stem", None, None, None, 3, 18, 0, 18, 6),
        ("  conv", None, None, None, 2, 12, 0, 12, 12),
        ("(no module)", None, None, None, 1, 0, 0, 8, 8),
    ]
