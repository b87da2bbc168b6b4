"""Several runs in one Perfetto trace: every row of each, on one clock, in processes of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Command
from stores import query

import traceconv
from traceconv.base.diagnostics import Code
from traceconv.pipeline.ingest import ingest

MakeStore = Callable[..., Path]
DAY_NS = 86_400 * 10**9
RUN, OTHER, UNKNOWN = 1, 2, 3


@pytest.fixture
def store(make_store: MakeStore) -> Path:
    """Two ranks with equal IDs, tracks and names, whose times count from different moments, and a run without one."""
    places = ((RUN, 0, DAY_NS, 0), (OTHER, 1, 500, DAY_NS), (UNKNOWN, None, 7, None))
    rows: dict[str, list[dict[str, object]]] = {name: [] for name in ("run", "process", "track", "api", "task", "flow")}
    for run_id, rank, start, offset in places:
        of = {"run_id": run_id}
        rows["run"].append(
            {
                **of,
                "label": f"r{run_id}",
                "rank": rank,
                "start_ns": start,
                "epoch_offset_ns": offset,
                "epoch_known": not offset,
            }
        )
        rows["process"].append({**of, "process_id": 1, "pid_text": "42", "name": "python"})
        thread = {"track_id": 1, "kind": "thread", "process_id": 1, "device_id": None, "tid_text": "42", "name": "main"}
        rows["track"] += [{**of, **thread}, {**of, "track_id": 2, "kind": "stream", "device_id": 0, "stream_id": 7}]
        call = {"id": 1, "track_id": 1, "name": f"launch {run_id}", "start_ns": start, "dur_ns": 10, "depth": 0}
        rows["api"].append({**of, **call})
        task = {"id": 2, "track_id": 2, "device_id": 0, "name": f"kernel {run_id}", "dur_ns": 40 + run_id, "depth": 0}
        rows["task"].append({**of, **task, "start_ns": start + 20, "kind": "compute"})
        rows["flow"].append({**of, "flow_id": 1, "src_id": 1, "dst_id": 2, "src_ns": start, "dst_ns": start + 20})
    return make_store(**rows)


SLICES = (
    "SELECT p.name, r.name, start_ns, dur_ns FROM range AS r JOIN track AS t USING (run_id, track_id) "
    "JOIN process AS p USING (run_id, process_id) ORDER BY start_ns, r.name"
)
ARROWS = (
    "SELECT s.name, d.name FROM flow JOIN range AS s ON s.id = src_id JOIN range AS d ON d.id = dst_id ORDER BY ALL"
)


def test_ranks_are_on_one_clock_in_processes_of_their_own(store: Path, tmp_path: Path) -> None:
    with traceconv.open_store(db=store) as opened:
        written = opened.export_perfetto(tmp_path / "ranks.pftrace", run="rank=0,rank=1")
    assert written.rows == {"range": 0, "api": 2, "task": 2, "step": 0, "marker": 0, "flow": 2, "counter": 0}
    back = tmp_path / "back.duckdb"
    assert [entry.code for entry in ingest([tmp_path / "ranks.pftrace"], back)[0].log] == [Code.FOR_VIEWERS]
    assert query(back, SLICES) == [
        ("rank 0 · Runtime API: python (42)", "launch 1", DAY_NS, 10),
        ("rank 0 · Device 0", "kernel 1", DAY_NS + 20, 41),
        ("rank 1 · Runtime API: python (42)", "launch 2", DAY_NS + 500, 10),
        ("rank 1 · Device 0", "kernel 2", DAY_NS + 520, 42),
    ]
    assert query(back, ARROWS) == [("launch 1", "kernel 1"), ("launch 2", "kernel 2")]


def test_a_run_of_unknown_origin_begins_with_the_others(store: Path, tmp_path: Path, command: Command) -> None:
    shown = command("export", "perfetto", "--db", store, "--run", "all", "-o", tmp_path / "all.pftrace", "--no-args")
    assert "the origin of the times of run 3 (r3) is unknown; they start with the first run" in shown.err
    back = tmp_path / "back.duckdb"
    ingest([tmp_path / "all.pftrace"], back)
    assert [row[:3] for row in query(back, SLICES) if row[1].endswith("3")] == [
        ("r3 · Runtime API: python (42)", "launch 3", DAY_NS),
        ("r3 · Device 0", "kernel 3", DAY_NS + 20),
    ]


def test_runs_without_start_times_are_left_out(make_store: MakeStore, tmp_path: Path, command: Command) -> None:
    track = {"track_id": 1, "kind": "stream", "device_id": 0, "stream_id": 7}
    task = {"track_id": 1, "device_id": 0, "name": "kernel", "dur_ns": 40, "depth": 0}
    store = make_store(
        run=[{"run_id": run_id, "label": f"r{run_id}", "start_ns": 5} for run_id in (RUN, OTHER, UNKNOWN)],
        track=[{"run_id": run_id, **track} for run_id in (RUN, OTHER, UNKNOWN)],
        task=[
            {"run_id": run_id, "id": run_id, "start_ns": start, **task}
            for run_id, start in ((RUN, 5), (OTHER, None), (UNKNOWN, 9))
        ],
    )
    shown = command("export", "perfetto", "--db", store, "--run", "all", "-o", tmp_path / "all.pftrace")
    assert "run 2 has no timeline: its tasks have no start times" in shown.err
    ingest([tmp_path / "all.pftrace"], tmp_path / "back.duckdb")
    assert query(tmp_path / "back.duckdb", "SELECT count(*) FROM range") == [(2,)]
    shown = command("export", "perfetto", "--db", store, "--run", "2", "-o", tmp_path / "one.pftrace", code=1)
    assert "run 2 has no timeline to export" in shown.err
