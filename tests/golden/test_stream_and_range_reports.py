"""stream_utilisation and range_statistic: a store of a few rows, and the expected rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from traceconv.store.database import open_store

MakeStore = Callable[..., Path]


def ask(store: Path, sql: str) -> list[tuple[object, ...]]:
    with open_store(store) as connection:
        return connection.execute(sql).fetchall()


def task(id_: int, start_ns: int, dur_ns: int | None, submit_ns: int | None, **more: object) -> dict[str, object]:
    place = {"stream_id": 7, "kind": "compute", **more}
    return {"id": id_, "start_ns": start_ns, "dur_ns": dur_ns, "submit_ns": submit_ns, **place}


GAPS = "stream_id, task_count, window_ns, busy_ns, idle_ns, host_wait_ns, start_wait_ns, other_wait_ns"


def test_gaps_are_classified_by_the_launch_of_the_next_task(make_store: MakeStore) -> None:
    store = make_store(
        task=[
            task(1, 0, 100, None),
            task(2, 150, 50, 120),  # launched when the stream was empty: host wait
            task(3, 210, 90, 200),  # launched exactly at the end of the previous one: in time
            task(4, 30_299, 1, 0),  # 29,999 ns later
            task(5, 60_300, 1, 0),  # 30,000 ns later: too long for a start wait
            task(6, 60_311, 9, None),  # its launch is unknown
        ]
    )
    assert ask(store, f"SELECT {GAPS} FROM stream_utilisation") == [
        (7, 6, 60_320, 251, 60_069, 50, 10 + 29_999 + 10, 30_000)
    ]


def test_overlapping_tasks_count_once_and_leave_no_gap(make_store: MakeStore) -> None:
    store = make_store(
        task=[
            task(1, 0, 100, None),
            task(2, 10, 20, None),
            task(3, 50, 60, 45),
            task(4, 115, 5, 105),  # the long one still ran after its launch
            task(5, 0, 40, None, stream_id=8),
            task(6, 130, 10, 125, kind="sync"),  # a wait is not work
        ]
    )
    assert ask(store, f"SELECT {GAPS} FROM stream_utilisation") == [
        (7, 4, 120, 115, 5, 0, 5, 0),
        (8, 1, 40, 40, 0, 0, 0, 0),
    ]


def test_unfinished_tasks_are_counted_separately_and_unknown_streams_are_kept(make_store: MakeStore) -> None:
    store = make_store(
        task=[
            task(1, 0, 10, None, stream_id=None),
            task(2, 20, None, None, stream_id=None),
            task(3, 5, None, None, stream_id=9),
            task(1, 0, 10, None, run_id=2, device_id=3, step_id=4),
        ]
    )
    columns = "run_id, device_id, stream_id, task_count, unfinished_count, start_ns, end_ns, busy_ns, idle_ns"
    assert ask(store, f"SELECT {columns} FROM stream_utilisation") == [
        (1, 0, 9, 0, 1, None, None, None, None),
        (1, 0, None, 1, 1, 0, 10, 10, 0),
        (2, 3, 7, 1, 0, 0, 10, 10, 0),
    ]
    assert ask(store, "SELECT run_id FROM stream_utilisation(device := 3)") == [(2,)]
    assert ask(store, "SELECT run_id FROM stream_utilisation(run := 2, step := 4)") == [(2,)]


def span(id_: int, name: str, dur_ns: int | None, self_ns: int | None, **more: object) -> dict[str, object]:
    place = {"kind": "host_op", "category": "cpu_op", **more}
    return {"id": id_, "name": name, "start_ns": id_, "dur_ns": dur_ns, "self_ns": self_ns, **place}


def test_ranges_of_one_name_are_summed_with_and_without_children(make_store: MakeStore) -> None:
    store = make_store(
        range=[
            span(1, "aten::linear", 100, 30),
            span(2, "aten::addmm", 70, 70),
            span(3, "aten::linear", 51, 51),
            span(4, "aten::linear", None, None),
            span(5, "aten::linear", 9, 9, category="user_annotation", kind="annotation", step_id=1),
            span(6, "late", None, None, run_id=2),
        ]
    )
    assert ask(store, "FROM range_statistic") == [
        # run, kind, category, name, count, unfinished, total, self, min, avg, max
        (1, "host_op", "cpu_op", "aten::linear", 2, 1, 151, 81, 51, Decimal("75.500"), 100),
        (1, "host_op", "cpu_op", "aten::addmm", 1, 0, 70, 70, 70, Decimal("70.000"), 70),
        (1, "annotation", "user_annotation", "aten::linear", 1, 0, 9, 9, 9, Decimal("9.000"), 9),
        (2, "host_op", "cpu_op", "late", 0, 1, 0, 0, None, None, None),
    ]
    assert ask(store, "SELECT kind, self_ns FROM range_statistic(step := 1)") == [("annotation", 9)]
    assert ask(store, "SELECT name FROM range_statistic(run := 2)") == [("late",)]
