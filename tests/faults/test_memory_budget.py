"""Unbounded names, tracks, open begins and ops: memory stays within its budget, without changing any row."""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ingest_checks import all_rows

from traceconv.base.errors import OutputError
from traceconv.normalize import memory_budget
from traceconv.normalize.memory_budget import Budget, NumberedRows
from traceconv.normalize.sort import numbers_by_key
from traceconv.normalize.sort.numbers_by_key import NumbersByKey
from traceconv.normalize.trace import async_tracks, begin_end, classify, spans_by_track
from traceconv.normalize.trace.begin_end import POINT_DTYPE, BeginEndMatcher
from traceconv.normalize.trace.first_pass import FirstPass
from traceconv.normalize.trace.slice_rows import SliceRows
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.normalize.tracks import Process
from traceconv.pipeline.ingest import ingest

Event = dict[str, Any]
SAMPLE = Path(__file__).parents[2] / "sample_traces" / "pytorch" / "resnet18.pt.trace.json.gz"
#: Columns of these say when and from where a run was ingested.
WHEN = ("run",)


def mixed(rng: random.Random) -> Iterator[Event]:
    """Events of every kind whose state is carried, with few values and with many, and tracks that come again."""
    for number in range(6000):
        pid, tid = rng.choice([1, 2, "2", rng.randrange(300)]), rng.choice([1, rng.randrange(900)])
        where = {"pid": pid, "tid": tid, "ts": number + rng.randrange(40)}
        name = f"name {rng.randrange(1200)}"
        yield rng.choice(
            [
                {"ph": "X", "cat": f"cat {rng.randrange(500)}", "name": name, "dur": rng.randrange(60), **where},
                {"ph": "X", "cat": "kernel", "name": name, "dur": 5, "args": {"stream": tid, "device": 1}, **where},
                {"ph": "B", "name": f"b{rng.randrange(3)}", **where, "tid": tid % 40},
                {"ph": "B", "name": f"b{rng.randrange(3)}", **where, "tid": tid % 40},
                {
                    "ph": "E",
                    **({"name": f"b{rng.randrange(3)}"} if rng.random() < 0.6 else {}),
                    **where,
                    "tid": tid % 40,
                },
                {"ph": "b", "cat": "c", "name": name, "id": rng.randrange(1500), **where},
                {"ph": "e", "cat": "c", "name": name, "id": rng.randrange(1500), **where},
                {"ph": "b", "cat": "kernel", "name": name, "id": rng.randrange(900), **where, "args": {"stream": tid}},
                {"ph": "e", "cat": "kernel", "name": name, "id": rng.randrange(900), **where},
                {"ph": "C", "name": name, "args": {"value": number}, **where},
                {"ph": "s", "cat": "f", "name": "flow", "id": number // 20, **where},
                {"ph": "f", "cat": "f", "name": "flow", "id": number // 20, "bp": rng.choice(["e", ""]), **where},
                {"ph": "M", "name": "thread_name", "args": {"name": f"stream {tid}"}, **where},
                {"ph": "M", "name": "thread_sort_index", "args": {"sort_index": number}, **where},
                {"ph": "M", "name": "process_name", "args": {"name": name}, **where},
            ]
        )


def small(monkeypatch: pytest.MonkeyPatch, entries: int) -> list[int]:
    """Makes everything that is carried small; returns what budgets find when they look."""
    held: list[int] = []
    check = Budget.check

    def noted(self: Budget) -> None:
        held.append(self.entries)
        check(self)

    monkeypatch.setattr(Budget, "check", noted)
    monkeypatch.setattr(memory_budget, "MEMORY_ENTRIES", entries)
    monkeypatch.setattr(numbers_by_key, "KEPT_ENTRIES", entries)
    monkeypatch.setattr(async_tracks, "_MOST_LOADED", 64)
    monkeypatch.setattr(begin_end, "_POINTS_AT_ONCE", 16)
    monkeypatch.setattr(spans_by_track, "TRACKS_AT_ONCE", 50)
    monkeypatch.setattr(classify, "_MOST_CACHED", 64)
    monkeypatch.setattr(classify, "_MANY_WORDS", 16)
    return held


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("keys", [{}, {"deviceProperties": [{"id": 1, "name": "GPU"}]}], ids=["plain", "pytorch"])
def test_a_small_budget_changes_no_row(seed: int, keys: Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**keys, "traceEvents": [*mixed(random.Random(seed))]}))
    ingest([path], tmp_path / "large.duckdb")
    small(monkeypatch, 100)
    ingest([path], tmp_path / "small.duckdb")
    one, two = (all_rows(tmp_path / name, leave_out=WHEN) for name in ("large.duckdb", "small.duckdb"))
    assert one == two
    assert len(one["track"]) > 2000
    assert bool(one["op"]) == bool(keys)


DISTINCT: dict[str, Callable[[int], Event]] = {
    "threads": lambda n: {"ph": "X", "name": f"name {n}", "pid": n // 9, "tid": n, "ts": n, "dur": 2},
    "thread names": lambda n: {"ph": "M", "name": "thread_name", "pid": 1, "tid": n, "args": {"name": f"thread {n}"}},
    "begins": lambda n: {"ph": "B", "name": f"b{n % 50}", "pid": 1, "tid": n % 8, "ts": n},
    "counters": lambda n: {"ph": "C", "name": f"counter {n}", "pid": 1, "ts": n, "args": {"v": n}},
    "ops": lambda n: {"ph": "X", "name": f"op {n}", "cat": "kernel", "pid": 0, "tid": 7, "ts": n, "dur": 1},
}


@pytest.mark.parametrize("kind", DISTINCT)
def test_what_is_kept_in_memory_does_not_grow(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = small(monkeypatch, 200)
    path = tmp_path / "trace.json"
    for count in (3000, 6000):
        held.clear()
        events = [{"ph": "X", "name": "first", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 0, "dur": 1}]
        events += map(DISTINCT[kind], range(1, count))
        path.write_text(json.dumps({"deviceProperties": [], "traceEvents": events}))
        ingest([path], tmp_path / f"{count}.duckdb")
        # Budgets look each time that 64 keys were added; up to half as many rows are read again at once.
        assert 200 < max(held) <= 200 + 2 * 64 + 101


def test_what_a_trace_needed_is_free_once_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [], "traceEvents": [*mixed(random.Random(0))]}))
    for number, source in enumerate((path, SAMPLE)):
        gc.collect()
        gc.disable()  # which is what an ingest of many files must not wait for
        try:
            ingest([source], tmp_path / f"{number}.duckdb")
            left = [kind for kind in map(type, gc.get_objects()) if kind in (FirstPass, SliceRows, SpilledRows, Budget)]
        finally:
            gc.enable()
        assert left == []


def test_keys_are_found_in_memory_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers_by_key, "KEPT_ENTRIES", 500)
    monkeypatch.setattr(numbers_by_key, "_LOOKED_UP", 16)
    rng = random.Random(3)
    known: dict[int, int] = {}
    numbers = NumbersByKey()
    for _ in range(120):
        wanted = [rng.choice([rng.randrange(-3000, 9000), rng.getrandbits(64) - (1 << 63)]) for _ in range(40)]
        keys = np.array(list(dict.fromkeys(wanted)), np.int64)
        found = numbers.find(keys)
        assert found.tolist() == [known.get(key, -1) for key in keys.tolist()]
        new = keys[found < 0]
        numbers.add(new, np.arange(len(known), len(known) + len(new)))
        known.update(zip(new.tolist(), range(len(known), len(known) + len(new)), strict=True))
        assert numbers.entries < 500
    assert len(known) > 4 * 500
    numbers.close()


def test_nested_begins_that_were_spilled_find_their_ends() -> None:
    count = 2000
    points = np.zeros(2 * count, POINT_DTYPE)
    points["ts_ns"] = points["id"] = np.arange(2 * count)
    points["name"] = np.tile([5, -7, 9, 11], count // 2)
    points["name"][count:] = np.where(np.arange(count) % 3 == 0, 0, points["name"][:count][::-1])
    points["end"][count:] = ord("E")
    slices = BeginEndMatcher(Budget(10)).feed(points)
    assert [tuple(row) for row in slices[["id", "link"]].tolist()] == [(count - 1 - n, count + n) for n in range(count)]


def test_rows_are_changed_wherever_they_are() -> None:
    budget = Budget(8)
    rows = NumberedRows(budget, "process", Process)
    for number in range(500):
        assert rows.number((str(number), None), str(number)) == number + 1
        rows.change(number // 2 + 1, name=f"{number}\0")
    assert [rows.number((str(number), None), "new") for number in range(500)] == [*range(1, 501)]
    found = [row for some in rows.rows() for row in some]
    assert [row.process_id for row in found] == [*range(1, 501)]
    assert [row.pid_text for row in found] == [str(number) for number in range(500)]
    assert [row.name for row in found] == [f"{2 * n + 1}\0" if n < 250 else None for n in range(500)]
    assert rows.spilled
    budget.close()


def test_a_full_disk_is_an_error_with_advice() -> None:
    budget = Budget(8)
    rows = NumberedRows(budget, "process", Process)
    budget.database().execute("PRAGMA max_page_count = 4")
    with pytest.raises(OutputError, match="free disk space, or set TMPDIR"):
        for number in range(5000):
            rows.number((number,), "x" * 100)
    budget.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell a process its peak")
@pytest.mark.long
def test_memory_is_bounded_for_threads_without_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with path.open("w") as file:
        file.write("[")
        for number in range(400_000):
            where = f'"pid":{number // 1000},"tid":{number},"ts":{number}'
            file.write(f'{{"ph":"B","name":"name {number}","cat":"c",{where}}},\n')
        file.write("{}]")
    program = (
        "import sys\nfrom traceconv.cli.app import run\ncode = run(sys.argv[1:])\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')))\nsys.exit(code)"
    )
    command = [sys.executable, "-c", program, "ingest", str(path), "--db", str(tmp_path / "t.duckdb")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    assert int(done.stdout.split()[-2]) < 480 << 10
