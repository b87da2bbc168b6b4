"""What fuzzing found, each as a small input that shows it: rows or words, and never a traceback."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import duckdb
import pytest

from traceconv.base.errors import InputError
from traceconv.normalize.trace.rule_files import parse_rules
from traceconv.pipeline.ingest import ingest


def test_a_number_of_a_rule_file_may_be_infinite() -> None:
    with pytest.raises(InputError, match="priority must be a 64-bit integer"):
        parse_rules('title = "x"\npriority = inf\n[detect]\nkeys = ["a"]', "mine.toml")


def test_times_of_furiosa_that_no_column_holds_cost_their_record(tmp_path: Path) -> None:
    head = "trace_id,parent_span_id,span_id,start,end,cat,name,thread.id,dram_base,pe_index,execution_index,"
    head += "instruction_index,operator_index\n"
    rows = "a,b,c,9999999999999999999,1,,far,1,,,,,\na,b,c,1000,1500,,near,1,,,,,\n"
    path, store = tmp_path / "f.csv", tmp_path / "a.duckdb"
    path.write_text(head + rows)
    (run,) = ingest([path], store)
    assert run.lossy
    with duckdb.connect(str(store), read_only=True) as connection:
        assert connection.execute("SELECT name, dur_ns FROM slice").fetchall() == [("near", 500)]


def test_operations_of_rocprofv3_that_are_no_list(tmp_path: Path) -> None:
    record = {"kind": 0, "operation": 1, "start_timestamp": 5, "end_timestamp": 7, "thread_id": 3}
    process = {
        "metadata": {"pid": 1},
        "strings": {"buffer_records": [{"kind": "HSA_CORE_API", "operations": 7}]},
        "buffer_records": {"hsa_api": [record]},
    }
    path, store = tmp_path / "r.json", tmp_path / "a.duckdb"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    ingest([path], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        assert connection.execute("SELECT name, dur_ns FROM slice").fetchall() == [("HSA_CORE_API", 2)]


def test_a_schema_in_sqlite_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "n.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
    db.commit()
    db.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE StringIds (id", b"CREAT\xff TABLE StringIds (\xffd"))
    with pytest.raises(InputError, match="as SQLite"):
        ingest([path], tmp_path / "a.duckdb")


@pytest.mark.parametrize(
    "time", ["1e-40009342", "173640888371e-40009342", "1e-4000", "0.001E-5000", "1e00000000000000003"]
)
def test_an_exponent_beyond_all_tables_ends_no_process(time: str, tmp_path: Path) -> None:
    path, store = tmp_path / "t.json", tmp_path / "a.duckdb"
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":%s,"dur":1}'
    path.write_text(f"[{event % time},{event % 5}]")
    ingest([path], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        starts = [row[0] for row in connection.execute("SELECT start_ns FROM slice ORDER BY start_ns").fetchall()]
    assert starts == ([5000, 1_000_000] if time.endswith("03") else [5000])


def test_the_number_of_a_step_may_be_too_large_for_a_column(tmp_path: Path) -> None:
    path, store = tmp_path / "t.json", tmp_path / "a.duckdb"
    step = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":1,"tid":1,"ts":1,"dur":9}'
    kernel = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":2,"dur":1,"args":{"device":0,"stream":7}}'
    path.write_text('{"trace_id":"x","traceEvents":[' + ",".join((step % 10**30, step % 7, kernel)) + "]}")
    ingest([path], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        assert connection.execute("SELECT iteration FROM step").fetchall() == [(7,)]
        assert connection.execute("SELECT count(*) FROM slice").fetchall() == [(3,)]


@pytest.mark.parametrize("order", [True, "\u00b2", "+-5", "--5", 2**63, [1]])
@pytest.mark.parametrize("what", ["process_sort_index", "thread_sort_index"])
def test_sort_indexes_that_are_no_numbers(what: str, order: object, tmp_path: Path) -> None:
    events = [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2},
        {"ph": "M", "name": what, "pid": 1, "tid": 1, "args": {"sort_index": order}},
    ]
    assert (
        rows_of(
            {"traceEvents": events}, tmp_path, "SELECT sort_index FROM process UNION ALL SELECT sort_index FROM track"
        )
        == [(None,)] * 2
    )


@pytest.mark.parametrize("number", ["--5", "\u00b2", "1_0"])
def test_ids_of_flows_that_look_like_numbers(number: str, tmp_path: Path) -> None:
    common = {"name": "f", "cat": "c", "id": number, "pid": 1, "tid": 1}
    events = [{"ph": "s", "ts": 1, **common}, {"ph": "f", "ts": 2, **common}]
    query = "SELECT external_id, src_ns, dst_ns FROM flow"
    assert rows_of({"traceEvents": events}, tmp_path, query) == [(number, 1000, 2000)]


@pytest.mark.parametrize(("name", "shown"), [("\ud800x", "?x"), (["a"], ""), (None, "")])
def test_names_of_devices_that_no_column_holds(name: object, shown: str, tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 2, "args": {"device": 0}}
    document = {"deviceProperties": [{"id": 0, "name": name}], "traceEvents": [kernel]}
    assert rows_of(document, tmp_path, "SELECT coalesce(name, '') FROM device") == [(shown,)]


def rows_of(document: object, tmp_path: Path, query: str) -> list[tuple[object, ...]]:
    path, store = tmp_path / "t.json", tmp_path / "t.duckdb"
    path.write_text(json.dumps(document))
    ingest([path], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        return connection.execute(query).fetchall()
