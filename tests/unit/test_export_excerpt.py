"""Timelines of some steps or a window of time have the rows that overlap it, whole, and the load in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from stores import query

import traceconv
from traceconv.base.errors import UsageError
from traceconv.wire.protobuf import fields

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces/pytorch/resnet18.pt.trace.json.gz"
#: Table → its columns to compare, of which the first two are its first and last time or its first time and duration.
COLUMNS = {
    "range": "start_ns, dur_ns, name, args",
    "api": "start_ns, dur_ns, name, correlation_id",
    "task": "start_ns, dur_ns, name, device_id, stream_id",
    "step": "start_ns, end_ns, device_id, iteration",
    "memory": "alloc_ns, free_ns, size_bytes, block_id",
    "counter": "ts_ns, ts_ns, series, value",
    "flow": "src_ns, dst_ns, kind",
}
#: First and last time of a row.
Span = tuple[int | None, int | None]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of four steps with memory, launches and events."""
    folder = tmp_path_factory.mktemp("capture")
    capture = traceconv.record("mini_transformer", folder, iterations=4, streams=2, deterministic=True)
    traceconv.ingest(capture, db=folder / "t.duckdb")
    return folder / "t.duckdb"


@pytest.fixture(scope="module")
def window(store: Path) -> tuple[int, int]:
    """From within a task of the second step until within one of the third."""
    found = query(store, "SELECT step_id, start_ns + dur_ns // 2 FROM task WHERE dur_ns > 1000 ORDER BY start_ns")
    second, third = (sorted(time for step, time in found if step == wanted) for wanted in (1, 2))
    return second[len(second) // 2], third[len(third) // 2]


def rows(store: Path, name: str) -> list[tuple[Any, ...]]:
    return query(store, f'SELECT {COLUMNS[name]} FROM "{name}" ORDER BY ALL')


def span(name: str, row: tuple[Any, ...]) -> Span:
    first, last = row[:2]
    return (first, first + last) if name in ("range", "api", "task") and last is not None else (first, last)


def overlaps(row: Span, start: int, end: int) -> bool:
    first, last = row
    starts_in = first is not None and start <= first < end
    return starts_in or ((first is None or first < start) and (last is None or last > start))


@pytest.mark.parametrize("target", ["chrome", "perfetto"])
def test_rows_are_those_that_overlap_the_window(
    store: Path, window: tuple[int, int], target: str, tmp_path: Path
) -> None:
    file = tmp_path / {"chrome": "t.json", "perfetto": "t.pftrace"}[target]
    with traceconv.open_store(store) as opened:
        written = opened.export(target, file, from_ns=window[0], to_ns=str(window[1]))
    traceconv.ingest(file, db=tmp_path / "again.duckdb")
    assert query(tmp_path / "again.duckdb", "SELECT sum(lost_count) FROM import_account") == [(0,)]
    for name in COLUMNS:
        expected = [row for row in rows(store, name) if overlaps(span(name, row), *window)]
        found = rows(tmp_path / "again.duckdb", name)
        if name == "flow":  # those with both ends
            assert set(found) < set(expected)
            assert len(found) == written.rows["flow"] > 0
            trust = "SELECT count(*) FROM trust WHERE finding = 'broken_flows' AND count > 0"
            assert query(tmp_path / "again.duckdb", trust) == [(0,)]
            continue
        assert found == expected
        assert 0 < len(found) < len(rows(store, name))
    counted = "SELECT count(*) FROM task_pmu"
    within = f"start_ns < {window[1]} AND start_ns + dur_ns > {window[0]}"
    expected = query(store, f"{counted} JOIN task USING (run_id, id) WHERE {within}")
    assert query(tmp_path / "again.duckdb", counted) == expected


def samples(file: Path) -> dict[str, list[tuple[int, Decimal]]]:
    """Times and values of the computed counters of a Chrome trace."""
    document = json.loads(file.read_text(), parse_float=Decimal)
    base_ns = int(document["otherData"]["base_ns"])
    found: dict[str, list[tuple[int, Decimal]]] = defaultdict(list)
    for event in document["traceEvents"]:
        name = event["name"].split(" (")[0]
        if event["ph"] == "C" and name in ("Pending ops", "Live tensors", "Memory"):
            value = event["args"].get("value", event["args"].get("used"))
            found[name].append((base_ns + int(event["ts"] * 1000), value))
    return found


def test_the_load_is_that_of_the_run(store: Path, window: tuple[int, int], tmp_path: Path) -> None:
    check_load(store, window, {"Pending ops", "Live tensors"}, tmp_path)


def test_the_memory_is_that_of_the_run(tmp_path: Path) -> None:
    store = tmp_path / "t.duckdb"
    traceconv.ingest(SAMPLE, db=store)
    [window] = query(store, "SELECT min(start_ns) + 30000000, min(start_ns) + 50000000 FROM task")
    check_load(store, window, {"Memory"}, tmp_path)


def check_load(store: Path, window: tuple[int, int], names: set[str], tmp_path: Path) -> None:
    """In the window, counters have the samples of the whole run; at its start, the value there."""
    with traceconv.open_store(store) as opened:
        opened.export_chrome(tmp_path / "all.json")
        opened.export_chrome(tmp_path / "part.json", from_ns=window[0], to_ns=window[1])
    whole, part = samples(tmp_path / "all.json"), samples(tmp_path / "part.json")
    assert set(part) == names
    for name, found in part.items():
        *_, (_, before) = [sample for sample in whole[name] if sample[0] <= window[0]]
        inside = [sample for sample in whole[name] if window[0] < sample[0] < window[1]]
        assert inside
        assert found == [(window[0], before), *inside] or (not before and found == inside)


def first_shown(file: Path) -> dict[int, int]:
    """Times of the events of the recording by their number: 1 began, 5 ended."""
    data = file.read_bytes()
    shown = {}
    for _, _, size, at in fields(data, 0, len(data)):
        packet = {number: (value, place) for number, _, value, place in fields(data, at, at + size)}
        if 69 in packet:
            size, at = packet[69]
            [(event, _, value, _)] = fields(data, at, at + size)
            assert value == 1
            assert event not in shown
            shown[event] = packet[8][0]
    return shown


def test_viewers_show_the_steps(store: Path, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "t.pftrace"
    command("export", "perfetto", "--db", store, "--steps", "2-3", "-o", file)
    [(start,)] = query(store, "SELECT min(start_ns) FROM step WHERE step_id IN (2, 3)")
    [(ended,)] = query(store, "SELECT max(end_ns) FROM step WHERE step_id IN (2, 3)")
    [(done,)] = query(store, "SELECT max(start_ns + dur_ns) FROM task WHERE step_id IN (2, 3)")
    assert first_shown(file) == {1: start, 5: max(ended, done)}


def test_viewers_show_the_steps_of_all_runs(make_store: Callable[..., Path], tmp_path: Path) -> None:
    """The first run has its step last."""
    runs = [(1, 700), (2, 500), (3, 600)]
    steps = [{"run_id": run, "device_id": 0, "step_id": 1, "iteration": 1, "start_ns": at} for run, at in runs]
    store = make_store(
        run=[{"run_id": run, "start_ns": 0, "end_ns": 900, "epoch_known": True} for run, _ in runs],
        step=[{**step, "end_ns": at + 50} for step, (_, at) in zip(steps, runs, strict=True)],
    )
    with traceconv.open_store(store) as opened:
        opened.export_perfetto(tmp_path / "t.pftrace", run="all", steps=1)
    assert first_shown(tmp_path / "t.pftrace") == {1: 500, 5: 750}


def test_a_part_without_slices(make_store: Callable[..., Path], tmp_path: Path) -> None:
    """Between two tasks, without their op; and a run of a flow alone, whose thread is named last in other files."""
    tasks = [{"id": n, "op_id": 1, "start_ns": 9000 * n, "dur_ns": 1000} for n in range(2)]
    flow = {"flow_id": 1, "src_ns": 1, "dst_ns": 2}
    between = {"from_ns": 3000, "to_ns": 6000}
    for store, part, phases in (
        (make_store(op=[{"op_id": 1, "name": "a"}], task=tasks), between, []),
        (make_store(flow=[flow]), {}, ["M", "M", "M", "M", "s", "f"]),
    ):
        with traceconv.open_store(store) as opened:
            opened.export_chrome(tmp_path / "t.json", **part)
        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        assert [event["ph"] for event in events] == phases


def test_a_part_that_is_not_there(store: Path, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "t"
    beyond = command("export", "chrome", "--db", store, "--from", "10s", "-o", file, code=2)
    assert "the window contains none of this time" in beyond.err
    assert "the run has steps" in command("export", "chrome", "--db", store, "--steps", "9", "-o", file, code=2).err
    assert not file.exists()
    with (
        traceconv.open_store(store) as opened,
        pytest.raises(UsageError, match="select steps, or a window with from_ns"),
    ):
        opened.export_perfetto(file, steps=1, to_ns="1ms")
