"""Slices that lack what their rules expect get NULL instead of guessed values."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from traceconv.pipeline.ingest import ingest

_PLACE = {"pid": 0, "tid": 0}


def rows(tmp_path: Path, events: list[dict[str, object]], query: str) -> list[tuple[object, ...]]:
    path, store = tmp_path / "trace.json", tmp_path / "trace.duckdb"
    path.write_text(json.dumps({"deviceProperties": [], "traceEvents": events}))
    ingest([path], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize("dur", [None, -5, "long", "absent"])
def test_a_step_without_a_duration_has_no_bounds(tmp_path: Path, dur: object) -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", **_PLACE}
    first = {**step, "ts": 10, "dur": dur}
    if dur == "absent":
        del first["dur"]
    whole = {**step, "ts": 20, "dur": 30}
    assert rows(tmp_path, [first, whole], "SELECT iteration, start_ns, end_ns FROM step") == [(4, 20_000, 50_000)]


def test_the_id_of_an_asynchronous_slice_is_not_the_name_of_its_thread(tmp_path: Path) -> None:
    raf = {"ph": "X", "cat": "Default Stream", "name": "k", "pid": 0, "tid": "3", "ts": 1, "dur": 1}
    nameless = {"ph": "n", "cat": "c", "id": "3", **_PLACE, "ts": 4}
    pair = [{"ph": ph, "cat": "c", "name": "wait", "id": "3", **_PLACE, "ts": ts} for ph, ts in (("b", 5), ("e", 6))]
    path, store = tmp_path / "trace.json", tmp_path / "trace.duckdb"
    path.write_text(json.dumps([raf, nameless, *pair]))
    ingest([path], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        assert connection.execute("SELECT name FROM task").fetchall() == [("k",)]
        assert connection.execute("SELECT name FROM range").fetchall() == [("wait",)]


def test_args_of_end_events_are_added_to_their_slices_on_threads_and_async_tracks(tmp_path: Path) -> None:
    """Both kinds alternate in the source; the args of each end are added to its own begin."""
    events: list[dict[str, object]] = []
    for number in range(6):
        begin, end = ("BE", "be")[number % 2]
        slice_of = {"name": f"s{number}", "cat": "c", "id": number, **_PLACE}
        events.append({**slice_of, "ph": begin, "ts": number})
        events.append({"name": "other", "ph": "i", **_PLACE, "ts": number})
        events.append({**slice_of, "ph": end, "ts": number + 1, "args": {"result": number}})
    found = rows(tmp_path, events, "SELECT name, json_extract(args, '$.result')::BIGINT FROM range ORDER BY name")
    assert found == [(f"s{number}", number) for number in range(6)]
