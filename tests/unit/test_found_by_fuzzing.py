"""Inputs that once led to a traceback, or to no end: now rows, words in the log, or one clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from ingest_checks import query
from perfetto_builder import begin, end, event, thread

from traceconv.base.errors import TraceconvError
from traceconv.normalize.trace.times import exact_number
from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.result import IngestedRun

HUGE = "1e99999999999999999999"


def taken(data: bytes | str, tmp_path: Path, name: str, reader: str | None = None) -> tuple[IngestedRun, Path]:
    path, store = tmp_path / name, tmp_path / "trace.duckdb"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    run = ingest([path], store, reader=reader)[0]
    assert all(book.balanced for book in run.accounts.by_record.values())
    return run, store


def test_an_exponent_that_no_decimal_has_is_no_number(tmp_path: Path) -> None:
    assert exact_number(HUGE) is None
    text = f'[{{"ph":"X","name":"a","ts":1,"dur":2}},{{"ph":"X","name":"b","ts":{HUGE},"dur":2}}]'
    run, store = taken(text, tmp_path, "trace.json")
    assert query(store, "SELECT name FROM slice") == [("a",)]
    assert [entry.code.text for entry in run.log] == ["no_time"]


@pytest.mark.parametrize("number", [HUGE, "1e999999999999999999", "-1E999999"])
def test_such_a_time_in_a_static_profile(number: str, tmp_path: Path) -> None:
    text = (
        '{"graph_exec": {"device": {"7": {"cpu0": {"start": 0.1, "kern": 0.1, "end": 0.2}}, '
        f'"8": {{"cpu0": {{"start": 0.1, "kern": 0.1, "end": {number}}}}}}}, "host": {{}}}}, '
        '"operator": {"7": {"name": "a", "type": "b"}, "8": {"name": "c", "type": "d"}}}'
    )
    try:
        run, _ = taken(text, tmp_path, "profile.json", "megengine_static")
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
def test_a_blank_that_json_does_not_have_ends_nothing(reader: str, text: str, byte: str, tmp_path: Path) -> None:
    with pytest.raises(TraceconvError):
        taken(text % (byte, byte), tmp_path, "trace.json", reader)


def test_a_list_of_numbers_that_is_cut_off_makes_its_event_unsound(tmp_path: Path) -> None:
    # Categories (3) as a packed list whose last number has no end.
    broken = event(20, (9, 1), (11, 2), (3, b"\x01\x80"))
    data = thread(2, 1, 1, "main") + begin(10, 2, "a") + broken + end(30, 2)
    run, store = taken(data, tmp_path, "trace.pftrace", "perfetto_proto")
    assert query(store, "SELECT name FROM slice") == [("a",)]
    assert run.lossy


def test_a_number_where_a_message_should_be_is_no_size(tmp_path: Path) -> None:
    # An old event's own message (6) written as a number, whose bytes begin a field that goes beyond the file.
    broken = event(20, (11, 2), (6, 8122), (9, 1))
    data = thread(2, 1, 1, "main") + begin(10, 2, "a") + end(15, 2) + broken
    run, store = taken(data, tmp_path, "trace.pftrace", "perfetto_proto")
    assert query(store, "SELECT name FROM slice ORDER BY start_ns") == [("a",), (None,)]
    assert run.lossy


def test_a_weight_beyond_all_numbers(tmp_path: Path) -> None:
    text = (
        '{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"a"}]},'
        '"profiles":[{"type":"sampled","name":"p","unit":"seconds","startValue":0,"endValue":9,'
        '"samples":[[0],[0]],"weights":[1,1e999999]}]}'
    )
    run, _ = taken(text, tmp_path, "p.speedscope.json", "speedscope")
    assert len(run.log)


@pytest.mark.parametrize("name", [b"gpu\\ud800:0", b"gpu\xed\xa0\x80:0", b"gpu\xff:0"])
def test_the_name_of_a_node_that_no_text_holds_in_a_static_profile(name: bytes, tmp_path: Path) -> None:
    times = b'{"start": 0.001, "kern": 0.0015, "end": 0.002}'
    text = (
        b'{"graph_exec": {"operator": {"7": {"name": "conv", "type": "Conv"}}, "var": {}, "comp_seq": ["7"]}, '
        b'"profiler": {"device": {"7": {"' + name + b'": ' + times + b'}}, "host": {}}}'
    )
    run, store = taken(text, tmp_path, "m.json", "megengine_static")
    assert query(store, "SELECT count(*) FROM slice") == [(1,)]
    assert [entry.code.text for entry in run.log][:1] in (["bad_bytes"], ["odd_json"])
