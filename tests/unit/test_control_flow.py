"""Control flow: outputs equal onnxruntime's, and every trip's tasks are logged with the times of its shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
import runtime_invariants
from runtime_reader import Capture

import traceconv
from traceconv.cli.app import run
from traceconv.runtime.bfloat16 import BF16
from traceconv.runtime.compiled import CompiledModel, compile_model
from traceconv.runtime.control import LOGGED_TRIPS, ControlFlow
from traceconv.runtime.control_bodies import Flow
from traceconv.runtime.cost import task_ticks
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.spec import reference_npu
from traceconv.runtime.static_profile import static_profile
from traceconv.runtime.zoo import FoundModel

SPEC = reference_npu()
Inputs = Mapping[str, Any]


def model(inputs: str, outputs: str, nodes: str) -> onnx.ModelProto:
    """A model in ONNX's textual syntax."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> test ({inputs}) => ({outputs}) {{ {nodes} }}'
    return onnx.parser.parse_model(text)


COUNTED = model(
    "float[8,16] x, int64 n", "float[8,16] y, float[A,16] rows",
    """
    w = Constant <value = float[16] {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}> ()
    go = Constant <value = bool {1}> ()
    y, rows = Loop (n, go, x) <body = b (int64 i, bool g, float[8,16] v) => (bool on, float[8,16] u, float[16] row) {
        [mul] p = Mul (v, w)
        [tanh] u = Tanh (p)
        on = Identity (g)
        axes = Constant <value = int64[1] {0}> ()
        [sum] row = ReduceSum <keepdims = 0> (u, axes)
    }>
    """,
)  # fmt: skip
WHILE = model(
    "float x", "float y",
    """
    limit = Constant <value = float {100.0}> ()
    go = Less (x, limit)
    y = Loop (, go, x) <body = b (int64 i, bool g, float v) => (bool on, float u) {
        u = Add (v, v)
        on = Less (u, limit)
    }>
    """,
)  # fmt: skip
NESTED = model(
    "float[4] x, int64 n", "float[4] y",
    """
    go = Constant <value = bool {1}> ()
    y = Loop (n, go, x) <body = outer (int64 i, bool g, float[4] v) => (bool on, float[4] u) {
        on = Identity (g)
        [inner] u = Loop (i, g, v) <body = innermost (int64 j, bool h, float[4] a) => (bool still, float[4] c) {
            still = Identity (h)
            two = Constant <value = int64 {2}> ()
            rest = Mod (j, two)
            even = Cast <to = 9> (rest)
            [choice] c = If (even) <
                then_branch = t () => (float[4] r) { [tanh] r = Tanh (a) },
                else_branch = e () => (float[4] s) { [cos] s = Cos (a) }
            >
        }>
    }>
    """,
)  # fmt: skip
GROWING = model(
    "float[1,64] x, int64 n", "float[A,64] y",
    """
    go = Constant <value = bool {1}> ()
    y = Loop (n, go, x) <body = b (int64 i, bool g, float[N,64] v) => (bool on, float[M,64] u) {
        on = Identity (g)
        [exp] e = Tanh (v)
        [concat] u = Concat <axis = 0> (e, v)
    }>
    """,
)  # fmt: skip
SCAN = model(
    "float[3] s, float[3,5] x, float[5,3] z", "float[3] t, float[3,5] o, float[5,3] q",
    """
    t, o, q = Scan (s, x, z) <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
                              scan_output_axes = [-1, 0], scan_output_directions = [0, 1],
                              body = b (float[3] a, float[3] c, float[3] d) => (float[3] f, float[3] g, float[3] h) {
        e = Mul (a, c)
        f = Add (e, d)
        g = Tanh (f)
        h = Sub (f, c)
    }>
    """,
)  # fmt: skip
INDEXED = model(
    "float[6,4] x", "float[4] y",
    """
    n = Constant <value = int64 {6}> ()
    go = Constant <value = bool {1}> ()
    zero = Constant <value = float[4] {0.0, 0.0, 0.0, 0.0}> ()
    y = Loop (n, go, zero) <body = b (int64 i, bool g, float[4] v) => (bool on, float[4] u) {
        on = Identity (g)
        row = Gather <axis = 0> (x, i)
        u = Add (v, row)
    }>
    """,
)  # fmt: skip
NOTHING = model(
    "float[4] x, int64 n", "float[4] y",
    """
    go = Constant <value = bool {1}> ()
    r = Relu (x)
    z = Loop (n, go, r) <body = b (int64 i, bool g, float[4] v) => (bool g, float[4] v) { }>
    y = Neg (z)
    """,
)  # fmt: skip
SEQUENCE = model(
    "float[4] x", "float[4] y",
    """
    n = Constant <value = int64 {3}> ()
    go = Constant <value = bool {1}> ()
    r = Relu (x)
    empty = SequenceConstruct (r)
    all = Loop (n, go, empty) <body = b (int64 i, bool g, seq(float[4]) s) => (bool on, seq(float[4]) u) {
        on = Identity (g)
        u = SequenceInsert (s, x)
    }>
    one = Constant <value = int64 {1}> ()
    y = SequenceAt (all, one)
    """,
)  # fmt: skip
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def counted(n: int) -> Inputs:
    return {"x": normal(8, 16), "n": np.array(n)}


def compiled(proto: onnx.ModelProto, inputs: Inputs | None = None) -> CompiledModel:
    return compile_model(FoundModel("test", proto), inputs=inputs)


def flows_of(found: CompiledModel, inputs: Inputs) -> tuple[dict[str, Any], Flow]:
    """The outputs, and the trips of the only op of control flow."""
    flows: dict[int, Flow] = {}
    values = found.executor.run(dict(inputs), flows=flows)
    [flow] = flows.values()
    return values, flow


@pytest.mark.parametrize(
    ("proto", "inputs", "trips"),
    [
        *((COUNTED, counted(n), n) for n in (0, 1, 7)),
        (WHILE, {"x": np.array(3, np.float32)}, 6),
        (WHILE, {"x": np.array(100, np.float32)}, 0),
        (NESTED, {"x": normal(4), "n": np.array(5)}, 5),
        *((GROWING, {"x": normal(1, 64), "n": np.array(n)}, n) for n in (0, 1, 5)),
        (SCAN, {"s": normal(3), "x": normal(3, 5), "z": normal(5, 3)}, 5),
        (INDEXED, {"x": normal(6, 4)}, 6),
        (NOTHING, {"x": normal(4), "n": np.array(3)}, 3),
    ],
)
def test_outputs_are_those_of_onnxruntime(proto: onnx.ModelProto, inputs: Inputs, trips: int) -> None:
    found = compiled(proto, inputs)
    values, flow = flows_of(found, inputs)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for entry, expected in zip(session.get_outputs(), session.run(None, dict(inputs)), strict=True):
        assert values[entry.name].dtype == expected.dtype
        np.testing.assert_array_equal(values[entry.name], expected)
    assert sum(count for _, count in flow) == trips
    if proto is not NOTHING:
        assert found.executor.control.controls, "its bodies can be lowered"


def test_bodies_in_bfloat16_round_their_results() -> None:
    """Each trip's product and sum are rounded, also those that no other op reads."""
    proto = model(
        "bfloat16[4] x, int64 n", "bfloat16[4] y",
        """
        go = Constant <value = bool {1}> ()
        r = Relu (x)
        y = Loop (n, go, r) <body = b (int64 i, bool g, bfloat16[4] v) => (bool on, bfloat16[4] u) {
            on = Identity (g)
            p = Mul (v, v)
            u = Add (p, x)
        }>
        """,
    )  # fmt: skip
    x = np.array([0.3, 0.7, 0.11, 0.9]).astype(BF16)
    found = compiled(proto, {"x": x, "n": np.array(3)})
    values, flow = flows_of(found, {"x": x, "n": np.array(3)})
    expected = x
    for _ in range(3):
        expected = (expected * expected).astype(BF16) + x
    assert sum(count for _, count in flow) == 3
    assert values["y"].dtype == BF16 and values["y"].tobytes() == expected.tobytes()
    ops = flow[0][0].variant.program.ops
    assert all(tensor.dtype == "DT_BF16" for op in ops for tensor in op.writes)


def test_the_ops_that_nested_loops_and_branches_run_are_known() -> None:
    inputs = {"x": normal(4), "n": np.array(5)}
    found = compiled(NESTED, inputs)
    _, flow = flows_of(found, inputs)
    [index] = found.executor.control.controls
    names = Counter(name for _, name in found.executor.control.launched(index, flow) if name)
    ran = {tuple(name.split("/")[1:]) for name in names if name.endswith(("tanh", "cos"))}
    odd = {(i, j) for i in range(5) for j in range(i) if j % 2}
    every = {(i, j) for i in range(5) for j in range(i)}
    trips = {True: ("then", "tanh"), False: ("else", "cos")}
    assert ran == {(f"body[{i}]", "inner", f"body[{j}]", "choice", *trips[(i, j) in odd]) for i, j in every}
    assert set(names.values()) == {1}


@pytest.mark.parametrize("trips", [5, 30])
def test_no_execution_is_lost_wherever_logging_of_single_trips_ends(trips: int) -> None:
    inputs = {"x": normal(4), "n": np.array(trips)}
    found = compiled(NESTED, inputs)
    _, flow = flows_of(found, inputs)
    control = found.executor.control
    [index] = control.controls
    inner = sum(range(trips))
    odd = sum(j % 2 for i in range(trips) for j in range(i))
    expected = {"Loop": trips, "If": inner, "Tanh": odd, "Cos": inner - odd}
    for logged in (0, 1, 7, 100, 10_000):
        counts: Counter[str] = Counter()
        for op, name in control.launched(index, flow, logged):
            counts[op.op_type.split(" ")[0]] += op.repeats
            assert (op.repeats > 1) <= (name is None)
        assert {kind: counts[kind] for kind in expected} == expected


def test_a_branch_that_is_invalid_for_these_shapes_is_ignored() -> None:
    proto = model(
        "float[2,3] x", "float[2,3] y",
        """
        least = Constant <value = float {-100.0}> ()
        top = ReduceMax <keepdims = 0> (x)
        c = Greater (top, least)
        y = If (c) <then_branch = a () => (float[2,3] p) { p = Tanh (x) }, else_branch = b () => (float[2,3] q) {
            shape = Constant <value = int64[2] {7, 7}> ()
            q = Reshape (x, shape)
        }>
        """,
    )  # fmt: skip
    inputs = {"x": normal(2, 3)}
    values, flow = flows_of(compiled(proto), inputs)
    np.testing.assert_allclose(values["y"], np.tanh(inputs["x"]), rtol=1e-6)
    assert [op.op_type for op in flow[0][0].variant.program.ops] == ["Tanh"]


def recorded(proto: onnx.ModelProto, inputs: Inputs, folder: Path, **options: Any) -> Capture:
    onnx.save(proto, folder / "m.onnx")
    np.savez(folder / "in.npz", **inputs)
    asked = RecordOptions(
        str(folder / "m.onnx"),
        folder / "raw",
        input_path=folder / "in.npz",
        deterministic=True,
        iterations=1,
        **options,
    )
    capture = Capture(record(asked).folder)
    runtime_invariants.check(capture)
    return capture


def op_tasks(capture: Capture) -> list[tuple[str, int, int]]:
    """Name, start and end in ticks of each task with an op, in order."""
    begins, ends = capture.pairs("task", "task_id")
    names = {int(op["op_index"]): capture.texts[int(op["name"])] for op in capture["op"]}
    mine = begins["op_index"] != runtime_invariants.NONE32
    rows = [
        (capture.texts[int(begin["name"])] or names[int(begin["op_index"])], int(begin["ticks"]), int(end["ticks"]))
        for begin, end in zip(begins[mine], ends[mine], strict=True)
    ]
    return sorted(rows, key=lambda row: row[1])


def test_each_trip_is_logged_with_its_own_time(tmp_path: Path) -> None:
    capture = recorded(COUNTED, counted(3), tmp_path)
    names = [name for name, _, _ in op_tasks(capture)]
    body = [name for name in names if "/body[" in name]
    assert len(body) % 3 == 0
    assert [name.split("/")[1] for name in body] == [
        f"body[{trip}]" for trip in range(3) for _ in range(len(body) // 3)
    ]


@pytest.mark.parametrize("more", [1, 2, 1_000])
def test_later_trips_are_one_task_per_op_with_their_total_time(more: int, tmp_path: Path) -> None:
    capture = recorded(COUNTED, counted(LOGGED_TRIPS + more), tmp_path)
    tasks = op_tasks(capture)
    single = {name.split("/")[-1]: end - start for name, start, end in tasks if "/body[1]/" in name}
    rest = [row for row in tasks if "/body/" in row[0] or row[0].endswith(f" x{more}")]
    assert len(rest) == len(single)
    gap = SPEC.dispatch_gap_ticks
    assert rest == tasks[-len(rest) :]
    for name, start, end in rest:
        assert end - start == more * single[name.split("/")[-1].removesuffix(f" x{more}")]
    for (_, _, end), (_, start, _) in pairwise(rest):
        assert start >= end + more * gap  # it may wait for its launch
        assert start == end + more * gap or more < 1_000
    # Counters, flops and bytes of such a task are those of all its executions.
    ops = {capture.texts[int(op["name"])]: op for op in capture["op"]}
    for name, op in ops.items():
        one = ops.get(name.removesuffix(f" x{more}"))
        if more > 1 and name.endswith(f" x{more}") and one is not None:
            for field in ("flops", "input_bytes", "weight_bytes", "output_bytes"):
                assert int(op[field]) == more * int(one[field])


def test_a_task_of_several_executions_counts_as_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, averages and work by op and type are those of a recording that logs each trip."""
    more = 30
    answers = []
    for logged in (LOGGED_TRIPS, LOGGED_TRIPS + more):
        monkeypatch.setattr(ControlFlow.launched, "__defaults__", (logged,))
        folder = tmp_path / str(logged)
        folder.mkdir()
        recorded(COUNTED, counted(LOGGED_TRIPS + more), folder)
        traceconv.ingest(folder / "raw", db=folder / "t.duckdb")
        with traceconv.open_store(folder / "t.duckdb") as store:
            store.export("msprof", folder / "out")
            ops = store.query(
                "SELECT op_type, core_type, count, min_ns IS NULL, max_ns IS NULL, total_ns, avg_ns FROM op_statistic"
            ).fetchall()
            work = store.query("SELECT op_type, count, total_flops, total_bytes FROM op_type_analysis").fetchall()
            each = store.query(
                "SELECT regexp_replace(op_name, ' x\\d+$', ''), flops, memory_bytes, weight_bytes, sum(count) FROM "
                "op_analysis GROUP BY ALL ORDER BY ALL"
            ).fetchall()
            names = store.query("SELECT name, count FROM npu_operator ORDER BY name").fetchall()
            executions = store.query("SELECT sum(operator_count)::BIGINT FROM npu_execution").fetchall()
            assert not store.query("SELECT 1 FROM op WHERE op_type LIKE '% x%'").fetchall()
        answers.append((ops, work, each, names, executions))
        assert run(["verify", str(folder / "out")]) == 0
    (ops, work, each, names, executions), (plain_ops, plain_work, plain_each, plain_names, plain_executions) = answers
    assert each == plain_each and names == plain_names and executions == plain_executions
    assert sorted(work) == sorted(plain_work)
    assert any(unknown for _, _, _, unknown, _, _, _ in ops) and not any(row[3] for row in plain_ops)
    for row, plain in zip(sorted(ops), sorted(plain_ops), strict=True):
        assert row[:3] == plain[:3] and row[3] == row[4]
        # Times differ by the resolution of the device's counter alone.
        assert abs(row[5] - plain[5]) <= 20 * row[2] and float(row[6]) == pytest.approx(row[5] / row[2], abs=0.001)


def test_the_time_of_a_loop_grows_with_its_trips(tmp_path: Path) -> None:
    spans = []
    for trips in (0, 1, 10, 1_000):
        folder = tmp_path / str(trips)
        folder.mkdir()
        tasks = op_tasks(recorded(COUNTED, counted(trips), folder))
        spans.append(sum(end - start for name, start, end in tasks if "/body" in name))
    assert spans == [spans[1] * trips for trips in (0, 1, 10, 1_000)] and spans[1] > 0


def test_a_trip_costs_what_its_own_shapes_cost() -> None:
    inputs = {"x": normal(1, 64), "n": np.array(12)}
    found = compiled(GROWING, inputs)
    _, flow = flows_of(found, inputs)
    shapes = [trip.variant.program.graph.tensors["v"].shape for trip, _ in flow]
    assert shapes == [(2**trip, 64) for trip in range(12)]
    ticks = [sum(task_ticks(SPEC, op.cost) for op in trip.variant.program.ops) for trip, _ in flow]
    assert ticks == sorted(ticks) and ticks[-1] > 2 * ticks[0]


def test_unboundedly_many_shapes_are_estimated_by_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceconv.runtime.control_bodies._MAX_VARIANTS", 4)
    inputs = {"x": normal(1, 64), "n": np.array(9)}
    found = compiled(GROWING, {"x": inputs["x"], "n": np.array(1)})
    values, flow = flows_of(found, inputs)
    assert values["y"].shape == (512, 64)
    rows = [(trip.variant.program.graph.tensors["v"].shape[0], count) for trip, count in flow]
    assert rows == [(1, 1), (2, 1), (4, 1), (8, 6)]


def test_a_loop_over_sequences_is_refused() -> None:
    with pytest.raises(traceconv.ModelError, match="sequence") as caught:
        static_profile(FoundModel("test", SEQUENCE))
    assert "\n" not in str(caught.value)


def test_a_session_logs_the_trips_of_each_run(tmp_path: Path) -> None:
    first = counted(2)
    with traceconv.Session(COUNTED, inputs=first) as session:
        with traceconv.profile(tmp_path / "one.json") as early:
            assert session.run(first)["rows"].shape == (2, 16)
            assert session.run(counted(LOGGED_TRIPS + 50))["rows"].shape == (LOGGED_TRIPS + 50, 16)
        with traceconv.profile(tmp_path / "two.json"):
            session.run(counted(1))
    events = {name: _events(tmp_path / f"{name}.json") for name in ("one", "two")}
    assert early is not None
    assert sum("/body[0]/tanh" in name or "/body[0]/mul" in name for name in events["one"]) >= 2
    assert any(name.endswith(" x50") for name in events["one"])
    assert not any(name.endswith(" x50") or "body[1]" in name for name in events["two"])
    assert any("/body[0]/" in name for name in events["two"])


def _events(path: Path) -> list[str]:
    import json

    data = json.loads(path.read_text())
    rows = data["traceEvents"] if isinstance(data, dict) else data
    return [str(row.get("name", "")) for row in rows]


def test_an_estimate_lists_its_assumptions(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def shown(proto: onnx.ModelProto) -> str:
        onnx.save(proto, tmp_path / "m.onnx")
        assert run(["model", str(tmp_path / "m.onnx")]) == 0
        return capfd.readouterr().err

    assert "6 trips, its limit" in shown(INDEXED)
    assert "1 trip, since the number depends on values" in shown(WHILE)
    assert "5 trips, by the shape of its input" in shown(SCAN)


def test_an_estimate_counts_every_trip() -> None:
    profile = static_profile(FoundModel("test", INDEXED))
    single = {one.op.name.split("/")[-1].split(" ")[0]: one for one in profile.ops if one.op.repeats > 1}
    assert single and all(one.op.repeats == 6 for one in single.values())
    assert all(one.op.name.endswith(" x6") and " " not in one.op.op_type for one in single.values())
    ticks = {one.op.name: 6 * task_ticks(SPEC, one.op.cost) for one in single.values()}
    assert all(one.dur_ns == ticks[one.op.name] * 20 for one in single.values())


def test_the_workspace_of_a_loop_is_what_a_trip_needs() -> None:
    found = compiled(COUNTED, counted(2))
    [op] = [op for op in found.program.ops if op.op_type == "Loop"]
    # The product (fused with the tanh), its result and the row; the partial sums of the row.
    assert op.cost.workspace_bytes >= 8 * 16 * 4 + 16 * 4
    assert op.cost.workspace_bytes % 512 == 0
