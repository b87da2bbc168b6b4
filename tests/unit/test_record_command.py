"""`traceconv record`: complete captures or ones marked as truncated, reproducible bytes, errors before any write."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
import runtime_invariants
from commands import Command
from onnx_models import ModelBuilder
from processes import TRACECONV, heed_interrupts, wait_until
from runtime_reader import Capture

from traceconv.base.errors import OutputError
from traceconv.runtime.record import RecordOptions, record
from traceconv.wire.log_writer import CaptureWriter

NONE32 = (1 << 32) - 1


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_path_goes_to_stdout_and_diagnostics_to_stderr(tmp_path: Path, command: Command) -> None:
    output = command("record", "mini_resnet", "-o", tmp_path / "raw", "-n", "2", "--warmup", "1")
    folder = Path(output.out.strip())
    assert folder.parent == tmp_path / "raw" and folder.name.startswith("PROF_000001_")
    assert output.err == "mini_resnet: 14 ops × 2 iterations recorded\n"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["model"] == "mini_resnet" and manifest["options"]["iterations"] == 2


def test_a_live_capture_keeps_every_invariant(tmp_path: Path) -> None:
    for _ in range(2):
        done = record(RecordOptions("mini_transformer", tmp_path, iterations=3, warmup=2, seed=4))
        runtime_invariants.check(Capture(done.folder))
    names = sorted(path.name[:11] for path in tmp_path.iterdir())
    assert names == ["PROF_000001", "PROF_000002"]


def test_log_describes_the_run(tmp_path: Path) -> None:
    done = record(RecordOptions("mini_resnet", tmp_path, iterations=4, warmup=2, seed=3, deterministic=True))
    capture = Capture(done.folder)
    begins, _ = capture.pairs("task", "task_id")
    of_ops = begins[begins["op_index"] != NONE32]
    assert len(of_ops) == 6 * done.op_count
    assert sorted(set(of_ops["execution_id"].tolist())) == [1, 2, 3, 4, 5, 6]
    assert sorted(set(begins["step_id"].tolist())) == [1, 2, 3, 4, NONE32]
    kinds = set(capture.enum("task", "task_type"))
    assert kinds == {"AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "SDMA", "EVENT_RECORD", "EVENT_WAIT"}
    ranges, _ = capture.pairs("range", "span_id")
    outer = ranges[(ranges["kind"] == 0) | (ranges["kind"] == 3)]
    names = list(zip(capture.text(outer["name"]), outer["step_id"].tolist(), strict=True))
    warm = [("Inference", NONE32)] * 2
    assert names == [("warm up", NONE32), *warm, *(("Inference", step) for step in (1, 2, 3, 4))]
    assert sorted(set(capture["step_mark"]["iteration"].tolist())) == [1, 2, 3, 4]
    # The same op lags from one thread to the next: dispatched, then launched, then run.
    calls, _ = capture.pairs("api", "correlation_id")
    called = np.array(capture.text(calls["name"]))
    for step in (1, 4):
        mine = calls["step_id"] == step
        dispatched = calls["host_ns"][mine & (called == "OpDispatch")]
        launched = calls["host_ns"][mine & (called == "launch")]
        assert len(dispatched) == len(launched) == done.op_count
        assert (launched > dispatched).all()
    levels = set(capture.enum("api", "level"))
    assert levels == {"acl", "model", "node", "runtime"}
    (row,) = capture["capture"]
    assert capture.texts[int(row["model_name"])] == "mini_resnet"
    assert json.loads(capture.texts[int(row["options"])])["warmup"] == 2
    assert set(capture.text(capture["counter"]["name"])) == {"AI Core Freq", "HBM Used", "HBM Bandwidth"}


def test_deterministic_captures_are_byte_identical(tmp_path: Path) -> None:
    def make(place: str, seed: int) -> Path:
        options = RecordOptions("mini_transformer", tmp_path / place, iterations=2, seed=seed, deterministic=True)
        return record(options).folder

    one, two, other = make("a", 5), make("b", 5), make("c", 6)
    assert one.name == two.name and files(one) == files(two)
    assert one.name != other.name and files(one) != files(other)
    with pytest.raises(OutputError, match="already exists"):
        make("a", 5)


def test_local_paths_are_not_logged(tmp_path: Path) -> None:
    b = ModelBuilder()
    model = tmp_path / "secret_place" / "my model.onnx"
    model.parent.mkdir()
    onnx.save(b.model({"x": [1, 4]}, [b.node("Relu", ["x"])]), model)
    np.savez(tmp_path / "secret_input.npz", x=np.zeros((1, 4), np.float32))
    options = RecordOptions(str(model), tmp_path / "raw", input_path=tmp_path / "secret_input.npz")
    data = b"".join(files(record(options).folder).values())
    assert b"my_model" in data
    assert b"secret" not in data and str(tmp_path).encode() not in data


def test_unsupported_op_leaves_no_files(tmp_path: Path, command: Command) -> None:
    b = ModelBuilder()
    onnx.save(b.model({"x": [1, 4]}, [b.node("Foo", ["x"])]), tmp_path / "m.onnx")
    output = command("record", tmp_path / "m.onnx", "-o", tmp_path / "raw", code=1).err
    assert "op Foo (node 'foo_0', opset 17)" in output
    assert not (tmp_path / "raw").exists()


def test_invalid_input_leaves_no_files(tmp_path: Path, command: Command) -> None:
    b = ModelBuilder()
    proto = b.model({"ids": [1, 4]}, [b.node("Gather", [b.weight((10, 4)), "ids"])], elem_types={"ids": 7})
    onnx.save(proto, tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", ids=np.array([[0, 1, 2, 99]]))
    arguments = [str(tmp_path / "m.onnx"), "-o", str(tmp_path / "raw"), "--input", str(tmp_path / "in.npz")]
    output = command("record", *arguments, code=1).err
    assert "op Gather (node 'gather_0', opset 17) fails" in output and output.count("\n") == 1
    assert not (tmp_path / "raw").exists()


def test_unwritable_output_is_a_one_line_error(tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").write_text("")
    output = command("record", "mini_resnet", "-o", tmp_path / "file", code=1)
    assert "can't write" in output.err and output.err.count("\n") == 1 and output.out == ""


def test_full_disk_is_one_error_and_leaves_an_incomplete_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    original = CaptureWriter._write_block

    def fill_up(self: CaptureWriter, *arguments: object, **options: object) -> None:
        nonlocal written
        written += 1
        if written > 25:
            raise OutputError("can't write: No space left on device")
        original(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(CaptureWriter, "_write_block", fill_up)
    with pytest.raises(OutputError, match="No space left"):
        record(RecordOptions("mini_resnet", tmp_path, iterations=30, deterministic=True))
    (folder,) = tmp_path.iterdir()
    assert not (folder / "manifest.json").exists()
    assert len(Capture(folder)["op"]) == 14


def test_file_size_limit_is_an_error(tmp_path: Path) -> None:
    """The operating system refuses for real: no file may grow beyond 20 kB."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [*TRACECONV, "record", "mini_resnet", "-o", str(tmp_path / "raw"), "-n", "200"]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "can't write" in done.stderr
    (folder,) = (tmp_path / "raw").iterdir()
    assert not (folder / "manifest.json").exists()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_recording_keeps_its_records(ending: signal.Signals, tmp_path: Path) -> None:
    command = [*TRACECONV, "record", "mini_resnet", "-o", str(tmp_path / "raw"), "-n", "1000000"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )

    def has(kind: str, size_bytes: int) -> bool:
        files = (tmp_path / "raw").glob(f"*/device_0/data/{kind}*")
        return any(file.stat().st_size > size_bytes for file in files)

    # Each kind of record is written when its own buffer is full.
    wait_until(process, lambda: has("step_mark.", 2_000) and has("task.", 40_000))
    os.kill(process.pid, ending)
    out, err = process.communicate(timeout=60)
    assert out == ""
    if ending is signal.SIGINT:
        assert process.returncode == 130 and err.count("\n") <= 1 and "Traceback" not in err
    (folder,) = (tmp_path / "raw").iterdir()
    assert not (folder / "manifest.json").exists()
    capture = Capture(folder)
    assert len(capture["step_mark"]) > 10 and len(capture["task"]) > 100
    runtime_invariants.check_streams(capture)


def test_a_model_of_a_single_operator_has_no_iterations(tmp_path: Path, command: Command) -> None:
    b = ModelBuilder()
    onnx.save(b.model({"x": [4, 3]}, [b.node("Softmax", ["x"])]), str(tmp_path / "one.onnx"))
    b = ModelBuilder()
    onnx.save(b.model({"x": [4, 3]}, [b.node("Softmax", [b.node("Sin", ["x"])])]), str(tmp_path / "two.onnx"))
    db = ["--db", str(tmp_path / "t.duckdb")]
    for name in ("one", "two"):
        raw = str(tmp_path / f"raw_{name}")
        words = ["record", str(tmp_path / f"{name}.onnx"), "-o", raw, "-n", "2", "--warmup", "1", "--deterministic"]
        command(*words)
        command("ingest", raw, *db)
    for report, reason in (("step-trace", "no iterations, and so no step trace"), ("fusion-op", "nothing to fuse")):
        output = command("report", report, *db, "--run", "1", "--format", "csv")
        assert output.out.count("\n") == 1  # the heading
        line = f"no rows in {report.split('-')[0]}. A model of a single operator has {reason}."
        assert line in output.err and output.err.count("\n") == 1
    done = command("report", "op-statistic", *db, "--run", "1", "--columns", "count", "--format", "csv")
    assert done.out == "count\n3\n"
    done = command("report", "step-trace", *db, "--run", "2", "--columns", "iteration", "--format", "csv")
    assert done.out == "iteration\n1\n2\n"
    assert "Record a model with ops to fuse" in command("report", "fusion-op", *db, "--run", "2").err


ASCEND = (
    '{"output": "%s", "training_trace": "on", "task_trace": "on", "fp_point": "", "bp_point": "", '
    '"aic_metrics": "PipeUtilization"}'
)


def test_ascends_profiling_options_select_what_is_recorded(tmp_path: Path, command: Command) -> None:
    """A JSON text or file; other options override it, and hints for empty reports name the option."""

    def recorded(*options: str) -> Capture:
        return Capture(Path(command("record", "mini_resnet", "-n", "1", *options).out.strip()))

    assert len(recorded("--profiling-options", ASCEND % (tmp_path / "a"))["pmu_pipe_utilization"])
    file = tmp_path / "options.json"
    file.write_text('{"path": "x", "task_trace": "off", "aic_metrics": "Memory", "fp_point": "nowhere"}')
    done = recorded("--profiling-options", str(file), "-o", str(tmp_path / "b"), "--fp-point", "", "--deterministic")
    assert not len(done["task"]) and not len(done["pmu_memory"]) and len(done["step_mark"])
    done = recorded("-o", str(tmp_path / "c"), "--train", "--no-training-trace", "--aic-metrics", "off")
    assert len(done["task"]) and not len(done["step_mark"]) and set(done["task"]["step_id"]) == {NONE32}
    assert not len(done["pmu_pipe_utilization"])
    recorded("-o", str(tmp_path / "d"), "--profiling-options", '{"level": 1}')

    db = str(tmp_path / "t.duckdb")
    command("ingest", *(tmp_path / name for name in "bcd"), "--db", db)
    for report, number, reason in (
        ("op-statistic", 1, "The recording had task_trace off"),
        ("step-trace", 2, "The recording had training_trace off"),
        ("memory-peak", 3, "The recording was of level 1"),
    ):
        assert reason in command("report", report, "--db", db, "--run", number).err, report
