"""Slices that lack what their rules expect get NULL instead of guessed values."""

from __future__ import annotations

from pathlib import Path

import pytest
from ingest_checks import rows_of, taken
from stores import query

_PLACE = {"pid": 0, "tid": 0}


@pytest.mark.parametrize("dur", [None, -5, "long", "absent"])
def test_a_step_without_a_duration_has_no_bounds(tmp_path: Path, dur: object) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", **_PLACE}
    first = {**step, "ts": 10, "dur": dur}
    if dur == "absent":
        del first["dur"]
    whole = {**step, "ts": 20, "dur": 30}
    assert rows_of(
        {"deviceProperties": [], "traceEvents": [first, whole]},
        tmp_path,
        "SELECT iteration, start_ns, end_ns FROM step",
    ) == [(4, 20_000, 50_000)]


@pytest.mark.parametrize("dur", [None, -5, "long", "absent"])
def test_the_gap_after_a_task_without_a_duration_is_unknown(tmp_path: Path, dur: object) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", **_PLACE, "args": {"device": 0, "stream": 0}}
    second = {**kernel, "ts": 20, "dur": dur}
    if dur == "absent":
        del second["dur"]
    events = [{**kernel, "ts": 10, "dur": 4}, second, {**kernel, "ts": 30, "dur": 5}, {**kernel, "ts": 37, "dur": 5}]
    sql = "SELECT stream_wait_ns FROM task ORDER BY start_ns"
    found = rows_of({"deviceProperties": [], "traceEvents": events}, tmp_path, sql)
    assert found == [(0,), (6000,), (None,), (2000,)]


def test_the_id_of_an_asynchronous_slice_is_not_the_name_of_its_thread(tmp_path: Path) -> None:
    raf = {"ph": "X", "cat": "Default Stream", "name": "k", "pid": 0, "tid": "3", "ts": 1, "dur": 1}
    nameless = {"ph": "n", "cat": "c", "id": "3", **_PLACE, "ts": 4}
    pair = [{"ph": ph, "cat": "c", "name": "wait", "id": "3", **_PLACE, "ts": ts} for ph, ts in (("b", 5), ("e", 6))]
    _, store = taken([raf, nameless, *pair], tmp_path)
    assert query(store, "SELECT name FROM task") == [("k",)]
    assert query(store, "SELECT name FROM range") == [("wait",)]


def test_args_of_end_events_are_added_to_their_slices_on_threads_and_async_tracks(tmp_path: Path) -> None:
    """Both kinds alternate in the source; the args of each end are added to its own begin."""
    events: list[dict[str, object]] = []
    for number in range(6):
        begin, end = ("BE", "be")[number % 2]
        slice_of = {"name": f"s{number}", "cat": "c", "id": number, **_PLACE}
        events.append({**slice_of, "ph": begin, "ts": number})
        events.append({"name": "other", "ph": "i", **_PLACE, "ts": number})
        events.append({**slice_of, "ph": end, "ts": number + 1, "args": {"result": number}})
    found = rows_of(
        {"deviceProperties": [], "traceEvents": events},
        tmp_path,
        "SELECT name, json_extract(args, '$.result')::BIGINT FROM range ORDER BY name",
    )
    assert found == [(f"s{number}", number) for number in range(6)]


def test_an_operation_that_pytorch_marks_as_unfinished_has_no_duration(tmp_path: Path) -> None:
    """Its profiler writes the time until the end of the recording."""
    reduce = {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", **_PLACE, "args": {"finished": False}}
    inner = {"ph": "X", "cat": "cpu_op", "name": "aten::add", **_PLACE, "ts": 12, "dur": 3}
    named = {"ph": "X", "cat": "other", "name": "other", "pid": 0, "tid": 1, "ts": 0, "dur": 30}
    _, store = taken(
        {
            "deviceProperties": [],
            "traceEvents": [{**reduce, "ts": 10, "dur": 20}, inner, {**named, "args": {"finished": False}}],
        },
        tmp_path,
    )
    assert query(store, "SELECT name, dur_ns, self_ns, depth FROM range ORDER BY name") == [
        ("aten::add", 3000, 3000, 1),
        ("gloo:all_reduce", None, None, 0),
        ("other", 30_000, 30_000, 0),
    ]
    assert query(store, "SELECT code, event_count FROM import_log") == [("unfinished", 1)]
