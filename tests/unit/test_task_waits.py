"""task.wait_ns where tasks share their track with annotations: it is between tasks, as its doc says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb

from traceconv.pipeline import ingest

BASE_US = 1_700_000_000_000_000


def on_stream(cat: str, name: str, us: int, dur: int, stream: int = 7) -> dict[str, Any]:
    args = {"device": 0, "stream": stream} if cat != "gpu_user_annotation" else {}
    place = {"pid": 0, "tid": stream, "ts": BASE_US + us, "dur": dur}
    return {"ph": "X", "cat": cat, "name": name, **place, "args": args}


def waits(folder: Path, *events: dict[str, Any]) -> list[tuple[str, int | None]]:
    """By name, in the order of streams and time."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))
    ingest([path], folder / "trace.duckdb")
    with duckdb.connect(str(folder / "trace.duckdb"), read_only=True) as store:
        return store.execute("SELECT name, wait_ns FROM task ORDER BY stream_id, start_ns, id").fetchall()


def test_an_annotation_around_tasks_is_not_before_them(tmp_path: Path) -> None:
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


def test_after_a_task_without_an_end_the_wait_is_not_known(tmp_path: Path) -> None:
    begin = {**on_stream("kernel", "cut off", 30, 0), "ph": "B"}
    del begin["dur"]
    found = waits(
        tmp_path, on_stream("gpu_user_annotation", "step", 0, 20), on_stream("kernel", "a", 5, 5), begin,
        on_stream("kernel", "b", 50, 5),
    )  # fmt: skip
    assert found == [("a", 0), ("cut off", 20000), ("b", None)]
