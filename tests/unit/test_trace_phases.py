"""Events of every phase, including metadata: which are slices for Perfetto, and which have timestamps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest_checks import taken
from stores import query


def stored(tmp_path: Path, *events: dict[str, Any]) -> Path:
    return taken([{"pid": 1, "tid": 1, **event} for event in events], tmp_path)[1]


def test_markers_from_other_events_than_instants_record_their_phase(tmp_path: Path) -> None:
    phases = "NDOPvVcarmul(),=ATpsSFtf"
    odd = [{"ph": ph, "ts": 5, "name": f"odd {ph}", "id": f"0x{100 + n}", "cat": "c", "args": {"a": n}}
           for n, ph in enumerate(phases)]  # fmt: skip
    store = stored(tmp_path, *odd, {"ph": "i", "ts": 7, "name": "shown"}, {"ph": "n", "ts": 8, "name": "too", "id": 2})
    assert query(store, "SELECT name FROM perfetto.slice ORDER BY ts") == [("shown",), ("too",)]
    sql = "SELECT name, args FROM marker UNION ALL SELECT name, args FROM range"
    found = {name: json.loads(args) for name, args in query(store, sql) if name.startswith("odd")}
    assert {name: args["trace_event"]["ph"] for name, args in found.items()} == {
        f"odd {ph}": ph
        for ph in phases
        if ph != "F"  # no begin, not stored
    }
    assert {name: args["a"] for name, args in found.items()} == {
        f"odd {ph}": n for n, ph in enumerate(phases) if ph != "F"
    }


def test_legacy_async_events_are_ranges(tmp_path: Path) -> None:
    old = {"cat": "c", "id": 1, "name": "old"}
    store = stored(tmp_path, {"ph": "S", "ts": 5, **old}, {"ph": "F", "ts": 9, "args": {"end": 1}, **old})
    [(dur, args)] = query(store, "SELECT dur_ns, args FROM range")
    assert (dur, json.loads(args)) == (4000, {"end": 1, "trace_event": {"ph": "S"}})
    assert query(store, "FROM perfetto.slice") == []


def test_metadata_has_no_timestamp(tmp_path: Path) -> None:
    store = stored(
        tmp_path,
        {"ph": "M", "ts": 0, "name": "process_uptime_seconds", "args": {"uptime": 3}},
        {"ph": "M", "name": "no_ts", "cat": "mine"},
        {"ph": "X", "ts": 500, "dur": 5, "name": "a"},
        {"ph": "P", "ts": 510, "name": "sample"},
    )
    markers = query(store, "SELECT name, ts_ns, category, args FROM marker ORDER BY id")
    assert [row[:3] for row in markers] == [
        ("process_uptime_seconds", None, "__metadata"),
        ("no_ts", None, "mine"),
        ("sample", 510_000, None),
    ]
    assert json.loads(markers[0][3]) == {"uptime": 3, "trace_event": {"ph": "M", "ts": 0}}
    assert query(store, "SELECT start_ns, end_ns FROM run") == [(500_000, 510_000)]
    assert query(store, "SELECT name FROM perfetto.slice") == [("a",)]
