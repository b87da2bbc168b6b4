"""The report run-summary: rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from stores import query as ask

from traceconv.base.errors import UsageError
from traceconv.reports.question import find_report

MakeStore = Callable[..., Path]


def test_lines_of_a_run(make_store: MakeStore) -> None:
    task = {"track_id": 1, "kind": "compute"}
    store = make_store(
        run=[{"run_id": 1, "label": "train", "start_ns": 1000, "end_ns": 2000, "complete": False}],
        task=[
            {**task, "id": 1, "name": "volta_sgemm_64x64_nt", "start_ns": 1000, "dur_ns": 100},
            {**task, "id": 2, "name": "ncclKernel_AllReduce", "start_ns": 1050, "dur_ns": 100, "kind": "collective"},
            {**task, "id": 3, "name": "my_kernel", "start_ns": 1300, "dur_ns": 50},
            {**task, "id": 4, "name": "Event Sync", "start_ns": 1300, "dur_ns": 600, "kind": "sync"},
        ],
        step=[
            {"step_id": n, "start_ns": 1000 + 100 * n, "end_ns": 1000 + 100 * n + dur}
            for n, dur in ((9, 102), (1, 99), (2, 100), (3, 101), (4, 102))
        ],
        range=[
            {"id": 11, "name": "aten::mm", "kind": "host_op", "start_ns": 1000, "dur_ns": 40, "self_ns": 30},
            {"id": 12, "name": "aten::add", "kind": "host_op", "start_ns": 1100, "dur_ns": 10, "self_ns": 10},
        ],
        memory=[{"block_id": 1, "kind": "block", "size_bytes": 512, "alloc_ns": 1500, "free_ns": 1600}],
        import_log=[
            {"severity": "data_loss", "code": "truncated", "event_count": 3, "byte_count": 70},
            {"severity": "data_loss", "code": "truncated", "event_count": 1, "byte_count": 5},
            {"severity": "info", "code": "fine_time", "event_count": 9},
        ],
    )
    assert ask(store, "SELECT section, item, time_ns, percent, count, size_bytes, note FROM run_summary") == [
        ("run", "span", 1000, None, None, None, "train"),
        ("run", "devices", None, None, 1, None, None),
        ("run", "tasks", None, None, 3, None, None),
        ("steps", "mean", 101, None, 5, None, None),  # 100.8
        ("steps", "p50", 101, None, None, None, None),
        ("steps", "p95", 102, None, None, None, None),
        ("steps", "longest: step 4", 102, None, None, None, None),
        ("device 0", "compute", 150, 100 * 150 / 350, None, None, None),
        ("device 0", "exposed communication", 50, 100 * 50 / 350, None, None, None),
        ("device 0", "exposed copies", 0, 0.0, None, None, None),
        ("device 0", "idle", 150, 100 * 150 / 350, None, None, None),
        ("category", "communication", 100, 40.0, 1, None, None),
        ("category", "gemm", 100, 40.0, 1, None, None),
        ("category", "unknown", 50, 20.0, 1, None, None),
        ("kernel", "ncclKernel_AllReduce", 100, 40.0, 1, None, "communication"),
        ("kernel", "volta_sgemm_64x64_nt", 100, 40.0, 1, None, "gemm"),
        ("kernel", "my_kernel", 50, 20.0, 1, None, "unknown"),
        ("host op", "aten::mm", 30, 75.0, 1, None, None),
        ("host op", "aten::add", 10, 25.0, 1, None, None),
        ("memory", "peak used on device 0", 500, None, None, 512, None),
        ("losses", "truncated", None, None, 4, 75, "data_loss"),
        ("losses", "incomplete", None, None, None, None, "the recording did not finish, or was not read completely"),
    ]
    assert ask(store, "SELECT count(*), max(position) FROM run_summary(run := 1)") == [(22, 22)]
    assert ask(store, "FROM run_summary(run := 2)") == []


def test_a_run_without_anything(make_store: MakeStore) -> None:
    store = make_store(run=[{"run_id": 1, "label": "empty"}])
    assert ask(store, "SELECT section, item, time_ns, count FROM run_summary") == [
        ("run", "span", None, None),
        ("losses", "none", None, 0),
    ]


def test_ranges_of_a_run_without_tasks(make_store: MakeStore) -> None:
    def row(run: int, id: int, name: str | None, kind: str, dur_ns: int, self_ns: int) -> dict[str, object]:
        return {
            "run_id": run,
            "id": id,
            "name": name,
            "kind": kind,
            "start_ns": 0,
            "dur_ns": dur_ns,
            "self_ns": self_ns,
        }

    store = make_store(
        run=[{"run_id": 1, "label": "clang"}, {"run_id": 2, "label": "torch"}],
        range=[
            row(1, 1, "Frontend", "annotation", 100, 30),
            row(1, 2, "Source", "annotation", 70, 40),
            row(1, 3, "Source", "frame", 30, 20),
            row(1, 4, None, "annotation", 10, 10),
            row(1, 7, "Total Frontend", "summary", 100, 100),
            row(2, 5, "aten::mm", "host_op", 40, 40),
            row(2, 6, "forward", "annotation", 90, 50),
        ],
    )
    rows = ask(
        store, "SELECT run_id, section, item, time_ns, percent, count FROM run_summary WHERE time_ns IS NOT NULL"
    )
    assert rows == [
        (1, "range", "Source", 60, 60.0, 2),
        (1, "range", "Frontend", 30, 30.0, 1),
        (1, "range", "-", 10, 10.0, 1),
        (2, "range", "forward", 50, 100 * 50 / 90, 1),
        (2, "range", "aten::mm", 40, 100 * 40 / 90, 1),
    ]


def test_its_short_name() -> None:
    assert find_report("summary").name == "run_summary"
    with pytest.raises(UsageError, match="Did you mean 'summary'"):
        find_report("sumary")


def test_phases_of_a_training(make_store: MakeStore) -> None:
    names = {1: ("aten::mm", "host_op"), 2: ("MmBackward0", "host_op"), 3: ("Optimizer.step#SGD.step", "annotation")}
    store = make_store(
        track=[{"track_id": 1, "kind": "thread", "device_id": None}, {"track_id": 2, "kind": "stream", "device_id": 0}],
        range=[
            {"id": id_, "track_id": 1, "name": name, "kind": kind, "start_ns": 100 * id_, "dur_ns": 50, "self_ns": 50}
            for id_, (name, kind) in names.items()
        ],
        api=[
            {"id": 10 + id_, "track_id": 1, "parent_id": id_, "start_ns": 100 * id_ + 1, "dur_ns": 1,
             "correlation_id": id_}
            for id_ in names
        ],
        task=[
            {"id": 20 + id_, "track_id": 2, "kind": "compute", "correlation_id": id_, "submit_ns": submit_ns,
             "start_ns": 1000 * id_, "dur_ns": 10 * id_}
            for id_, submit_ns in ((1, 101), (2, 201), (3, 301), (4, None))
        ],
    )  # fmt: skip
    assert ask(store, "SELECT item, time_ns, percent, count FROM run_summary WHERE section = 'phase'") == [
        ("forward", 10, 10.0, 1),
        ("backward", 20, 20.0, 1),
        ("optimizer", 30, 30.0, 1),
    ]
