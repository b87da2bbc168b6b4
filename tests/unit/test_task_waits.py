"""task.stream_wait_ns on tracks that tasks share with annotations: the gap between tasks."""

from __future__ import annotations

import random
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from ingest_checks import rows_of
from stores import query

BASE_US = 1_700_000_000_000_000


def on_stream(cat: str, name: str, us: int, dur: int, stream: int = 7) -> dict[str, Any]:
    args = {"device": 0, "stream": stream} if cat != "gpu_user_annotation" else {}
    place = {"pid": 0, "tid": stream, "ts": BASE_US + us, "dur": dur}
    return {"ph": "X", "cat": cat, "name": name, **place, "args": args}


def waits(folder: Path, *events: dict[str, Any]) -> list[tuple[str, int | None]]:
    """Return (name, wait) of each task, ordered by stream and start."""
    trace = {"schemaVersion": 1, "traceEvents": list(events)}
    return rows_of(trace, folder, "SELECT name, stream_wait_ns FROM task ORDER BY stream_id, start_ns, id")


def test_an_annotation_around_tasks_does_not_change_their_waits(tmp_path: Path) -> None:
    found = waits(
        tmp_path,
        on_stream("gpu_user_annotation", "forward", 10, 50),
        on_stream("kernel", "a", 10, 5),
        on_stream("kernel", "b", 20, 40),
        on_stream("gpu_user_annotation", "backward", 70, 20),
        on_stream("kernel", "c", 70, 5),
        on_stream("kernel", "overlaps c", 72, 8),
        on_stream("kernel", "d", 100, 5),
        on_stream("kernel", "of another stream", 100, 5, stream=8),
    )
    assert found == [
        ("a", 0),
        ("b", 5000),
        ("c", 10000),
        ("overlaps c", -3000),
        ("d", 20000),
        ("of another stream", 0),
    ]


def test_the_wait_after_a_task_without_an_end_is_unknown(tmp_path: Path) -> None:
    begin = {**on_stream("kernel", "endless", 30, 0), "ph": "B"}
    del begin["dur"]
    found = waits(
        tmp_path, on_stream("gpu_user_annotation", "step", 0, 20), on_stream("kernel", "a", 5, 5), begin,
        on_stream("kernel", "b", 50, 5),
    )  # fmt: skip
    assert found == [("a", 0), ("endless", 20000), ("b", None)]


@pytest.mark.parametrize("stream_of_annotation", [7, 8])
def test_a_wait_of_half_a_century_is_exact(stream_of_annotation: int, tmp_path: Path) -> None:
    """The clock was set between the two tasks."""
    found = waits(
        tmp_path,
        on_stream("kernel", "long ago", -BASE_US, 5),
        on_stream("gpu_user_annotation", "step", 0, 90, stream_of_annotation),
        on_stream("kernel", "a", 10, 5),
    )
    assert found == [("long ago", 0), ("a", (BASE_US + 10 - 5) * 1000)]


def test_waits_of_many_tasks_agree_with_sql(tmp_path: Path) -> None:
    """More tasks than are sorted at once, in random order. Some are begin and end events, a few have no end."""
    rng = random.Random(5)
    events: list[dict[str, Any]] = []
    for number in range(140_000):
        stream, us = rng.randrange(5), number * 3 + rng.randrange(40)
        if number % 50 == 0:
            events.append(on_stream("gpu_user_annotation", "step", us, 90, stream))
        if number % 1000 == 999:
            begin = on_stream("kernel", "paired", us, 0, stream)
            del begin["dur"]
            end = {**begin, "ph": "E", "ts": begin["ts"] + 2}
            events += [{**begin, "ph": "B"}, end] if number % 20_000 != 19_999 else [{**begin, "ph": "B", "tid": 9}]
        else:
            events.append(on_stream("kernel", "k", us, rng.choice((0, 1, 1, 2, 60)), stream))
    blocks = [events[first : first + 5_000] for first in range(0, len(events), 5_000)]
    rng.shuffle(blocks)
    found = waits(tmp_path, *chain.from_iterable(blocks))
    assert len(found) == 140_000
    sql = """
        SELECT count(*), count(stream_wait_ns), count(DISTINCT stream_wait_ns) > 50,
               count(*) FILTER (stream_wait_ns IS DISTINCT FROM asked)
        FROM (
          SELECT stream_wait_ns, CASE WHEN lag(id) OVER before IS NULL THEN 0
                 ELSE start_ns - lag(start_ns + dur_ns) OVER before END AS asked
          FROM task WINDOW before AS (PARTITION BY track_id ORDER BY start_ns, dur_ns DESC NULLS FIRST, id)
        )
    """
    count, known, many, wrong = query(tmp_path / "trace.duckdb", sql)[0]
    assert (count, many, wrong) == (140_000, True, 0)
    assert 0 < count - known <= 7  # after those without an end
