"""Real traces of many writers: their books are closed, every event is there, no slice contradicts its parent."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from shared_data import shared

from traceconv.pipeline import ingest

FOLDER = shared("real")
#: JSON that is no trace: its events, if it has any, are not in the trace format. test_real_files_covered.py says more.
OTHERS = (
    "communication.json",
    "communication_matrix.json",
    "profiler_info_1.json",
    "profiler_metadata.json",
    "msprof_analyze_cluster_communication.json",
    "dynamic_shape_info_0.json",
    "rocprofv3_908_results.json.gz",  # a reader of its own takes it: test_rocprofv3.py
)
TRACES = sorted(
    str(path.relative_to(FOLDER))
    for path in FOLDER.rglob("*")
    if path.name.endswith((".json", ".json.gz", ".pfw", ".pfw.gz")) and path.name not in OTHERS
)


def events_of(path: Path) -> list[dict[str, Any]] | None:
    """The events, by the JSON parser of Python; None when it can't read the file."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    try:
        found = json.loads(text, parse_float=Decimal)
    except ValueError:
        return None
    events = found["traceEvents"] if isinstance(found, dict) else found
    return events if isinstance(events, list) else None


@pytest.mark.parametrize("name", TRACES)
def test_a_real_trace_is_taken_whole(name: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.duckdb"
    run = ingest([FOLDER / name], path)[0]
    assert all(book.balanced for book in run.accounts.by_record.values())
    events = events_of(FOLDER / name)
    with duckdb.connect(str(path), read_only=True) as store:
        if events is not None:
            assert run.record_count == len(events)
            complete = [event for event in events if event.get("ph") == "X" and "dur" in event]
            total = sum(int((Decimal(str(event["dur"])) * 1000).to_integral_value()) for event in complete)
            found = store.execute("SELECT sum(dur_ns)::BIGINT FROM slice").fetchone()
            if not any(event.get("ph") in ("B", "b", "S") for event in events):
                assert found == (total if complete else None,)
        # A parent encloses its child, is of the same track, and is one level up.
        wrong = store.execute(
            "SELECT count(*) FROM slice AS c JOIN slice AS p ON p.run_id = c.run_id AND p.id = c.parent_id "
            "WHERE p.track_id <> c.track_id OR p.depth <> c.depth - 1 OR p.start_ns > c.start_ns "
            "OR p.start_ns + p.dur_ns < c.start_ns + c.dur_ns"
        ).fetchone()
        assert wrong == (0,)
        assert store.execute("SELECT count(*) FROM slice WHERE parent_id IS NULL AND depth > 0").fetchone() == (0,)
        self_times = store.execute(
            "SELECT count(*) FROM slice AS p JOIN (SELECT run_id, parent_id, sum(dur_ns) AS inside FROM slice "
            "WHERE dur_ns IS NOT NULL GROUP BY ALL) AS c ON c.run_id = p.run_id AND c.parent_id = p.id "
            "WHERE p.self_ns <> p.dur_ns - c.inside"
        ).fetchone()
        assert self_times == (0,)
        # Every id leads back to its bytes.
        assert store.execute(
            "SELECT count(*) FROM slice AS s WHERE NOT EXISTS (SELECT 1 FROM source_block AS b "
            "WHERE s.id >= b.first_id AND s.id < b.first_id + b.event_count)"
        ).fetchone() == (0,)
