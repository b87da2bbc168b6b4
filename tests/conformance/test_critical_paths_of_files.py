"""Critical paths of all real files: without gaps, along slices and launches, and with replays that are exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_data import shared

from traceconv import open_store
from traceconv.base.errors import InputError
from traceconv.pipeline.ingest import ingest

REAL = shared("real")
pytestmark = pytest.mark.long


def test_paths_of_real_files(tmp_path: Path) -> None:
    ingest([REAL], tmp_path / "trace.duckdb")
    analysed = 0
    with open_store(tmp_path / "trace.duckdb") as store:
        for (run,) in store.query("SELECT run_id FROM run ORDER BY run_id").fetchall():
            try:
                path = store.critical_path(run=run, save=False)
            except InputError:
                assert not store.query(
                    f"FROM task WHERE run_id = {run} AND start_ns IS NOT NULL AND dur_ns > 0"
                ).fetchall()
                continue
            analysed += 1
            slices = {
                id_: (start, start + dur)
                for id_, start, dur in store.query(
                    f"SELECT id, start_ns, dur_ns FROM slice WHERE run_id = {run} AND dur_ns IS NOT NULL"
                ).fetchall()
            }
            launches = f"SELECT id, submit_ns FROM task WHERE run_id = {run} AND api_id IS NOT NULL"
            calls = dict(store.query(launches).fetchall())
            spans = {(step.step_id, step.device_id): (step.start_ns, step.end_ns) for step in path.steps}
            at: dict[tuple[int | None, int | None], int] = {step: start for step, (start, _) in spans.items()}
            for part in path.parts.to_pylist():
                step, start = (part["step_id"], part["device_id"]), part["start_ns"]
                assert start == at[step]
                at[step] = start + part["dur_ns"]
                if part["kind"] == "launch":
                    assert slices[part["slice_id"]][0] == at[step]
                    assert start in (calls[part["slice_id"]], spans[step][0])
                elif part["kind"] not in ("gap", "stream", "event", "host_wait", "thread"):
                    assert slices[part["slice_id"]][0] <= start <= at[step] <= slices[part["slice_id"]][1]
            assert at == {step: end for step, (_, end) in spans.items()}
            answer = store.what_if(run=run, no_launch_cost=True, no_host_waits=True)
            assert all(step.replayed_ns == step.measured_ns for step in answer.steps)
    assert analysed >= 15
