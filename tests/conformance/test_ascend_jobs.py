"""Jobs, the raw data of Ascend NPUs of 2020: a real one against MindSpore's own table, and others written here."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path
from shutil import copyfile

import pytest
from ascend_job_builder import log_record, marks, write_job
from ingest_checks import taken_from
from shared_data import SHARED

from traceconv.base.diagnostics import Severity
from traceconv.base.errors import InputError
from traceconv.formats.registry import choose_reader
from traceconv.pipeline.discover import find_sources
from traceconv.pipeline.ingest import ingest
from traceconv.provenance.find import why
from traceconv.store.database import open_store

REAL = SHARED / "ascend_raw"
TRAINING = "training_trace.46.dev.profiler_default_tag.0.slice_0"
TICK_NS = 10
STEPS = (
    "SELECT step_id, iteration, start_ns, fp_start_ns, bp_end_ns, end_ns, iteration_time_ns, data_aug_bound_ns, "
    "fp_to_bp_ns, refresh_ns FROM step_trace ORDER BY step_id"
)
REDUCES = "SELECT step_id, name, start_ns, dur_ns FROM task WHERE task_type = 'REDUCE' ORDER BY step_id, name"


@pytest.mark.skipif(not REAL.exists(), reason="needs the shared conformance files")
def test_the_steps_of_a_real_job_are_those_of_the_vendors_table(tmp_path: Path) -> None:
    copyfile(REAL / TRAINING, tmp_path / TRAINING)
    with (REAL / "step_trace_raw_0_detail_time.csv").open(newline="") as file:
        wanted = [{name: int(value) for name, value in row.items() if value != "-"} for row in csv.DictReader(file)]
    means = wanted.pop()
    run, store = taken_from(tmp_path, tmp_path)
    assert not run.lossy, list(run.log)
    found = []
    reduces = {step: list(rows) for step, rows in groupby(store.execute(REDUCES).fetchall(), lambda row: row[0])}
    for step, iteration, *times in store.execute(STEPS).fetchall():
        start, fp_start, bp_end, end, _, interval, fp_to_bp, refresh = (
            None if one is None else one // TICK_NS for one in times
        )
        row = {
            "step_num": iteration, "start_point": start, "end_point": end, "total": end - start, "fp_point": fp_start,
            "bp_point": bp_end, "iteration_interval": interval or 0, "fp_and_bp": fp_to_bp, "tail": refresh,
        }  # fmt: skip
        for _, name, at_ns, dur_ns in reduces[step]:
            column = "stream_{1}_parallel_{2}".format(*name.split("_"))
            row[f"{column}_start_point"], row[column] = at_ns // TICK_NS, dur_ns // TICK_NS
            row[f"{column}_end_point"] = (at_ns + dur_ns) // TICK_NS
        found.append(row)
    assert found == wanted
    assert len(found) == 20
    # The vendor's means are of all steps but the first, rounded half to even.
    assert {name: round(sum(row[name] for row in found[1:]) / 19) for name in found[0] if name != "step_num"} == {
        name: value for name, value in means.items() if name != "step_num"
    }


def test_tasks_have_the_names_that_the_host_gave_them(tmp_path: Path) -> None:
    # Task 2 has two names, and task 7 none. The end of task 7 is not recorded.
    starts_and_ends = [(1, 0, 100, 150), (2, 0, 160, 161), (1, 1, 200, 230)]
    points = [(is_end, kind, task, times[is_end]) for task, kind, *times in starts_and_ends for is_end in (False, True)]
    points.append((False, 4, 7, 240))
    log = b"".join(
        log_record(is_end, kind, task, ticks, 5, number) for number, (is_end, kind, task, ticks) in enumerate(points)
    )
    tasks = "Default/net work/conv1-Conv2d/Conv2D-op1 32 1 5\na-op2 1 2 5\nb-op3 1 2 5\nother-op4 8 1 6\n"
    run, store = taken_from(write_job(tmp_path, log, tasks=tasks), tmp_path)
    assert not run.lossy, list(run.log)
    assert (run.label, store.execute("SELECT epoch_known FROM run").fetchall()) == ("JOBAB", [(False,)])
    sql = (
        "SELECT t.name, o.op_type, t.device_id, t.stream_id, t.source_task_id, t.start_ns, t.dur_ns, t.block_count, "
        "t.kind FROM task t LEFT JOIN op o USING (op_id) ORDER BY t.start_ns"
    )
    name = "Default/net work/conv1-Conv2d/Conv2D-op1"
    assert store.execute(sql).fetchall() == [
        (name, "Conv2D", 3, 5, 1, 1000, 500, 32, "compute"),
        ("AI_CORE", "AI_CORE", 3, 5, 2, 1600, 10, None, "compute"),
        (name, "Conv2D", 3, 5, 1, 2000, 300, 32, "compute"),
        ("EVENT_RECORD_SQE", None, 3, 5, 7, 2400, None, None, "sync"),
    ]


def test_steps_and_reduces_that_do_not_end(tmp_path: Path) -> None:
    """A step begins where the one before ends, the first with its forward pass. Marks of jobs are none of steps."""
    first = [(1, 3, 10), (3, 8, 20), (4, 8, 25), (5, 9, 30), (2, 3, 40), (255, 3, 50)]
    others = [(1, 3, 60), (2, 3, 70), (255, 3, 80), (3, 8, 85)]
    training = marks([(10010, 0, 5), (0, 0, 6), *first, *others])
    run, store = taken_from(write_job(tmp_path, training=training), tmp_path)
    assert not run.lossy, list(run.log)
    assert [(entry.code.text, entry.event_count) for entry in run.log if entry.code.text == "unfinished"] == [
        ("unfinished", 3)
    ]
    assert [row[1:6] for row in store.execute(STEPS).fetchall()] == [
        (1, 100, 100, 400, 500), (2, 500, 600, 700, 800),
    ]  # fmt: skip
    last = "SELECT start_ns, dur_ns FROM range WHERE name = 'Iteration 3'"
    assert store.execute(last).fetchall() == [(800, None)]
    assert store.execute(REDUCES).fetchall() == [
        (1, "Reduce_8_0", 200, 50), (1, "Reduce_9_0", 300, None), (None, "Reduce_8_0", 850, None),
    ]  # fmt: skip


def test_a_damaged_record_and_a_cut_one_are_counted(tmp_path: Path) -> None:
    log = [log_record(number % 2 == 1, 0, number // 2, 100 + number, 5, number) for number in range(8)]
    log[3] = b"\xff" * 64
    run, store = taken_from(write_job(tmp_path, b"".join(log)[:-5]), tmp_path)
    assert run.lossy
    assert store.execute("SELECT source_task_id, dur_ns FROM task ORDER BY start_ns").fetchall() == [
        (0, 10), (1, None), (2, 10), (3, None),
    ]  # fmt: skip
    assert {(entry.code.text, entry.event_count) for entry in run.log if entry.severity is not Severity.INFO} == {
        ("damaged_block", 1), ("truncated", 1),
    }  # fmt: skip


def test_marks_and_points_without_a_valid_time_are_counted(tmp_path: Path) -> None:
    never = 2**64 - 1
    log = log_record(False, 0, 1, 100, 5) + log_record(True, 0, 1, never, 5, 1)
    training = marks([(1, 3, 10), (2, 3, never), (3, 8, never), (255, 3, 50)])
    run, store = taken_from(write_job(tmp_path, log, training), tmp_path)
    lost = {(entry.message, entry.event_count) for entry in run.log if entry.code.text == "bad_time"}
    assert lost == {
        ("starts and ends of tasks whose time is out of range", 1),
        ("marks of steps of jobs whose time is out of range", 2),
    }
    assert [row[2:6] for row in store.execute(STEPS).fetchall()] == [(100, 100, None, 500)]


def test_a_job_is_found_with_what_else_is_in_its_folder(tmp_path: Path) -> None:
    job = write_job(tmp_path, log_record(False, 0, 1, 100, 5) + log_record(True, 0, 1, 110, 5, 1))
    (job / "trace.json").write_text('[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]')
    found = find_sources([tmp_path], None)
    assert [(trace.path, trace.reader) for trace in found.traces] == [
        (job, "ascend_raw"),
        (job / "trace.json", "chrome_json"),
    ]
    assert (found.unusable, found.others) == ([], [])
    part = job / "data" / "hwts.log.data.45.dev.profiler_default_tag.3.slice_0"
    with pytest.raises(InputError, match="ingest the folder around it, PROF_… or JOB…"):
        choose_reader(part)
    ingest([tmp_path], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as connection:
        assert connection.execute("SELECT source_format FROM run ORDER BY run_id").fetchall() == [
            ("ascend_raw",), ("chrome_json",),
        ]  # fmt: skip
        [(task,)] = connection.execute("SELECT id FROM task").fetchall()
        evidence = why(connection, tmp_path / "trace.duckdb", "task", str(task), run="1").evidence[0]
        assert evidence.fields["startNs"] == 1000
