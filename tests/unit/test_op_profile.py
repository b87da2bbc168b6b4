"""Profiles of single ops: the time is the cost model's, and the cache never returns anything but what was stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from commands import Command

import traceconv
from traceconv.base.errors import ModelError, UsageError
from traceconv.runtime import op_cache
from traceconv.runtime.error_text import first_line
from traceconv.runtime.op_profile import profile_op
from traceconv.runtime.static_profile import static_profile

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_product() -> None:
    found = traceconv.profile_op("MatMul", [(16, 64), (64, 32)], repeat=4)
    assert (found.op_type, found.core_type, found.cached) == ("MatMul", "AI_CORE", False)
    assert (found.input_shapes, found.output_shapes) == ("16,64;64,32", "16,32")
    assert found.flops == 2 * 16 * 64 * 32
    assert found.memory_bytes == 4 * (16 * 64 + 64 * 32 + 16 * 32)
    assert len(found.latencies_ns) == 4
    assert found.latencies_us == [latency / 1000 for latency in found.latencies_ns]
    assert traceconv.profile_op("MatMul", ["16x64", "64x32"], repeat=4).cached


def test_a_product_split_along_k() -> None:
    found = traceconv.profile_op("MatMul", [(16, 4_096), (4_096, 16)])
    assert (found.core_type, found.workspace_bytes) == ("MIX_AIC", 4 * 16 * 16 * 4)
    ticks = -(-(2_534 + 480) * 50 // 1_200)  # worked out by hand in test_runtime_cost.py
    assert found.latencies_ns == (20 * ticks,)


def test_an_op_takes_its_estimated_time_in_a_model() -> None:
    estimate = next(one for one in static_profile("mini_resnet").ops if one.op.op_type == "MaxPoolV3")
    shape = [int(extent) for extent in estimate.op.describe_operands()[0].split(",")]
    attributes = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    assert profile_op("MaxPool", [shape], attributes).latencies_ns == (estimate.dur_ns,)


def test_every_valid_equation_of_einsum() -> None:
    equations = ["ij,jk->ik", "ij,jk", " ij , jk -> ik", "...ij,jk...->...ik", "ij,jk->"]
    for equation in equations:
        assert profile_op("Einsum", [(3, 4), (4, 5)], {"equation": equation}).core_type == "AI_CPU"


def test_an_op_without_inputs_that_draws_runs() -> None:
    assert profile_op("RandomNormal", [], {"shape": [2, 3]}).output_shapes == "2,3"


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/x/y.cc:13 void a::b(std::map<int, c (*)()>) const m.", "m"),
        ("/onnxruntime_src/x/y.h:1 a::b(int) [with T = float] broken (badly)", "broken (badly)"),
        ("/onnxruntime_src/x/y.h:1 a::b(int) x > (0) was false. Must be more", "Must be more"),
        ("/onnxruntime_src/x/y.h:1 a::b(int) x > (0) was false.", "x > (0) was false"),
        ("[ShapeInferenceError] Inference error(s): (op_type:A, node name: B): [TypeInferenceError] C", "C"),
        ("plain (text) of one line\nand more", "plain (text) of one line"),
        ("/onnxruntime_src/x/y.h:1 a::b(int", "a::b(int"),
        ("  \n", "ValueError"),
    ],
)
def test_messages_of_libraries_are_shown_without_their_source(message: str, kept: str) -> None:
    assert first_line(ValueError(message)) == kept


def test_constants_attributes_types_and_workspace() -> None:
    reshaped = profile_op("Reshape", [(4, 6), np.array([3, 8], np.int64)])
    assert reshaped.output_shapes == "3,8"
    half = profile_op("Softmax", [(4, 6)], {"axis": -1}, "float16")
    assert half.input_dtypes == half.output_dtypes == "FLOAT16"
    mixed = profile_op("Where", [(4, 6), (4, 6), (4, 6)], dtypes=["bool", "float32", "float32"])
    assert mixed.input_dtypes == "BOOL;FLOAT;FLOAT"
    assert profile_op("LeakyRelu", [(4,)], {"alpha": 1}).latencies_ns[0] > 0  # a whole number for a float
    split = profile_op("Split", [(4, 6), np.array([2, 4], np.int64)], {"axis": 1}, outputs=2)
    assert split.output_shapes == "4,2;4,4"
    assert profile_op("Gelu", [(4, 4)]).core_type == "AI_VECTOR_CORE"  # newer than the usual opset


@pytest.mark.parametrize(
    ("arguments", "more", "error", "message"),
    [
        (("MatMull", [(2, 2), (2, 2)]), {}, ModelError, "Did you mean 'MatMul'"),
        (("MatMul", [(2, 2)]), {}, UsageError, "takes 2 inputs, not 1"),
        (("MatMul", [(2, 3), (4, 5)]), {}, ModelError, "MatMul"),
        (("MatMul", [(2, 2), (2, 0)]), {}, UsageError, "at least 1"),
        (("Relu", ["4xa"]), {}, UsageError, "not a shape such as 16x3x224x224: 4xa"),
        (("Relu", [(2, 1.5)]), {}, UsageError, "not a shape"),
        (("Relu", [7]), {}, UsageError, "not a shape"),
        (("MatMul", [(2, 2), (2, 2)], None, "floaty"), {}, UsageError, "dtype 'floaty'"),
        (("MatMul", [(2, 2), (2, 2)], None, ["float32"]), {}, UsageError, "1 dtypes for 2"),
        (("Softmax", [(2, 2)], {"axes": 1}), {}, UsageError, "Did you mean 'axis'"),
        (("Softmax", [(2, 2)], {"axis": "x"}), {}, UsageError, "axis"),
        (("Softmax", [(2, 2)], {"axis": object()}), {}, UsageError, "axis"),
        (("MaxPool", [(1, 3, 8, 8)], {"kernel_shape": [1.5, 2.0]}), {}, UsageError, "INTS"),
        (("MatMul", [(2, 2), np.array([{}, {}])]), {}, UsageError, "can.t convert an array"),
        (("Relu", [(2, 2)]), {"repeat": 0}, UsageError, "repeat"),
        (("Relu", [(2, 2)]), {"outputs": 2}, UsageError, "outputs"),
        (("Gelu", [(2, 2)]), {"opset": 17}, ModelError, "opset 17"),
        (("Relu", [(2, 2)]), {"opset": 999}, UsageError, "opset 999: must be from 1"),
        (("Constant", [], {"value_float": 1.0}), {}, UsageError, "Constant has no inputs: it is computed when"),
        (("Constant", []), {}, UsageError, "Constant has no inputs: it is computed when"),
        (("Range", [np.array(n) for n in (1, 5, 1)]), {}, UsageError, "pass at least one input as a shape"),
        (("Conv", [(1, 3, 8, 8), (4, 2, 3, 3)]), {}, ModelError, "fails: Input channels C is not equal"),
        (("Softmax", [(2, 2)], {"axis": 7}), {}, ModelError, "no valid shape: 'axis' must be in"),
        (("Relu", [(2, 2)], None, "bool"), {}, ModelError, "can't be run on BOOL: "),
        (("LSTM", [(4, 1, 8), (1, 16, 8), (1, 16, 4)]), {}, ModelError, "hidden_size"),
        (("Gather", [(3, 4), np.array([7])]), {}, ModelError, "fails: indices element out of"),
        # onnx itself would look for the shapes of such equations for ever.
        (("Einsum", [(3, 4), (4, 5)], {"equation": "ij,jk-"}), {}, ModelError, "equation 'ij,jk-', which is not valid"),
        (("Einsum", [(3, 4), (4, 5)], {"equation": "..ij,jk"}), {}, ModelError, "which is not valid"),
    ],
)
def test_wrong_calls_are_one_clear_error(
    arguments: tuple[object, ...], more: dict[str, object], error: type[Exception], message: str, folder: Path
) -> None:
    with pytest.raises(error, match=message) as caught:
        profile_op(*arguments, **more)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not folder.exists()


def test_the_cache_key_has_everything_that_affects_the_result(folder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "slow.toml"
    spec.write_text("[device]\ncore_clock_hz = 600_000_000\n")
    calls: list[tuple[tuple[object, ...], dict[str, object]]] = [
        (("Softmax", [(4, 600)]), {}),
        (("Softmax", [(4, 601)]), {}),
        (("Softmax", [(4, 600)], {"axis": 0}), {}),
        (("Softmax", [(4, 600)], None, "float16"), {}),
        (("LogSoftmax", [(4, 600)]), {}),
        (("Softmax", [(4, 600)]), {"device_spec": spec}),
        (("Reshape", [(4, 6), np.array([3, 8], np.int64)]), {}),
        (("Reshape", [(4, 6), np.array([2, 12], np.int64)]), {}),
    ]
    first = [profile_op(*positional, **named) for positional, named in calls]  # type: ignore[arg-type]
    assert not any(one.cached for one in first)
    assert op_cache.size().entry_count == len(calls) == len(list(folder.rglob("*.json")))
    again = [profile_op(*positional, **named) for positional, named in calls]  # type: ignore[arg-type]
    assert all(one.cached for one in again)
    assert [one.latencies_ns for one in again] == [one.latencies_ns for one in first]
    assert first[0].latencies_ns < first[5].latencies_ns
    # More repetitions than are kept are run, and kept; fewer are taken from those.
    assert not profile_op("Softmax", [(4, 600)], repeat=5).cached
    assert len(profile_op("Softmax", [(4, 600)], repeat=2).latencies_ns) == 2
    assert not profile_op("Softmax", [(4, 600)], cache=False).cached
    assert op_cache.reset() == len(calls)
    assert op_cache.size().entry_count == 0
    assert not profile_op("Softmax", [(4, 600)]).cached


def test_a_damaged_entry_is_run_again_and_replaced(folder: Path) -> None:
    whole = profile_op("Relu", [(4, 6)])
    [path] = folder.rglob("*.json")
    text = path.read_text()
    entry = json.loads(text)
    entry["value"]["latencies_ns"] = [1]
    broken = [b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000, text[:-9].encode(), json.dumps(entry).encode()]
    for damage in broken:
        path.write_bytes(damage)
        found = profile_op("Relu", [(4, 6)])
        assert not found.cached
        assert found.latencies_ns == whole.latencies_ns
        assert profile_op("Relu", [(4, 6)]).cached
    path.unlink()
    path.mkdir()
    assert not profile_op("Relu", [(4, 6)]).cached


def test_concurrent_writers_leave_complete_entries(folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: profile_op("Relu", [(4, 1 + n % 3)], repeat=1 + n % 2), range(24)))
    assert len({one.latencies_ns[0] for one in found if one.input_shapes == "4,1"}) == 1
    assert op_cache.size().entry_count == 3
    assert not list(folder.rglob("*.partial"))
    for path in folder.rglob("*.json"):
        json.loads(path.read_text())


def test_disabled_and_unwritable_caches_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACECONV_CACHE", "")
    assert not profile_op("Relu", [(4, 6)]).cached
    assert not profile_op("Relu", [(4, 6)]).cached
    assert op_cache.size().folder is None
    assert op_cache.reset() == 0
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TRACECONV_CACHE", str(blocked))
    assert not profile_op("Relu", [(4, 6)]).cached
    monkeypatch.delenv("TRACECONV_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    profile_op("Relu", [(4, 6)])
    assert profile_op("Relu", [(4, 6)]).cached
    assert list((tmp_path / "xdg" / "traceconv").rglob("*.json"))


def test_the_command(command: Command, folder: Path) -> None:
    call = [
        "op-profile",
        "MaxPool",
        "--input",
        "1x3x16x16",
        "--attr",
        "kernel_shape=2,2",
        "--format",
        "json",
        "-n",
        "2",
    ]
    shown = command(*call)
    [row] = json.loads(shown.out)
    assert row["output_shapes"] == "1,3,15,15"
    assert row["latencies_ns"] == [row["min_ns"]] * 2
    assert (row["repeat"], row["cached"]) == (2, False)
    assert "ran 2 times" in shown.err
    assert "taken from the cache" in command(*call).err
    assert "3,8" in command("op-profile", "Reshape", "--input", "4x6", "--input", "2:int64=3,8").out
    assert command("op-profile", "--cache-size").out.startswith("2 entries, ")
    assert "removed 2 entries" in command("op-profile", "--reset-cache").err
    assert not list(folder.rglob("*.json"))


def test_the_example_runs(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "op_profiler.py")],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"}, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert "Latency (µs): [" in done.stdout
    assert "Profiles kept: 1" in done.stdout
    assert "From the cache: True" in done.stdout
