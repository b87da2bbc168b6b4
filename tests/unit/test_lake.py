"""Lakes: what `export parquet` writes, reports and queries on it, damage, and hostile labels and entries."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Command
from ingest_checks import all_rows
from store_builder import DIGESTS, build_store, store_of_runs
from stores import query

import traceconv
from traceconv.base.errors import InputError, OutputError, UsageError
from traceconv.cli.app import run
from traceconv.export.parquet import export_parquet
from traceconv.lake.entries import key_of, parse_entry, quoted_group
from traceconv.schema import tables
from traceconv.store.database import open_store

GOLDEN = Path(__file__).parents[1] / "golden" / "schema_9"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, s.duckdb, and its lake."""
    folder = tmp_path_factory.mktemp("exported")
    store = store_of_runs(folder / "s.duckdb", ["job 1/a", None])
    assert run(["export", "parquet", "--db", str(store), "-o", str(folder / "lake")]) == 0
    return folder


@pytest.fixture
def lake(exported: Path, tmp_path: Path) -> Path:
    """A lake with a run of a group and one without, next to its store."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    return tmp_path / "lake"


def files_of(lake: Path) -> list[Path]:
    return sorted(path for path in lake.rglob("*") if path.is_file())


def change_entry(lake: Path, place: int, change: Callable[[dict[str, Any]], object]) -> Path:
    path = lake / "_runs" / f"{DIGESTS[place][:16]}.json"
    entry = json.loads(path.read_text())
    change(entry)
    path.write_text(json.dumps(entry))
    return path


def counts(lake: Path) -> list[tuple[int, int]]:
    with traceconv.open_store(lake) as opened:
        return opened.query("SELECT run_id, count(*) FROM task GROUP BY run_id ORDER BY run_id").fetchall()


def test_layout(lake: Path) -> None:
    """Plain partitions that any reader understands: rows in order, zstd, no 128-bit integers, times of 64 bits."""
    [file] = (lake / "task" / "group=job%201%2Fa" / "run=0123456789abcdef").iterdir()
    assert (lake / "task" / "group=__HIVE_DEFAULT_PARTITION__" / "run=fedcba9876543210").is_dir()
    assert sorted(path.name for path in (lake / "_runs").iterdir()) == [f"{d[:16]}.json" for d in DIGESTS[:2]]
    assert not (lake / "_partial").exists()
    table = pq.ParquetFile(file).read()
    assert table.column_names == [column.name for column in tables()["task"].columns[1:]]
    assert table.select(["device_id", "start_ns"]).to_pylist() == [
        {"device_id": 0, "start_ns": 98}, {"device_id": 0, "start_ns": 100}, {"device_id": 1, "start_ns": 99},
    ]  # fmt: skip
    column = pq.ParquetFile(file).metadata.row_group(0).column(table.column_names.index("start_ns"))
    assert (column.compression, column.statistics.min, column.statistics.max) == ("ZSTD", 98, 100)
    for one in lake.rglob("*.parquet"):
        for field in pq.read_schema(one):
            assert field.type in (pa.int64(), pa.int32(), pa.uint64(), pa.float64(), pa.string(), pa.bool_())
            assert field.type == pa.int64() or not field.name.endswith("_ns")
    entry = json.loads((lake / "_runs" / "0123456789abcdef.json").read_text())
    for listed in entry["files"]:
        path = lake / listed["table"] / "group=job%201%2Fa" / "run=0123456789abcdef" / listed["name"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed["sha256"]
        assert pq.ParquetFile(path).metadata.num_rows == listed["row_count"]


@pytest.mark.parametrize(("starts", "is_sorted"), [([2, 1, 4, 3, 6, 5, 8, 7], False), ([1, 8, 2, 7, 3, 6, 4, 5], True)])
def test_only_rows_far_from_their_place_are_sorted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[int], is_sorted: bool
) -> None:
    """Sorting costs half as long as writing; a column without values keeps its type, though the sort is without it."""
    monkeypatch.setattr("traceconv.export.parquet._GROUP_ROWS", 2)
    monkeypatch.setattr("traceconv.export.parquet._MOST_OVERLAP", 1)
    tasks = [{"run_id": 1, "id": n, "device_id": 0, "start_ns": 10**18 + at} for n, at in enumerate(starts)]
    store = build_store(tmp_path / "s.duckdb", run=[{"run_id": 1, "label": "a"}], task=tasks)
    assert run(["export", "parquet", "--db", str(store), "-o", str(tmp_path / "lake")]) == 0
    [file] = (tmp_path / "lake" / "task").rglob("*.parquet")
    table = pq.read_table(file)
    written = [start - 10**18 for start in table["start_ns"].to_pylist()]
    assert written == (sorted(starts) if is_sorted else starts)
    assert table["name"].type == pa.string()
    assert table["name"].null_count == table.num_rows


def test_reports_and_queries(lake: Path, command: Command) -> None:
    """The commands on a lake answer as those on the store."""
    store = str(lake.parent / "s.duckdb")
    for on_store, on_lake in (
        (["report", "op-statistic", "--db", store], ["lake", "report", "op-statistic", str(lake)]),
        *(
            (["query", sql, "--db", store], ["lake", "query", sql, str(lake)])
            for sql in ("FROM op_statistic(run := 2)", "FROM breakdown", "FROM Slice ORDER BY ALL")
        ),
        (["runs", "list", "--db", store], ["lake", "list", str(lake), "--check"]),
    ):  # fmt: skip
        answers = []
        for words in (on_store, on_lake):
            answers.append(command(*words, "--format", "csv").out)
        assert answers[0] == answers[1]
        assert answers[0].count("\n") > 2


def test_only_the_files_of_the_chosen_run_are_read(lake: Path) -> None:
    file = next((lake / "task" / "group=__HIVE_DEFAULT_PARTITION__").rglob("*.parquet"))
    content = file.read_bytes()
    footer = content[-8 - int.from_bytes(content[-8:-4], "little") :]
    file.write_bytes(content[:4] + b"\xff" * (len(content) - 4 - len(footer)) + footer)
    with traceconv.open_store(lake) as opened:
        assert opened.query("SELECT count(dur_ns) FROM task WHERE run_id = 1").fetchall() == [(3,)]
        with pytest.raises(duckdb.Error):
            opened.query("SELECT sum(dur_ns) FROM task").fetchall()


def test_a_query_reads_nothing_else_and_writes_nothing(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in files_of(lake)}
    secret = lake.parent / "secret.csv"
    secret.write_text("a\n1\n")
    for sql in (
        f"COPY task TO '{lake}/x.parquet'", f"FROM '{secret}'", f"FROM read_text('{lake}/../secret.csv')",
        f"EXPLAIN ANALYZE COPY task TO '{next(iter(before))}'", "DROP VIEW task",
        "SET enable_external_access = true",
    ):  # fmt: skip
        assert run(["lake", "query", sql, str(lake)]) == 2, sql
        assert len(capfd.readouterr().err.splitlines()) == 1
    assert {path: path.read_bytes() for path in files_of(lake)} == before


def test_runs_are_added_once(lake: Path, tmp_path: Path, command: Command) -> None:
    before = {path: path.read_bytes() for path in files_of(lake)}
    more = store_of_runs(tmp_path / "more.duckdb", ["job 1/a", "new", "new"], tasks=5)
    assert "run-1 is already in" in command("export", "parquet", "--db", tmp_path / "s.duckdb", "-o", lake).err
    assert {path: path.read_bytes() for path in files_of(lake)} == before
    command("export", "parquet", "--db", more, "--run", "run-3", "-o", lake)
    assert counts(lake) == [(1, 3), (2, 3), (3, 5)]
    # A replaced run keeps its number; the files of its former group are removed.
    command("export", "parquet", "--db", more, "--run", "2", "-o", lake, "--overwrite")
    assert counts(lake) == [(1, 3), (2, 5), (3, 5)]
    assert not list(lake.rglob("group=__HIVE*/run=*/*"))
    named = {path.name for path in lake.rglob("*.parquet")}
    assert named == {
        one["name"] for path in (lake / "_runs").iterdir() for one in json.loads(path.read_text())["files"]
    }


def test_damage_is_listed_and_costs_its_run(lake: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    question = ["lake", "report", "op-statistic", str(lake), "--run", "all", "--format", "csv"]
    file = next((lake / "task" / "group=job%201%2Fa").rglob("*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    out, err = command(*question, code=3)
    assert out.count("\n") == 3  # both devices of the other run
    assert f"has {len(content) - 1:,} instead of {len(content):,} bytes; run run-1 is omitted" in err
    file.unlink()
    assert "is missing; run run-1 is omitted" in command(*question, code=3).err
    # Damage within a file.
    middle = len(content) // 4
    file.write_bytes(content[:middle] + bytes(8) + content[middle + 8 :])
    assert "is damaged; export run run-1 again with --overwrite" in command("lake", "list", lake, "--check", code=3).err
    store = lake.parent / "back.duckdb"
    assert "is damaged; its run is omitted" in command("ingest", lake, "--db", store, code=3).err
    assert query(store, "SELECT label FROM run") == [("run-2",)]
    command("ingest", lake, "--db", lake.parent / "strict.duckdb", "--strict", code=3)
    assert not (lake.parent / "strict.duckdb").exists()
    # A footer that can't be read, in the first file of a table.
    file.write_bytes(content[:-8] + b"\xff\xff\xff\x7fPAR1")
    out, err = command(*question, code=3)
    assert out.count("\n") == 3
    assert f"{file.name} is damaged; run run-1 is omitted" in err
    assert len(err.splitlines()) == 1
    command("ingest", lake, "--db", lake.parent / "other.duckdb", code=3)
    # In another file.
    file.write_bytes(content)
    other = next((lake / "task" / "group=__HIVE_DEFAULT_PARTITION__").rglob("*.parquet"))
    other.write_bytes(other.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1")
    out, err = command(*question, code=3)
    assert out.count("\n") == 3
    assert f"{other.name} is damaged; run run-2 is omitted" in err
    assert len(err.splitlines()) == 1
    # If there are too many files to read all footers when the lake is opened, it is an error.
    monkeypatch.setattr("traceconv.lake.views._MOST_CHECKED", 1)
    assert len(command(*question, code=1).err.splitlines()) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.update(format=2),
        lambda entry: entry.update(schema_version=8),
        lambda entry: entry.update(digest=DIGESTS[2]),
        lambda entry: entry["files"][0].update(name="../../../x.parquet"),
        lambda entry: entry["files"][0].update(table="../task"),
        lambda entry: entry["files"][0].update(size_bytes=-1),
        lambda entry: entry["files"][0].pop("sha256"),
        lambda entry: entry["run"].update(start_ns="0); DROP TABLE run"),
        lambda entry: entry["run"].update(rank=1 << 63),
        lambda entry: entry["run"].pop("label"),
        lambda entry: entry.pop("run"),
    ],
)
def test_an_invalid_entry_is_listed(lake: Path, change: Callable[[dict[str, Any]], object], command: Command) -> None:
    change_entry(lake, 0, change)
    out, err = command("lake", "list", lake, "--format", "csv", code=3)
    assert [line.split(",")[1] for line in out.splitlines()] == ["label", "run-2"]
    assert len(err.splitlines()) == 1
    assert "_runs/0123456789abcdef.json" in err


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff", b"[]", b'{"format": 1'])
def test_bytes_that_are_not_an_entry(content: bytes) -> None:
    with pytest.raises(InputError):
        parse_entry("0" * 16, content)


def test_an_unreadable_entry_is_not_replaced_by_mistake(lake: Path) -> None:
    path = change_entry(lake, 0, lambda entry: entry.update(format=2))
    with traceconv.open_store(db=lake.parent / "s.duckdb") as store:
        with pytest.raises(OutputError, match="format 2"):
            store.export_parquet(lake, run=1)
        path.write_bytes(b"damaged")
        store.export_parquet(lake, run=1, overwrite=True)
    assert counts(lake) == [(1, 3), (2, 3)] or counts(lake) == [(2, 3), (1, 3)]


LABELS = [
    "..",
    ".",
    "/",
    "../../etc",
    "a\0b",
    "a=b/run=c",
    "%2F",
    "",
    " ",
    "é" * 300,
    "𝄞",
    "a'b\"c;--",
    "*[?]",
    "\x1b[2J",
]


#: Those that the others cover, since the name of a folder has only letters, digits and `%`.
SIMILAR_LABELS = {".", "/", "%2F", " ", "𝄞"}


@pytest.mark.parametrize(
    "label", [pytest.param(one, marks=[pytest.mark.long] * (one in SIMILAR_LABELS)) for one in LABELS]
)
def test_hostile_labels(tmp_path: Path, label: str) -> None:
    """A label is one part of a path, and is restored from the rows."""
    lake = tmp_path / "in" / "lake"
    store = store_of_runs(tmp_path / "s.duckdb", [label])
    with open_store(store) as connection:
        export_parquet(connection, 1, lake)
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"lake"}
    [folder] = (lake / "task").iterdir()
    assert folder.name == f"group={quoted_group(label)}"
    assert unquote(quoted_group(label)) == label or len(label) > 200
    with traceconv.open_store(lake) as opened:
        assert opened.query("SELECT group_label, count(*) FROM run JOIN task USING (run_id) GROUP BY 1").fetchall() == [
            (label, 3)
        ]
        assert "\x1b" not in repr(opened)
    traceconv.ingest(lake, db=tmp_path / "back.duckdb")
    assert all_rows(tmp_path / "back.duckdb") == all_rows(store)


def test_group_names_are_distinct_and_safe() -> None:
    names = [quoted_group(label) for label in [*LABELS, None, "é" * 299 + "e", "__HIVE_DEFAULT_PARTITION__x"]]
    assert len(set(names)) == len(names)
    assert all(len(name) < 250 and not set(name) & set("/\\=.*?[ '\"") and name.isascii() for name in names)


@pytest.mark.parametrize("name", ["st*r", "we[i]rd", "q?m", "it's", "%20", "ü"])
def test_folders_with_special_names(tmp_path: Path, name: str, command: Command) -> None:
    """A pattern in the path of a lake reads no other lake."""
    store = store_of_runs(tmp_path / "s.duckdb", [None])
    with traceconv.open_store(store) as opened:
        opened.export_parquet(tmp_path / name / "lake")
    for folder in ("stair", "weird"):
        shutil.copytree(tmp_path / name, tmp_path / folder)
    assert counts(tmp_path / name / "lake") == [(1, 3)]
    query = "SELECT run_id, count(*) AS n FROM task GROUP BY 1"
    assert command("lake", "query", query, tmp_path / name / "lake", "--format", "csv").out == "run_id,n\n1,3\n"


def test_misuse(lake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s.duckdb")
    for words, code in (
        (["lake", "report", "op-statistic", str(tmp_path)], 2),
        (["lake", "report", "op-statistic", str(tmp_path / "none")], 2),
        (["export", "parquet", "--db", store], 2),
        (["export", "parquet", "--db", store, "-o", str(tmp_path / "run=7")], 2),
        (["export", "parquet", "--db", store, "-o", store], 1),
        (["report", "op-statistic", str(lake), store], 2),
        (["ingest", str(lake), "--db", str(tmp_path / "b.duckdb"), "--group", "x"], 2),
        (["runs", "delete", "1", "--db", str(lake), "--yes"], 1),
        (["export", "parquet", "--db", store, "-o", "s3:/x"], 2),
    ):
        assert run(words) == code, words
        assert len(capfd.readouterr().err.splitlines()) <= 2
    with traceconv.open_store(store) as opened, pytest.raises(UsageError, match="needs a path"):
        opened.export("parquet")


def test_runs_without_a_digest_have_one_of_their_rows(tmp_path: Path) -> None:
    """Static profiles and traces from standard input."""
    for folder, dur_ns in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        store = build_store(
            tmp_path / folder / "s.duckdb", run=[{"label": "x"}], task=[{"id": 1, "dur_ns": dur_ns, "start_ns": 0}]
        )
        with open_store(store) as connection:
            export_parquet(connection, 1, tmp_path / "lake")
    assert counts(tmp_path / "lake") == [(1, 1), (2, 1)]
    # The same run, after commands that changed the store.
    changed = build_store(
        tmp_path / "changed.duckdb",
        run=[{"label": "y", "group_label": "g", "schema_version": 9}],
        task=[{"id": 1, "dur_ns": 2, "start_ns": 0}],
        critical_path=[{"step_id": 1, "dur_ns": 2}],
    )
    with open_store(changed) as connection:
        export_parquet(connection, 1, tmp_path / "lake")
    assert counts(tmp_path / "lake") == [(1, 1), (2, 1)]
    assert key_of("not hex") == hashlib.sha256(b"not hex").hexdigest()[:16]
    assert key_of("0123456789abcdef01") == "0123456789abcdef"


@pytest.fixture
def older_lake(tmp_path: Path) -> Path:
    """A lake that version 9 of the schema wrote, from the store of that version in tests/golden."""
    with tarfile.open(GOLDEN / "mini_transformer.lake.tar.xz") as archive:
        archive.extractall(tmp_path / "older", filter="data")
    return tmp_path / "older"


def test_runs_of_an_older_version(older_lake: Path, tmp_path: Path, command: Command) -> None:
    """They are read next to others as a migrated store is; what they lack is reported."""
    with lzma.open(GOLDEN / "mini_transformer.duckdb.xz") as packed:
        (tmp_path / "s.duckdb").write_bytes(packed.read())
    command("export", "parquet", "--db", store_of_runs(tmp_path / "new.duckdb", ["g"]), "-o", older_lake)
    with pytest.warns(traceconv.StoreMigrated):
        store = traceconv.open_store(db=tmp_path / "s.duckdb")
    with pytest.warns(traceconv.DataLossWarning, match="1 run has schema version 9; NULL or without rows"):
        lake = traceconv.open_store(older_lake)
    lacking = {name: schema.since > 9 for name, schema in tables().items()}
    with store, lake:
        for name, schema in tables().items():
            older = ", ".join(column.name for column in schema.columns if (column.since or 0) <= 9)
            newer = [column.name for column in schema.columns if (column.since or 0) > 9]
            rows = [
                one.query(f"SELECT {older} FROM {name} WHERE run_id = 1 ORDER BY ALL").fetchall()
                for one in (lake, store)
            ]
            assert rows[0] == ([] if lacking[name] else rows[1]), name
            for column in newer:
                assert lake.query(f"SELECT count({column}) FROM {name} WHERE run_id = 1").fetchall() == [(0,)]
        for report in ("breakdown", "op-statistic", "task-time", "step-breakdown"):
            assert list(lake.report(report, run=1)) == list(store.report(report)), report
        assert [row["run_id"] for row in lake.report("breakdown", run="all")] == [1, 2, 2]
    assert "until exported again with --overwrite: device_total" in command("lake", "list", older_lake, "--check").err
    command("ingest", older_lake, "--db", tmp_path / "back.duckdb")
    with (
        traceconv.open_store(db=tmp_path / "back.duckdb") as back,
        traceconv.open_store(db=tmp_path / "s.duckdb") as store,
    ):
        for name in ("task", "device_busy", "device_total", "memory_interval"):
            sql = f"FROM {name} WHERE run_id = 1 ORDER BY ALL"
            assert back.query(sql).fetchall() == store.query(sql).fetchall(), name
    command("export", "parquet", "--db", tmp_path / "s.duckdb", "-o", older_lake, "--overwrite")
    assert command("lake", "list", older_lake, "--check").err == ""


def test_a_damaged_footer_omits_its_run(lake: Path, command: Command) -> None:
    file = next((lake / "task" / "group=job%201%2Fa").rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[-8:-4], "little")
    content[-8 - length : -8] = b"\xff" * length
    file.write_bytes(content)
    out, err = command("lake", "report", "breakdown", lake, "--run", "all", "--format", "csv", code=3)
    assert [line.split(",")[:2] for line in out.splitlines()[1:]] == [["1", "0"], ["1", "1"]]
    assert err.splitlines()[0].endswith(f"run=0123456789abcdef/{file.name} is damaged; run run-1 is omitted")
    found = traceconv.info(lake)
    assert not found.intact
    assert [one["label"] for one in found[0].details["runs"]] == ["run-2"]


def test_info_describes_and_checks_a_lake(lake: Path, command: Command) -> None:
    lines = command("info", lake).out.splitlines()
    assert lines[0].endswith(" bytes in Parquet files")
    assert "  run 2: run-2, complete" in lines or "  run 2: run-2, with losses (see import_log)" in lines
    [found] = traceconv.info(lake)
    assert (found.kind, found.intact, found.details["rows"]["task"]) == ("lake", True, 6)
    file = next((lake / "task").rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[5] ^= 1
    file.write_bytes(content)
    assert traceconv.info(lake, quick=True).intact
    [found] = traceconv.info(lake)
    [problem] = found.details["problems"]
    assert problem in "\n".join(found.text)
    assert "is damaged; export run" in problem
    command("info", lake, code=3)


def test_a_window_since_the_start_of_a_run_is_that_of_the_store(tmp_path: Path, command: Command) -> None:
    """The third run begins at another time than the others, and has tasks in the window; they are shorter."""
    samples = Path(__file__).parents[2] / "sample_traces"
    db, lake = tmp_path / "s.duckdb", tmp_path / "lake"
    traces = [str(samples / name) for name in ("mini_resnet", "mini_transformer", "pytorch")]
    command("ingest", *traces, "--db", db)
    command("export", "parquet", "--db", db, "-o", lake)
    for number, rows in ((1, 0), (3, 1)):
        window = ["--run", str(number), "--from", "10ms", "--to", "50ms", "--format", "csv"]
        expected = command("report", "breakdown", "--db", db, *window).out
        assert expected.count("\n") == 1 + rows
        assert command("lake", "report", "breakdown", lake, *window).out == expected
    # Counted from the JSON file: union of kernels, cut to the window since the first event.
    assert "24072659" in expected
