"""Random branching networks on random devices: every invariant is satisfied, and no two tasks use the same memory."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import onnx
import runtime_invariants
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import ModelBuilder
from runtime_reader import Capture

from traceconv.runtime.compiled import compile_model
from traceconv.runtime.lower import Program
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.schedule import INPUTS, schedule
from traceconv.runtime.spec import reference_npu
from traceconv.runtime.zoo import FoundModel

NONE32 = (1 << 32) - 1


@st.composite
def branching_networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Matrix products and activations, each on any of the tensors that there are; the loose ends are joined."""
    b = ModelBuilder(draw(st.integers(0, 1 << 16)))
    width = draw(st.sampled_from((8, 64, 512)))
    open_ends = ["x", "y"]
    for _ in range(draw(st.integers(3, 14))):
        kind = draw(st.sampled_from(("MatMul", "Tanh", "Softmax", "Add", "Transpose")))
        first = draw(st.sampled_from(open_ends))
        if kind == "Add":
            made = b.node("Add", [first, draw(st.sampled_from(open_ends))])
        elif kind == "MatMul":
            made = b.node("MatMul", [first, b.weight((width, width))])
        elif kind == "Transpose":
            made = b.node("Transpose", [first], perm=[1, 0])
        else:
            made = b.node(kind, [first])
        if draw(st.booleans()) and len(open_ends) > 2:
            open_ends.remove(first)
        open_ends.append(made)
    outputs = [b.node("Sum", [name for name in open_ends if name not in "xy"])]
    if draw(st.booleans()):
        outputs.append(b.node("Tanh", [draw(st.sampled_from(open_ends))]))
    return b.model({"x": [width, width], "y": [width, width]}, outputs)


SPECS = st.builds(
    lambda **changes: dataclasses.replace(reference_npu(), **changes),
    compute_stream_count=st.integers(1, 6),
    hbm_bytes_per_s=st.sampled_from((8_000_000_000, 100_000_000_000, 460_800_000_000)),
    l2_bytes_per_cycle=st.sampled_from((64, 1_024)),
    core_clock_hz=st.sampled_from((300_000_000, 1_200_000_000)),
    clock_hz=st.sampled_from((19_200_000, 50_000_000, 1_000_000_000)),
    cube_cores=st.sampled_from((1, 8)),
    vector_cores=st.sampled_from((2, 16)),
    host_bytes_per_s=st.sampled_from((1_000_000_000, 24_000_000_000)),
    drift_ppb=st.integers(-100_000, 100_000),
    dispatch_gap_ticks=st.sampled_from((0, 12)),
)


def check_plan(program: Program, spec_streams: int) -> None:
    """What an op reads is made on its own stream before it, or waited for, directly or by way of others."""
    spec = dataclasses.replace(reference_npu(), compute_stream_count=spec_streams)
    plan = schedule(program, spec)
    assert 1 <= plan.stream_count <= spec_streams
    producers = {program.root(tensor.name): op.index for op in program.ops for tensor in op.writes}
    done: dict[int, set[int]] = {INPUTS: {INPUTS}}
    on_stream: dict[int, set[int]] = {}
    for op, place in zip(program.ops, plan.placements, strict=True):
        known = set(on_stream.get(place.stream, set()))
        for index in place.waits:
            assert index == INPUTS or plan.placements[index].records
            assert not done[index] <= known, "a wait that is not needed"
            known |= done[index]
        for tensor in op.reads:
            root = program.root(tensor.name)
            assert producers.get(root, INPUTS) in known or producers.get(root) == op.index
        done[op.index] = on_stream[place.stream] = known | {op.index}
    finished = set().union(*(done[index] for index in plan.stores.waits))
    assert finished == set(done)


def check_memory_in_use(capture: Capture, program: Program) -> None:
    """No two blocks that share bytes are in use at one time of the device, whatever the host had freed by then."""
    begins, ends = capture.pairs("task", "task_id")
    users: dict[str, list[int]] = {}
    for op in program.ops:
        for tensor in (*op.reads, *op.writes):
            users.setdefault(program.root(tensor.name), []).append(op.index)
    spans: dict[tuple[int, int], tuple[int, int]] = {}  # (execution, op) → when it ran
    stored: dict[int, int] = {}
    for begin, end in zip(begins, ends, strict=True):
        execution = int(begin["execution_id"])
        spans[execution, int(begin["op_index"])] = (int(begin["ticks"]), int(end["ticks"]))
        stored[execution] = max(stored.get(execution, 0), int(end["ticks"]))
    executions = sorted({execution for execution, _ in spans if execution != NONE32})
    rows = capture["memory"]
    rows = rows[(rows["kind"] == 0) & (rows["event"] == 0) & (rows["device_id"] == capture.device_id)]
    count: dict[tuple[str, int], int] = {}
    used: list[tuple[int, int, int, int, str]] = []
    outputs = {program.root(name) for name in program.downloads}
    for row in rows:
        name, op_index = capture.texts[int(row["tensor_name"])], int(row["op_index"])
        if row["alloc_by"] not in (3, 4, 5):
            continue
        # The n-th block of a tensor is that of the n-th execution.
        key = (name, op_index)
        execution = executions[count.get(key, 0)]
        count[key] = count.get(key, 0) + 1
        mine = [spans[execution, index] for index in (users[name] if name else [op_index])]
        last = stored[execution] if name in outputs else max(end for _, end in mine)
        address, size = int(row["address"]), int(row["size_bytes"])
        used.append((min(start for start, _ in mine), last, address, address + size, name or f"workspace {op_index}"))
    for place, (start, end, low, high, name) in enumerate(used):
        for other_start, other_end, other_low, other_high, other in used[:place]:
            overlap = low < other_high and other_low < high and start < other_end and other_start < end
            assert not overlap, f"{name} and {other} have the same bytes at one time"


@settings(max_examples=15)
@given(branching_networks(), SPECS, st.integers(1, 2), st.booleans(), st.integers(0, 1 << 30))
def test_any_network_on_any_device_keeps_the_invariants(
    proto: onnx.ModelProto,
    spec: object,
    devices: int,
    prefetch: bool,
    seed: int,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "random.onnx"
        onnx.save(proto, path)
        toml = write_spec(folder / "device.toml", spec)
        options = RecordOptions(
            str(path),
            folder / "raw",
            iterations=2,
            warmup=1,
            seed=seed,
            deterministic=True,
            devices=devices,
            device_spec=toml,
            prefetch=prefetch,
        )
        done = record(options)
        known = compile_model(FoundModel("random", proto)).program
        for device_id in range(devices):
            capture = Capture(done.folder, device_id)
            runtime_invariants.check(capture, spec)  # type: ignore[arg-type]  # what SPECS draws
            check_memory_in_use(capture, known)
    check_plan(known, 4)


def write_spec(path: Path, spec: object) -> Path:
    """The values that `SPECS` changes, as a file of --device-spec."""
    sections = {
        "device": ("compute_stream_count", "core_clock_hz", "clock_hz", "drift_ppb", "dispatch_gap_ticks"),
        "memory": ("hbm_bytes_per_s", "l2_bytes_per_cycle"),
        "sdma": ("host_bytes_per_s",),
    }
    lines = []
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{key} = {getattr(spec, key)}" for key in keys)]
    lines += [f"[{core}]\ncore_count = {getattr(spec, f'{core}_cores')}" for core in ("cube", "vector")]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_branches_run_on_different_streams_and_overlap(tmp_path: Path) -> None:
    def overlapping(streams: int) -> tuple[int, int]:
        options = RecordOptions(
            "inception_v1", tmp_path / str(streams), iterations=1, deterministic=True, streams=streams
        )
        capture = Capture(record(options).folder)
        runtime_invariants.check(capture)
        begins, ends = capture.pairs("task", "task_id")
        of_ops = begins["op_index"] != NONE32
        order = np.argsort(begins["ticks"][of_ops], kind="stable")
        starts, stops = begins["ticks"][of_ops][order], ends["ticks"][of_ops][order]
        together = int((starts[1:] < np.maximum.accumulate(stops)[:-1]).sum())
        return len(set(begins["stream_id"][of_ops].tolist())), together

    assert overlapping(1) == (1, 0)
    streams, together = overlapping(3)
    assert streams == 3 and together > 10
