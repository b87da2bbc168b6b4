"""Results of the Python API: the same content as the command's, and the command's text as their repr."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import warnings
from pathlib import Path

import pytest
from commands import Command
from vendor_recording import made_up, write_folder

import traceconv

SAMPLES = Path(__file__).parents[2] / "sample_traces"
RESNET = SAMPLES / "mini_resnet"
TRACE = "worker18.json.gz"


@pytest.fixture(autouse=True)
def folder(own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with a small trace, next to a cache of the test's own."""
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    monkeypatch.chdir(tmp_path)
    events = [{"ph": "X", "name": f"e{n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 2} for n in range(3)]
    Path(TRACE).write_bytes(gzip.compress(json.dumps(events).encode()))


def printed(command: Command, *arguments: object, code: int = 0) -> tuple[str, str]:
    out, err = command(*arguments, code=code)
    return out, err.replace("traceconv: ", "")


def damaged_capture(folder: Path) -> Path:
    """A copy of a sample with a byte changed in its tasks."""
    capture = Path(shutil.copytree(next(RESNET.iterdir()), folder / "PROF_damaged"))
    tasks = next(capture.glob("device_0/data/task.*"))
    content = bytearray(tasks.read_bytes())
    content[len(content) // 2] ^= 1
    tasks.write_bytes(content)
    return capture


def test_ingest(command: Command, tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text('title = "mine"\n[detect]\nkeys = ["nothing"]\n')
    runs = traceconv.ingest(
        RESNET, TRACE, db="here.duckdb", group="job", rank_pattern="worker(?P<rank>[0-9]+)", rules=[rules],
        max_event_mb=32, max_ratio=100,
    )  # fmt: skip
    assert [(run.run_id, run.rank, run.group_label) for run in runs] == [(1, None, "job"), (2, 18, "job")]
    assert not runs.lossy
    assert [run.action for run in traceconv.ingest(TRACE, db="here.duckdb", replace=True)] == ["replaced"]
    _, err = printed(command, "ingest", RESNET, TRACE, "--db", "here.duckdb")
    assert repr(traceconv.ingest(RESNET, TRACE, db="here.duckdb")) + "\n" == err
    with pytest.raises(traceconv.InputError, match="is compressed"):
        traceconv.ingest(TRACE, db="other.duckdb", reader="nsys")
    with pytest.raises(traceconv.UsageError, match="max_ratio must be at least 1"):
        traceconv.ingest(TRACE, db="other.duckdb", max_ratio=0)
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    (tmp_path / "large.json").write_text(json.dumps([event | {"name": "a" * (20 << 20)}, event | {"name": "b"}]))
    assert [traceconv.ingest("large.json", db=f"{mb}.duckdb", max_event_mb=mb).lossy for mb in (2, 64)] == [True, False]
    with pytest.raises(traceconv.DataLossError, match="since strict was given"):
        traceconv.ingest(damaged_capture(tmp_path), db="other.duckdb", strict=True)
    assert not Path("other.duckdb").exists()


def test_info(command: Command, tmp_path: Path) -> None:
    traceconv.ingest(RESNET, db="store.duckdb")
    write_folder(tmp_path / "vendor", made_up(1), 1)
    (tmp_path / "other.json").write_text('{"a": {"b": [1, 2]}}')
    damaged = damaged_capture(tmp_path)
    paths = ["store.duckdb", RESNET, TRACE, "vendor", "other.json", damaged]
    for arguments in ({}, {"quick": True}):
        found = traceconv.info(*paths, **arguments)
        flags = ["--quick"] if arguments else []
        out, _ = printed(command, "info", *paths, *flags, "--json", code=0 if found.intact else 3)
        assert [one.details for one in found] == json.loads(out)
        assert repr(found) + "\n" == printed(command, "info", *paths, *flags, code=0 if found.intact else 3)[0]
    assert sorted(one.kind for one in found) == [
        "capture", "capture", "json_document", "store", "trace", "vendor_folder",
    ]  # fmt: skip
    by_path = {one.path.name: one for one in traceconv.info(*paths)}
    assert (by_path["PROF_damaged"].intact, by_path[TRACE].intact) == (False, True)
    assert by_path[TRACE].details["format"] == "chrome_json"
    (tmp_path / "text.txt").write_text("nothing")
    assert "text.txt" in traceconv.info(TRACE, "text.txt").problems[0]


def test_dump(command: Command, tmp_path: Path) -> None:
    for arguments, options in (
        ((), {}),
        (("--type", "task"), {"type": "task"}),
        (("--type", "api", "--limit", "3"), {"type": "api", "limit": 3}),
        (("--limit", "0"), {"limit": 0}),
    ):
        out, _ = printed(command, "dump", RESNET, *arguments, "--json")
        assert list(traceconv.dump(RESNET, **options)) == [json.loads(line) for line in out.splitlines()]  # type: ignore[arg-type]
    damaged = damaged_capture(tmp_path)
    with pytest.warns(traceconv.DataLossWarning) as caught:
        rows = list(traceconv.dump(damaged, type="task"))
    out, err = printed(command, "dump", damaged, "--type", "task", "--json", code=3)
    assert [str(warning.message) for warning in caught] == err.splitlines()
    assert caught[0].filename == __file__
    assert rows == [json.loads(line) for line in out.splitlines()]


def test_verify(command: Command, tmp_path: Path) -> None:
    write_folder(tmp_path / "vendor", made_up(1), 1)
    verdicts = traceconv.verify(tmp_path / "vendor")
    assert verdicts.agree
    assert repr(verdicts) + "\n" == printed(command, "verify", "vendor")[1]
    table = next(tmp_path.rglob("kernel_details.csv"))
    rows = list(csv.reader(io.StringIO(table.read_text())))
    place = rows[0].index("Duration(us)")
    rows[1][place] = "987654.321"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    verdicts = traceconv.verify(tmp_path / "vendor", exact=True)
    out, err = printed(command, "verify", "vendor", "--exact", "--format", "csv", code=3)
    assert not verdicts.agree
    found = [[one.file, one.row, one.column, one.vendor, one.ours, one.off_by] for one in verdicts.differences]
    assert found == [row[1:] for row in csv.reader(out.splitlines()[1:])]
    assert repr(verdicts).startswith(err.rstrip("\n"))
    assert "987654.321" in repr(verdicts)


def test_schema_reports_runs_and_why(command: Command) -> None:
    traceconv.ingest(RESNET, TRACE, db="s.duckdb")
    with traceconv.open_store(db="s.duckdb") as store:
        assert repr(store.schema()) + "\n" == printed(command, "schema", "--db", "s.duckdb")[0]
        for name in ("task", "slice", "op-statistic"):
            described = store.schema(name)
            assert repr(described) + "\n" == printed(command, "schema", name)[0]
        assert store.schema("task").row_count == len(store.query("FROM task"))
        assert repr(store.reports()) + "\n" == printed(command, "report", "--list")[0]
        assert all(store.report(report.name).columns for report in store.reports())
        out, _ = printed(command, "runs", "list", "--db", "s.duckdb", "--format", "csv")
        rows = [{key: "" if value is None else str(value) for key, value in row.items()} for row in store.runs()]
        assert [{**row, "complete": row["complete"].lower()} for row in rows] == list(csv.DictReader(io.StringIO(out)))
        table, _ = printed(command, "runs", "list", "--db", "s.duckdb")
        # The same cells; the command draws a line below the headings.
        assert repr(store.runs()).split() == [word for word in table.split() if set(word) != {"─"}]
        task = store.query("SELECT id FROM task WHERE run_id = 1").fetchall()[0][0]
        answer = store.why("task", task, run=1)
        assert repr(answer) + "\n" == printed(command, "why", "task", task, "--run", "1", "--db", "s.duckdb")[0]


def test_names_of_a_trace_are_escaped_wherever_they_are_shown(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\x1b[31m" + "a" * 100
    event = {"ph": "X", "name": name, "cat": "<b>", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {"<i>": None}}
    path = tmp_path / "<u>trace.json"
    path.write_text(json.dumps([event, event | {"name": name + "b", "dur": 2}]) + "{")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", traceconv.DataLossWarning)
        store = traceconv.open_store(path)
    rows = store.report("range-statistic")
    results = [
        traceconv.ingest(path, db="t.duckdb"), traceconv.info(path), traceconv.info(path)[0], store, store.runs(), rows,
        store.why("slice", store.query("SELECT id FROM slice").fetchall()[0][0]), store.schema(), store.schema("task"),
    ]  # fmt: skip
    for result in results:
        shown = result._repr_html_()
        assert not any(tag in shown for tag in ("<img", "<b>", "<i>", "<u>"))
        assert "\x1b" not in shown + repr(result)
    # Long names are shortened, different ones differently; hover shows all of each.
    assert len({line.split("  ")[2] for line in repr(rows).splitlines()[2:]}) == 2
    assert max(map(len, repr(rows).splitlines())) < 150
    assert rows._repr_html_().count("a" * 100) == 2
    store.close()


def test_trace_files_are_opened_like_a_store(tmp_path: Path, command: Command) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with traceconv.open_store(TRACE) as store:
            rows = store.report("range-statistic", columns=["name", "total_ns"]).fetchall()
            assert TRACE in repr(store)
            with pytest.raises(traceconv.UsageError, match="ingest it first"):
                store.label_runs(1, "mine")
    out, _ = printed(command, "report", "range-statistic", TRACE, "--columns", "name,total_ns", "--format", "csv")
    assert [list(map(str, row)) for row in rows] == list(csv.reader(out.splitlines()[1:]))
    kept = list((tmp_path / "cache" / "stores").glob("*.duckdb"))
    assert [store.path] == kept
    # Reports on several files are on all of them.
    with traceconv.open_store(TRACE, RESNET, cache=False) as several:
        assert {row["run_id"] for row in several.report("range-statistic")} == {1, 2}
        assert several.path.exists()
    assert not several.path.exists()
    dropped = traceconv.open_store(RESNET, cache=False)
    path = dropped.path
    del dropped
    assert not path.exists()
    assert list((tmp_path / "cache" / "stores").glob("*.duckdb")) == kept
    with pytest.warns(traceconv.DataLossWarning, match="data_loss: ") as caught:
        traceconv.open_store(damaged_capture(tmp_path)).close()
    assert {warning.filename for warning in caught} == {__file__}
