"""The log of a training: its steps add up everywhere, collectives overlap with the backward pass, options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import runtime_invariants
from commands import Command
from ingest_checks import ingested
from runtime_reader import Capture
from stores import query
from training_models import convnet, digits, mlp

import traceconv
from traceconv.base.errors import InputError, UsageError
from traceconv.cli.app import run
from traceconv.pipeline.ingest import ingest
from traceconv.runtime.record import Recorded, RecordOptions, record
from traceconv.runtime.schedule import WORLD_GROUP
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.truth import TRUTH, intersection, union

NONE32 = (1 << 32) - 1
HCCL = 6


def trained(folder: Path, **options: Any) -> Recorded:
    given = {"train": TrainOptions(), "deterministic": True, "batch": 4, "iterations": 3, **options}
    return record(RecordOptions(output_dir=folder, **{"model": "mini_resnet", **given}))


class Store:
    """A capture of two devices, its records, its store, its truth."""

    def __init__(self, folder: Path) -> None:
        self.done = trained(folder / "raw", devices=2, truth=True, warmup=1, seed=4)
        self.captures = [Capture(self.done.folder, device) for device in (0, 1)]
        self.path = folder / "t.duckdb"
        ingested(self.path, self.done.folder)
        lines = (self.done.folder / TRUTH).read_text(encoding="utf-8").splitlines()
        self.truth = [json.loads(line) for line in lines]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return query(self.path, sql)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("training"))


def test_the_invariants_are_satisfied(store: Store) -> None:
    for capture in store.captures:
        runtime_invariants.check(capture)


@pytest.mark.parametrize("prefetch", [False, True])
def test_they_are_satisfied_in_real_time_too(tmp_path: Path, prefetch: bool) -> None:
    onnx.save(convnet(), str(tmp_path / "net.onnx"))
    model = str(tmp_path / "net.onnx")
    done = trained(tmp_path / "raw", model=model, deterministic=False, devices=2, prefetch=prefetch, warmup=1)
    for device in (0, 1):
        capture = Capture(done.folder, device)
        runtime_invariants.check(capture)
        marks = capture["step_mark"]
        assert set(marks["mark"].tolist()) == {0, 1, 2, 3, 4, 5}
        # What comes of prefetch: the batch is there before its step begins.
        loads, starts = (marks["ticks"][marks["mark"] == mark] for mark in (5, 0))
        assert (loads < starts).all() if prefetch else (loads > starts).all()


def test_sums_over_steps_agree_everywhere_to_the_ns(store: Store) -> None:
    """Raw records → op_summary and task → step_trace: the same tasks, the same times."""
    for device, capture in enumerate(store.captures):
        begins, ends = capture.pairs("task", "task_id")
        # The raw ticks of one capture, as ingest maps them to ns: task by task, by its number on the device.
        rows = store.query(f"SELECT source_task_id, start_ns, dur_ns FROM task WHERE device_id = {device} ORDER BY 1")
        assert [row[0] for row in rows] == begins["task_id"].tolist()
        times = {number: (start, start + dur) for number, start, dur in rows}
        for step in sorted(set(begins["step_id"].tolist()) - {NONE32}):
            of_ops = begins[(begins["step_id"] == step) & (begins["op_index"] != NONE32)]
            by_records = sum(times[task][1] - times[task][0] for task in of_ops["task_id"].tolist())
            sql = "SELECT sum({}) FROM {} WHERE device_id = {} AND step_id = {}"
            assert store.query(
                "SELECT sum(dur_ns) FROM op_summary "
                f"WHERE device_id = {device} AND step_id = {step} AND op_id IS NOT NULL"
            ) == [(by_records,)]
            assert store.query(sql.format("dur_ns", "task", device, step) + " AND op_id IS NOT NULL") == [(by_records,)]
            exchanged = begins[(begins["step_id"] == step) & (begins["task_type"] == HCCL)]["task_id"].tolist()
            assert len(exchanged) >= 3
            columns = "fp_to_bp_ns + refresh_ns - iteration_time_ns, reduce_start_ns, reduce_dur_ns, start_ns, end_ns"
            ((rest, starts, durations, start, end),) = store.query(
                f"SELECT {columns} FROM step_trace(step := {step}) WHERE device_id = {device}"
            )
            assert rest == 0
            assert list(zip(starts, durations, strict=True)) == sorted(
                (times[task][0], times[task][1] - times[task][0]) for task in exchanged
            )
            assert all(start < a and a + n < end for a, n in zip(starts, durations, strict=True))
            mine = [times[task] for task in begins["task_id"][begins["step_id"] == step].tolist()]
            assert (start, end) == (min(a for a, _ in mine), max(b for _, b in mine))
        assert (ends["ticks"] > begins["ticks"]).all()


def test_points_of_a_step_are_in_order_and_phases_between_them(store: Store) -> None:
    rows = store.query(
        "SELECT device_id, iteration, start_ns, get_next_start_ns, get_next_ns, fp_start_ns, bp_end_ns, end_ns, "
        "data_aug_bound_ns, step_id FROM step_trace ORDER BY 1, 2"
    )
    assert [row[:2] for row in rows] == [(device, step) for device in (0, 1) for step in (1, 2, 3)]
    for device, iteration, start, get_next, took, fp, bp, end, waited, step in rows:
        assert start == get_next and get_next + took < fp < bp < end
        assert (waited is None) == (iteration == 1)
        sql = (
            "SELECT phase, min(start_ns), max(start_ns + dur_ns) FROM task JOIN op USING (run_id, op_id) "
            f"WHERE step_id = {step} AND device_id = {device} GROUP BY phase"
        )
        spans = {phase: (first, last) for phase, first, last in store.query(sql)}
        assert spans["forward"][0] == fp and spans["backward"][1] == bp < spans["refresh"][0] < end
    # Data are waited for on the host: what it did in between is in the log, and takes most of that time.
    host = store.query(
        "SELECT count(*), min(dur_ns) FROM range WHERE kind = 'host_op' AND name IN ('DataLoad', 'Augment')"
    )
    assert host[0][0] == 2 * 2 * 4 and host[0][1] > 2_000


def test_exchanges_overlap_with_the_backward_pass_as_in_the_ground_truth(store: Store) -> None:
    overlaps = [line for line in store.truth if line["kind"] == "overlap"]
    assert len(overlaps) == 6
    ticks_ns = {line["device_id"]: line for line in store.truth if line["kind"] == "device"}
    phases = dict(
        zip(store.captures[0]["op"]["op_index"].tolist(), store.captures[0]["op"]["phase"].tolist(), strict=True)
    )
    sql = """
        WITH b AS (SELECT device_id, step_id, start_ns, start_ns + dur_ns AS end_ns, kind = 'collective' AS exchange
                   FROM task LEFT JOIN op USING (run_id, op_id)
                   WHERE step_id IS NOT NULL AND (kind = 'collective' OR phase = 'backward')),
        edges AS (SELECT device_id, step_id, start_ns AS at_ns, exchange::INT AS e, (NOT exchange)::INT AS w FROM b
                  UNION ALL SELECT device_id, step_id, end_ns, -exchange::INT, -(NOT exchange)::INT FROM b),
        sums AS (SELECT *, sum(e) OVER t AS es, sum(w) OVER t AS ws, lead(at_ns) OVER t - at_ns AS gap_ns FROM edges
                 WINDOW t AS (PARTITION BY device_id, step_id ORDER BY at_ns, e, w
                              ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
        SELECT device_id, step_id, sum(gap_ns) FROM sums WHERE es > 0 AND ws > 0 GROUP BY ALL"""
    by_sql = {(device, step): int(ns) for device, step, ns in store.query(sql)}
    for line in overlaps:
        device, step = line["device_id"], line["step_id"]
        capture = store.captures[device]
        begins, ends = capture.pairs("task", "task_id")
        exchanges, backward = [], []
        for begin, end in zip(begins, ends, strict=True):
            if begin["step_id"] != step:
                continue
            span = (int(begin["ticks"]), int(end["ticks"]))
            if begin["task_type"] == HCCL:
                exchanges.append(span)
            elif phases.get(int(begin["op_index"])) == 1:
                backward.append(span)
        shared = intersection(union(exchanges), union(backward))
        # In ticks, from the records alone: exactly what the simulator knows.
        assert sum(b - a for a, b in shared) == line["overlap_ticks"] > 0
        assert line["overlap_ticks"] <= min(line["communication_ticks"], line["backward_ticks"])
        # In ns, by SQL: the same but for the rounding of the ends of each interval to the host's clock.
        assert (
            abs(by_sql[device, step] - line["overlap_ns"]) <= 2 * 22 * line["intervals"] + line["overlap_ns"] // 1_000
        )
        assert ticks_ns[device]["clock_hz"] == 50_000_000
    peers = [line for line in store.truth if line["kind"] == "task" and line["blocked_by"] == "peers"]
    assert peers and {line["task_type"] for line in peers} == {"HCCL"}


def test_the_breakdown_is_that_of_the_ground_truth(store: Store) -> None:
    """By a walk over all times at which a true task starts or ends, for each device and for each of its steps."""
    named = {"HCCL": "collective", "SDMA": "copy"}
    tasks = [line for line in store.truth if line["kind"] == "task" and not line["task_type"].startswith("EVENT")]
    columns = "compute_ns, collective_ns, copy_ns, exposed_collective_ns, overlapped_collective_ns, exposed_copy_ns"
    pairs = {(line["device_id"], line["step_id"]) for line in tasks if line["step_id"] is not None}
    assert len(pairs) == 6
    overlapped_ns = 0
    for device, step in sorted(pairs | {(0, -1), (1, -1)}):
        own = [line for line in tasks if line["device_id"] == device and step in (-1, line["step_id"])]
        changes = sorted(
            (line[f"{end}_ns"], change, named.get(line["task_type"], "compute"))
            for line in own
            for end, change in (("start", 1), ("end", -1))
        )
        running = dict.fromkeys(("compute", "collective", "copy"), 0)
        true = dict.fromkeys(columns.split(", "), 0)
        before_ns = changes[0][0]
        for at_ns, change, kind in changes:
            compute, collective, copy = (count > 0 for count in running.values())
            for name, counts in (
                ("compute", compute), ("collective", collective), ("copy", copy),
                ("exposed_collective", collective and not compute),
                ("overlapped_collective", collective and compute),
                ("exposed_copy", copy and not compute and not collective),
            ):  # fmt: skip
                true[f"{name}_ns"] += counts * (at_ns - before_ns)
            running[kind] += change
            before_ns = at_ns
        where = f"device := {device}" + ("" if step == -1 else f", step := {step}")
        [row] = store.query(f"SELECT {columns} FROM breakdown({where})")
        for found_ns, (name, true_ns) in zip(row, true.items(), strict=True):
            # The rounding of the ends of each interval to the host's clock, as above.
            assert abs(found_ns - true_ns) <= 2 * 22 * len(own) + true_ns // 1_000, (device, step, name)
        overlapped_ns += true["overlapped_collective_ns"]
    assert overlapped_ns > 100_000


def test_collectives_wait_for_each_other_on_a_separate_stream(store: Store) -> None:
    tasks = [line for line in store.truth if line["kind"] == "task" and line["task_type"] == "HCCL"]
    by_device = [[line for line in tasks if line["device_id"] == device] for device in (0, 1)]
    assert len(by_device[0]) == len(by_device[1]) > 0
    for one, two in zip(*by_device, strict=True):
        assert one["name"] == two["name"] and one["alone_ticks"] == two["alone_ticks"]
        # Neither can be done before the later of them began and the data went round.
        least = one["alone_ticks"] * 20 * 99 // 100
        assert min(one["end_ns"], two["end_ns"]) >= max(one["start_ns"], two["start_ns"]) + least
        assert abs(one["end_ns"] - two["end_ns"]) < 40_000
    streams = {line["stream_id"] for line in tasks}
    tasks = [line for line in store.truth if line["kind"] == "task" and not line["task_type"].startswith("EVENT")]
    others = {line["stream_id"] for line in tasks if line["task_type"] != "HCCL"}
    assert len(streams) == 1 and not streams & others
    names = store.query("SELECT DISTINCT name FROM track WHERE kind = 'stream' AND name LIKE '%communication%'")
    assert len(names) == 1
    groups = store.query("SELECT DISTINCT kind = 'collective', comm_group FROM task ORDER BY ALL")
    assert groups == [(False, None), (True, WORLD_GROUP)]


def test_an_export_of_it_can_be_ingested(store: Store, tmp_path: Path) -> None:
    with traceconv.open_store(store.path) as opened:
        opened.export_chrome(tmp_path / "t.json")
    again = tmp_path / "again.duckdb"
    ingest([tmp_path / "t.json"], again)
    sql = (
        "SELECT device_id, iteration, fp_start_ns, bp_end_ns, reduce_start_ns, get_next_ns FROM step_trace ORDER BY ALL"
    )
    assert query(again, sql) == store.query(sql)


def test_the_same_options_give_the_same_bytes_and_weights(tmp_path: Path) -> None:
    onnx.save(convnet(), str(tmp_path / "net.onnx"))
    model = str(tmp_path / "net.onnx")
    one, two = (trained(tmp_path / place, model=model, devices=2, iterations=2) for place in ("a", "b"))
    assert Capture(one.folder).files == Capture(two.folder).files
    assert one.losses == two.losses and len(one.losses) == 2
    assert all(np.array_equal(one.weights[name], two.weights[name]) for name in one.weights)


def test_points_can_be_given_by_name(tmp_path: Path) -> None:
    train = TrainOptions(fp_point="/layer1/0/a/conv/Conv", bp_point="/layer2/0/a/conv/Conv")
    capture = Capture(trained(tmp_path, train=train, iterations=1).folder)
    names = dict(zip(capture["op"]["op_index"].tolist(), capture.text(capture["op"]["name"]), strict=True))
    begins, ends = capture.pairs("task", "task_id")
    at = {names.get(int(b["op_index"])): (int(b["ticks"]), int(e["ticks"])) for b, e in zip(begins, ends, strict=True)}
    marks = {int(row["mark"]): int(row["ticks"]) for row in capture["step_mark"]}
    assert marks[1] == at["/layer1/0/a/conv/Conv"][0]
    assert marks[2] == at["gradients/layer2/0/a/conv/Conv/Conv2DBackpropInput"][1]


def test_the_command_learns_digits_from_a_file(tmp_path: Path, command: Command) -> None:
    images, labels = digits()
    np.savez(tmp_path / "digits.npz", x=images[:, None], target=labels)
    onnx.save(convnet(), str(tmp_path / "net.onnx"))
    words = ["record", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "raw"), "--train", "--steps", "25"]
    words += ["--input", str(tmp_path / "digits.npz"), "--optimizer", "adam", "--lr", "0.01", "--deterministic"]
    printed = command(*words)
    first, last = (float(word.strip(",")) for word in printed.err.split() if word.count(".") == 1 and word[0].isdigit())
    assert last < first
    options = json.loads(
        Capture(Path(printed.out.strip())).texts[int(Capture(Path(printed.out.strip()))["capture"]["options"][0])]
    )
    assert options["train"]["kind"] == "adam" and options["train"]["lr"] == 0.01


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train", "--fetch", "fc"], "--fetch"),
        (["--train", "--optimizer", "adam", "--momentum", "0.5"], "--momentum applies only to sgd"),
        (["--train", "--fp-point", "nowhere"], "--fp-point nowhere"),
        (["--train", "--steps", "0"], "must be from 1"),
        (["--train", "--lr", "-1"], "--lr -1.0"),
        (["--train", "--input", "no_target.npz"], "needs an array 'target'"),
        (["--train", "--input", "short.npz", "--batch", "8"], "has 2 samples, but a batch is 8"),
        (["--train", "--input", "other.npz", "--batch", "2"], "must be [samples, 3, 64, 64]"),
        (["--train", "--input", "classes.npz", "--batch", "2"], "target class 11 is out of range"),
        (["mini_quantized", "--train"], "train the model before it is quantized"),
    ],
)
def test_errors_are_raised_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    images = np.zeros((2, 3, 64, 64), np.float32)
    np.savez("no_target.npz", input=images)
    np.savez("short.npz", input=images, target=np.zeros(2, int))
    np.savez("other.npz", input=images[..., :60], target=np.zeros(2, int))
    np.savez("classes.npz", input=images, target=np.array([0, 11]))
    model = [] if words[0].startswith("mini_") else ["mini_resnet"]
    assert run(["record", *model, "-o", "raw", *words]) != 0
    err = capsys.readouterr().err
    assert message in " ".join(err.split()) and err.count("\n") == 1
    assert not Path("raw").exists()


def test_a_session_of_a_program_trains_and_is_profiled(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, y = random.standard_normal((8, 64)).astype(np.float32), random.integers(0, 10, 8)
    with traceconv.TrainingSession(mlp(), {"x": x}, y, lr=0.1) as session:
        before = session.train_step({"x": x}, y)
        with traceconv.profile(tmp_path / "p", training_trace=True) as profile:
            for _ in range(3):
                session.train_step({"x": x}, y)
        assert session.losses[-1] < before
        assert sorted(session.weights()) == ["w0", "w1", "w2", "w3"]
        with pytest.raises(UsageError, match="use train_step"):
            session.run({"x": x})
        with pytest.raises(
            InputError, match="missing target: give one, or an array 'target' in the batch, which has: x"
        ):
            session.train_step({"x": x})
    with traceconv.TrainingSession(mlp(), {"x": x, "target": y}, lr=0.1) as again:
        assert [again.train_step({"x": x, "target": y}) for _ in range(4)] == session.losses
    rows = list(profile.report("step-trace"))
    assert len(rows) == 3 and all(row["fp_start_ns"] < row["bp_end_ns"] < row["end_ns"] for row in rows)


def test_a_session_that_can_not_train_names_the_one_that_can() -> None:
    x = np.zeros((8, 64), np.float32)
    with traceconv.Session(mlp(), inputs={"x": x}) as session:
        with pytest.raises(UsageError, match=r"TrainingSession\(model, batch, target\)"):
            session.train_step({"x": x}, np.zeros(8, np.int64))
        assert len(session.run({"x": x})) == 1
    with pytest.raises(UsageError, match=r"devices 2: .*traceconv.record\("):
        traceconv.TrainingSession(mlp(), {"x": x}, np.zeros(8, np.int64), devices=2)
