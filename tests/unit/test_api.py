"""The Python API: the steps of the README, in one process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from capture_builder import CaptureBuilder
from store_builder import build_store

import traceconv
from traceconv.base.errors import InputError, StoreError, UsageError
from traceconv.store.database import open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs; the second has one operator of 500 ns. No test changes it."""
    tmp_path = tmp_path_factory.mktemp("store")
    for number, end in ((1, 1_010), (2, 1_050)):
        builder = CaptureBuilder(tmp_path / f"capture{number}")
        builder.add("op", name="conv", op_type="Conv2D", op_index=0)
        for at in range(4):
            builder.sync(1_000 + at * 100, 10_000 + at * 1_000)
        builder.task(1, 1_000, end, op_index=0).close()
    path = tmp_path / "trace.duckdb"
    runs = traceconv.ingest(tmp_path / "capture1", tmp_path / "capture2", db=path)
    assert [run.run_id for run in runs] == [1, 2]
    return path


def test_a_report_is_on_the_latest_run_or_on_the_one_named(store: Path) -> None:
    with traceconv.open_store(store) as opened:
        assert [row["total_ns"] for row in opened.report("op-statistic")] == [500]
        assert [row["total_ns"] for row in opened.report("op_statistic", run="capture1")] == [100]
        both = opened.report("op-statistic", run="all", columns=["run_id", "total_ns"])
        assert list(both) == [{"run_id": 1, "total_ns": 100}, {"run_id": 2, "total_ns": 500}]
        assert list(opened.report("task-time", filters={"name": "none"})) == []
        assert len(list(opened.report("task-time", filters={"dur_ns": 500, "op_id": 0}))) == 1
        assert len(list(opened.report("task-time", filters=["dur_ns>=0.5us", "name~^co"]))) == 1
        assert list(opened.report("task-time", filters=["dur_ns>500"])) == []
        assert opened.query("SELECT count(*) FROM task").fetchall() == [(2,)]


def test_a_chrome_trace_is_of_one_run(store: Path, tmp_path: Path) -> None:
    with traceconv.open_store(store) as opened:
        opened.export_chrome(tmp_path / "trace.json", run=1)
        with pytest.raises(UsageError, match="a single run"):
            opened.export_chrome(tmp_path / "all.json", run="all")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["dur"] for event in events if event["ph"] == "X" and event["name"] == "conv"] == [0.1]


def test_a_picture_of_memory_is_of_one_run(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "memory.duckdb"
    memory = [{"block_id": 1, "kind": "block", "address": 0, "size_bytes": 64, "alloc_ns": 1, "free_ns": 5}]
    build_store(path, memory=memory, run=[{"run_id": 1, "start_ns": 0, "label": "one"}], device=[{"device_id": 0}])
    with traceconv.open_store(path) as opened:
        opened.export_memory_flow(tmp_path / "memory.svg", device=0)
        with pytest.raises(UsageError, match=r"no device 7\. Devices: 0"):
            opened.export_memory_flow(tmp_path / "all.svg", device=7)
    assert "<svg" in (tmp_path / "memory.svg").read_text()
    with traceconv.open_store(store) as opened, pytest.raises(InputError, match="no rows in memory"):
        opened.export_memory_flow(tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_import_loads_nothing_heavy() -> None:
    code = "import sys, traceconv; print([m for m in ('numpy', 'duckdb', 'pyarrow', 'onnx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with more rows than are fetched at once, and with names that would like to be HTML."""
    path = build_store(
        tmp_path_factory.mktemp("many") / "many.duckdb",
        run=[{"run_id": 1, "label": "<b>one</b>", "start_ns": 0, "end_ns": 2_000_000}],
        op=[{"op_id": 1, "name": "<script>", "op_type": "<img src=x>"}],
        track=[{"track_id": 1, "kind": "stream", "stream_id": 1}],
        task=[{"id": 10_000, "op_id": 1, "name": "open", "track_id": 1, "start_ns": 1_752_451_300_000_000_000}],
    )
    with open_store(path, read_only=False) as connection:
        connection.execute(
            "INSERT INTO task (run_id, id, device_id, track_id, name, kind, op_id, start_ns, dur_ns) "
            "SELECT 1, i, 0, 1, 'k' || i, 'compute', 1, 1752451200000000001 + i, 100 + i FROM range(10_000) AS r(i)"
        )
    return path


TASKS = 10_001


def interleaved(store: traceconv.Store) -> None:
    tasks, ops = iter(store.report("task-time")), iter(store.report("op-summary"))
    pairs = list(zip(tasks, ops, strict=False))
    assert [task["id"] for task, _ in pairs] == [op["id"] for _, op in pairs]
    assert len(pairs) == TASKS


def nested(store: traceconv.Store) -> None:
    types = 0
    for place, _ in enumerate(store.report("task-time", columns=["id"])):
        if place % 1000 == 0:
            types += len(store.report("op-statistic", top=1).fetchall())
    assert (place + 1, types) == (TASKS, 11)


def abandoned(store: traceconv.Store) -> None:
    held = iter(store.report("task-time"))
    assert next(held)["id"] == 0
    next(iter(store.report("op-summary")))  # dropped at once


def of_one_report_twice(store: traceconv.Store) -> None:
    rows = store.report("task-time", columns=["id", "name"])
    first, second = iter(rows), iter(rows)
    assert next(first) == next(second) == {"id": 0, "name": "k0"}
    assert next(first) == {"id": 1, "name": "k1"}
    assert len(list(rows)) == len(rows.fetchall()) == rows.arrow().num_rows == len(rows.df()) == TASKS


def next_to_queries(store: traceconv.Store) -> None:
    rows = iter(store.report("task-time"))
    next(rows)
    relation = store.query("SELECT id FROM task ORDER BY id")
    reader = relation.to_arrow_table().to_reader(10)
    reader.read_next_batch()
    assert store.query("SELECT count(*) FROM task").fetchall() == [(TASKS,)]
    assert relation.limit(2).fetchall() == [(0,), (1,)]
    assert len(list(rows)) == TASKS - 1


def left_by_an_error(store: traceconv.Store) -> None:
    with pytest.raises(ZeroDivisionError):
        for _ in store.report("task-time"):
            raise ZeroDivisionError
    with pytest.raises(UsageError):
        store.query("SELEC 1")


def in_threads(store: traceconv.Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: [row["id"] for row in store.report("task-time", columns=["id"])], range(8))
        assert all(sorted(ids) == [*range(TASKS)] for ids in found)  # type: ignore[type-var]


def during_an_export(store: traceconv.Store) -> None:
    rows = iter(store.report("task-time"))
    next(rows)
    store.export_chrome(store.path.with_suffix(".json"))
    store.export_perfetto(store.path.with_suffix(".pftrace"))
    store.why("task", 1)
    assert len(list(rows)) == TASKS - 1


@pytest.mark.parametrize(
    "use",
    [
        interleaved,
        nested,
        abandoned,
        of_one_report_twice,
        next_to_queries,
        left_by_an_error,
        in_threads,
        during_an_export,
    ],
)
def test_after_each_use_the_next_call_works(many: Path, use: Callable[[traceconv.Store], None]) -> None:
    with traceconv.open_store(many) as store:
        use(store)
        assert [row["count"] for row in store.report("op-statistic", columns=["count"])] == [10_000]
        assert store.query("SELECT count(*) FROM task").fetchall() == [(TASKS,)]


def test_closing_a_store_ends_its_running_queries(many: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(many, tmp_path))
    store = traceconv.open_store(copy)
    report = store.report("task-time")
    rows, relation = iter(report), store.query("FROM task")
    next(rows)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        list(rows)
    for use in (lambda: list(report), report.df, lambda: store.report("task-time"), lambda: store.query("FROM run")):
        with pytest.raises(StoreError, match="is closed"):
            use()
    assert "is closed" in repr(report)
    assert "is closed" in report._repr_html_()
    assert "is closed" in repr(store)
    # Nothing holds the file any longer.
    with open_store(copy, read_only=False) as connection:
        connection.execute("DELETE FROM task WHERE id > 5")
    del relation


def test_frames_keep_integers_and_columns(many: Path) -> None:
    with traceconv.open_store(many) as store:
        rows = store.report(
            "task-time", filters={"op_id": 1}, order_by=["start_ns ASC"], columns=["start_ns", "dur_ns"]
        )
        frame, table = rows.df(), rows.arrow()
    assert rows.columns == list(frame.columns) == table.column_names == ["start_ns", "dur_ns"]
    assert (str(frame["start_ns"].dtype), str(frame["dur_ns"].dtype)) == ("int64", "Int64")
    assert frame["start_ns"][0] == table["start_ns"][0].as_py() == 1752451200000000001


def test_sums_of_queries_are_integers_of_64_bits(many: Path) -> None:
    with traceconv.open_store(many) as store:
        relation = store.query('SELECT sum(dur_ns) AS "a""b", sum(dur_ns) AS "a""b", count(*) FROM task')
        total = store.query("SELECT dur_ns FROM task").aggregate("sum(dur_ns)").fetchall()[0][0]
        assert relation.fetchall() == [(total, total, TASKS)]
        assert [str(kind) for kind in relation.types] == ["BIGINT"] * 3
        assert str(relation.df().iloc[:, 0].dtype) == "int64"
        with pytest.raises(duckdb.ConversionException, match="out of range"):
            store.query("SELECT 9223372036854775807::HUGEINT + 1").fetchall()


def test_polars_frames_keep_integers_and_nulls(many: Path) -> None:
    polars = pytest.importorskip("polars")
    columns = ["start_ns", "dur_ns", "name"]
    with traceconv.open_store(many) as store:
        rows = store.report("task-time", order_by=["start_ns ASC"], columns=columns)
        frame, relation = rows.pl(), store.query("SELECT start_ns, dur_ns, name FROM task ORDER BY start_ns").pl()
        assert frame.rows() == relation.rows() == rows.fetchall()
        assert store.report("task-time", filters={"name": "none"}, columns=columns).pl().schema == frame.schema
    assert frame.schema == {"start_ns": polars.Int64, "dur_ns": polars.Int64, "name": polars.String}
    assert frame.row(0) == (1752451200000000001, 100, "k0")
    assert frame.row(-1) == (1752451300000000000, None, "open")


def test_a_missing_package_is_named(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with traceconv.open_store(many) as store:
        rows = store.report("op-statistic")
        for use, needed in ((rows.df, "pip install pandas"), (rows.pl, "pip install polars")):
            with pytest.raises(UsageError, match=needed):
                use()


def test_reports_and_stores_show_themselves(many: Path) -> None:
    with traceconv.open_store(many) as store:
        rows, text = store.report("op-statistic"), repr(store)
        assert repr(rows).splitlines()[:2] == ["op-statistic", repr(rows).splitlines()[1]]
        assert "<img src=x>" in repr(rows)
        assert "<b>one</b>" in text
        assert "2.000 ms" in text
        for shown in (rows._repr_html_(), store._repr_html_(), store.report("op-summary")._repr_html_()):
            assert shown.startswith("<table>")
            assert not any(tag in shown for tag in ("<img", "<b>", "<script"))
        assert "&lt;img src=x&gt;" in rows._repr_html_()
        assert "first 40 rows" in store.report("task-time")._repr_html_()
