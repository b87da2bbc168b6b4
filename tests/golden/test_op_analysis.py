"""op-analysis and breakdown: a store of a few rows, and the answer worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from commands import Command
from stores import query as ask

import traceconv

MakeStore = Callable[..., Path]

OPS = [
    {
        "op_id": 1,
        "name": "conv",
        "op_type": "Conv2D",
        "flops": 600,
        "input_bytes": 30,
        "weight_bytes": 60,
        "output_bytes": 10,
        "workspace_bytes": 8,
        "input_shapes": "1,3;3,3",
        "output_shapes": "1,3",
    },
    {"op_id": 2, "name": "relu", "op_type": "Relu", "flops": 5, "input_bytes": 4, "output_bytes": 4},
    {
        "op_id": 3,
        "name": "conv2",
        "op_type": "Conv2D",
        "flops": 0,
        "input_bytes": 0,
        "weight_bytes": 0,
        "output_bytes": 0,
    },
]
DEVICE = {"peak_flops": 10**10, "peak_bytes_per_s": 4 * 10**9}


def task(id_: int, op_id: int | None, start: int, dur_ns: int | None, **more: object) -> dict[str, object]:
    return {"id": id_, "op_id": op_id, "start_ns": start, "dur_ns": dur_ns, "self_ns": dur_ns, **more}


def test_each_op_with_its_work_by_descending_time(make_store: MakeStore) -> None:
    store = make_store(
        op=OPS,
        device=[DEVICE],
        task=[task(1, 1, 0, 100), task(2, 1, 100, 151), task(3, 1, 300, None), task(4, 2, 400, 49), task(5, 3, 500, 0)],
    )
    times = "op_name, count, unfinished_count, self_ns, self_percent, cumulative_ns, total_ns, min_ns, avg_ns, max_ns"
    assert ask(store, f"SELECT {times} FROM op_analysis") == [
        ("conv", 2, 1, 251, 100 * 251 / 300, 251, 251, 100, Decimal("125.500"), 151),
        ("relu", 1, 0, 49, 100 * 49 / 300, 300, 49, 49, Decimal(49), 49),
        ("conv2", 1, 0, 0, 0.0, 300, 0, 0, Decimal(0), 0),
    ]
    work = "flops, total_flops, flops_per_s, peak_flops_percent, memory_bytes, bytes_per_s, peak_bandwidth_percent"
    assert ask(store, f"SELECT {work}, flops_per_byte, weight_bytes, input_shapes FROM op_analysis") == [
        # 1200 FLOP in 251 ns; 200 B in 251 ns
        (600, 1200, 4_780_876_494, 47.80876494, 100, 796_812_749, 19.920318725, 6.0, 60, "1,3;3,3"),
        # the weight bytes are unknown, and so are its bytes
        (5, 5, 102_040_816, 1.02040816, None, None, None, None, None, None),
        # no rate without time; no intensity without bytes
        (0, 0, None, None, 0, None, None, None, 0, None),
    ]
    assert [row[0] for row in ask(store, "SELECT cumulative_percent FROM op_analysis")][1:] == [100.0, 100.0]


def test_self_time_excludes_children(make_store: MakeStore) -> None:
    outer = task(1, 1, 0, 100, self_ns=30)
    store = make_store(op=OPS, task=[outer, task(2, 2, 10, 70)])
    columns = "op_name, self_ns, total_ns, cumulative_ns"
    assert ask(store, f"SELECT {columns} FROM op_analysis") == [("relu", 70, 70, 70), ("conv", 30, 100, 100)]


def test_runs_devices_and_steps_are_separate(make_store: MakeStore) -> None:
    store = make_store(
        op=[*OPS, {"run_id": 2, "op_id": 1, "name": "other"}],
        task=[
            task(1, 1, 0, 10, step_id=1),
            task(2, 2, 0, 30, device_id=1),
            task(3, 9, 0, 5, step_id=2),
            task(1, 1, 0, 8, run_id=2),
        ],
    )
    columns = "run_id, device_id, op_name, self_ns, self_percent"
    assert ask(store, f"SELECT {columns} FROM op_analysis") == [
        (1, 0, "conv", 10, 100 * 10 / 15),
        (1, 0, None, 5, 100 * 5 / 15),  # an op that is not in the store
        (1, 1, "relu", 30, 100.0),
        (2, 0, "other", 8, 100.0),
    ]
    assert ask(store, f"SELECT {columns} FROM op_analysis(step := 2)") == [(1, 0, None, 5, 100.0)]
    assert ask(store, f"SELECT {columns} FROM op_analysis(run := 1, device := 1)") == [(1, 1, "relu", 30, 100.0)]
    assert ask(store, "SELECT op_type, self_ns FROM op_type_analysis(step := 2)") == [(None, 5)]


def test_numbers_beyond_64_bits_are_null(make_store: MakeStore) -> None:
    huge = {"flops": 2**62, "input_bytes": 2**62, "weight_bytes": 2**62, "output_bytes": 0}
    store = make_store(op=[{"op_id": 1, "op_type": "A", **huge}], task=[task(n, 1, n, 1) for n in range(4)])
    work = "total_flops, flops_per_s, {}, bytes_per_s, total_ns"
    for report, size in (("op_analysis", "memory_bytes"), ("op_type_analysis", "total_bytes")):
        assert ask(store, f"SELECT {work.format(size)} FROM {report}") == [(None, None, None, None, 4)]


def test_types_sum_their_ops(make_store: MakeStore) -> None:
    store = make_store(
        op=OPS,
        device=[DEVICE],
        task=[task(1, 1, 0, 100), task(2, 3, 100, 20), task(3, 2, 200, 5), task(4, 2, 205, None)],
    )
    columns = "op_type, op_count, count, unfinished_count, self_ns, cumulative_ns, avg_ns, total_flops, flops_per_s"
    assert ask(store, f"SELECT {columns}, total_bytes, bytes_per_s, flops_per_byte FROM op_type_analysis") == [
        ("Conv2D", 2, 2, 0, 120, 120, Decimal(60), 600, 5 * 10**9, 100, 833_333_333, 6.0),
        ("Relu", 1, 1, 1, 5, 125, Decimal(5), 5, 10**9, None, None, None),
    ]
    (row,) = ask(
        store, "SELECT peak_flops_percent, peak_bandwidth_percent FROM op_type_analysis WHERE op_type = 'Conv2D'"
    )
    assert row == (50.0, 100 * 833_333_333 / (4 * 10**9))


def test_footprints_of_a_static_profile_are_used_if_they_agree(make_store: MakeStore) -> None:
    args = '{"computation": 80, "memory": 40}'
    rows = {
        "op": [{"op_id": n, "op_type": "Elemwise"} for n in (1, 2, 3)],
        "task": [
            task(1, 1, 0, 10, args=args),
            task(2, 1, 10, 10, args=args),
            task(3, 2, 20, 5, args=args),
            task(4, 2, 25, 5, args='{"computation": 81, "memory": "x"}'),
            task(5, 3, 30, 5),
        ],
    }
    columns = "SELECT op_id, total_flops, memory_bytes FROM op_analysis ORDER BY op_id"
    run = {"run_id": 1, "label": "a", "start_ns": 0}
    static = make_store(**rows, run=[{**run, "source_format": "megengine_static"}])
    assert ask(static, columns) == [(1, 160, 40), (2, None, 40), (3, None, None)]
    other = make_store(**rows, run=[{**run, "source_format": "chrome_json"}])
    assert ask(other, columns) == [(1, None, None), (2, None, None), (3, None, None)]


def test_busy_time_is_the_union_of_intervals(make_store: MakeStore) -> None:
    store = make_store(
        task=[
            task(1, 1, 100, 50, kind="compute"),
            task(2, 1, 110, 10, kind="compute"),  # inside the first
            task(3, 1, 140, 30, kind="compute"),  # ends after it
            task(4, None, 160, 100, kind="collective"),
            task(5, None, 300, 20, kind="copy"),
            task(6, None, 310, 400, kind="sync"),  # waits are not work
            task(7, None, 400, 0, kind=None),  # ends the window
            task(8, None, 900, None, kind="copy"),
            task(9, 1, 5, 5, kind="compute", device_id=1),
        ]
    )
    times = (
        "device_id, task_count, unfinished_count, start_ns, end_ns, window_ns, busy_ns, idle_ns, utilisation_percent"
    )
    assert ask(store, f"SELECT {times} FROM breakdown") == [
        (0, 6, 1, 100, 400, 300, 180, 120, 60.0),
        (1, 1, 0, 5, 10, 5, 5, 0, 100.0),
    ]
    parts = "compute_ns, compute_percent, copy_ns, collective_ns, exposed_collective_ns, sum_ns"
    assert ask(store, f"SELECT {parts} FROM breakdown(device := 0)") == [(70, 100 * 70 / 300, 20, 100, 90, 210)]
    parts = "overlapped_collective_ns, overlap_percent, exposed_copy_ns, other_ns, idle_ns"
    assert ask(store, f"SELECT {parts} FROM breakdown") == [(10, 10.0, 20, 0, 120), (0, None, 0, 0, 0)]


def test_the_old_name_of_a_report_works(make_store: MakeStore, command: Command) -> None:
    store = make_store(task=[task(1, 1, 0, 10, kind="compute")])
    for rows in ("device_utilisation", "device_utilisation(device := 0)"):
        assert ask(store, f"FROM {rows}") == ask(store, "FROM breakdown") != []
    with traceconv.open_store(store) as opened:
        assert opened.report("device-utilisation").fetchall() == opened.report("breakdown").fetchall()
    assert "device-utilisation is now called breakdown" in command("report", "device-utilisation", "--db", store).err


def test_a_device_without_finished_tasks_has_no_window(make_store: MakeStore) -> None:
    store = make_store(task=[task(1, 1, 10, None, kind="compute"), task(2, 1, 10, 5, kind="sync")])
    columns = "task_count, unfinished_count, window_ns, busy_ns, utilisation_percent"
    assert ask(store, f"SELECT {columns} FROM breakdown") == [(0, 1, None, 0, None)]
