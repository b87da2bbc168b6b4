"""Savings that advise names, confirmed on the NPU by recording again with the fix: within 20 %."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx_models import ModelBuilder
from runtime_invariants import check
from runtime_reader import Capture

import traceconv
from traceconv.runtime.spec import load_spec
from traceconv.runtime.zoo import find_model

pytestmark = pytest.mark.long

Measured = tuple[dict[str, int], dict[str, Any]]


@pytest.fixture
def measure(tmp_path: Path) -> Callable[..., Measured]:
    """Record a model; return the savings by rule and the breakdown of the device."""

    def measured(model: onnx.ModelProto, **options: Any) -> Measured:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        onnx.save(model, folder / "model.onnx")
        capture = traceconv.record(folder / "model.onnx", folder, deterministic=True, **options)
        with traceconv.open_store(capture, cache=False) as store:
            (row,) = store.report("breakdown")
            savings = {one.rule: one.saving_ns for one in store.advise(least_percent=0).findings}
        return savings, row

    return measured


def is_near(saving_ns: int, saved_ns: int) -> bool:
    return abs(saving_ns - saved_ns) <= 0.2 * saved_ns


def test_layout_transposes(measure: Callable[..., Measured]) -> None:
    def model(convert: bool) -> onnx.ModelProto:
        builder, x = ModelBuilder(), "x"
        for _ in range(4):
            if convert:
                x = builder.node("Transpose", [x], perm=[0, 2, 1])
                x = builder.node("Transpose", [builder.node("Softmax", [x], axis=-1)], perm=[0, 2, 1])
            else:
                x = builder.node("Softmax", [x], axis=1)
            x = builder.node("MatMul", [x, builder.weight((256, 256))])
        return builder.model({"x": [4, 256, 256]}, [x])

    savings, slow = measure(model(True), iterations=2)
    _, fast = measure(model(False), iterations=2)
    assert is_near(savings["layout-transposes"], slow["compute_ns"] - fast["compute_ns"])


def test_missed_fusions(measure: Callable[..., Measured]) -> None:
    """Outputs of the model can't be fused away."""

    def model(separate: bool) -> onnx.ModelProto:
        builder, x, outputs = ModelBuilder(), "x", []
        for i in range(6):
            x = builder.node(("Relu", "Abs", "Neg")[i % 3], [x])
            outputs.append(x)
        return builder.model({"x": [64, 8192]}, outputs if separate else outputs[-1:])

    savings, slow = measure(model(True), iterations=2)
    _, fast = measure(model(False), iterations=2)
    assert is_near(savings["missed-fusions"], slow["compute_ns"] - fast["compute_ns"])


def test_ai_cpu_ops(measure: Callable[..., Measured]) -> None:
    """The NPU has no kernel for Celu, which is Elu with its default."""

    def model(op_type: str) -> onnx.ModelProto:
        builder, x = ModelBuilder(), "x"
        for _ in range(4):
            x = builder.node(op_type, [builder.node("MatMul", [x, builder.weight((128, 128))])])
        return builder.model({"x": [256, 128]}, [x])

    savings, slow = measure(model("Celu"), iterations=2)
    _, fast = measure(model("Elu"), iterations=2)
    assert is_near(savings["ai-cpu-ops"], slow["compute_ns"] - fast["compute_ns"])


def test_forced_synchronisation(measure: Callable[..., Measured]) -> None:
    """The host reads a maximum after each product, for which the device has to be idle."""
    builder, x, read = ModelBuilder(), "x", []
    for _ in range(20):
        x = builder.node("MatMul", [x, builder.weight((256, 256))])
        read.append(builder.node("ReduceMax", [x], axes=[1], keepdims=1))
        x = builder.node("Div", [x, read[-1]])
    model = builder.model({"x": [256, 256]}, [x])
    savings, slow = measure(model, iterations=4, fetch=read)
    _, fast = measure(model, iterations=4)
    assert is_near(savings["forced-synchronisation"], slow["idle_ns"] - fast["idle_ns"])


def test_small_ops_and_their_launches(measure: Callable[..., Measured]) -> None:
    """16 samples in one batch have a sixteenth of the launches. These two savings have no time in common."""
    builder, x = ModelBuilder(), "x"
    for _ in range(10):
        x = builder.node("Softmax", [builder.node("MatMul", [x, builder.weight((32, 32))])], axis=-1)
    model = builder.model({"x": ["N", 32]}, [x])
    savings, slow = measure(model, iterations=16, batch=1)
    _, fast = measure(model, iterations=1, batch=16)
    saving_ns = (savings["launch-bound"] + savings["many-small-ops"]) * 15 // 16
    assert is_near(saving_ns, slow["window_ns"] - fast["window_ns"])
    assert is_near(savings["launch-bound"] * 15 // 16, slow["idle_ns"] - fast["idle_ns"])


def test_exposed_copies(measure: Callable[..., Measured]) -> None:
    """Copies of the next input run while the device computes, and while it waits for launches."""
    builder, x = ModelBuilder(), "x"
    for _ in range(6):
        x = builder.node("MatMul", [x, builder.weight((256, 256))])
    model = builder.model({"x": [512, 256]}, [x])
    savings, slow = measure(model, iterations=4, prefetch=False)
    _, fast = measure(model, iterations=4)
    assert is_near(savings["exposed-copies"], slow["window_ns"] - fast["window_ns"])


def test_low_occupancy(measure: Callable[..., Measured]) -> None:
    """A convolution of one image is one tile, for one of 8 cores; of 8 images, one tile for each core."""
    builder = ModelBuilder()
    output = builder.node("Conv", ["x", builder.weight((16, 4096, 3, 3))], pads=[1, 1, 1, 1])
    model = builder.model({"x": ["N", 4096, 4, 4]}, [output])
    savings, slow = measure(model, iterations=8, batch=1)
    _, fast = measure(model, iterations=1, batch=8)
    assert is_near(savings["low-occupancy"], slow["compute_ns"] - fast["compute_ns"])


def test_clock_throttling(measure: Callable[..., Measured], tmp_path: Path) -> None:
    """The device gets too hot after a third of its work, or stays cool. What waits for memory stays as fast."""
    spec = tmp_path.with_name(f"{tmp_path.name}.toml")
    spec.write_text('[device]\nname = "Reference NPU 1"\nthrottle_after_ns = 1_000_000\nthrottled_clock_percent = 60\n')
    builder, x = ModelBuilder(), "x"
    for _ in range(6):
        x = builder.node("Tanh", [builder.node("MatMul", [x, builder.weight((512, 512))])])
    model = builder.model({"x": [2048, 512]}, [x])
    savings, slow = measure(model, iterations=4, device_spec=spec)
    _, fast = measure(model, iterations=4)
    assert is_near(savings["clock-throttling"], slow["window_ns"] - fast["window_ns"])


def test_fragmentation(measure: Callable[..., Measured], tmp_path: Path) -> None:
    """Two streams need their memory first, then one needs more: without memory for both, each returns its own."""
    spec = tmp_path.with_name(f"{tmp_path.name}.toml")
    spec.write_text(f'[device]\nname = "Reference NPU 1"\nmemory_bytes = {44 << 20}\n')
    builder = ModelBuilder()

    def chain(x: str, depth: int, width: int) -> str:
        x = builder.node("MatMul", [x, builder.weight((depth, width))])
        for _ in range(3):
            x = builder.node("Softmax", [builder.node("MatMul", [x, builder.weight((width, width))])], axis=-1)
        return builder.node("ReduceMax", [x], axes=[1], keepdims=1)

    both = builder.node("Add", [chain("x", 64, 512), chain("x", 64, 512)])
    model = builder.model({"x": [2048, 64]}, [chain(both, 1, 768)])
    savings, slow = measure(model, iterations=6, device_spec=spec)
    _, fast = measure(model, iterations=6)
    check(Capture(next((tmp_path / "0").glob("PROF_*"))), load_spec(spec))
    assert is_near(savings["fragmentation"], slow["window_ns"] - fast["window_ns"])


def test_late_start(measure: Callable[..., Measured], tmp_path: Path) -> None:
    """Launches need 2 ms to reach the device."""
    spec = tmp_path.with_name(f"{tmp_path.name}.toml")
    spec.write_text('[device]\nname = "Reference NPU 1"\nlaunch_latency_ns = 2_000_000\n')
    model = find_model("mini_resnet").proto
    for prefetch in (False, True):  # with it, streams wait for each other, but not as long
        savings, slow = measure(model, iterations=4, prefetch=prefetch, device_spec=spec)
        _, fast = measure(model, iterations=4, prefetch=prefetch)
        assert is_near(savings["late-start"], slow["idle_ns"] - fast["idle_ns"])


def test_poor_overlap(tmp_path: Path) -> None:
    """Gradients are exchanged after the backward pass, or each as soon as it is known. Devices and links are slow."""
    builder, x = ModelBuilder(), "x"
    for _ in range(16):
        x = builder.node("Tanh", [builder.node("MatMul", [x, builder.weight((256, 256))])])
    onnx.save(builder.model({"x": [64, 256]}, [x]), tmp_path / "model.onnx")
    spec = tmp_path / "slow.toml"
    spec.write_text("[device]\ncore_clock_hz = 20_000_000\n[links]\nbytes_per_s = 3_000_000_000\n")

    def measured(bucket_bytes: int) -> dict[int, tuple[int, int]]:
        folder = tmp_path / str(bucket_bytes)
        options = traceconv.TrainOptions(bucket_bytes=bucket_bytes, optimizer=traceconv.Optimizer(lr=1e-9))
        capture = traceconv.record(
            tmp_path / "model.onnx", folder, deterministic=True, iterations=3, devices=2, streams=1, device_spec=spec,
            train=options,
        )  # fmt: skip
        with traceconv.open_store(capture, cache=False) as store:
            found = {one.device_id: one.saving_ns for one in store.advise().findings if one.rule == "poor-overlap"}
            return {
                row["device_id"]: (found.get(row["device_id"], 0), row["window_ns"])
                for row in store.report("breakdown")
            }

    late, early = measured(1 << 40), measured(1)
    assert late.keys() == {0, 1}
    for device, (saving_ns, slow_ns) in late.items():
        assert is_near(saving_ns, slow_ns - early[device][1])


@pytest.mark.parametrize("rule", ["host-bound", "data-loading"])
def test_host_bound_and_data_loading(tmp_path: Path, rule: str) -> None:
    """The host does something else before each inference, or loads data on the thread that hands work to the launching
    one. What it does besides is still found without that.
    """

    def measured(seconds: float) -> tuple[int, int]:
        folder = tmp_path / str(seconds)
        with traceconv.Session("mini_resnet") as session:
            inputs = session.random_inputs()
            session.run(inputs)
            with traceconv.profile(folder):
                for _ in range(6):
                    with traceconv.span("DataLoader.__next__") if rule == "data-loading" else nullcontext():
                        time.sleep(seconds)
                    session.run(inputs)
        with traceconv.open_store(folder, cache=False) as store:
            (row,) = store.report("breakdown")
            found = store.advise().findings
            assert seconds == 0 or found[0].rule == rule
            return sum(one.saving_ns for one in found if one.rule in ("host-bound", rule)), row["window_ns"]

    saving_ns, slow_ns = measured(0.05)
    other_ns, fast_ns = measured(0)
    assert is_near(saving_ns - other_ns, slow_ns - fast_ns)


def test_stragglers(tmp_path: Path) -> None:
    """The memory of the last rank's device is slower than that of the others."""
    spec = tmp_path / "slow.toml"
    spec.write_text('[device]\nname = "Reference NPU 1"\n[memory]\nhbm_bytes_per_s = 20_000_000_000\n')

    def measured(name: str, last: Path | None) -> tuple[int, int]:
        for rank, device in enumerate((None, None, last)):
            traceconv.record(
                "mini_transformer", tmp_path / name / f"rank{rank}", deterministic=True, seed=rank, batch=16,
                device_spec=device,
            )  # fmt: skip
        traceconv.ingest(tmp_path / name, db=tmp_path / f"{name}.duckdb")
        with traceconv.open_store(tmp_path / f"{name}.duckdb") as store:
            (row,) = store.report("breakdown", run="rank=2")
            found = store.advise("rank=2", least_percent=0).findings
            return sum(one.saving_ns for one in found if one.rule == "stragglers"), row["window_ns"]

    saving_ns, slow_ns = measured("late", spec)
    _, fast_ns = measured("even", None)
    assert is_near(saving_ns, slow_ns - fast_ns)
