"""`export msprof`: its files against the rows of the store, hostile names, and places where it can't be written."""

from __future__ import annotations

import csv
import errno
import json
import random
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from commands import Command
from store_builder import build_store
from stores import query

import traceconv
from traceconv.cli import app
from traceconv.export import msprof

MakeStore = Callable[..., Path]
FOLDER = "mindstudio_profiler_output"
START = 1_732_108_865_000_000_000
SAMPLES = Path(__file__).parents[2] / "sample_traces"
HOSTILE = ["=1+2", 'a"b', "a,b", "two\nlines\r\n", "../../etc/passwd", "{tid}", "\\", "\x1b[31m", "é\u2028€", "%s"]


def files(folder: Path) -> dict[str, Path]:
    return {path.name.rpartition("_")[0] + path.suffix: path for path in (folder / FOLDER).iterdir()}


def events(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    assert isinstance(found, list)
    return found


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def ns(us: str | Decimal) -> int:
    exact = Decimal(us) * 1000
    assert exact == int(exact)
    return int(exact)


def export(store: Path, output: Path, *more: str) -> int:
    return app.run(["export", "msprof", "--db", str(store), "-o", str(output), *more])


@pytest.fixture
def store(whole_store: Path, tmp_path: Path) -> Path:
    """A copy of `whole_store`."""
    return Path(shutil.copy(whole_store, tmp_path / "0.duckdb"))


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A host thread, two devices with overlapping computing and communication, and a counter."""
    chosen = random.Random(7)
    tasks = [
        {"id": n, "device_id": n % 2, "track_id": 2 + n % 2, "stream_id": 5, "start_ns": START + chosen.randrange(9000)}
        | {"dur_ns": chosen.randrange(400), "name": HOSTILE[n % len(HOSTILE)], "source_task_id": n, "depth": 0}
        | {"kind": "collective" if n % 5 == 0 else "compute", "task_type": "AI_CORE", "core_type": "AI_CORE"}
        | {"comm_group": HOSTILE[1] if n % 5 == 0 else None, "op_id": None if n % 5 == 0 else 1 + n % 10}
        for n in range(1, 201)
    ]
    return build_store(
        tmp_path_factory.mktemp("store") / "trace.duckdb",
        run=[{"run_id": 1, "label": "x/../y", "start_ns": START, "epoch_known": True, "source_path": "gone"}],
        process=[{"process_id": 1, "pid_text": "42", "name": "CANNed"}],
        device=[{"device_id": n, "kind": "NPU"} for n in (0, 1)],
        track=[
            {"track_id": 1, "kind": "thread", "process_id": 1, "device_id": None, "tid_text": "43", "name": "main"},
            {"track_id": 2, "kind": "stream", "device_id": 0, "stream_id": 5},
            {"track_id": 3, "kind": "stream", "device_id": 1, "stream_id": 5},
            {"track_id": 4, "kind": "counter", "device_id": 1, "name": "AI Core Freq", "unit": "MHz"},
        ],
        op=[{"op_id": n, "name": HOSTILE[n - 1], "op_type": HOSTILE[n - 1], "model_id": 1} for n in range(1, 11)],
        api=[
            {"id": 1000 + n, "track_id": 1, "level": "runtime", "name": HOSTILE[n], "start_ns": START + n, "dur_ns": n}
            for n in range(len(HOSTILE))
        ],
        range=[{"id": 2000, "track_id": 1, "name": "r", "start_ns": START, "args": '{"nan": NaN}', "category": "c"}],
        task=tasks,
        flow=[{"flow_id": 1, "kind": "launch", "src_id": 1001, "src_ns": START + 1, "dst_id": 2, "dst_ns": START + 9}],
        counter=[{"track_id": 4, "ts_ns": START, "value": 1200.0, "value_int": 1200}],
        step=[
            {"step_id": n, "device_id": 1, "model_id": 7, "iteration": n, "step_source": "record"}
            | {"start_ns": START + 100 * n, "fp_start_ns": START + 100 * n + 3, "end_ns": START + 100 * n + 90}
            | {"bp_end_ns": START + 100 * n + 50}
            for n in (1, 2)
        ],
    )


def test_every_row_is_in_the_timeline(store: Path, tmp_path: Path) -> None:
    assert export(store, tmp_path) == 0
    found = events(files(tmp_path)["msprof.json"])
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    labels = {e["pid"]: e["args"]["labels"] for e in found if e["name"] == "process_labels"}
    slices = [e for e in found if e["ph"] == "X"]
    with duckdb.connect(str(store), read_only=True) as connection:
        tasks = connection.execute("SELECT device_id, kind, name, start_ns, dur_ns FROM task").fetchall()
        calls = connection.execute("SELECT name, start_ns, dur_ns FROM api").fetchall()
    process = {"compute": "Ascend Hardware", "collective": "Communication"}
    assert sorted(
        (labels[e["pid"]], names[e["pid"]], e["name"], ns(e["ts"]), ns(e["dur"]))
        for e in slices
        if names[e["pid"]] in process.values() and "cat" not in e
    ) == sorted((f"NPU {device}", process[kind], name, start, dur) for device, kind, name, start, dur in tasks)
    assert sorted((e["name"], ns(e["ts"]), ns(e["dur"])) for e in slices if names[e["pid"]] == "CANN") == sorted(
        (f"Runtime@{name}", start, dur) for name, start, dur in calls
    )
    assert all(isinstance(e["ts"], str) and len(e["ts"].partition(".")[2]) == 3 for e in found if "ts" in e)
    assert [e["args"] for e in found if e["ph"] == "C"] == [{"MHz": 1200}]
    (begin,) = (e for e in found if e["ph"] == "B")  # a range without an end, whose args are not strict JSON
    assert (begin["name"], begin["cat"], begin["args"]) == ("r", "c", {"args": '{"nan": NaN}'})
    flows = [(e["ph"], e["id"], ns(e["ts"])) for e in found if e.get("cat") == "HostToDevice"]
    assert flows == [("s", "1", START + 1), ("f", "1", START + 9)]
    threads = [(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"]
    assert len(threads) == len(set(threads))


def test_overlap_analysis_is_the_union_of_intervals(store: Path, tmp_path: Path) -> None:
    assert export(store, tmp_path) == 0
    found = events(files(tmp_path)["msprof.json"])
    pids = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    labels = {e["pid"]: e["args"]["labels"] for e in found if e["name"] == "process_labels"}
    tasks = query(store, "SELECT device_id, kind, start_ns, start_ns + dur_ns FROM task")
    for device in (0, 1):
        busy: dict[str, set[int]] = {
            kind: {t for d, k, start, end in tasks if (d, k) == (device, kind) for t in range(start, end)}
            for kind in ("compute", "collective")
        }
        first, last = (f(t[n] for t in tasks if t[0] == device) for f, n in ((min, 2), (max, 3)))
        expected = {
            "Computing": busy["compute"],
            "Communication": busy["collective"],
            "Communication(Not Overlapped)": busy["collective"] - busy["compute"],
            "Free": set(range(first, last)) - busy["compute"] - busy["collective"],
        }
        for name, moments in expected.items():
            spans = [
                (ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]))
                for e in found
                if e["ph"] == "X" and e["name"] == name and labels[e["pid"]] == f"NPU {device}"
                and pids[e["pid"]] == "Overlap Analysis"
            ]  # fmt: skip
            covered = [t for start, end in spans for t in range(start, end)]
            assert len(covered) == len(set(covered))
            assert set(covered) == moments, (device, name)


def test_steps_and_tables(store: Path, tmp_path: Path) -> None:
    assert export(store, tmp_path) == 0
    found = files(tmp_path)
    assert sorted(found) == [
        ".txt", "api_statistic.csv", "msprof.json", "op_statistic.csv", "op_summary.csv", "step_trace.csv",
        "step_trace.json", "task_time.csv",
    ]  # fmt: skip
    assert all(path.name.rpartition("_")[2] in ("20241120132105.json", "20241120132105.csv", "README.txt") or
               path.name == "README.txt" for path in found.values())  # fmt: skip
    steps = events(found["step_trace.json"])
    assert [e["name"] for e in steps if e["ph"] == "X"] == [
        f"{what} {n}" for n in (1, 2) for what in ("Iteration", "FP_BP Time", "Iteration Refresh")
    ]
    assert {e["args"]["name"] for e in steps if e["name"] == "thread_name"} == {"Step Trace(Model ID:7)"}
    second = rows(found["step_trace.csv"])[1]
    (bound,) = (e for e in steps if e["ph"] == "s")
    assert str(bound["args"]["Data_aug Bound(us)"]) == second["Data Aug Bound(us)"] == "0.013"
    with duckdb.connect(str(store), read_only=True) as connection:
        query = "SELECT device_id, name, start_ns, dur_ns FROM task"
        tasks = connection.execute(query).fetchall()
        ops = connection.execute("SELECT count(*) FROM op_summary").fetchall()
    assert sorted(
        (
            int(row["Device_id"]),
            row["kernel_name"],
            ns(row["task_start(us)"].removesuffix("\t")),
            ns(row["task_time(us)"]),
        )
        for row in rows(found["task_time.csv"])
    ) == sorted(tasks)
    summary = rows(found["op_summary.csv"])
    assert len(summary) == ops[0][0]
    assert {row["Model ID"] for row in summary if row["Task Type"] == "AI_CORE"} == {"1", "4294967295"}


def test_hostile_names_stay_inside_the_files(store: Path, tmp_path: Path) -> None:
    assert export(store, tmp_path / "out") == 0
    assert {path.name for path in tmp_path.rglob("*")} >= {"out", FOLDER, "README.txt"}
    assert all(path.parent.name == FOLDER for path in tmp_path.rglob("*_2*"))
    assert set(HOSTILE) <= {row["kernel_name"] for row in rows(files(tmp_path / "out")["task_time.csv"])}


def test_default_place_is_the_prof_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "trace.duckdb"
    (prof,) = (SAMPLES / "mini_transformer").iterdir()
    copy = tmp_path / prof.name
    shutil.copytree(prof, copy)
    assert app.run(["ingest", str(copy), "--db", str(store)]) == 0
    with traceconv.open_store(store) as opened:
        opened.export("msprof")
        with pytest.raises(traceconv.OutputError, match="already exists; replace it with overwrite=True"):
            opened.export("msprof")
        opened.export("msprof", overwrite=True)
        with pytest.raises(traceconv.UsageError, match="export chrome needs a path"):
            opened.export("chrome")
    assert sorted(path.name for path in copy.iterdir()) == ["device_0", "host", "manifest.json", FOLDER]
    assert app.run(["verify", str(copy)]) == 0
    # The capture is still read as such, and is the same.
    capsys.readouterr()
    app.run(["ingest", str(copy), "--db", str(store)])
    assert "already" in capsys.readouterr().err
    assert app.run(["ingest", str(copy), "--db", str(tmp_path / "again.duckdb")]) == 0
    assert query(tmp_path / "again.duckdb", "SELECT source_format FROM run") == [("npulog",)]


def test_a_run_without_its_prof_folder_needs_a_place(store: Path, command: Command) -> None:
    done = command("export", "msprof", "--db", store, code=2)
    assert "the source of run 1 (gone) is not a PROF folder here; name a folder with -o DIR" in done.err


def test_other_files_are_never_replaced(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(store, tmp_path) == 0
    (tmp_path / FOLDER / "notes.txt").write_text("mine")
    assert export(store, tmp_path, "--overwrite") == 1
    assert "has files that this command does not write, such as notes.txt" in capsys.readouterr().err
    assert (tmp_path / FOLDER / "notes.txt").read_text() == "mine"
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / FOLDER).write_text("a file")
    assert export(store, tmp_path / "file", "--overwrite") == 1
    assert (tmp_path / "file" / FOLDER).read_text() == "a file"


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_leaves_what_was_there(
    failure: BaseException, existing: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "new" / "place"
    if existing:
        assert export(store, place) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write = msprof._write_texts

    def fail(*arguments: Any) -> None:
        write(*arguments)
        raise failure

    monkeypatch.setattr(msprof, "_write_texts", fail)
    expected = traceconv.OutputError if isinstance(failure, OSError) else KeyboardInterrupt
    with traceconv.open_store(store) as opened, pytest.raises(expected):
        opened.export("msprof", place, overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert place.exists() == existing
    assert list(tmp_path.rglob("*.partial")) == []


def test_places_that_cannot_be_written(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert export(store, tmp_path / "file" / "below") == 1
    assert "can't write" in capsys.readouterr().err
    assert export(store, Path("/proc/1")) == 1  # nobody can create a folder there
    assert "can't write /proc/1/" in capsys.readouterr().err


def test_runs_that_are_not_of_an_npu_or_empty(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(run=[{"run_id": 1, "label": "gpu"}, {"run_id": 2, "label": "empty"}],
                       device=[{"device_id": 0, "kind": "GPU"}])  # fmt: skip
    with traceconv.open_store(store) as opened:
        with pytest.raises(traceconv.InputError, match=r"run 1 is of a GPU.*export chrome"):
            opened.export("msprof", tmp_path / "out", run=1)
        with pytest.raises(traceconv.InputError, match="run 2 has no tasks"):
            opened.export("msprof", tmp_path / "out", run=2)
    assert not (tmp_path / "out").exists()


def test_rows_without_ids_have_a_place(make_store: MakeStore, tmp_path: Path) -> None:
    store = make_store(
        task=[{"id": 1, "device_id": None, "start_ns": -5, "dur_ns": None}, {"id": 2, "start_ns": 2**63 - 1}],
        api=[{"id": 3, "start_ns": -(2**63), "dur_ns": 2**63 - 1}],
        track=[{"track_id": 1, "kind": "counter"}],
        counter=[{"track_id": 1, "ts_ns": 0, "value": float("nan")}],
        device=[{"device_id": n} for n in (-1, 0, 2**62)],
        step=[{"step_id": 1, "end_ns": 5}, {"step_id": 2, "device_id": None, "fp_start_ns": 1, "end_ns": 2**63 - 1}],
    )
    assert export(store, tmp_path) == 0
    found = events(files(tmp_path)["msprof.json"])
    assert sorted(e["ts"] for e in found if e["ph"] == "B") == ["-0.005", "9223372036854775.807"]
    (call,) = (e for e in found if e["name"] == "N/A" and e["ph"] == "X")
    assert (call["ts"], str(call["dur"])) == ("-9223372036854775.808", "9223372036854775.807")


def test_help_shows_examples(command: Command) -> None:
    shown = command("export", "msprof", "--help").out
    assert "  traceconv export msprof\n    traceconv export msprof --run 2 -o out\n" in shown
    assert "--overwrite " in shown
    assert "--no-overwrite" not in shown
    assert "traceconv export msprof" in command("report", "--help").out
