"""Each report: a store of a few rows, a query, and the expected rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from stores import query as ask

MakeStore = Callable[..., Path]


def task(id_: int, op_id: int | None, dur_ns: int | None, **more: object) -> dict[str, object]:
    return {"id": id_, "op_id": op_id, "dur_ns": dur_ns, "core_type": "AI_CORE", "start_ns": id_, **more}


OPS = [
    {"op_id": 1, "op_type": "Conv2D", "name": "conv_a"},
    {"op_id": 2, "op_type": "Conv2D", "name": "conv_b"},
    {"op_id": 3, "op_type": "Relu", "name": "relu"},
]


def test_op_statistic_sums_types_over_ops_and_skips_tasks_without_one(make_store: MakeStore) -> None:
    sources = ["recorded", "name", "recorded"]
    store = make_store(
        op=[{**op, "op_type_source": source} for op, source in zip(OPS, sources, strict=True)],
        task=[task(1, 1, 100), task(2, 2, 51), task(3, 2, None), task(4, 3, 50), task(5, None, 7_000)],
    )
    assert ask(store, "FROM op_statistic") == [
        # run, device, type, its source, core, count, unfinished, total, min, avg, max, ratio
        (1, 0, "Conv2D", "name", "AI_CORE", 2, 1, 151, 51, Decimal("75.500"), 100, 100 * 151 / 201),
        (1, 0, "Relu", "recorded", "AI_CORE", 1, 0, 50, 50, Decimal("50.000"), 50, 100 * 50 / 201),
    ]


def test_op_statistic_counts_each_run_and_device(make_store: MakeStore) -> None:
    store = make_store(
        op=[*OPS, {"run_id": 2, "op_id": 1, "op_type": "Add"}],
        task=[task(1, 1, 30), task(2, 3, 10, device_id=1), task(1, 1, 8, run_id=2)],
    )
    ratios = "SELECT run_id, device_id, op_type, total_ns, ratio_percent FROM op_statistic"
    assert ask(store, ratios) == [
        (1, 0, "Conv2D", 30, 100.0),
        (1, 1, "Relu", 10, 100.0),
        (2, 0, "Add", 8, 100.0),
    ]
    assert ask(store, f"{ratios}(run := 2)") == [(2, 0, "Add", 8, 100.0)]
    assert ask(store, f"{ratios}(run := 1, device := 1)") == [(1, 1, "Relu", 10, 100.0)]
    assert ask(store, f"{ratios}(device := 7)") == []


def test_op_statistic_with_ties_unknown_types_and_unfinished_tasks(make_store: MakeStore) -> None:
    store = make_store(
        op=[{"op_id": n, "op_type": kind} for n, kind in enumerate(["B", "A", None])],
        task=[task(1, 0, 5), task(2, 1, 5), task(3, 2, None), task(4, 1, 5, core_type=None), task(5, 9, 5)],
    )
    rows = ask(store, "SELECT op_type, core_type, count, unfinished_count, total_ns, avg_ns FROM op_statistic")
    assert rows == [
        ("A", "AI_CORE", 1, 0, 5, Decimal(5)),
        ("A", None, 1, 0, 5, Decimal(5)),
        ("B", "AI_CORE", 1, 0, 5, Decimal(5)),
        # An unknown type and an op that is not in the store are one row.
        (None, "AI_CORE", 1, 1, 5, Decimal(5)),
    ]


def test_op_statistic_average_is_rounded_half_up_to_a_thousandth(make_store: MakeStore) -> None:
    store = make_store(op=OPS, task=[task(n, 1, 1 if n else 2) for n in range(3)])
    assert ask(store, "SELECT total_ns, count, avg_ns FROM op_statistic") == [(4, 3, Decimal("1.333"))]


def test_op_statistic_sums_are_exact_beyond_doubles(make_store: MakeStore) -> None:
    long = 2**61 + 1
    store = make_store(op=OPS, task=[task(1, 1, long), task(2, 1, long), task(3, 1, 1)])
    assert ask(store, "SELECT total_ns, max_ns FROM op_statistic") == [(2 * long + 1, long)]


def test_op_statistic_of_one_step(make_store: MakeStore) -> None:
    store = make_store(op=OPS, task=[task(1, 1, 5, step_id=1), task(2, 1, 6, step_id=2), task(3, 1, 7)])
    assert ask(store, "SELECT total_ns FROM op_statistic(step := 2)") == [(6,)]


def test_op_summary_joins_op_device_and_counters(make_store: MakeStore) -> None:
    counters = {
        "metric_group": "PipeUtilization",
        "aic_total_cycles": 48_000,
        "aic_mac_cycles": 36_000,
        "aic_scalar_cycles": 12_000,
        "aic_mte1_cycles": 0,
        "aic_mte2_cycles": 1,
        "aic_fixpipe_cycles": 48_000,
        "aic_icache_miss_count": 3,
        "aic_icache_request_count": 12,
        **dict.fromkeys(["aiv_total_cycles", "aiv_vec_cycles", "aiv_scalar_cycles"], 0),
        **dict.fromkeys(["aiv_mte2_cycles", "aiv_mte3_cycles"], 0),
        "aiv_icache_miss_count": 0,
        "aiv_icache_request_count": 0,
    }
    store = make_store(
        op=[{"op_id": 1, "model_id": 7, "name": "conv", "op_type": "Conv2D", "state": "static"}],
        device=[{"core_clock_hz": 1_600_000_000, "ai_core_count": 24, "ai_vector_core_count": 48}],
        task=[
            task(5, 1, 2_000, start_ns=100, task_type="AI_CORE", block_count=30, wait_ns=0),
            task(6, 1, 10, start_ns=90, wait_ns=-4),
            task(7, None, 10),
        ],
        task_pmu=[{"id": 5, **counters}],
    )
    # 48000 cycles / 1600 MHz / 30 blocks · ⌈30 / 24⌉ = 2 µs
    columns = "id, model_id, op_name, wait_ns, aicore_time_ns, aic_mac_time_ns, aic_mac_ratio, aic_mte2_time_ns, "
    columns += "aic_icache_miss_rate, aiv_time_ns, aiv_vec_ratio, aiv_icache_miss_rate, cube_utilization_percent"
    assert ask(store, f"SELECT {columns} FROM op_summary ORDER BY start_ns") == [
        (6, 7, "conv", -4, *[None] * 9),
        (5, 7, "conv", 0, 2_000, 1_500, 0.75, 0, 0.25, 0, 0.0, 0.0, 62.5),
    ]


def test_time_of_cycles_is_exact(make_store: MakeStore) -> None:
    cases = [  # cycles, clock_hz, blocks, cores
        (48_000, 1_600_000_000, 30, 24),
        (1, 2_000_000_000, 1, 1),  # half a ns: rounded up
        (672_029, 1_000_000_000, 32, 32),
        (10**12, 1_650_000_000, 24, 24),  # 128 bits
        (48_001, 1_333_333_333, 7, 3),  # not a multiple of 1 MHz: 128 bits
        (2**63 - 1, 2_000_000_000, 2**31, 5),
    ]
    exact = []
    for cycles, clock_hz, blocks, cores in cases:
        time_ns = Fraction(cycles * 10**9, clock_hz * blocks) * -(-blocks // cores)
        exact.append(((time_ns + Fraction(1, 2)).__floor__(),))
    rows = ", ".join(
        f"({place}, {cycles}::BIGINT, {hz}::BIGINT, {blocks}::BIGINT, {cores}::BIGINT)"
        for place, (cycles, hz, blocks, cores) in enumerate(cases)
    )
    sql = f"SELECT cycles_ns(c, h, b, n) FROM (VALUES {rows}) t(place, c, h, b, n) ORDER BY place"
    assert ask(make_store(), sql) == exact


def test_time_of_cycles_without_a_clock_a_block_or_a_core_is_null(make_store: MakeStore) -> None:
    rows = "(NULL, 1, 1, 1), (1, 0, 1, 1), (1, 1, 0, 1), (1, 1, 1, 0), (1, 1, NULL, 1), (1, 0, 70000, 1)"
    sql = f"SELECT cycles_ns(c, h, b, n) FROM (VALUES {rows}) t(c, h, b, n)"
    assert ask(make_store(), sql) == [(None,)] * 6


def test_op_summary_of_a_mixed_task_has_other_blocks_for_its_vector_part(make_store: MakeStore) -> None:
    store = make_store(
        op=OPS,
        device=[{"core_clock_hz": 1_000_000_000, "ai_core_count": 10, "ai_vector_core_count": 20}],
        task=[
            task(1, 1, 9, task_type="MIX_AIC", block_count=10, mix_block_count=20),
            task(2, 1, 9, task_type="MIX_AIV", block_count=20, mix_block_count=10),
        ],
        task_pmu=[
            {"id": n, "metric_group": "PipeUtilization", "aic_total_cycles": 1000, "aiv_total_cycles": 1000}
            for n in (1, 2)
        ],
    )
    rows = ask(store, "SELECT id, aicore_time_ns, aiv_time_ns FROM op_summary ORDER BY id")
    assert rows == [(1, 100, 50), (2, 100, 50)]


def test_step_trace_of_inference_has_no_backward_part(make_store: MakeStore) -> None:
    step = {"model_id": 1, "device_id": 0}
    store = make_store(
        step=[
            {**step, "step_id": 1, "iteration": 1, "start_ns": 90, "fp_start_ns": 100, "end_ns": 300},
            {**step, "step_id": 2, "iteration": 2, "start_ns": 340, "fp_start_ns": 350, "end_ns": None},
            {**step, "step_id": 3, "iteration": 3, "start_ns": 400, "fp_start_ns": 410, "end_ns": 500},
            {**step, "step_id": 4, "iteration": 1, "start_ns": 320, "fp_start_ns": 330, "end_ns": 340, "model_id": 2},
        ]
    )
    columns = "step_id, iteration_time_ns, fp_to_bp_ns, refresh_ns, data_aug_bound_ns, reduce_start_ns"
    assert ask(store, f"SELECT {columns} FROM step_trace") == [
        (1, 200, None, None, None, None),
        (2, None, None, None, 50, None),
        (3, 90, None, None, None, None),  # the end of the previous step is unknown
        (4, 10, None, None, None, None),  # the first step of its model
    ]
    assert ask(store, "SELECT data_aug_bound_ns FROM step_trace(step := 2)") == [(50,)]


def test_step_trace_of_training_with_reduces_and_overlap(make_store: MakeStore) -> None:
    steps = [
        {"step_id": 1, "iteration": 1, "fp_start_ns": 100, "bp_end_ns": 180, "end_ns": 200},
        {"step_id": 2, "iteration": 2, "fp_start_ns": 190, "bp_end_ns": 260, "end_ns": 300},
    ]
    store = make_store(
        step=steps,
        task=[
            task(3, None, 5, kind="collective", step_id=1, start_ns=182),
            task(2, None, None, kind="collective", step_id=1, start_ns=181),
            task(4, None, 5, kind="compute", step_id=1, start_ns=183),
            task(5, None, 6, kind="collective", step_id=2, start_ns=262, device_id=1),
        ],
    )
    columns = "iteration_time_ns, fp_to_bp_ns, refresh_ns, data_aug_bound_ns, reduce_start_ns, reduce_dur_ns"
    assert ask(store, f"SELECT {columns} FROM step_trace") == [
        (100, 80, 20, None, [181, 182], [None, 5]),
        (110, 70, 40, -10, None, None),
    ]


def test_step_trace_of_steps_without_forward_and_backward(make_store: MakeStore) -> None:
    steps = [
        {"step_id": 1, "iteration": 1, "start_ns": 100, "end_ns": 220},  # such as a ProfilerStep of PyTorch
        {"step_id": 2, "iteration": 2, "start_ns": 250, "bp_end_ns": 260, "end_ns": 300},
    ]
    columns = "iteration_time_ns, fp_to_bp_ns, refresh_ns, data_aug_bound_ns"
    assert ask(make_store(step=steps), f"SELECT {columns} FROM step_trace") == [
        (120, None, None, None),
        (None, None, 40, None),
    ]


def test_task_time_has_every_task(make_store: MakeStore) -> None:
    store = make_store(
        task=[
            task(9, None, 5, start_ns=20, name="copy", task_type="SDMA", kind="copy", stream_wait_ns=0),
            task(8, 1, None, start_ns=20, name="conv", task_type="AI_CORE", source_task_id=77, stream_wait_ns=None),
            task(7, 1, 3, start_ns=10, device_id=1),
        ]
    )
    columns = "id, device_id, name, task_type, source_task_id, dur_ns, start_ns, end_ns, stream_wait_ns"
    order = "run_id, device_id, start_ns, id"
    assert ask(store, f"SELECT {columns} FROM task_time ORDER BY {order}") == [
        (8, 0, "conv", "AI_CORE", 77, None, 20, None, None),
        (9, 0, "copy", "SDMA", None, 5, 20, 25, 0),
        (7, 1, None, None, None, 3, 10, 13, None),
    ]


def test_fusion_op_joins_originals_in_order_and_sums_memory(make_store: MakeStore) -> None:
    sizes = {"input_bytes": 1, "output_bytes": 2, "weight_bytes": 3, "workspace_bytes": 4}
    fusion = {"fusion_id": 1, "op_id": 1, "original_type": "Conv"}
    store = make_store(
        op=[
            {"op_id": 1, "model_id": 5, "model_name": "net", "name": "conv_relu", **sizes},
            {"op_id": 2, "model_id": 5, "name": "mm_add", **sizes, "workspace_bytes": None},
        ],
        fusion=[
            {**fusion, "original_index": 1, "original_name": "relu"},
            {**fusion, "original_index": 0, "original_name": "conv"},
            {**fusion, "fusion_id": 2, "op_id": 2, "original_index": 0, "original_name": "mm"},
        ],
        task=[task(1, 1, 5), task(2, 1, 5), task(3, 1, 5, device_id=1)],
    )
    columns = "op_id, device_id, model_name, fusion_op, original_count, original_ops, total_bytes"
    assert ask(store, f"SELECT {columns} FROM fusion_op") == [
        (1, 0, "net", "conv_relu", 2, "conv;relu", 10),
        (1, 1, "net", "conv_relu", 2, "conv;relu", 10),
        (2, None, None, "mm_add", 1, "mm", None),  # never ran, with unknown workspace
    ]
    assert ask(store, "SELECT op_id FROM fusion_op(device := 1)") == [(1,)]


def variance_us2(durations: list[int]) -> Fraction:
    mean = Fraction(sum(durations), len(durations))
    return sum(((d - mean) ** 2 for d in durations), Fraction(0)) / len(durations) / 10**6


def test_api_statistic_variance_is_exact(make_store: MakeStore) -> None:
    cases = {
        "a": [1_000, 2_000, 4_000],
        "b": [7],
        "c": [0, 0],
        "d": [10**14 + 1, 10**14 + 2, 10**14 + 4],  # doubles would lose this variance
        "e": [3, 1_000_000_000_000, 5, 9],
    }
    calls = [
        {"id": n, "level": "runtime", "name": name, "dur_ns": duration}
        for name, durations in cases.items()
        for n, duration in enumerate(durations)
    ]
    found = dict(ask(make_store(api=calls), "SELECT name, variance_us2 FROM api_statistic"))  # type: ignore[arg-type]
    for name, durations in cases.items():
        assert found[name] == pytest.approx(float(variance_us2(durations)), rel=1e-15, abs=0), name


def test_api_statistic_groups_by_level_and_name_and_sorts_by_time(make_store: MakeStore) -> None:
    def call(id_: int, level: str | None, name: str, dur_ns: int | None, **more: object) -> dict[str, object]:
        return {"id": id_, "level": level, "name": name, "dur_ns": dur_ns, **more}

    store = make_store(
        api=[
            call(1, "runtime", "Launch", 5),
            call(2, "runtime", "Launch", None),
            call(3, "acl", "Launch", 5, step_id=1),
            call(4, None, "x", 2**50),
            call(5, "acl", "open", None),
        ]
    )
    columns = "level, name, total_ns, count, unfinished_count, avg_ns, min_ns, max_ns, variance_us2"
    assert ask(store, f"SELECT {columns} FROM api_statistic") == [
        (None, "x", 2**50, 1, 0, Decimal(2**50), 2**50, 2**50, None),
        ("acl", "Launch", 5, 1, 0, Decimal(5), 5, 5, 0.0),
        ("runtime", "Launch", 5, 1, 1, Decimal(5), 5, 5, 0.0),
        ("acl", "open", 0, 0, 1, None, None, None, None),
    ]
    assert ask(store, "SELECT name FROM api_statistic(step := 1)") == [("Launch",)]


def test_the_three_task_reports_agree_to_the_nanosecond(make_store: MakeStore) -> None:
    tasks = [
        task(n, n % 4 or None, None if n % 11 == 0 else n * n * 997, run_id=1 + n % 2, device_id=n % 3)
        for n in range(1, 200)
    ]
    store = make_store(op=[{**op, "run_id": run} for op in OPS for run in (1, 2)], task=tasks)
    expected = sum(row["dur_ns"] or 0 for row in tasks if row["op_id"] is not None)  # type: ignore[misc]
    for report in ("op_statistic", "op_summary", "task_time WHERE op_id IS NOT NULL"):
        column = "total_ns" if report == "op_statistic" else "dur_ns"
        assert ask(store, f"SELECT sum({column}) FROM {report}") == [(expected,)]
