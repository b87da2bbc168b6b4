"""Random programs of several sessions under a profile that pauses: the store agrees with the sums of the log."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from recount import npu_log
from recount.stored import tallies
from recount.tally import differences
from references import dangling

import traceconv
from traceconv.pipeline.ingest import ingest


@pytest.mark.parametrize("seed", range(3))
def test_sessions_that_open_and_close_while_a_profile_pauses(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    runs, is_paused = 0, False
    with ExitStack() as stack:
        sessions = [stack.enter_context(traceconv.Session("mini_resnet", compute=False)) for _ in range(2)]
        inputs = sessions[0].random_inputs()
        profiler = stack.enter_context(traceconv.profile(tmp_path / "out"))
        for _ in range(25):
            what = choose.choice(["pause", "resume", "short", "run", "run", "run"])
            if what == "pause":
                profiler.pause()
            elif what == "resume":
                profiler.resume()
            elif what == "short":
                with traceconv.Session("mini_resnet", compute=False) as short:
                    short.run(inputs)
            else:
                choose.choice(sessions).run(inputs)
            is_paused = what == "pause" or (is_paused and what != "resume")
            runs += what in ("short", "run") and not is_paused
    [capture] = (tmp_path / "out").iterdir()
    ingest([capture], tmp_path / "t.duckdb")
    assert differences(npu_log.add_up(capture)[0], tallies(tmp_path / "t.duckdb")[1]) == []
    held: dict[tuple[int, int], int] = {}
    for event in npu_log.records(capture)["memory"]:
        block = event["device_id"], event["block_id"]
        if event["event"] == 0:
            assert block not in held
            held[block] = event["size_bytes"]
        else:
            assert held.pop(block) == event["size_bytes"]
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        assert dangling(store.connection) == []
        # Each op of a model runs once in each of its runs, and inside the step of that run.
        [counts] = store.query(
            "SELECT (SELECT count(*) FROM range WHERE kind = 'inference'), (SELECT count(*) FROM step), "
            "(SELECT count(*) FROM task WHERE op_id IS NOT NULL AND kind = 'compute'), "
            "(SELECT count(*) FROM task JOIN step AS s USING (run_id, device_id, step_id) "
            "WHERE task.start_ns < s.start_ns OR task.start_ns + task.dur_ns > s.end_ns), "
            "(SELECT count(*) FROM import_log WHERE severity <> 'info')"
        ).fetchall()
    ops = len(sessions[0].loaded.program.ops)
    assert counts == (runs, runs, runs * ops, 0, 0)
