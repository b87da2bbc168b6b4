"""Inputs that fuzzing found, which once caused a traceback or a hang: now rows, log entries or one clear error."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from ingest_checks import rows_of, taken
from perfetto_builder import begin, end, event, thread
from stores import query

from traceconv.base.errors import InputError, TraceconvError
from traceconv.normalize.trace.rule_files import parse_rules
from traceconv.normalize.trace.times import exact_number
from traceconv.pipeline.ingest import ingest

HUGE = "1e99999999999999999999"


def test_an_infinite_number_in_a_rule_file_is_rejected() -> None:
    with pytest.raises(InputError, match="priority must be a 64-bit integer"):
        parse_rules('title = "x"\npriority = inf\n[detect]\nkeys = ["a"]', "mine.toml")


def test_out_of_range_times_of_furiosa_lose_only_their_record(tmp_path: Path) -> None:
    head = "trace_id,parent_span_id,span_id,start,end,cat,name,thread.id,dram_base,pe_index,execution_index,"
    head += "instruction_index,operator_index\n"
    rows = "a,b,c,9999999999999999999,1,,far,1,,,,,\na,b,c,1000,1500,,near,1,,,,,\n"
    run, store = taken(head + rows, tmp_path, "f.csv")
    assert run.lossy
    assert query(store, "SELECT name, dur_ns FROM slice") == [("near", 500)]


def test_operations_of_rocprofv3_that_are_not_a_list(tmp_path: Path) -> None:
    record = {"kind": 0, "operation": 1, "start_timestamp": 5, "end_timestamp": 7, "thread_id": 3}
    process = {
        "metadata": {"pid": 1},
        "strings": {"buffer_records": [{"kind": "HSA_CORE_API", "operations": 7}]},
        "buffer_records": {"hsa_api": [record]},
    }
    found = rows_of({"rocprofiler-sdk-tool": [process]}, tmp_path, "SELECT name, dur_ns FROM slice")
    assert found == [("HSA_CORE_API", 2)]


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
def test_an_exponent_beyond_all_tables_does_not_crash(time: str, tmp_path: Path) -> None:
    event = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":%s,"dur":1}'
    sql = "SELECT start_ns FROM slice ORDER BY start_ns"
    starts = [row[0] for row in rows_of(f"[{event % time},{event % 5}]", tmp_path, sql)]
    assert starts == ([5000, 1_000_000] if time.endswith("03") else [5000])


def test_a_step_number_too_large_for_a_column_is_not_a_step(tmp_path: Path) -> None:
    step = '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":1,"tid":1,"ts":1,"dur":9}'
    kernel = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":2,"dur":1,"args":{"device":0,"stream":7}}'
    _, store = taken('{"trace_id":"x","traceEvents":[' + ",".join((step % 10**30, step % 7, kernel)) + "]}", tmp_path)
    assert query(store, "SELECT iteration FROM step") == [(7,)]
    assert query(store, "SELECT count(*) FROM slice") == [(3,)]


@pytest.mark.parametrize("order", [True, "\u00b2", "+-5", "--5", 2**63, [1]])
@pytest.mark.parametrize("what", ["process_sort_index", "thread_sort_index"])
def test_sort_indexes_that_are_not_integers_are_null(what: str, order: object, tmp_path: Path) -> None:
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
def test_flow_ids_that_look_like_numbers_are_kept_as_text(number: str, tmp_path: Path) -> None:
    common = {"name": "f", "cat": "c", "id": number, "pid": 1, "tid": 1}
    events = [{"ph": "s", "ts": 1, **common}, {"ph": "f", "ts": 2, **common}]
    sql = "SELECT external_id, src_ns, dst_ns FROM flow"
    assert rows_of({"traceEvents": events}, tmp_path, sql) == [(number, 1000, 2000)]


@pytest.mark.parametrize(("name", "shown"), [("\ud800x", "?x"), (["a"], ""), (None, "")])
def test_device_names_that_are_not_valid_text(name: object, shown: str, tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 2, "args": {"device": 0}}
    document = {"deviceProperties": [{"id": 0, "name": name}], "traceEvents": [kernel]}
    assert rows_of(document, tmp_path, "SELECT coalesce(name, '') FROM device") == [(shown,)]


def test_an_exponent_too_large_for_decimal_is_not_a_number(tmp_path: Path) -> None:
    assert exact_number(HUGE) is None
    text = f'[{{"ph":"X","name":"a","ts":1,"dur":2}},{{"ph":"X","name":"b","ts":{HUGE},"dur":2}}]'
    run, store = taken(text, tmp_path)
    assert query(store, "SELECT name FROM slice") == [("a",)]
    assert [entry.code.text for entry in run.log] == ["no_time"]


@pytest.mark.parametrize("number", [HUGE, "1e999999999999999999", "-1E999999"])
def test_a_time_with_a_huge_exponent_in_a_static_profile(number: str, tmp_path: Path) -> None:
    text = (
        '{"graph_exec": {"device": {"7": {"cpu0": {"start": 0.1, "kern": 0.1, "end": 0.2}}, '
        f'"8": {{"cpu0": {{"start": 0.1, "kern": 0.1, "end": {number}}}}}}}, "host": {{}}}}, '
        '"operator": {"7": {"name": "a", "type": "b"}, "8": {"name": "c", "type": "d"}}}'
    )
    try:
        run, _ = taken(text, tmp_path, "profile.json", reader="megengine_static")
    except TraceconvError:
        return
    assert run.lossy or run.record_count


@pytest.mark.parametrize("byte", ["\f", "\v"])
@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("speedscope", '{"shared":{"frames":[{"name":"a"},%s{"name":"b"}]},"profiles":[%s]}'),
        ("rocprofv3", '{"rocprofiler-sdk-tool":[%s{"metadata":{}},%s]}'),
    ],
)
def test_whitespace_that_json_does_not_allow_is_an_error(reader: str, text: str, byte: str, tmp_path: Path) -> None:
    with pytest.raises(TraceconvError):
        taken(text % (byte, byte), tmp_path, reader=reader)


def test_an_event_with_a_truncated_packed_list_is_malformed(tmp_path: Path) -> None:
    # Categories (3) as a packed list whose last number has no end.
    broken = event(20, (9, 1), (11, 2), (3, b"\x01\x80"))
    data = thread(2, 1, 1, "main") + begin(10, 2, "a") + broken + end(30, 2)
    run, store = taken(data, tmp_path, "trace.pftrace")
    assert query(store, "SELECT name FROM slice") == [("a",)]
    assert run.lossy


def test_a_number_in_place_of_a_message_is_not_used_as_its_size(tmp_path: Path) -> None:
    # An old event's own message (6) written as a number, whose bytes begin a field that goes beyond the file.
    broken = event(20, (11, 2), (6, 8122), (9, 1))
    data = thread(2, 1, 1, "main") + begin(10, 2, "a") + end(15, 2) + broken
    run, store = taken(data, tmp_path, "trace.pftrace")
    assert query(store, "SELECT name FROM slice ORDER BY start_ns") == [("a",), (None,)]
    assert run.lossy


def test_an_infinite_weight_is_logged(tmp_path: Path) -> None:
    text = (
        '{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"a"}]},'
        '"profiles":[{"type":"sampled","name":"p","unit":"seconds","startValue":0,"endValue":9,'
        '"samples":[[0],[0]],"weights":[1,1e999999]}]}'
    )
    run, _ = taken(text, tmp_path, "p.speedscope.json")
    assert len(run.log)


@pytest.mark.parametrize("name", [b"gpu:0", b"gpu\\ud800:0", b"gpu\xed\xa0\x80:0", b"gpu\xff:0"])
def test_names_and_numbers_that_json_does_not_allow_in_a_static_profile(name: bytes, tmp_path: Path) -> None:
    times = b'{"start": 0.001, "kern": 0.0015, "end": 0.002}'
    text = (
        b'{"graph_exec": {"operator": {"7": {"name": "conv", "type": "Conv"}}, "var": {}, "comp_seq": ["7"]}, '
        b'"profiler": {"device": {"7": {"' + name + b'": ' + times + b'}}, "host": {}, '
        b'"opr_footprint": {"7": {"memory": NaN}}}}'
    )
    run, store = taken(text, tmp_path, "m.json", reader="megengine_static")
    assert query(store, "SELECT args->'$.memory' FROM range") == [('"NaN"',)]
    assert [entry.code.text for entry in run.log][:1] in (["bad_bytes"], ["odd_json"])
