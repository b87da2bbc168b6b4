"""Traces of the CUPTI monitor of PyTorch 2.14, as trace JSON and as .pftrace, have what the JSON says, read plainly."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken_from

from traceconv.analysis.slices import load_slices

#: Made by make_cupti_monitor.py.
JSON, PFTRACE = (Path(__file__).with_name(f"cupti_monitor.{form}") for form in ("json.gz", "pftrace"))
DOCUMENT: dict[str, Any] = json.loads(gzip.decompress(JSON.read_bytes()), parse_float=Decimal)
EVENTS = [event for event in DOCUMENT["traceEvents"] if event["ph"] == "X"]
KINDS = {
    "kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy", "cuda_sync": "sync", "graph_event_node": "sync",
    "graph_host_node": "sync",
}  # fmt: skip
CALLS = {event["args"]["correlation"]: event["name"] for event in EVENTS if event["cat"] == "cuda_runtime"}


def ns(us: Decimal) -> int:
    return round(us * 1000)


@pytest.fixture(params=[JSON, PFTRACE], ids=["json", "pftrace"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> duckdb.DuckDBPyConnection:
    run, store = taken_from(request.param, tmp_path)
    assert not run.lossy
    return store


def is_perfetto(store: duckdb.DuckDBPyConnection) -> bool:
    return store.execute("SELECT source_format FROM run").fetchall() == [("perfetto_proto",)]


def starts(store: duckdb.DuckDBPyConnection) -> str:
    """Starts since the base time of the JSON, as SQL."""
    return f"t.start_ns - {DOCUMENT['baseTimeNanoseconds'] if is_perfetto(store) else 0}"


def test_tasks_and_their_launches(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute(
        f"SELECT t.kind, replace(t.name, ': my_callback', ''), t.device_id, t.stream_id, {starts(store)}, t.dur_ns, "
        "t.size_bytes, a.name, t.submit_ns = a.start_ns FROM task AS t LEFT JOIN api AS a ON a.id = t.api_id "
        "ORDER BY ALL"
    ).fetchall()
    expected = [
        (
            KINDS[event["cat"]], event["name"].removesuffix(": my_callback"), args["device"], args["stream"],
            ns(event["ts"]), ns(event["dur"]), args.get("bytes"), CALLS[args["correlation"]], True,
        )
        for event in EVENTS
        if event["cat"] in KINDS and (args := event["args"])
    ]  # fmt: skip
    assert len(rows) == 65
    assert rows == sorted(expected, key=lambda row: (*row[:6], row[6] or -1))


def test_calls_and_steps(store: duckdb.DuckDBPyConnection) -> None:
    for table, cats in (("api", ("cuda_runtime",)), ("range", ("cpu_op", "user_annotation"))):
        rows = store.execute(
            f'SELECT t.name, {starts(store)}, t.dur_ns FROM "{table}" AS t WHERE category IN {(*cats, "")} ORDER BY ALL'
        ).fetchall()
        assert rows == sorted((one["name"], ns(one["ts"]), ns(one["dur"])) for one in EVENTS if one["cat"] in cats)
    assert store.execute("SELECT count(*), count(end_ns) FROM step").fetchall() == [(5, 5)]


def test_calls_launch_the_roots_of_graphs_on_which_the_other_nodes_wait(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute(
        "SELECT f.kind, s.name, regexp_replace(d.name, ':.*', ''), count(*) FROM flow AS f "
        "JOIN slice AS s ON s.id = f.src_id JOIN slice AS d ON d.id = f.dst_id "
        "WHERE NOT contains(d.name, '<') GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    assert rows == [
        ("launch", "cudaGraphLaunch", "graph_a", 5),
        ("launch", "cudaMemcpyAsync", "Memcpy", 5),
        ("launch", "cudaMemsetAsync", "Memset", 5),
        ("other", "graph_a", "EventRecord", 5),
        ("other", "graph_a", "graph_b", 5),
        ("other", "graph_b", "graph_c", 5),
        ("other", "graph_c", "HostNode", 5),
    ]


def test_waits_of_the_host_are_no_work_on_a_critical_path(store: duckdb.DuckDBPyConnection) -> None:
    [found] = load_slices(store, 1, store.execute("SELECT start_ns, end_ns FROM run").fetchall())
    assert (len(found.tasks), len(found.records)) == (55, 10)


def test_nothing_seems_to_be_lost(store: duckdb.DuckDBPyConnection) -> None:
    found = store.execute("SELECT finding FROM trust WHERE finding <> 'unmatched_replays'").fetchall()
    assert found == []


def test_samples_of_counters(store: duckdb.DuckDBPyConnection) -> None:
    rows = store.execute(
        "SELECT k.name, c.value FROM counter AS c JOIN track AS k USING (track_id) ORDER BY c.ts_ns"
    ).fetchall()
    # Perfetto's samples are of the time before them.
    assert rows == [("SM Active", 10.0 * number) for number in range(1 if is_perfetto(store) else 0, 10)]
