"""The host's threads: a pipeline that stalls where a value is read; emulation doesn't count as real time."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import runtime_invariants
from hand_clock import turned_by_hand
from onnx import TensorProto, helper
from onnx_models import ModelBuilder
from runtime_reader import Capture

from traceconv.runtime.compiled import compile_model
from traceconv.runtime.event_log import EventLog, EventStore
from traceconv.runtime.execute import Executor
from traceconv.runtime.graph import Array
from traceconv.runtime.host import THREADS, modelled_host
from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.zoo import FoundModel


def spans_of(capture: Capture, *names: str) -> list[tuple[str, int, int, int, int]]:
    """(name, thread, step, begin, end) of calls, by begin."""
    begins, ends = capture.pairs("api", "correlation_id")
    rows = zip(
        capture.text(begins["name"]),
        *(begins[field].tolist() for field in ("thread_id", "step_id", "host_ns")),
        ends["host_ns"].tolist(),
        strict=True,
    )
    return sorted((row for row in rows if row[0] in names), key=lambda row: row[3])


def test_calls_pass_from_channel_to_worker_to_driver(tmp_path: Path) -> None:
    capture = Capture(record(RecordOptions("mini_resnet", tmp_path, iterations=3, deterministic=True)).folder)
    channel, worker, driver = runtime_invariants.own_threads(capture)
    calls = spans_of(capture, "OpDispatch", "LaunchKernel", "HandleCompletion", "aclrtSynchronizeStream")
    threads = {name: {thread for n, thread, *_ in calls if n == name} for name in {row[0] for row in calls}}
    assert threads == {
        "OpDispatch": {channel},
        "LaunchKernel": {worker},
        "HandleCompletion": {driver},
        "aclrtSynchronizeStream": {channel},
    }
    for step in (1, 2, 3):
        mine = [row for row in calls if row[2] == step]
        dispatched = [row for row in mine if row[0] == "OpDispatch"]
        launched = [row for row in mine if row[0] == "LaunchKernel"]
        (handled,) = [row for row in mine if row[0] == "HandleCompletion"]
        (waited,) = [row for row in mine if row[0] == "aclrtSynchronizeStream"]
        assert all(d[3] < k[3] for d, k in zip(dispatched, launched, strict=True))
        if step > 1:  # in the first one the worker has the inputs to bring before
            assert launched[0][3] < dispatched[-1][3], "the worker launches while the channel goes on"
        assert launched[-1][4] < handled[3] and handled[4] <= waited[4]
    assert set(capture.enum("api", "level")) == {"acl", "model", "node", "runtime"}
    assert capture.text(capture["thread"]["thread_name"]) == ["channel", "worker", "device"]


def test_modelled_calls_that_are_not_logged_spend_time_and_keep_no_memory() -> None:
    log = EventLog(EventStore(calls_on=False))
    host = modelled_host(log, range(1, 4), THREADS, 10**9, 5, itertools.count(1))
    host.call_all("aclInit", "aclFinalize")
    assert host.channel.now() > 10**9 and log.store.pending == 0


def deciding(kind: str) -> onnx.ModelProto:
    """A value that the device computes decides which branch, or how many turns, come next."""
    b = ModelBuilder()
    total = b.node("ReduceMax", [b.node("Tanh", ["x"])], keepdims=0)
    if kind == "If":
        condition = b.node("Greater", [total, b.constant(np.float32(0.0))])

        def branch(op: str) -> onnx.GraphProto:
            made = helper.make_tensor_value_info("made", TensorProto.FLOAT, [4, 4])
            return helper.make_graph([helper.make_node(op, ["x"], ["made"])], op, [], [made])

        made = b.node("If", [condition], then_branch=branch("Relu"), else_branch=branch("Neg"))
    else:
        turns = b.node("Cast", [b.node("Abs", [total])], to=TensorProto.INT64)
        info = helper.make_tensor_value_info
        body = helper.make_graph(
            [helper.make_node("Relu", ["v"], ["w"]), helper.make_node("Identity", ["go"], ["on"])],
            "body",
            [info("i", 7, []), info("go", 9, []), info("v", 1, [4, 4])],
            [info("on", 9, []), info("w", 1, [4, 4])],
        )
        made = b.node("Loop", [turns, "", "x"], body=body)
    return b.model({"x": [4, 4]}, [b.node("Tanh", [made])])


@pytest.mark.parametrize("kind", ["If", "Loop"])
def test_a_value_that_control_flow_depends_on_stalls_the_channel(kind: str, tmp_path: Path) -> None:
    onnx.save(deciding(kind), tmp_path / "m.onnx")
    capture = Capture(
        record(RecordOptions(str(tmp_path / "m.onnx"), tmp_path / "raw", iterations=3, deterministic=True)).folder
    )
    runtime_invariants.check(capture)
    if kind == "If":
        check_stalls(capture, kind, steps=3)
    else:  # how many turns there will be, and then what shape came out of them
        assert [row[2] for row in spans_of(capture, "aclrtMemcpy")] == [1, 1, 2, 2, 3, 3]


def check_stalls(capture: Capture, after: str, steps: int) -> None:
    """Each step has one wait inside it, after all launches; nothing is launched meanwhile."""
    reads = spans_of(capture, "aclrtMemcpy")
    assert [row[2] for row in reads] == list(range(1, steps + 1))
    launches = spans_of(capture, "LaunchKernel")
    begins, ends = capture.pairs("task", "task_id")
    names = np.array(capture.text(begins["name"]))
    kinds = capture.enum("range", "kind")
    ranges = capture["range"]
    for _, _, step, begin, end in reads:
        mine = [row for row in launches if row[2] == step]
        before = [row for row in mine if row[3] < end]
        assert before and len(before) < len(mine), after
        assert all(row[4] < end for row in before) and min(row[3] for row in mine[len(before) :]) > end
        assert end - begin > 3_000, "the channel stands still at least as long as a launch and a copy take"
        copies = (begins["step_id"] == step) & (names == "MemcpyD2H")
        assert copies.sum() == 1
        own = begins["step_id"] == step
        first, second = sorted(set(begins["execution_id"][own].tolist()))
        of_first, of_second = own & (begins["execution_id"] == first), own & (begins["execution_id"] == second)
        assert ends["ticks"][of_first].max() < begins["ticks"][of_second].min()
        executions = [row for row, k in zip(ranges, kinds, strict=True) if k == "execution" and row["step_id"] == step]
        assert [int(row["item_index"]) for row in executions if row["event"] == 0] == [0, 1]


def test_a_tensor_that_is_fetched_stalls_the_channel(tmp_path: Path) -> None:
    model = compile_model("mini_resnet")
    tensor = model.program.ops[5].writes[0].name
    done = record(RecordOptions("mini_resnet", tmp_path, iterations=2, deterministic=True, fetch=(tensor,)))
    capture = Capture(done.folder)
    runtime_invariants.check(capture)
    check_stalls(capture, tensor, steps=2)
    assert tensor in done.outputs and done.outputs[tensor].shape == model.program.ops[5].writes[0].shape


def test_a_shape_that_depends_on_values_is_read(tmp_path: Path) -> None:
    b = ModelBuilder()
    found = b.node("NonZero", [b.node("Relu", ["x"])])
    proto = b.model({"x": [4, 4]}, [b.node("Cast", [b.node("Transpose", [found], perm=[1, 0])], to=1)])
    onnx.save(proto, tmp_path / "m.onnx")
    done = record(RecordOptions(str(tmp_path / "m.onnx"), tmp_path / "raw", iterations=2, deterministic=True))
    check_stalls(Capture(done.folder), "NonZero", steps=2)


def test_real_time_excludes_emulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing takes 80 ms per run: no span of the host includes it, and the device has its nominal speed."""
    hand = turned_by_hand(monkeypatch)
    original = Executor.run

    def slow(self: Executor, *arguments: object, **options: object) -> dict[str, Array]:
        hand.ns += 80_000_000
        return original(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    proto = FoundModel("m", deciding("If")).proto
    onnx.save(proto, tmp_path / "m.onnx")
    monkeypatch.setattr(Executor, "run", slow)
    before = time.monotonic_ns()
    done = record(RecordOptions(str(tmp_path / "m.onnx"), tmp_path / "raw", iterations=4, devices=2))
    real_ns = time.monotonic_ns() - before
    for device_id in (0, 1):
        capture = Capture(done.folder, device_id)
        runtime_invariants.check_streams(capture)
        assert len(spans_of(capture, "aclrtMemcpy")) == 8
        waits = spans_of(capture, "aclrtSynchronizeStream")
        # The device's work is far below a millisecond; what this machine adds can't be 80.
        assert sorted(end - begin for *_, begin, end in waits)[len(waits) // 2] < 40_000_000
        host = capture["api"]["host_ns"]
        assert int(host.max()) - int(host.min()) <= real_ns
