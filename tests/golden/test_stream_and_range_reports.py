"""stream_utilisation and range_statistic: a store of a few rows, and the expected rows worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from stores import query as ask

MakeStore = Callable[..., Path]


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
        (7, 6, 60_320, 251, 60_069, 50, 10 + 29_999, 30_000 + 10)
    ]


def test_gaps_before_tasks_with_the_same_times_are_of_the_one_launched_first(make_store: MakeStore) -> None:
    """As in traces in whole µs. 3,000 gaps, more than are read from the tasks if there is no window."""
    launches = (200, 1900)  # before their start; after the end of the previous tasks, and before it
    tasks = [
        task(2 * n + place, 1000 * n, 0, 1000 * n - launches[(n * n + place) % 2])
        for n in range(3001)
        for place in range(2)
    ]
    store = make_store(task=tasks)
    for parameters in ("", "device := 0", "from_ns := 0"):
        found = ask(store, f"SELECT {GAPS} FROM stream_utilisation({parameters})")
        assert found == [(7, 6002, 3_000_000, 0, 3_000_000, 0, 3_000_000, 0)], parameters


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


def call(id_: int, name: str, start_ns: int, dur_ns: int, **more: object) -> dict[str, object]:
    return {"id": id_, "name": name, "start_ns": start_ns, "dur_ns": dur_ns, "track_id": 1, **more}


def test_gaps_of_a_device_and_their_causes(make_store: MakeStore) -> None:
    us = 1000

    def launched(id_: int, start: int, submit: int | None, **more: object) -> dict[str, object]:
        submit_ns = None if submit is None else submit * us
        return task(id_, start * us, us, submit_ns, **{"correlation_id": id_, "name": f"k{id_}", **more})

    store = make_store(
        task=[
            launched(1, 0, None),
            launched(2, 5, 2),  # a gap of 4 µs is not listed
            launched(3, 16, 1, stream_wait_ns=10 * us),  # the gap is its own stream's: it started late
            launched(4, 27, 1, stream_id=8, stream_wait_ns=0),  # the first on its stream waited for the other
            launched(5, 48, 30),  # 2 of 20 µs for the host, the rest for the launch
            launched(6, 149, 140),  # aten::item ran for most of 91 µs
            launched(7, 250, 240),  # the host had waited for the device before
            launched(8, 351, 341, step_id=2),  # a data loader
            launched(9, 452, 443, correlation_id=1),  # no call with this ID
            launched(10, 500, None, step_id=3),
            task(11, 505 * us, 20 * us, None, kind="sync"),  # a wait is not work
            launched(12, 520, 514),
            launched(13, 9, 1, device_id=1),
        ],
        api=[
            *(call(100 + n, "launch", at * us, us, correlation_id=n) for n, at in ((6, 140), (7, 240), (8, 341))),
            call(110, "cudaStreamSynchronize", 100 * us, 51 * us, track_id=2),  # another thread
            call(111, "cudaStreamSynchronize", 144 * us, 7 * us),
        ],
        range=[
            call(200, "forward", 0, 900 * us, kind="annotation"),
            call(201, "aten::item", 60 * us, 70 * us, kind="host_op"),
            call(202, "aten::copy_", 90 * us, 10 * us, kind="host_op"),
            call(203, "enumerate(DataLoader)#__next__", 252 * us, 80 * us, kind="host_op"),
        ],
    )
    columns = "gap_ns // 1000, cause, host_wait_ns // 1000, launch_delay_ns // 1000, host_name, task_name, thread_id"
    assert ask(store, f"SELECT {columns} FROM idle_gaps") == [
        (10, "launch", 0, 15, None, "k3", None),
        (10, "dependency", 0, 26, None, "k4", None),
        (20, "launch", 2, 18, None, "k5", None),
        (100, "host", 91, 9, "aten::item", "k6", 1),
        (100, "synchronisation", 90, 10, "forward", "k7", 1),
        (100, "data_loading", 90, 10, "enumerate(DataLoader)#__next__", "k8", 1),
        (100, "host", 91, 9, None, "k9", None),
        (47, None, None, None, None, "k10", None),
        (19, "host", 13, 6, None, "k12", None),
    ]
    assert ask(store, "SELECT task_name FROM idle_gaps(from_ns := 453000)") == [("k10",), ("k12",)]
    assert ask(store, "SELECT task_name FROM idle_gaps(step := 2)") == [("k8",)]
    assert ask(store, "SELECT task_name FROM idle_gaps(first_step := 2, from_ns := 453000)") == [("k10",)]
    assert ask(store, "SELECT cause, idle_ns FROM idle_causes(last_step := 2)") == [("data_loading", 100 * us)]
    sums = "SELECT cause, gap_count, idle_ns, max_gap_ns, host_wait_ns, launch_delay_ns FROM idle_causes"
    assert ask(store, f"{sums} ORDER BY cause") == [
        ("data_loading", 1, 100 * us, 100 * us, 90 * us, 10 * us),
        ("dependency", 1, 10 * us, 10 * us, 0, 10 * us),
        ("host", 3, 219 * us, 100 * us, 195 * us, 24 * us),
        ("launch", 2, 30 * us, 20 * us, 2 * us, 28 * us),
        ("synchronisation", 1, 100 * us, 100 * us, 90 * us, 10 * us),
        (None, 1, 47 * us, 47 * us, None, None),
    ]


def test_the_longest_of_tasks_that_start_together_ends_a_gap(make_store: MakeStore) -> None:
    """Exports of timelines, and so their IDs, are in this order."""
    ends = [task(number, 50_000, dur, None) for number, dur in ((2, 5), (3, 9), (4, 9))]
    store = make_store(task=[task(1, 0, 10, None), *ends])
    assert ask(store, "SELECT task_id FROM idle_gaps") == [(3,)]


def test_launches_with_the_queue_of_their_stream(make_store: MakeStore) -> None:
    store = make_store(
        device=[{"clock_error_ns": 5}],
        task=[
            task(1, 10, 4, 2, correlation_id=1, name="a"),
            task(2, 23, 9, 6, correlation_id=2, name="b"),  # two tasks of one call, the first to start second
            task(3, 14, 9, 6, correlation_id=2, name="b"),
            task(4, 25, None, 20, correlation_id=3, name="a", stream_id=8, kind="copy"),
            task(5, 26, 1, 20, correlation_id=3, name="wait", kind="sync"),
            task(6, 40, 1, None, name="a"),
            task(7, 30, 9, 10, correlation_id=4, name="b", step_id=2),  # launched when the first one starts
        ],
        api=[
            call(100 + n, "launch", at, dur, correlation_id=n)
            for n, at, dur in ((1, 2, 5), (2, 6, 3), (3, 20, 2), (4, 10, 1))
        ],
    )
    columns = "id, api_id, call_ns, delay_ns, after_call_ns, queue_length, is_short, certain"
    assert ask(store, f"SELECT {columns} FROM launch") == [
        (1, 101, 5, 8, 3, 1, True, True),
        (2, 102, 3, 17, 14, 3, False, True),
        (3, 102, 3, 8, 5, 2, False, True),
        (7, 104, 1, 20, 19, 4, False, True),
        (4, 103, 2, 5, 3, 1, None, False),
    ]
    assert ask(store, "SELECT id, queue_length FROM launch(step := 2)") == [(7, 4)]
    assert ask(store, "SELECT id FROM launch(from_ns := 6, to_ns := 10)") == [(2,), (3,)]
    columns = "name, count, short_count, uncertain_count, total_call_ns, total_ns, total_delay_ns, p50_delay_ns"
    assert ask(store, f"SELECT {columns} FROM launch_statistic") == [
        ("b", 3, 0, 0, 7, 27, 45, 17),
        ("a", 1, 1, 0, 5, 4, 8, 8),
        ("a", 1, 0, 1, 2, None, 5, 5),
    ]
    columns = "stream_id, task_count, avg_length, min_length, p50_length, max_length, time_avg_length, empty_percent"
    assert ask(store, f"SELECT {columns} FROM launch_queue") == [
        # The lengths 1 2 3 4 3 2 1 0 for 4 0 4 0 4 9 7 ns.
        (7, 4, 2.0, 0, 2.0, 4, 1.893, 0.0),
        (8, 1, 0.5, 0, 0.5, 1, 1.0, 0.0),
    ]


def test_late_ranks_and_what_they_are_late_in(make_store: MakeStore) -> None:
    us = 1000
    runs = [
        {"run_id": n, "label": f"r{n}", "rank": rank, "group_label": group, "start_ns": 0}
        for n, rank, group in ((1, 0, "job"), (2, 1, "job"), (3, 2, "job"), (4, None, "job"), (5, 0, "other"))
    ]
    rows: dict[str, list[dict[str, object]]] = {"task": [], "api": [], "range": [], "step": []}
    # The compute task and the collective of the rank, which ends at 90 µs of 100.
    for run_id, start, dur in ((1, 10, 30), (2, 10, 55), (3, 45, 25), (4, 0, 80), (5, 0, 80)):
        rows["step"].append({"step_id": 7, "run_id": run_id, "iteration": 4, "start_ns": 0, "end_ns": 100 * us})
        end = start + dur
        of = {"run_id": run_id, "correlation_id": 1}
        rows["task"] += [
            task(1, -20 * us, 21 * us, None, run_id=run_id),  # of the step before
            task(2, start * us, dur * us, (start - 1) * us, **of),
            task(3, end * us, (90 - end) * us, None, run_id=run_id, kind="collective", stream_id=8),
        ]
        rows["api"].append(call(10, "launch", (start - 1) * us, us, **of))
        rows["range"].append(call(20, "DataLoader.__next__", 0, (start - 2) * us, run_id=run_id, kind="host_op"))
    columns = (
        "rank, iteration, window_ns // 1000, exposed_collective_ns // 1000, work_ns // 1000, late_ns // 1000, late_in"
    )
    parts = ", ".join(f"{part}_late_ns // 1000" for part in ("compute", "copy", "data_loading", "host"))
    store = make_store(run=runs, **rows)
    assert ask(store, f"SELECT {columns}, {parts}, is_last FROM stragglers") == [
        (0, 4, 100, 50, 50, 0, None, 0, 0, 0, 0, False),
        (1, 4, 100, 25, 75, 25, "compute", 25, 0, 0, 0, False),
        # It computes for 5 µs less, and gets its data 35 µs later, in a gap that is now above 10 µs.
        (2, 4, 100, 20, 80, 30, "data_loading", -5, 0, 44, -9, True),
    ]
    assert ask(store, "FROM stragglers(run := 2)") == []
    # The window selects steps by their start; gaps later in them still count.
    for report in ("stragglers", "late_ranks"):
        assert ask(store, f"FROM {report}(from_ns := 0, to_ns := 1)") == ask(store, f"FROM {report}")


def test_ranks_are_compared_in_steps_with_one_number_in_their_order(make_store: MakeStore) -> None:
    """As in two recordings in one file."""
    runs = [{"run_id": n, "label": f"r{n}", "rank": n, "group_label": "job", "start_ns": 0} for n in (1, 2)]
    spans = [(1, 1, 0, 30), (1, 2, 100, 50), (2, 1, 5, 40), (2, 2, 105, 20)]
    steps = [
        {"run_id": run, "step_id": s, "device_id": run, "iteration": 4, "start_ns": start, "end_ns": start + 60}
        for run, s, start, _ in spans
    ]
    tasks = [task(s, start, 60, None, run_id=run, device_id=run, kind="collective") for run, s, start, _ in spans]
    tasks += [task(2 + s, start, dur, None, run_id=run, device_id=run, stream_id=8) for run, s, start, dur in spans]
    store = make_store(run=runs, step=steps, task=tasks)
    query = "SELECT rank, step_id, work_ns, late_ns, is_last FROM stragglers"
    rows = ask(store, query)
    assert rows == [(1, 1, 30, 0, False), (1, 2, 50, 30, True), (2, 1, 40, 10, True), (2, 2, 20, 0, False)]
    # Selected steps are still compared with those of all ranks.
    assert ask(store, f"{query}(from_ns := 5)") == rows[1:]
    assert ask(store, f"{query}(device := 2, step := 1)") == rows[2:3]
    columns = "rank, step_count, last_count, late_ns, late_in, max_late_ns, max_late_iteration"
    assert ask(store, f"SELECT {columns}, host_late_ns, compute_late_ns FROM late_ranks") == [
        (1, 2, 1, 30, "compute", 30, 4, 0, 30), (2, 2, 1, 10, "compute", 10, 4, 0, 10),
    ]  # fmt: skip


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
            span(7, "aten::linear", 8, 8, category="gpu_user_annotation", kind="annotation", track_id=7),
            span(8, "PyTorch Profiler (0)", 900, 900, kind="summary"),
        ],
        track=[{"track_id": 7, "kind": "stream"}],
    )
    assert ask(store, "FROM range_statistic") == [
        # run, kind, category, name, count, unfinished, total, self, min, avg, max, place
        (1, "host_op", "cpu_op", "aten::linear", 2, 1, 151, 81, 51, Decimal("75.500"), 100, "host"),
        (1, "host_op", "cpu_op", "aten::addmm", 1, 0, 70, 70, 70, Decimal("70.000"), 70, "host"),
        (1, "annotation", "user_annotation", "aten::linear", 1, 0, 9, 9, 9, Decimal("9.000"), 9, "host"),
        (1, "annotation", "gpu_user_annotation", "aten::linear", 1, 0, 8, 8, 8, Decimal("8.000"), 8, "device"),
        (2, "host_op", "cpu_op", "late", 0, 1, 0, 0, None, None, None, "host"),
    ]
    assert ask(store, "SELECT kind, self_ns FROM range_statistic(step := 1)") == [("annotation", 9)]
    assert ask(store, "SELECT name FROM range_statistic(run := 2)") == [("late",)]
