"""The store compared with the ground truth: times within the stated error, busy time, memory, dependencies."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import ingested
from runtime_reader import Capture
from stores import query

from traceconv.runtime.record import RecordOptions, record
from traceconv.runtime.truth import TRUTH, union

JUMPING = """
[device]
jump_ticks = 400
jump_after_ns = 2_500_000
"""


class Both:
    """A capture's store, and its truth by kind."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = record(RecordOptions(output_dir=folder / "raw", deterministic=True, truth=True, **options)).folder
        self.store = folder / "t.duckdb"
        ingested(self.store, self.folder)
        self.lines = [json.loads(line) for line in (self.folder / TRUTH).read_text(encoding="utf-8").splitlines()]

    def true(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return query(self.store, sql)


@pytest.fixture(scope="module", params=["branches on two devices", "a counter that jumps"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    folder = tmp_path_factory.mktemp("truth")
    if request.param == "a counter that jumps":
        (folder / "jump.toml").write_text(JUMPING)
        return Both(folder, model="mini_transformer", iterations=40, seed=3, device_spec=folder / "jump.toml")
    return Both(folder, model="inception_v1", iterations=4, warmup=1, seed=3, devices=2)


def test_every_time_is_within_the_error_that_the_store_states(both: Both) -> None:
    (row,) = Capture(both.folder)["capture"]
    shift = int(row["epoch_ns"]) - int(row["host_ns"])
    errors = dict(both.query("SELECT device_id, clock_error_ns FROM device"))
    true = {(line["device_id"], line["task_id"]): line for line in both.true("task")}
    rows = both.query("SELECT device_id, source_task_id, start_ns, dur_ns, submit_ns FROM task")
    assert len(rows) == len(true)
    worst = dict.fromkeys(errors, 0)
    for device_id, task_id, start_ns, dur_ns, submit_ns in rows:
        line = true[device_id, task_id]
        off = [start_ns - shift - line["start_ns"], start_ns + dur_ns - shift - line["end_ns"]]
        worst[device_id] = max(worst[device_id], *map(abs, off))
        # The call begins before the doorbell rings.
        assert submit_ns - shift <= line["submit_ns"] < line["start_ns"]
    assert all(worst[device_id] <= error for device_id, error in errors.items())
    jumps = {line["device_id"] for line in both.true("device") if line["jump_ticks"]}
    assert all(error > 4_000 for device_id, error in errors.items() if device_id in jumps)
    assert all(error < 6_000 for device_id, error in errors.items() if device_id not in jumps)


def test_launch_delays_below_the_error_are_not_certain(both: Both) -> None:
    rows = both.query("SELECT device_id, delay_ns, clock_error_ns, certain FROM launch_delay")
    assert len(rows) == len(both.true("task"))
    assert all(certain == (delay_ns > error_ns) for _, delay_ns, error_ns, certain in rows)
    jumps = {line["device_id"] for line in both.true("device") if line["jump_ticks"]}
    assert {device_id for device_id, _, _, certain in rows if not certain} == jumps


def test_busy_time_by_sql_is_the_true_one(both: Both) -> None:
    """The union of intervals; each of its ends may be off by the error of the clocks, if they jump, else by a tick."""
    sql = """
        WITH t AS (SELECT device_id, {what} AS what, start_ns, start_ns + dur_ns AS end_ns FROM task WHERE {where}),
        m AS (SELECT *, max(end_ns) OVER (PARTITION BY device_id, what ORDER BY start_ns, end_ns
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns FROM t)
        SELECT device_id, what, sum(greatest(0, end_ns - greatest(start_ns, coalesce(before_ns, start_ns)))) FROM m
        GROUP BY ALL"""
    rows = both.query(sql.format(what="task_type", where="true"))
    rows += both.query(sql.format(what="'compute'", where="kind = 'compute'"))
    true = {(line["device_id"], line["what"]): line for line in both.true("busy")}
    assert {(device_id, what) for device_id, what, _ in rows} == set(true)
    errors = dict(both.query("SELECT device_id, clock_error_ns FROM device"))
    jumps = {line["device_id"]: line["jump_ticks"] * 20 for line in both.true("device")}
    for device_id, what, busy_ns in rows:
        line = true[device_id, what]
        # A rate that is wrong by a little, over what was busy; and the rounding of each interval's ends.
        allowed = 2 * 22 * line["intervals"] + line["busy_ns"] // 1_000 + 2 * errors[device_id]
        assert abs(int(busy_ns) - line["busy_ns"]) <= allowed + 2 * jumps[device_id], (device_id, what)


def test_memory_peaks_by_sql_are_the_true_ones(both: Both) -> None:
    sql = """SELECT device_id, kind, max(total) FROM (SELECT device_id, kind, sum(change) OVER (
                 PARTITION BY device_id, kind ORDER BY at_ns, change ROWS UNBOUNDED PRECEDING) AS total FROM (
                 SELECT device_id, kind, alloc_ns AS at_ns, size_bytes AS change FROM memory
                 UNION ALL SELECT device_id, kind, free_ns, -size_bytes FROM memory)) GROUP BY ALL"""
    found = {(device_id, kind): int(peak) for device_id, kind, peak in both.query(sql)}
    named = {"used_bytes": "block", "reserved_bytes": "segment"}
    assert found == {(line["device_id"], named[line["what"]]): line["peak_bytes"] for line in both.true("memory")}


def test_dependencies_and_critical_paths_are_consistent(both: Both) -> None:
    tasks = {(line["device_id"], line["task_id"]): line for line in both.true("task")}
    events = 0
    for line in tasks.values():
        for other in line["after"]:
            before = tasks[line["device_id"], other]
            assert before["end_ns"] <= line["end_ns"]
            if before["stream_id"] == line["stream_id"]:
                assert before["end_ns"] <= line["start_ns"]
            else:
                events += 1
                assert line["task_type"] == "EVENT_WAIT" and before["task_type"] == "EVENT_RECORD"
        took = line["end_ticks"] - line["start_ticks"]
        assert took >= line["alone_ticks"] or line["task_type"] == "EVENT_WAIT"
        assert line["blocked_by"] in ("launch", "stream", "event")
    assert events
    for run in both.true("run"):
        path = [tasks[run["device_id"], task_id] for task_id in run["critical_path"]]
        assert all(a["task_id"] in b["after"] for a, b in itertools.pairwise(path))
        assert 0 < run["critical_path_ticks"] <= run["makespan_ticks"]
        mine = [line for line in tasks.values() if line["execution_id"] in run["execution_ids"]]
        mine = [line for line in mine if line["device_id"] == run["device_id"]]
        assert min(line["start_ns"] for line in mine) == run["start_ns"]
        assert max(line["end_ns"] for line in mine) == run["end_ns"]
        assert run["critical_path_ticks"] >= max(line["alone_ticks"] for line in mine)


def test_steps_and_queues(both: Both) -> None:
    steps = both.query("SELECT step_id, count(*) FROM step GROUP BY ALL")
    assert dict(steps) == dict.fromkeys({run["step_id"] for run in both.true("run")} - {None}, 1)
    for queue in both.true("queue"):
        assert queue["longest"] >= 1 and queue["waited_ns"] > 0


def test_ingest_does_not_read_it(tmp_path: Path) -> None:
    both = Both(tmp_path, model="mini_resnet", iterations=2)
    sql = "SELECT count(*), sum(start_ns), sum(dur_ns), sum(wait_ns) FROM task"
    with_truth = both.query(sql), both.query("FROM import_log")
    (both.folder / TRUTH).write_text("this is nothing that could be read\n")
    again = tmp_path / "again.duckdb"
    (run,) = ingested(again, both.folder)
    assert not run.lossy
    assert (query(again, sql), query(again, "FROM import_log")) == with_truth
    assert query(again, "SELECT count(*) FROM source WHERE path LIKE '%truth%'") == [(0,)]


def test_live_clocks_keep_the_order_of_a_stream(tmp_path: Path) -> None:
    options = RecordOptions("mini_resnet", tmp_path, iterations=2, truth=True)
    lines = map(json.loads, (record(options).folder / TRUTH).read_text(encoding="utf-8").splitlines())
    previous: dict[int, int] = {}
    tasks = sorted((line for line in lines if line["kind"] == "task"), key=lambda line: line["task_id"])
    for task in tasks:
        before = previous.get(task["stream_id"])
        assert before is None or before in task["after"], task
        previous[task["stream_id"]] = task["task_id"]
    assert len(tasks) > len(previous) > 1


def test_union_of_intervals() -> None:
    assert union([(5, 7), (0, 2), (1, 3), (3, 4), (6, 6)]) == [(0, 4), (5, 7)]
