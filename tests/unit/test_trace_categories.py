"""The category from the source is a column of tasks, API calls and ranges, unchanged, and exports show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import taken
from round_trip import differences
from stores import query

from traceconv.export.chrome import export_chrome
from traceconv.export.perfetto import export_perfetto
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store

HOSTILE = 'a,b;"c"\\ é😀\t'
#: Category, args, and the table of such an event in a PyTorch trace.
EVENTS: list[tuple[str | None, dict[str, Any], str]] = [
    ("kernel", {"device": 0, "stream": 7}, "task"),
    ("gpu_memcpy", {"device": 0, "stream": 7}, "task"),
    ("cuda_runtime", {"correlation": 5}, "api"),
    ("cpu_op", {}, "range"),
    (HOSTILE, {}, "range"),
    ("", {}, "range"),
    (None, {}, "range"),
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    events = [
        {"ph": "X", "name": str(at), "pid": 1, "tid": at, "ts": at * 10, "dur": 5, "args": args}
        | ({} if category is None else {"cat": category})
        for at, (category, args, _) in enumerate(EVENTS)
    ]
    return taken({"deviceProperties": [], "traceEvents": events}, tmp_path)[1]


def test_the_category_is_a_column(store: Path) -> None:
    wanted = [(table, category) for category, _, table in EVENTS]
    assert query(store, "SELECT table_name, category FROM slice ORDER BY start_ns") == wanted
    assert query(store, "SELECT category FROM perfetto.slice ORDER BY ts") == [(category,) for _, category in wanted]


def test_a_chrome_trace_shows_and_restores_the_category(store: Path) -> None:
    output = store.with_name("out.json")
    with open_store(store) as connection:
        export_chrome(connection, 1, output)
    events = [event for event in json.loads(output.read_bytes())["traceEvents"] if event["ph"] == "X"]
    assert {event["name"]: event.get("cat") for event in events} == {
        str(at): category for at, (category, *_) in enumerate(EVENTS)
    }
    ingest([output], store.with_name("back.duckdb"))
    assert differences(store, store.with_name("back.duckdb")) == []


def test_a_perfetto_trace_shows_the_category(store: Path) -> None:
    output = store.with_name("out.pftrace")
    with open_store(store) as connection:
        export_perfetto(connection, 1, output)
    ingest([output], store.with_name("back.duckdb"))
    shown = query(store.with_name("back.duckdb"), "SELECT name, category FROM slice")
    assert dict(shown) == {str(at): category for at, (category, *_) in enumerate(EVENTS)}
