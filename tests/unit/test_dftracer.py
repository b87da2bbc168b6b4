"""DFTracer from version 2 on: kinds of events are numbers, and a metadata event specifies the unit of times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import taken
from stores import query

from traceconv.pipeline.result import IngestedRun

HOST = "6882804a826580cd"


def line(**keys: Any) -> str:
    return json.dumps(keys, separators=(",", ":"))


def metadata(kind: str, name: str, value: str) -> str:
    args = {"hhash": HOST, "name": name, "value": value}
    return line(name=kind, cat="dftracer", type=1, pid=7, tid=7, ph=4, args=args)


def stored(lines: list[str], folder: Path) -> tuple[IngestedRun, Path]:
    return taken("\n".join(lines) + "\n", folder, "app.pfw")


def test_kinds_are_numbers(tmp_path: Path) -> None:
    lines = [
        metadata("HH", "node1", HOST),
        metadata("CM", "time_metric", "US"),
        line(id=2, name="open64", cat="POSIX", type=3, pid=7, tid=7, ts=10, dur=5, ph=1, args={"fhash": "ab"}),
        line(id=3, name="epoch", cat="APP", type=6, pid=7, tid=7, ts=9, dur=20, ph=1),
        line(name="cpu", cat="sys", type=7, pid=7, tid=7, ts=11, ph=2, args={"user_pct": 12.5}),
        line(name="write", cat="POSIX", type=3, pid=7, tid=7, ts=12, ph=3, args={"dft_cnt": 39, "dur_sum": 729}),
    ]
    run, store = stored(lines, tmp_path)
    assert not run.log
    assert run.host == "node1"
    assert {title: account.records for title, account in run.accounts.by_record.items()} == {
        "A events": 1,
        "C events": 1,
        "M events": 2,
        "X events": 2,
    }
    assert query(store, "SELECT name, level, start_ns, dur_ns FROM api") == [("open64", "posix", 10_000, 5000)]
    [(name, start_ns, dur_ns, args)] = query(store, "SELECT name, start_ns, dur_ns, args FROM range")
    assert (name, start_ns, dur_ns) == ("epoch", 9000, 20_000)
    assert json.loads(args) == {"trace_event": {"type": 6, "id": 3}}
    assert query(store, "SELECT series, ts_ns, value FROM counter") == [("user_pct", 11_000, 12.5)]
    [(ts_ns, args)] = query(store, "SELECT ts_ns, args FROM marker WHERE name = 'write'")
    assert ts_ns == 12_000
    assert json.loads(args) == {"dft_cnt": 39, "dur_sum": 729, "trace_event": {"ph": "A", "type": 3}}


@pytest.mark.parametrize(("unit", "factor"), [("NS", 1), ("US", 1000), ("MS", 1_000_000), ("SEC", 1_000_000_000)])
def test_the_unit_of_times(unit: str, factor: int, tmp_path: Path) -> None:
    start = 1_795_287_003_327_305_123 // factor
    lines = [
        metadata("CM", "time_metric", unit),
        line(id=1, name="read", cat="POSIX", pid=7, tid=7, ts=start, dur=7, ph=1),
        line(id=2, name="read", cat="POSIX", pid=7, tid=7, ts=str(start), dur="8", ph="X"),
        f'{{"id":3,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":{start}.0,"dur":9e0,"ph":1}}',
    ]
    run, store = stored(lines, tmp_path)
    assert not run.log
    found = query(store, "SELECT start_ns, dur_ns FROM api ORDER BY id")
    assert found == [(start * factor, dur * factor) for dur in (7, 8, 9)]


def test_the_unit_needs_a_known_writer(tmp_path: Path) -> None:
    """Without a record of DFTracer that says so, times are microseconds."""
    other = line(name="CM", ph="M", pid=7, tid=7, args={"name": "something", "value": "NS"})
    _, store = stored([other, line(name="a", ph="X", pid=7, tid=7, ts=1, dur=2)], tmp_path)
    assert query(store, "SELECT start_ns, dur_ns FROM range") == [(1000, 2000)]


def test_events_with_an_unknown_kind_are_lost(tmp_path: Path) -> None:
    lines = [line(name="a", ph=ph, pid=7, tid=7, ts=1, dur=2) for ph in (1, 0, 5, -1, 1.0)]
    run, store = stored(lines, tmp_path)
    assert query(store, "SELECT count(*) FROM range") == [(1,)]
    assert {entry.code.text for entry in run.log} == {"unknown_phase"}
