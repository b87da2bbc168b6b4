"""`traceconv runs` and the same methods of a store: list, label, delete, merge."""

from __future__ import annotations

import io
import json
import lzma
import re
import shutil
from pathlib import Path

import duckdb
import pytest
from commands import Command
from ingest_checks import all_rows
from store_builder import build_store
from stores import query
from trace_files import write_trace

import traceconv
from traceconv.base.errors import StoreError, UsageError
from traceconv.cli.app import run
from traceconv.pipeline.ingest import ingest
from traceconv.schema import tables

LABELS = "SELECT run_id, label, group_label FROM run ORDER BY run_id"


@pytest.fixture(scope="module")
def traces_and_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for rank in (0, 1):
        ingest([write_trace(folder / f"rank{rank}" / "trace.json", rank=rank, seed=rank)], folder / "s.duckdb")
    ingest([write_trace(folder / "again.json.gz", rank=0)], folder / "s.duckdb")
    return folder


@pytest.fixture
def store(traces_and_store: Path, tmp_path: Path) -> Path:
    """Three runs: ranks 0 and 1, and one with the content of rank 0 in another file."""
    shutil.copytree(traces_and_store, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s.duckdb"


def refused(command: Command, code: int, *arguments: object) -> str:
    """The single line with which `traceconv runs` fails."""
    out, err = command("runs", *arguments, code=code)
    assert out == ""
    assert err.startswith("traceconv: ")
    assert err.count("\n") == 1
    return err


def test_list_tells_runs_with_equal_labels_apart_in_80_columns(
    store: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    command("runs", "label", "all", "--group", "job7", "--db", store)
    out = command("runs", "list", "--db", store).out
    lines = re.sub(r"\x1b\[[01]m", "", out).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[:3] for line in lines[-3:]] == [
        ["1", "trace.json", "rank0/trace.json"],
        ["2", "trace.json", "rank1/trace.json"],
        ["3", "again.json.gz", "again.json.gz"],
    ]


def test_list_has_all_columns_in_other_formats(store: Path, tmp_path: Path, command: Command) -> None:
    out = command("runs", "list", "--db", store, "--format", "json").out
    first, _, third = json.loads(out)
    assert (first["run_id"], first["rank"], first["label"], third["label"]) == (1, 0, "trace.json", "again.json.gz")
    assert first["source_bytes"] == (tmp_path / "rank0" / "trace.json").stat().st_size
    assert [first["record_count"]] == [
        n for (n,) in query(store, "SELECT sum(record_count) FROM import_account WHERE run_id = 1")
    ]
    assert first["dur_ns"] == 3_000_000 + 990_000
    with traceconv.open_store(store) as opened:
        assert json.loads(json.dumps(opened.runs())) == json.loads(out)
    command("runs", "list", "--db", store, "-o", tmp_path / "runs.parquet")
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*) FROM '{tmp_path / 'runs.parquet'}'").fetchall() == [(3,)]


def test_labels_of_a_store_from_anyone_do_not_reach_the_terminal(tmp_path: Path, command: Command) -> None:
    labels = ("\x1b]0;x\x07", "a\nb", None)
    store = build_store(tmp_path / "s.duckdb", run=[{"run_id": n, "label": label} for n, label in enumerate(labels)])
    for form in ("table", "csv", "json"):
        out = command("runs", "list", "--db", store, "--format", form).out
        assert form == "csv" or "\x1b" not in out
    with traceconv.open_store(store) as opened:
        assert [row["label"] for row in opened.runs()] == list(labels)


def test_label_and_group(store: Path, command: Command) -> None:
    before = all_rows(store, leave_out=("run",))
    err = command("runs", "label", 2, "slow one", "--db", store).err
    assert err == "run 2 (trace.json): label slow one\n"
    command("runs", "label", "1,slow one", "--group", "job7", "--db", store)
    command("runs", "label", "again.json.gz", "copy", "--group", "", "--db", store)
    assert query(store, LABELS) == [(1, "trace.json", "job7"), (2, "slow one", "job7"), (3, "copy", None)]
    with traceconv.open_store(store) as opened:
        opened.label_runs("copy", group="job8")
        opened.label_runs(2, "slow one")  # its own label
        assert [row["group_label"] for row in opened.runs()] == ["job7", "job7", "job8"]
    assert all_rows(store, leave_out=("run",)) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["2", "again.json.gz"], "run 3 has the label 'again.json.gz'; choose another"),
        (["2", "a\x1b[2J"], "has control characters"),
        (["2", "a\u202eb"], "has control characters"),
        (["2", "x" * 201], "has 201 characters; the maximum is 200"),
        (["2", " "], "is empty"),
        (["2", "7"], "has another meaning for --run"),
        (["2", "all"], "has another meaning for --run"),
        (["2", "rank=1"], "has another meaning for --run"),
        (["1,2", "x"], "a label is for one run, not for 2"),
        (["2"], "pass a label, or a group with --group"),
        (["4", "x"], "unknown run '4'"),
        (["agin.json.gz", "x"], "Did you mean 'again.json.gz'?"),
        (["2", "--group", "a\tb"], "has control characters"),
    ],
)
def test_labels_that_can_not_select_a_run_are_refused(
    store: Path, command: Command, words: list[str], says: str
) -> None:
    before = query(store, LABELS)
    assert says in refused(command, 2, "label", *words, "--db", store)
    assert query(store, LABELS) == before


def test_delete_removes_all_rows_and_names_no_deleted_run(store: Path, command: Command) -> None:
    assert query(store, "SELECT run_id, message FROM import_log WHERE code = 'same_content'")[0][0] == 3
    kept = {name: [row for row in rows if row[0] == 2] for name, rows in all_rows(store).items()}
    err = command("runs", "delete", "1", "--db", store).err
    assert err.startswith("deleted run 1 (trace.json)\n")
    assert query(store, "FROM import_log WHERE code = 'same_content'") == []
    with traceconv.open_store(store) as opened:
        [deleted] = opened.delete_runs("again.json.gz").runs
        assert (deleted.run_id, opened.runs()[0]["run_id"]) == (3, 2)
    assert all_rows(store) == kept
    command("runs", "delete", "all", "--db", store)
    assert all_rows(store) == {name: [] for name in tables()}
    assert "has no runs" in refused(command, 2, "delete", "all", "--db", store)
    assert sorted(path.name for path in store.parent.glob("s.duckdb*")) == ["s.duckdb"]


def test_the_file_shrinks_and_keeps_what_its_user_added(tmp_path: Path, command: Command) -> None:
    store = tmp_path / "s.duckdb"
    for seed in (1, 2):
        ingest([write_trace(tmp_path / f"{seed}.json", seed=seed, count=8_000)], store)
    with duckdb.connect(str(store)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 7 AS a; CREATE VIEW of_mine AS FROM mine")
        connection.execute("CREATE MACRO twice(x) AS 2 * x; COMMENT ON TABLE mine IS 'my notes'")
    store.chmod(0o640)
    before = store.stat().st_size
    err = command("runs", "delete", "1", "--db", store).err
    assert store.stat().st_size < 0.75 * before
    assert err.splitlines()[1].startswith(f"{store}: ")
    assert " → " in err
    assert store.stat().st_mode & 0o777 == 0o640
    assert query(
        store, "SELECT twice(a), (SELECT comment FROM duckdb_tables() WHERE table_name = 'mine') FROM of_mine"
    ) == [(14, "my notes")]


def test_a_file_that_can_not_be_rewritten_is_no_error(store: Path, command: Command) -> None:
    (store.parent / "s.duckdb.partial").mkdir()  # in the way of the copy
    err = command("runs", "delete", "1", "--db", store).err
    first, second = err.splitlines()
    assert first == "deleted run 1 (trace.json)"
    assert second.startswith(f"{store} did not shrink: can't rewrite {store}: ")
    assert second.endswith("; the next ingest uses its free space")
    assert [row[0] for row in query(store, LABELS)] == [2, 3]


def test_views_of_a_user_read_no_files_while_the_store_is_rewritten(
    store: Path, tmp_path: Path, command: Command
) -> None:
    (tmp_path / "list.csv").write_text("a\n1\n")
    with duckdb.connect(str(store)) as connection:
        connection.execute(f"CREATE VIEW reads_a_file AS FROM read_csv('{tmp_path / 'list.csv'}')")
    err = command("runs", "delete", "1", "--db", store).err
    assert len(err.splitlines()) == 2
    assert [row[0] for row in query(store, LABELS)] == [2, 3]
    assert query(store, "FROM reads_a_file") == [(1,)]
    assert not list(tmp_path.glob("*.partial*"))


def test_a_terminal_is_asked_before_a_deletion(store: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO("n\ny\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    err = command("runs", "delete", "1,3", "--db", store, code=1).err
    assert err.endswith("traceconv: nothing was deleted\n")
    assert "Delete runs 1 (trace.json), 3 (again.json.gz) from" in err
    assert len(query(store, LABELS)) == 3
    command("runs", "delete", "1", "--db", store)
    command("runs", "delete", "2", "--db", store, "--yes")
    assert [run_id for run_id, *_ in query(store, LABELS)] == [3]
    assert terminal.read() == ""


def test_runs_that_changed_since_they_were_chosen_are_not_deleted(store: Path) -> None:
    from traceconv.pipeline.runs import delete_runs, find_runs, label_runs

    found = find_runs(store, ["2"])
    label_runs(store, found, label="other")
    with pytest.raises(StoreError, match=r"run 2 of .* has changed in the meantime; try again"):
        delete_runs(store, found)
    assert len(query(store, LABELS)) == 3


def test_merge_numbers_runs_and_skips_those_that_are_there(store: Path, tmp_path: Path, command: Command) -> None:
    other = tmp_path / "other.duckdb"
    ingest([write_trace(tmp_path / "new.json", seed=9)], other)
    [(rank1,)] = query(store, "SELECT source_path FROM run WHERE run_id = 2")
    ingest([Path(rank1)], other)
    err = command("runs", "merge", other, "--db", store).err
    assert err.splitlines() == [
        f"{other}: run 1 (new.json) merged as run 4",
        f"{other}: run 2 (trace.json) is already in {store} as run 2; skipped (--replace replaces it)",
        f"1 of 2 runs merged into {store}",
    ]
    rows = all_rows(store)
    command("runs", "label", "2", "mine", "--db", store)
    with traceconv.open_store(store) as opened:
        merged = opened.merge_runs(other, replace=True)
    assert [(one.other_id, one.run_id, one.action) for one in merged] == [(1, 4, "replaced"), (2, 2, "replaced")]
    assert all_rows(store) == rows
    new = tmp_path / "new.duckdb"
    command("runs", "merge", other, store, "--db", new)
    assert len(query(new, LABELS)) == 4


def test_merge_refuses_what_is_not_another_store(store: Path, tmp_path: Path, command: Command) -> None:
    before = all_rows(store)
    link = tmp_path / "link.duckdb"
    link.symlink_to(store)
    foreign, text = tmp_path / "foreign.duckdb", tmp_path / "text.duckdb"
    with duckdb.connect(str(foreign)) as connection:
        connection.execute("CREATE TABLE run (run_id BIGINT)")
    text.write_text("hello, not a store")
    hostile = build_store(tmp_path / "hostile.duckdb", run=[{"run_id": 1, "label": "a"}])
    with duckdb.connect(str(hostile)) as connection:
        connection.execute("CREATE MACRO sum(a) AS 7")
    newer = build_store(tmp_path / "newer.duckdb", run=[{"run_id": 1, "label": "a"}])
    with duckdb.connect(str(newer)) as connection:
        connection.execute("UPDATE store_info SET schema_version = 99")
    for path, code, says in (
        (link, 2, "can't be merged into itself"),
        (foreign, 1, "was not created by traceconv"),
        (text, 1, "is not a DuckDB file"),
        (hostile, 1, "shadows a DuckDB function"),
        (newer, 1, "has schema version 99"),
        (tmp_path / "missing.duckdb", 1, "does not exist"),
    ):
        assert says in refused(command, code, "merge", path, "--db", store)
    assert all_rows(store) == before
    assert "is a folder" in refused(command, 1, "merge", tmp_path, "--db", tmp_path / "new.duckdb")
    missing = refused(command, 1, "merge", tmp_path / "missing.duckdb", store, "--db", tmp_path / "new.duckdb")
    assert "does not exist" in missing
    assert not (tmp_path / "new.duckdb").exists()


def test_an_empty_store_has_nothing_to_merge(tmp_path: Path, command: Command) -> None:
    err = command("runs", "merge", build_store(tmp_path / "a.duckdb"), "--db", build_store(tmp_path / "b.duckdb")).err
    assert err == "nothing to merge: no runs\n"


def test_python_refuses_changes_without_runs_or_after_close(store: Path) -> None:
    opened = traceconv.open_store(store)
    reading = opened.query("FROM range")
    for change in (opened.delete_runs, opened.merge_runs):
        with pytest.raises(UsageError, match="needs at least one"):
            change()
    opened.label_runs(1, "first")
    with pytest.raises((StoreError, duckdb.Error)):
        reading.fetchall()
    assert opened.report("step-trace", run="first").fetchall()
    opened.close()
    with pytest.raises(StoreError, match="is closed: open it again"):
        opened.label_runs(1, "x")


def test_an_older_store_is_migrated_and_merged(store: Path, tmp_path: Path, command: Command) -> None:
    packed = Path(__file__).parents[1] / "golden" / "schema_9" / "mini_transformer.duckdb.xz"
    old = tmp_path / "old.duckdb"
    old.write_bytes(lzma.decompress(packed.read_bytes()))
    err = command("runs", "merge", old, "--db", store).err
    lines = err.splitlines()
    assert lines[0].startswith(f"traceconv: {old} was migrated from schema version 9 to ")
    assert f"{old}: run 1 (" in lines[1]
    assert lines[1].endswith("merged as run 4")
    [(steps,)] = query(old, "SELECT count(*) FROM step")
    assert query(store, "SELECT count(*) FROM step WHERE run_id = 4") == [(steps,)]


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_a_damaged_store_is_merged_completely_or_not_at_all(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], place: float
) -> None:
    other = tmp_path / "other.duckdb"
    ingest([write_trace(tmp_path / "new.json", seed=9, count=500)], other)
    intact, before = all_rows(other), all_rows(store)
    with other.open("r+b") as file:
        file.seek(int(other.stat().st_size * place))
        file.write(b"\xff" * 4096)
    capfd.readouterr()
    code = run(["runs", "merge", str(other), "--db", str(store)])
    out, err = capfd.readouterr()
    if code == 0:
        assert query(store, "SELECT count(*) FROM range WHERE run_id = 4") == [(len(intact["range"]),)]
    else:
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert str(other) in err
        assert all_rows(store) == before
