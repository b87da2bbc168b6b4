"""Flow events: data without a column is kept in markers, and scopes separate flows with equal IDs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest_checks import rows_of, taken

from traceconv.formats.chrome_json import recovery


def event(ph: str, ts: int, **more: Any) -> dict[str, Any]:
    return {"ph": ph, "name": "f", "cat": "c", "id": 1, "pid": 1, "tid": 1, "ts": ts, **more}


def test_args_of_flow_events_are_kept_in_markers(tmp_path: Path) -> None:
    events = [event("s", 1, args={"bytes": 12345678901234567890}), event("f", 2, bp="e", extra="x"), event("t", 3)]
    rows = rows_of(events, tmp_path, "SELECT ts_ns, name, category, args FROM marker ORDER BY ts_ns")
    assert [row[:3] for row in rows] == [(1000, "f", "c"), (2000, "f", "c")]
    assert json.loads(rows[0][3]) == {"bytes": 12345678901234567890, "trace_event": {"ph": "s"}}
    assert json.loads(rows[1][3]) == {"trace_event": {"ph": "f", "extra": "x"}}


def test_markers_of_flow_events_are_not_slices_for_perfetto(tmp_path: Path) -> None:
    events = [event("s", 1, args={"a": 1}), event("f", 2), {**event("i", 3), "name": "shown"}]
    assert rows_of(events, tmp_path, "SELECT name FROM perfetto.slice") == [("shown",)]


def test_equal_ids_in_two_scopes_are_two_flows(tmp_path: Path) -> None:
    events = [event("s", 1, scope="a"), event("s", 2, scope="b"), event("f", 3, scope="a"), event("f", 4, scope="b")]
    assert rows_of(events, tmp_path, "SELECT src_ns, dst_ns FROM flow ORDER BY src_ns") == [(1000, 3000), (2000, 4000)]


def test_a_zero_in_front_makes_another_id(tmp_path: Path) -> None:
    events = [event("s", 1, id="7"), event("s", 2, id="07"), event("f", 3, id=7), event("f", 4, id="07")]
    assert rows_of(events, tmp_path, "SELECT src_ns, dst_ns FROM flow ORDER BY src_ns") == [(1000, 3000), (2000, 4000)]


def test_flows_from_calls_to_tasks_are_launches(tmp_path: Path) -> None:
    """Only flows of the categories in the writer's rules are; other flows keep their kind."""
    call = event("X", 10, name="cudaLaunchKernel", cat="cuda_runtime", dur=5)
    kernel = event("X", 30, name="gemm", cat="kernel", tid=7, dur=5, args={"device": 0, "stream": 7})
    ends = [event("s", 11, id=2), event("f", 30, id=2, tid=7, bp="e")]
    arrows = [{**end, "cat": category} for category in ("fwdbwd", "ac2g") for end in ends]
    arrows += [{key: value for key, value in end.items() if key != "cat"} for end in ends]
    rows = rows_of([call, kernel, *arrows], tmp_path, "SELECT category, kind FROM flow")
    assert sorted(rows, key=str) == [("ac2g", "launch"), ("fwdbwd", "other"), (None, "other")]


def test_flows_between_begin_and_end_of_a_slice_of_duration_0_are_its_flows(tmp_path: Path) -> None:
    """As in traces of MegEngine, in which kernels that begin at once may take less than the clock's resolution."""
    starts = [event("s", number, id=number, tid=number) for number in (1, 2, 3)]
    calls = [event("X", number, name=f"call {number}", tid=number, dur=1) for number in (1, 2, 3)]
    kernels = [
        [event("B", 9, name=name, tid=7), event("f", 9, id=number, tid=7, bp="e"), event("E", end, name=name, tid=7)]
        for number, name, end in ((1, "short", 9), (2, "shorter", 9), (3, "long", 12))
    ]
    sql = "SELECT s.name, d.name FROM flow f JOIN slice s ON s.id = f.src_id JOIN slice d ON d.id = f.dst_id"
    found = rows_of([*calls, *starts, *(one for kernel in kernels for one in kernel)], tmp_path, sql)
    assert sorted(found) == [("call 1", "short"), ("call 2", "shorter"), ("call 3", "long")]


def test_the_search_for_the_end_of_a_malformed_event_is_bounded(tmp_path: Path, monkeypatch: Any) -> None:
    """Otherwise a text of n events, each without its last brace, takes quadratic time."""
    looked_at = 0
    search = recovery.end_of_bracketed

    def counting(text: bytes, at: int, end: int) -> int | None:
        nonlocal looked_at
        looked_at += end - at
        return search(text, at, end)

    monkeypatch.setattr(recovery, "end_of_bracketed", counting)
    one = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2,"args":{"k" 1}}'
    text = "[" + ",\n".join([one] * 3000) + ',{"ph":"X","name":"last","pid":1,"tid":1,"ts":1,"dur":2}]'
    run, _ = taken(text, tmp_path)
    assert run.accounts["X events"].rows == 1
    assert looked_at < 3100 * (64 << 10)
