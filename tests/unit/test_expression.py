"""Expressions: each op takes as long as alone, the graph includes the gaps; the workspace is the peak, not the sum."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from commands import Command

import traceconv
from traceconv import ops, profile_expression, profile_op
from traceconv.base.errors import TraceconvError
from traceconv.runtime.spec import reference_npu
from traceconv.runtime.static_profile import static_profile

SPEC = reference_npu()
GAP_NS = SPEC.dispatch_gap_ticks * 10**9 // SPEC.clock_hz


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def two_convolutions(x: Any, w: Any, v: Any) -> Any:
    return ops.Conv(ops.MaxPool(ops.Conv(x, w), kernel_shape=[2, 2]), v)


SHAPES = [(16, 3, 224, 224), (3, 3, 5, 5), (8, 3, 3, 3)]


def test_the_workspace_of_all_is_the_peak_and_each_op_is_as_alone() -> None:
    found = profile_expression(two_convolutions, SHAPES, repeat=2)
    assert [op.op_type for op in found.ops] == ["Conv2D", "MaxPoolV3", "Conv2D"]
    sizes = [op.workspace_bytes for op in found.ops]
    assert sizes[0] == 29_040_128 and sizes[1] == 0 < sizes[2]
    assert found.workspace_bytes == max(sizes) < sum(sizes)
    first = profile_op("Conv", SHAPES[:2])
    assert (found.ops[0].latencies_ns[:1], sizes[0]) == (first.latencies_ns, first.workspace_bytes)
    each = sum(op.latencies_ns[0] for op in found.ops)
    assert found.latencies_ns == (each + 2 * GAP_NS,) * 2
    assert found.flops == sum(op.flops for op in found.ops)
    tensors = [*SHAPES, (16, 8, 217, 217)]
    assert found.output_shapes == "16,8,217,217"
    assert found.memory_bytes == sum(4 * int(np.prod(shape)) for shape in tensors)


def test_ops_are_fused_as_in_a_model() -> None:
    found = profile_expression(lambda x, w: ops.Relu(ops.Conv(x, w)), SHAPES[:2])
    assert [op.op_name for op in found.ops] == ["Conv_0+Relu"]


def test_constants_several_outputs_and_newer_ops() -> None:
    def split(x: Any, w: Any) -> Any:
        left, right = ops.Split(ops.MatMul(x, w), np.array([16, 16]), axis=1, outputs=2)
        return ops.Gelu(left), ops.Clip(right, None, np.array(1, np.float16))

    found = profile_expression(split, [(8, 64), (64, 32)], "float16")
    assert found.output_shapes == "8,16;8,16" and found.output_dtypes == "FLOAT16;FLOAT16"
    assert {op.op_type for op in found.ops} == {"MatMulV2", "SplitV", "Gelu", "ClipByValueV2"}


def test_a_model_is_an_expression() -> None:
    found = profile_expression("mini_resnet")
    estimates = static_profile("mini_resnet").ops
    assert [(op.op_name, op.latencies_ns[0], op.workspace_bytes) for op in found.ops] == [
        (one.op.name, one.dur_ns, one.op.cost.workspace_bytes) for one in estimates
    ]


def loop(trips: int) -> onnx.ModelProto:
    text = f"""
        <ir_version: 8, opset_import: ["" : 17]> test (float[N,64] x) => (float[N,64] y) {{
            n = Constant <value = int64 {{{trips}}}> ()
            go = Constant <value = bool {{1}}> ()
            y = Loop (n, go, x) <body = b (int64 i, bool g, float[N,64] v) => (bool g, float[N,64] u) {{
                u = Softmax (v)
            }}>
        }}"""
    return onnx.parser.parse_model(text)


def test_a_loop_counts_its_trips_and_open_shapes_are_given() -> None:
    found = profile_expression(loop(7), [(5, 64)])
    control, body = found.ops
    assert body.op_type == "SoftmaxV2" and body.op_name.endswith(" x7") and body.output_shapes == "5,64"
    alone = profile_op("Softmax", [(5, 64)])
    assert body.latencies_ns[0] == 7 * alone.latencies_ns[0]
    assert found.latencies_ns[0] == control.latencies_ns[0] + body.latencies_ns[0] + 7 * GAP_NS


def test_the_cache_is_by_graph_inputs_and_device(folder: Path, tmp_path: Path) -> None:
    first = profile_expression(two_convolutions, SHAPES, repeat=2)
    again = profile_expression(two_convolutions, SHAPES)
    assert again.cached and again.latencies_ns == first.latencies_ns[:1]
    assert [op.workspace_bytes for op in again.ops] == [op.workspace_bytes for op in first.ops]
    assert not profile_expression(two_convolutions, [(15, *SHAPES[0][1:]), *SHAPES[1:]]).cached
    assert not profile_expression(loop(2), [(5, 64)]).cached
    assert not profile_expression(loop(2), [(6, 64)]).cached
    assert not profile_expression(loop(3), [(6, 64)]).cached
    spec = tmp_path / "slow.toml"
    spec.write_text("[device]\ncore_clock_hz = 600_000_000\n")
    assert not profile_expression(loop(2), [(5, 64)], device_spec=spec).cached
    for path in folder.rglob("*.json"):
        entry = json.loads(path.read_text())
        entry["value"].get("ops", [{}])[0]["flops"] = -1
        path.write_text(json.dumps(entry))
    assert not profile_expression(two_convolutions, SHAPES, repeat=2).cached


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x, "must return one or more results of traceconv.ops"),
        (lambda x: 3, "must return one or more results of traceconv.ops"),
        (lambda x: ops.Relu(np.ones(3)), "ops.Relu: pass at least one value"),
        (lambda x: ops.Foo(x), "'Foo' is not an ONNX op"),
        (lambda x: ops.Relu(x, alpha=3), "Relu has no attribute 'alpha'"),
        (lambda x: ops.MatMul(x, x), "has no valid shape"),
    ],
)
def test_wrong_functions_are_one_clear_error(function: Any, message: str) -> None:
    with pytest.raises(TraceconvError, match=message) as caught:
        profile_expression(function, [(3, 4)])
    assert "\n" not in str(caught.value)


def test_wrong_calls_are_one_clear_error() -> None:
    for call, message in (
        (lambda: profile_expression(lambda x: ops.Relu(x)), "give a shape or an array for each argument"),
        (lambda: profile_expression(3, [(3, 4)]), "must be a model or a function of traceconv.ops, not int"),
        (lambda: profile_expression(loop(2), [(5, 64), (5, 64)]), "takes 1 inputs, not 2"),
        (lambda: profile_expression(loop(2), [(5, 63)]), r"must have the shape \['\?', 64\], not \[5, 63\]"),
        (lambda: profile_expression(loop(2)), "give batch or inputs"),
    ):
        with pytest.raises(traceconv.TraceconvError, match=message) as caught:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(caught.value)


def test_the_command_accepts_a_graph_file(tmp_path: Path, command: Command) -> None:
    onnx.save(loop(4), tmp_path / "block.onnx")
    call = ["op-profile", str(tmp_path / "block.onnx"), "--input", "5x64"]
    rows = json.loads(command(*call, "--format", "json", "-n", "2").out)
    assert [row["part"] for row in rows] == ["op", "op", "expression"]
    assert rows[1]["op_type"] == "SoftmaxV2" and rows[1]["op_name"].endswith(" x4") and rows[1]["repeat"] == 2
    assert rows[2]["op_name"] == "block" and rows[2]["op_type"] is None and rows[2]["core_type"] is None
    assert rows[2]["workspace_bytes"] == max(row["workspace_bytes"] for row in rows[:2])
    assert len(list(csv.DictReader(io.StringIO(command(*call, "--format", "csv").out)))) == 3
    assert "for a single op" in command(*call, "--attr", "a=1", code=2).err
    assert "no such model file" in command("op-profile", tmp_path / "missing.onnx", code=1).err
