"""The report roofline and the tables operator and task_operator: rows worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from stores import query as ask

from traceconv.pipeline.ingest import ingest
from traceconv.store import operator_tables
from traceconv.store.database import open_store

MakeStore = Callable[..., Path]
SAMPLES = Path(__file__).parents[2] / "sample_traces"


def operator(
    id_: int, parent: int | None, depth: int, name: str, start: int, dur: int, *arguments: tuple[list[int], str]
) -> dict[str, object]:
    args = {"Input Dims": [one[0] for one in arguments], "Input type": [one[1] for one in arguments]}
    return {"id": id_, "parent_id": parent, "depth": depth, "name": name, "kind": "host_op", "track_id": 1,
            "start_ns": start, "dur_ns": dur, "args": json.dumps(args)}  # fmt: skip


def call(id_: int, parent: int | None, start: int) -> dict[str, object]:
    return {"id": id_, "parent_id": parent, "start_ns": start, "dur_ns": 1, "correlation_id": id_, "track_id": 1}


def task(id_: int, call_id: int | None, submit: int | None, dur: int | None, **more: object) -> dict[str, object]:
    return {"id": id_, "correlation_id": call_id, "submit_ns": submit, "start_ns": 1000 + id_, "dur_ns": dur,
            "kind": "compute", "track_id": 2, **more}  # fmt: skip


X, W, B = ([256, 512], "float"), ([1024, 512], "float"), ([1024], "float")
WT = ([512, 1024], "float")
#: 2 · 256 · 512 · 1024 operations and 256 · 1024 for the bias.
ADDMM_FLOPS = 2**28 + 2**18
ADDMM_BYTES = 4 * (256 * 512 + 512 * 1024 + 1024 + 256 * 1024)
TRACKS = [{"track_id": 1, "kind": "thread", "device_id": None}, {"track_id": 2, "kind": "stream"}]
#: A linear layer by addmm, one without operators inside, an unknown operator with a copy inside, a transfer.
RANGES = [
    operator(1, None, 0, "aten::linear", 0, 100, X, W, B),
    operator(2, 1, 1, "aten::addmm", 10, 80, B, X, WT),
    operator(3, None, 0, "aten::linear", 200, 100, X, W, B),
    operator(4, None, 0, "my::fused", 400, 100, X),
    operator(5, 4, 1, "aten::copy_", 410, 20, X, X),
    operator(6, None, 0, "aten::copy_", 600, 20, X, X),
]
CALLS = [call(21, 2, 20), call(22, 2, 30), call(23, 3, 210), call(24, 4, 440), call(25, 5, 420), call(26, 6, 610),
         call(27, 1, 95)]  # fmt: skip
OPS = [
    {"op_id": 1, "name": "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n"},
    {"op_id": 2, "name": "splitKreduce_kernel"},
    {"op_id": 3, "name": "fused"},
    {"op_id": 4, "name": "mul", "op_type": "Mul", "flops": 100, "input_bytes": 50, "weight_bytes": 0,
     "output_bytes": 50},
]  # fmt: skip
TASKS = [
    task(31, 21, 20, 9_000, op_id=1),
    task(32, 22, 30, 1_000, op_id=2),
    task(33, 23, 210, 20_000, op_id=2),
    task(34, 24, 440, 700, op_id=3),
    task(35, 25, 420, 2_000, kind="copy", name="Memcpy DtoD (Device -> Device)"),
    task(36, 26, 610, 5_000, kind="copy", name="Memcpy HtoD (Pageable -> Device)"),
    task(37, 27, 95, 60, op_id=2),
    task(38, None, None, 40, op_id=4),
    task(39, None, None, 3, op_id=3),
    task(40, 21, 20, 77, kind="sync"),
    task(41, 24, 440, None, op_id=3),
]
DEVICE = [{"name": "NVIDIA A100-SXM4-40GB"}]


def make(make_store: MakeStore) -> Path:
    return make_store(track=TRACKS, range=RANGES, api=CALLS, op=OPS, task=TASKS, device=DEVICE)


@pytest.mark.parametrize(("few_levels", "part_rows", "place_bits"), [(4, 1 << 14, 16), (0, 2, 0)])
def test_tasks_belong_to_the_innermost_operator_with_a_formula(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, few_levels: int, part_rows: int, place_bits: int
) -> None:
    """Also if slices without an operator around them are dropped at once, and calls are joined two at a time."""
    monkeypatch.setattr(operator_tables, "_FEW_LEVELS", few_levels)
    monkeypatch.setattr(operator_tables, "_PART_ROWS", part_rows)
    monkeypatch.setattr(operator_tables, "_JOINED_ROWS", part_rows)
    monkeypatch.setattr(operator_tables, "_PLACE_BITS", place_bits)
    store = make(make_store)
    columns = "t.id, o.name, t.range_id, t.is_first, t.call_kind, o.flops, o.read_bytes + o.write_bytes"
    joined = "task_operator AS t JOIN operator AS o USING (run_id, operator_id)"
    assert ask(store, f"SELECT {columns} FROM {joined} ORDER BY id") == [
        (31, "aten::addmm", 2, True, "compute", ADDMM_FLOPS, ADDMM_BYTES),
        (32, "aten::addmm", 2, False, "compute", ADDMM_FLOPS, ADDMM_BYTES),
        (33, "aten::linear", 3, True, "compute", ADDMM_FLOPS, ADDMM_BYTES),
        (34, "my::fused", 4, True, "compute", None, None),
        (35, "aten::copy_", 5, True, "copy", 0, 2 * 4 * 256 * 512),
        (36, "aten::copy_", 6, True, "transfer", 0, 2 * 4 * 256 * 512),
        # The work of this linear layer is that of the addmm inside it.
        (37, "aten::linear", 1, True, "compute", None, None),
        (41, "my::fused", 4, False, "compute", None, None),
    ]  # fmt: skip


def test_names_with_the_overload_have_the_same_work(make_store: MakeStore) -> None:
    """PyTorch's profiler adds it with capture_overload_names: aten::add.Tensor."""
    sql = "SELECT id, {name}, flops FROM task_operator JOIN operator USING (run_id, operator_id) ORDER BY id"
    expected = ask(make(make_store), sql.format(name="name"))
    ranges = [
        {**one, "name": f"{one['name']}.Tensor"} if str(one["name"]).startswith("aten::") else one for one in RANGES
    ]
    store = make_store(track=TRACKS, range=ranges, api=CALLS, op=OPS, task=TASKS, device=DEVICE)
    assert ask(store, "SELECT count(*) FROM operator WHERE name LIKE 'aten::%.Tensor'") != [(0,)]
    assert ask(store, sql.format(name="replace(name, '.Tensor', '')")) == expected


def test_work_of_operators_inside_each_other_counts_once(make_store: MakeStore) -> None:
    """Kernels of a library inside have no formula, and leave the work to the operator around them."""
    image, filters, bias = ([1, 4, 8, 8], "float"), ([6, 4, 3, 3], "float"), ([6], "float")
    window = ["[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
    heads = ([2, 16, 8, 4], "c10::Half")
    turned = ([2, 8, 16, 4], "c10::Half")

    def with_values(one: dict[str, object], arguments: list[object]) -> dict[str, object]:
        args = {"Input Dims": [of[0] if isinstance(of, tuple) else [] for of in arguments],
                "Input type": [of[1] if isinstance(of, tuple) else "Scalar" for of in arguments],
                "Concrete Inputs": ["" if isinstance(of, tuple) else of for of in arguments]}  # fmt: skip
        return {**one, "args": json.dumps(args)}

    outer = [turned, turned, turned, "0.", "False", "False"]
    ranges = [
        with_values(operator(1, None, 0, "aten::convolution", 0, 100), [image, filters, bias, *window]),
        operator(2, 1, 1, "aten::cudnn_convolution", 10, 40, image, filters),
        operator(3, 1, 1, "aten::add_", 60, 30, ([1, 6, 6, 6], "float"), ([1, 6, 1, 1], "float")),
        with_values(operator(4, None, 0, "aten::_scaled_dot_product_flash_attention", 200, 100), outer),
        operator(5, 4, 1, "aten::_flash_attention_forward", 210, 80, heads, heads, heads),
    ]
    calls = [call(21, 2, 20), call(22, 3, 70), call(23, 5, 220), call(24, 4, 295)]
    tasks = [task(31 + place, 21 + place, start, 10) for place, start in enumerate((20, 70, 220, 295))]
    store = make_store(track=TRACKS, range=ranges, api=calls, task=tasks, device=DEVICE)
    assert ask(store, "SELECT name, count, flops FROM roofline ORDER BY name, flops") == [
        ("aten::_scaled_dot_product_flash_attention", 1, 2 * 2 * 8 * 16 * 16 * 8),
        ("aten::add_", 1, 216),
        ("aten::convolution", 1, 2 * 216 * 4 * 9),
    ]


def test_rows_have_the_attained_rates_and_the_roof(make_store: MakeStore) -> None:
    store = make(make_store)
    columns = "name, category, compute_type, work_source, kind, count, task_count, unfinished_count, total_ns"
    assert ask(store, f"SELECT {columns} FROM roofline") == [
        ("aten::linear", "gemm", "fp32 matrix", "formula", "compute", 1, 1, 0, 20_000),
        ("aten::addmm", "gemm", "tf32 matrix", "formula", "compute", 1, 2, 0, 10_000),
        ("aten::copy_", "memory", None, "formula", "transfer", 1, 1, 0, 5_000),
        ("aten::copy_", "memory", None, "formula", "copy", 1, 1, 0, 2_000),
        ("my::fused", None, None, None, "compute", 1, 1, 1, 700),
        ("aten::linear", "gemm", "fp32 matrix", None, "compute", 1, 1, 0, 60),
        ("Mul", "elementwise", None, "recorded", "compute", 1, 1, 0, 40),
        (None, None, None, None, None, None, 1, 0, 3),
    ]
    rates = "flops_per_s, bytes_per_s, peak_flops, peak_bytes_per_s, bound, roof_ns, round(roof_percent, 6)"
    addmm_rate, linear_rate = ADDMM_FLOPS * 10**5, ADDMM_FLOPS * 10**9 // 20_000
    memory_ns = ADDMM_BYTES / 1555
    assert ask(store, f"SELECT {rates} FROM roofline WHERE name LIKE 'aten::%' AND work_source IS NOT NULL") == [
        (linear_rate, ADDMM_BYTES * 10**9 // 20_000, 19_500 * 10**9, 1_555 * 10**9, "compute",
         ADDMM_FLOPS // 19_500, round(ADDMM_FLOPS / 19_500 / 200, 6)),
        (addmm_rate, ADDMM_BYTES * 10**5, 156_000 * 10**9, 1_555 * 10**9, "memory",
         int(memory_ns), round(memory_ns / 100, 6)),
        (0, 2**20 * 10**9 // 5_000, None, None, None, None, None),
        (0, 2**20 * 10**9 // 2_000, None, 1_555 * 10**9, "memory", 674, round(2**20 / 1555 / 20, 6)),
    ]  # fmt: skip


def test_peaks_can_be_given(make_store: MakeStore) -> None:
    store = make(make_store)
    asked = "SELECT peak_flops, peak_bytes_per_s, bound FROM roofline(peak_tflops := 0.5, peak_gbps := 100)"
    assert ask(store, f"{asked} WHERE name IN ('aten::addmm', 'Mul')") == [
        (5 * 10**11, 10**11, "compute"), (5 * 10**11, 10**11, "memory"),
    ]  # fmt: skip
    assert ask(store, "SELECT bound FROM roofline WHERE name = 'Mul'") == [(None,)]


def test_the_time_at_the_roof_is_exact(make_store: MakeStore) -> None:
    """1,280,000 operations at 19.5 TFLOP/s take 65.641… ns, whose product with 3,627, as a double, is below 238,080."""
    op = {"op_id": 1, "name": "m", "op_type": "MatMul", "flops": 3627 * 1_280_000, "input_bytes": 3627,
          "weight_bytes": 0, "output_bytes": 3627, "executions_per_task": 3627}  # fmt: skip
    store = make_store(op=[op], task=[task(1, None, 0, 476_160, op_id=1)])
    asked = "SELECT bound, roof_ns, round(roof_percent, 6) FROM roofline(peak_tflops := 19.5, peak_gbps := 1000)"
    assert ask(store, asked) == [("compute", 238_080, 50)]


def test_kernels_by_shape_of_the_operators_that_launched_them(make_store: MakeStore) -> None:
    store = make(make_store)
    columns = "SELECT kernel, operator_name, input_shapes, count, total_ns"
    assert ask(store, f"{columns} FROM kernels(by_shape := true) WHERE kind = 'compute'") == [
        ("splitKreduce_kernel", "aten::linear", "256,512;1024,512;1024", 2, 20_060),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "aten::addmm", "1024;256,512;512,1024", 1, 9_000),
        ("splitKreduce_kernel", "aten::addmm", "1024;256,512;512,1024", 1, 1_000),
        ("fused", "my::fused", "256,512", 1, 700),
        ("Mul", None, None, 1, 40),
        ("fused", None, None, 1, 3),
    ]
    assert ask(store, f"{columns} FROM kernels WHERE kind = 'compute'")[:2] == [
        ("splitKreduce_kernel", None, None, 3, 21_060),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", None, None, 1, 9_000),
    ]


def test_no_operator_need_have_launched_a_task(make_store: MakeStore) -> None:
    store = make_store(track=TRACKS, range=RANGES, task=[task(31, None, None, 9)])
    assert ask(store, "FROM operator") == ask(store, "FROM task_operator") == []


def test_only_runs_with_shapes_have_operators(make_store: MakeStore) -> None:
    bare = [{**one, "args": None} for one in RANGES]
    store = make_store(track=TRACKS, range=bare, api=CALLS, op=OPS, task=TASKS, device=DEVICE)
    assert ask(store, "SELECT name, total_ns FROM roofline") == [(None, 37_763), ("Mul", 40)]


def test_known_devices(make_store: MakeStore) -> None:
    store = make_store()
    names = {
        "NVIDIA H100 80GB HBM3": 989.4, "NVIDIA H100 PCIe": 756, "NVIDIA H200": 989.4, "NVIDIA B200": 2250,
        "NVIDIA A100-SXM4-80GB": 312, "NVIDIA A100 80GB PCIe": 312, "AMD Instinct MI300X": 1307.4,
        "AMD Instinct MI250X": 191.5, "AMD Instinct MI355X": 2516.6, "NVIDIA L4": 121, "NVIDIA L40S": 362.05,
        "NVIDIA GeForce RTX 3090": 71, "NVIDIA GeForce RTX 4090": 165.2, "Tesla V100-SXM2-16GB": 125, "Tesla T4": 65,
        "Ascend910A": 256, "Ascend910B3": None, "NVIDIA GeForce RTX 4090 Laptop GPU": None,
        "NVIDIA A100-PG509-200": None, "AMD Radeon Graphics": None, None: None,
    }  # fmt: skip
    with open_store(store) as connection:
        found = connection.execute(
            "SELECT name, device_peak_flops(name, 'fp16 matrix'), device_peak_bytes_per_s(name) > 0 "
            "FROM (SELECT unnest($1::VARCHAR[]) AS name)",
            [list(names)],
        ).fetchall()
    assert {name: (flops, has_bandwidth) for name, flops, has_bandwidth in found} == {
        name: (round(tflops * 10**12), True) if tflops else (None, None) for name, tflops in names.items()
    }
    assert ask(store, "SELECT device_peak_flops('Tesla V100-SXM2-16GB', 'bf16 matrix')") == [(None,)]


def test_ops_of_the_reference_npu_have_the_work_of_its_cost_model(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    ingest([SAMPLES / "mini_resnet"], store)
    sums = "sum(flops::HUGEINT * count), sum(memory_bytes::HUGEINT * count), sum(count)"
    [found] = ask(store, f"SELECT {sums} FROM roofline WHERE work_source = 'model'")
    assert [found] == ask(store, f"SELECT {sums} FROM op_analysis WHERE flops IS NOT NULL OR memory_bytes IS NOT NULL")
    assert found[0]
    peaks = "SELECT DISTINCT peak_flops, peak_bytes_per_s FROM"
    assert ask(store, f"{peaks} roofline WHERE work_source = 'model'") == ask(store, f"{peaks} device")
    total = ask(store, "SELECT sum(dur_ns) FROM task WHERE kind <> 'sync'")
    assert ask(store, "SELECT sum(total_ns) FROM roofline") == total
