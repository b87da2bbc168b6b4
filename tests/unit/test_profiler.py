"""Profiles of a running program: what they contain, and what they don't."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import onnxruntime_values
from references import dangling
from runtime_reader import Capture

import traceconv
from traceconv.base.errors import InputError, OutputError, UsageError
from traceconv.runtime.live import PROCESS
from traceconv.runtime.zoo import find_model

NONE32 = (1 << 32) - 1


@pytest.fixture(scope="module")
def session() -> Iterator[traceconv.Session]:
    with traceconv.Session("mini_resnet") as opened:
        yield opened


@pytest.fixture(scope="module")
def inputs(session: traceconv.Session) -> dict[str, Any]:
    return session.random_inputs()


def read(profiler: traceconv.Profiler, device_id: int = 0, number: int = -1) -> Capture:
    return Capture(profiler.captures[number], device_id)


def names(capture: Capture, kind: str = "annotation") -> list[str]:
    """Names of the ranges of a kind, as they begin."""
    rows = capture["range"]
    rows = rows[(rows["event"] == 0) & (rows["kind"] == ("annotation", "module", "", "inference").index(kind))]
    return capture.text(rows["name"])


def steps(capture: Capture) -> list[int]:
    return sorted(set(capture["step_mark"]["step_id"].tolist()))


def test_a_session_returns_the_results_of_onnxruntime(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    found = find_model("mini_resnet")
    expected = onnxruntime_values(found.proto, inputs, session.outputs)
    outputs = session.run(inputs)
    assert list(outputs) == list(session.outputs)
    for name, value in outputs.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
    assert session.inputs == {name: (str(value.dtype), value.shape) for name, value in inputs.items()}


def test_without_a_profile_nothing_is_buffered(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    session.run(inputs)
    assert PROCESS.captures == ()
    assert PROCESS.store.pending == 0


def test_a_session_from_before_the_block_is_described_in_it(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    with traceconv.profile() as p:
        session.run(inputs)
    capture = read(p, session.device_id)
    assert len(capture["device"]) == len(capture["model"]) == 1
    assert capture.text(capture["op"]["name"]) == list(session.op_names)
    assert set(capture["stream"]["stream_id"].tolist()) == set(session.stream_names)
    starts = capture["task"][capture["task"]["event"] == 0]
    computed = starts["op_index"][starts["op_index"] != NONE32]
    assert sorted(set(computed.tolist())) == sorted(capture["op"]["op_index"].tolist())
    assert len(capture["pmu_pipe_utilization"]) > 0
    held = capture["memory"]
    # Weights that were there before are in the log, as of its begin; each free has its alloc.
    freed = set(held["block_id"][held["event"] == 1].tolist())
    assert freed <= set(held["block_id"][held["event"] == 0].tolist())
    assert len(capture["sync"]) >= 2
    assert [row["op_type"] for row in p.report("op-statistic", top=1)] == ["Conv2D"]
    assert [row["severity"] for row in p.arrow("import_log").to_pylist() if row["severity"] != "info"] == []


def test_sessions_made_inside_have_devices_models_and_ops_of_their_own(
    session: traceconv.Session, inputs: dict[str, Any]
) -> None:
    with traceconv.profile() as p, traceconv.Session("mini_transformer") as other:
        other.run(other.random_inputs())
        session.run(inputs)
    tasks = p.arrow("SELECT device_id, model_id, count(*) AS n FROM task JOIN op USING (run_id, op_id) GROUP BY ALL")
    rows = sorted(tasks.to_pylist(), key=lambda row: int(row["model_id"]))
    assert [(row["device_id"], row["model_id"]) for row in rows] == [
        (session.device_id, session.loaded.model_id),
        (other.device_id, other.loaded.model_id),
    ]
    assert {row["model_name"] for row in p.arrow("op").to_pylist()} == {"mini_resnet", "mini_transformer"}
    # All memory of the session that was closed inside is free again.
    sql = f"SELECT count(*) FROM memory WHERE device_id = {other.device_id} AND free_ns IS NULL"
    assert p.store.query(sql).fetchall() == [(0,)]


def test_pause_really_pauses(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    with traceconv.profile() as p:
        session.run(inputs)
        with p.record("open across", n=1):
            p.pause()
            with p.record("secret", key="hidden"):
                session.run(inputs)
                with traceconv.Session("mini_resnet", streams=1) as inside:
                    inside.run(inputs)
            p.resume()
            session.run(inputs)
    capture = read(p, session.device_id)
    assert len(steps(capture)) == 2
    assert len(names(capture, "inference")) == 2
    assert not {"secret", '{"key": "hidden"}'} & set(capture.texts.values())
    assert not (capture.folder / f"device_{inside.device_id}").exists() or inside.device_id == session.device_id
    # The span ended at the pause and went on at the resume.
    assert names(capture) == ["open across", "open across"]
    begins = capture["range"][(capture["range"]["event"] == 0) & (capture["range"]["kind"] == 0)]
    args = [json.loads(text) for text in capture.text(begins["args"])]
    assert args == [{"n": 1}, {"n": 1, "continues": int(begins["span_id"][0])}]
    ends = capture["range"][(capture["range"]["event"] == 1) & (capture["range"]["kind"] == 0)]
    paused = int(ends["host_ns"][0]), int(begins["host_ns"][1])
    assert paused[1] - paused[0] > 0
    for name in ("api", "memory", "range"):
        times = capture[name]["host_ns"]
        assert not ((times > paused[0]) & (times < paused[1] - 0)).any() or name == "memory"
    assert not [row for row in p.arrow("import_log").to_pylist() if row["severity"] != "info"]


def test_pausing_twice_and_resuming_what_runs_do_nothing(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    with traceconv.profile() as p:
        p.resume()
        session.run(inputs)
        p.pause()
        p.pause()
        session.run(inputs)
    assert len(steps(read(p, session.device_id))) == 1


def test_a_pause_waits_for_a_run_of_another_thread(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    started = threading.Event()

    def work() -> None:
        for _ in range(5):
            session.run(inputs)
            started.set()

    with traceconv.profile() as p:
        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        p.pause()
        thread.join()
    capture = read(p, session.device_id)
    rows = capture["range"]
    kinds = rows[rows["kind"] == 3]
    assert len(kinds) % 2 == 0  # whole runs only
    assert capture.pairs("task", "task_id")
    assert len(steps(capture)) == len(kinds) // 2


def test_two_profilers_at_once_and_one_inside_the_other(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    with traceconv.profile() as outer:
        session.run(inputs)
        inner = traceconv.profile(level=1, aic_metrics="Memory")
        with outer.record("outer only"), inner, inner.record("both"):
            session.run(inputs)
        session.run(inputs)
    a, b = read(outer, session.device_id), read(inner, session.device_id)
    assert (len(steps(a)), len(steps(b))) == (3, 1)
    assert names(a) == ["outer only", "both"]
    assert names(b) == ["both"]
    assert len(a["api"]) > 0 == len(b["api"])
    assert len(a["pmu_pipe_utilization"]) > 0 == len(a["pmu_memory"])
    assert len(b["pmu_memory"]) > 0 == len(b["pmu_pipe_utilization"])
    # A parent that is in the other log only is none here.
    both = b["range"][b["range"]["event"] == 0][0]
    assert both["parent_span_id"] == 0


def test_a_block_that_raises_is_a_complete_profile(
    session: traceconv.Session, inputs: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(KeyError), traceconv.profile(tmp_path) as p, p.record("fails"):
        session.run(inputs)
        raise KeyError("mine")
    manifest = json.loads((p.captures[0] / "manifest.json").read_text())
    assert manifest["ended"] == "KeyError"
    capture = read(p, session.device_id)
    assert names(capture) == ["fails"]
    assert capture.pairs("range", "span_id")
    assert PROCESS.captures == ()


def test_a_run_that_fails_leaves_the_session_usable(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    name = next(iter(inputs))
    with traceconv.profile() as p:
        with pytest.raises(InputError, match="needs an input"):
            session.run({})
        with pytest.raises(InputError, match="no input"):
            session.run({"other": inputs[name]})
        session.run(inputs)
    assert len(steps(read(p, session.device_id))) == 1


def test_a_failed_kernel_frees_its_memory() -> None:
    nodes = [
        helper.make_node("Mul", ["data", "data"], ["square"]),
        helper.make_node("Gather", ["square", "at"], ["out"]),
    ]
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [4])
    at = helper.make_tensor_value_info("at", TensorProto.INT64, [1])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1])
    model = helper.make_model(
        helper.make_graph(nodes, "gather", [data, at], [out]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    values = np.arange(4, dtype=np.float32)
    with traceconv.Session(model) as session, traceconv.profile() as p:
        with pytest.raises(traceconv.ModelError):
            session.run({"data": values, "at": np.array([9])})
        held = len(session.held_memory())
        outputs = session.run({"data": values, "at": np.array([3])})
        assert len(session.held_memory()) <= held + 1
        assert outputs["out"].tolist() == [9.0]
    log = p.arrow("import_log").to_pylist()
    assert [row for row in log if row["severity"] != "info"] == []
    # The step of the run that failed has begun, and has no end.
    found = p.arrow("SELECT start_ns IS NOT NULL AS began, end_ns IS NOT NULL AS ended FROM step ORDER BY step_id")
    assert found.to_pylist() == [{"began": True, "ended": False}, {"began": True, "ended": True}]
    assert dangling(p.store.connection) == []


@pytest.mark.parametrize("aic_metrics", ["PipeUtilization", "Memory"])
def test_a_model_without_an_op_that_counts_anything(aic_metrics: str) -> None:
    shape = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "on the CPU", shape[:1], shape[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with traceconv.Session(model) as session, traceconv.profile(aic_metrics=aic_metrics) as p:
        assert session.run({"x": np.ones(3)})["y"].tolist() == [2.0] * 3
    assert p.arrow("SELECT op_type FROM task JOIN op USING (op_id)").to_pylist() == [{"op_type": "Add"}]
    assert p.arrow("task_pmu").num_rows == 0


def test_entering_a_profiler_again_inside_itself_is_a_profile_of_its_own(
    session: traceconv.Session, inputs: dict[str, Any]
) -> None:
    p = traceconv.profile()
    with p:
        session.run(inputs)
        with p:
            session.run(inputs)
    assert [len(steps(read(p, session.device_id, number))) for number in (0, 1)] == [1, 2]


def test_start_stop_get_clear_dump(session: traceconv.Session, inputs: dict[str, Any], tmp_path: Path) -> None:
    p = traceconv.profile()
    with pytest.raises(UsageError, match="not started"):
        p.stop()
    with pytest.raises(UsageError, match="no profile has ended"):
        p.get()
    p.start(level=1)
    with pytest.raises(UsageError, match="started already"):
        p.start()
    session.run(inputs)
    p.stop()
    events: Any = p.get()["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= set(session.op_names)
    p.dump(tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"] == events
    assert len(read(p, session.device_id)["api"]) == 0
    folder = p.captures[0]
    p.clear()
    assert not folder.exists()
    with pytest.raises(UsageError, match="no profile has ended"):
        p.get()
    p.start()
    session.run(inputs)
    p.stop()
    assert len(read(p, session.device_id)["api"]) > 0
    assert p.arrow("step").num_rows == 1


def test_steps_of_several_runs(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    with traceconv.profile() as p:
        session.run(inputs)
        for _ in range(2):
            p.step()
            session.run(inputs)
            session.run(inputs)
    rows = list(p.report("step-trace"))
    assert len(rows) == 3
    tasks = p.arrow(
        "SELECT step_id, count(DISTINCT execution_id) AS n FROM task WHERE step_id IS NOT NULL GROUP BY ALL"
    )
    assert sorted(row["n"] for row in tasks.to_pylist()) == [1, 2, 2]
    for row in p.arrow(
        "SELECT s.start_ns <= min(t.start_ns) AND s.end_ns >= max(t.start_ns + t.dur_ns) AS covers "
        "FROM step s JOIN task t USING (run_id, step_id) WHERE t.kind = 'compute' "
        "GROUP BY s.step_id, s.start_ns, s.end_ns"
    ).to_pylist():
        assert row["covers"]


def test_points_by_name_match_those_of_the_step(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    fp, bp = session.op_names[2], session.op_names[-2]
    with traceconv.profile(fp_point=fp, bp_point=bp) as p:
        session.run(inputs)
    [step] = p.arrow("step").to_pylist()
    tasks = {row["name"]: row for row in p.arrow("SELECT * FROM task WHERE kind = 'compute'").to_pylist()}
    assert step["fp_start_ns"] == tasks[fp]["start_ns"]
    assert step["bp_end_ns"] == tasks[bp]["start_ns"] + tasks[bp]["dur_ns"]


def test_an_unknown_point_is_refused_before_anything_runs(
    session: traceconv.Session, inputs: dict[str, Any], tmp_path: Path
) -> None:
    wrong = session.op_names[0][:-1] + "?"
    with pytest.raises(UsageError, match=r"fp_point .* has no such op\. Did you mean"):
        traceconv.profile(tmp_path / "new" / "folder", fp_point=wrong).start()
    assert list(tmp_path.iterdir()) == []
    assert PROCESS.captures == ()


def test_a_model_of_a_single_operator_has_no_steps() -> None:
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "one", [tensor("x", TensorProto.FLOAT, [8])],
        [tensor("y", TensorProto.FLOAT, [8])],
    )  # fmt: skip
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with traceconv.profile() as p, traceconv.Session(model) as one:
        assert one.run({"x": np.full(8, -1, np.float32)})["y"].tolist() == [0.0] * 8
    for name in ("step-trace", "fusion-op"):
        with pytest.warns(UserWarning, match="A model of a single operator has no"):
            assert list(p.report(name)) == []
    assert next(iter(p.report("op-statistic")))["count"] == 1


@pytest.mark.parametrize(
    ("options", "present", "absent"),
    [
        ({}, {"api", "range", "task", "pmu_pipe_utilization", "memory", "counter", "step_mark"}, set()),
        ({"level": 1}, {"task", "pmu_pipe_utilization", "step_mark"}, {"api", "memory"}),
        ({"level": 1, "resource": "npu,memory"}, {"task", "memory"}, {"api", "pmu_pipe_utilization"}),
        ({"resource": ["host"]}, {"api"}, {"task", "memory", "step_mark", "counter", "pmu_pipe_utilization"}),
        ({"resource": "cpu"}, {"api", "range"}, {"task", "memory", "step_mark"}),
        ({"profile_device": False}, {"api", "memory"}, {"task", "pmu_pipe_utilization", "step_mark"}),
        ({"aic_metrics": "off"}, {"task"}, {"pmu_pipe_utilization"}),
        ({"aic_metrics": "L2Cache"}, {"task", "pmu_l2_cache"}, {"pmu_pipe_utilization"}),
        ({"training_trace": "off"}, {"task"}, {"step_mark"}),
        ({"task_trace": False}, {"step_mark"}, {"task", "pmu_pipe_utilization"}),
    ],
)
def test_options_choose_what_is_recorded(
    session: traceconv.Session, inputs: dict[str, Any], options: dict[str, Any], present: set[str], absent: set[str]
) -> None:
    with traceconv.profile(**options) as p:
        session.run(inputs)
    capture = read(p, session.device_id)
    found = {name for name in present | absent if len(capture[name])}
    assert found == present


@pytest.mark.parametrize(("rate", "samples"), [(1, 14), (5, 3)])
def test_memory_is_sampled_every_n_ops(
    session: traceconv.Session, inputs: dict[str, Any], rate: int, samples: int
) -> None:
    assert len(session.op_names) == 14
    with traceconv.profile(sample_rate=rate) as p:
        session.run(inputs)
    capture = read(p, session.device_id)
    found = capture.text(capture["counter"]["name"]).count("HBM Used")
    assert samples - 1 <= found <= samples  # what was counted before the block counts on


def test_files_of_the_formats(session: traceconv.Session, inputs: dict[str, Any], tmp_path: Path) -> None:
    with traceconv.profile(tmp_path, formats=["chrome_timeline.json", "memory_flow.svg", "store"]) as p:
        session.run(inputs)
    assert sorted(path.name.partition(".")[2] for path in tmp_path.iterdir()) == [
        "chrome_timeline.json", "duckdb", "memory_flow.svg",
    ]  # fmt: skip
    assert json.loads(next(tmp_path.glob("*.json")).read_text())["traceEvents"]
    with traceconv.open_store(next(tmp_path.glob("*.duckdb"))) as store:
        assert store.query("SELECT count(*) FROM step").fetchall() == [(1,)]
    with traceconv.profile(tmp_path / "one.json") as p:
        session.run(inputs)
    assert (tmp_path / "one.json").is_file()
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert p.arrow("step").num_rows == 1
    with pytest.raises(UsageError, match="Did you mean 'chrome'"):
        p.export("chrom", tmp_path / "x")


def test_data_frames(session: traceconv.Session, inputs: dict[str, Any]) -> None:
    pytest.importorskip("pandas")
    with traceconv.profile(format="pandas") as p, p.record("trace"):
        session.run(inputs)
    frame = p.df("range")
    assert int(frame[frame["name"] == "trace"]["dur_ns"].iloc[0]) > 0
    assert set(p.df("op-statistic")["op_type"]) >= {"Conv2D"}
    with pytest.raises(UsageError, match="Did you mean 'op_statistic'"):
        p.df("op_statistics")


def test_an_output_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = []
    with pytest.raises(OutputError, match="can't write"), traceconv.profile(tmp_path / "file" / "x"):
        ran.append(1)
    with pytest.raises(OutputError, match="can't write"), traceconv.profile(tmp_path / "file" / "x.json"):
        ran.append(1)
    assert ran == []
    assert PROCESS.captures == ()


def test_a_closed_session_is_refused(inputs: dict[str, Any]) -> None:
    session = traceconv.Session("mini_resnet")
    session.close()
    session.close()
    with pytest.raises(UsageError, match="is closed"):
        session.run(inputs)


def test_without_computing_the_outputs_are_zeros_of_the_right_shape(inputs: dict[str, Any]) -> None:
    with traceconv.Session("mini_resnet", compute=False) as session:
        [value] = session.run(inputs).values()
    with traceconv.Session("mini_resnet") as session:
        [expected] = session.run(inputs).values()
    assert value.shape == expected.shape
    assert not value.any()
    assert expected.any()


def test_the_device_of_a_closed_session_is_used_again() -> None:
    ids = []
    for _ in range(3):
        with traceconv.Session("mini_resnet") as session:
            ids.append(session.device_id)
    assert len(set(ids)) == 1
