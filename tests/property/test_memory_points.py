"""Memory reports equal a count of blocks at each time, wherever the intervals and chunks of time are."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traceconv
from traceconv.normalize import memory_points
from traceconv.store import memory_tables

MakeStore = Callable[..., Path]
Rows = list[dict[str, Any]]
END = 100
#: Few, so that some blocks are freed when others are allocated.
TIMES = range(0, END, 4)
TOO_MUCH = 2**62


def random_blocks(draw: random.Random) -> Rows:
    return [
        {
            "block_id": n, "run_id": draw.choice([1, 1, 2]), "device_id": draw.choice([0, 0, 1]),
            "pool": draw.choice(["a", "b", None]), "kind": draw.choice(["block", "block", "segment"]),
            "size_bytes": draw.randrange(9), "alloc_ns": (alloc := draw.choice([None, *[draw.choice(TIMES)] * 5])),
            "free_ns": draw.choice([None, draw.choice(TIMES), (alloc or 0) + draw.randrange(9)]),
        }
        for n in range(draw.choice([20, 90]))
    ]  # fmt: skip


def in_use(blocks: Rows, kind: str, ts_ns: int) -> Rows:
    """The blocks at a time. One that is freed before its allocation is never freed."""
    return [
        one
        for one in blocks
        if one["kind"] == kind and (one["alloc_ns"] is None or one["alloc_ns"] <= ts_ns)
        and (one["free_ns"] is None or one["free_ns"] > ts_ns or one["free_ns"] < (one["alloc_ns"] or 0))
    ]  # fmt: skip


def size(blocks: Rows) -> int:
    return sum(one["size_bytes"] for one in blocks)


def first_ns(device: Rows) -> int:
    """When blocks without alloc_ns begin: at the first allocation, or before the first free."""
    times = [one["alloc_ns"] for one in device if one["alloc_ns"] is not None]
    return min([*times, *(one["free_ns"] - 1 for one in device if one["free_ns"] is not None)], default=0)


def change_times(blocks: Rows, begin_ns: int) -> set[int]:
    allocs = {begin_ns if one["alloc_ns"] is None else one["alloc_ns"] for one in blocks}
    return allocs | {
        one["free_ns"]
        for one in blocks
        if one["free_ns"] is not None and (one["alloc_ns"] is None or one["free_ns"] >= one["alloc_ns"])
    }


def peak(blocks: Rows, device: Rows, start: int | None, end: int | None) -> dict[str, Any] | None:
    """The row of memory-peak for blocks of a device or of one of its pools."""
    changes = {ns for ns in change_times(blocks, first_ns(device)) if end is None or ns < end}
    if start is not None:
        changes = {ns for ns in changes if ns > start} | ({start} if any(ns <= start for ns in changes) else set())
    if not changes:
        return None
    has_segments = any(one["kind"] == "segment" for one in device)
    at = max(changes, key=lambda ns: (size(in_use(blocks, "block", ns)), -ns))
    reserved = max(changes, key=lambda ns: (size(in_use(blocks, "segment", ns)), -ns))
    return {
        "peak_used_bytes": size(in_use(blocks, "block", at)),
        "peak_ns": at,
        "reserved_bytes": size(in_use(blocks, "segment", at)) if has_segments else None,
        "peak_reserved_bytes": size(in_use(blocks, "segment", reserved)) if has_segments else None,
        "peak_reserved_ns": reserved if has_segments else None,
        "live_count": len(in_use(blocks, "block", at)),
    }


@pytest.mark.parametrize("seed", range(4))
def test_reports_equal_a_count_of_blocks(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    blocks = random_blocks(draw)
    if seed == 3:  # sums exceed 64 bits in run 2
        blocks += [{**blocks[0], "run_id": 2, "device_id": 1, "size_bytes": TOO_MUCH, "free_ns": None}] * 3
    tasks = [
        {
            "id": n, "run_id": draw.choice([1, 2]), "device_id": draw.choice([0, 1, 2, None]),
            "op_id": draw.choice([5, None]), "start_ns": draw.choice([None, draw.randrange(-9, END)]),
            "submit_ns": draw.choice([None, draw.randrange(-9, END)]),
        }
        for n in range(60)
    ]  # fmt: skip
    monkeypatch.setattr(memory_points, "INTERVAL_TIMES", draw.choice([1, 2, 7]))
    monkeypatch.setattr(memory_tables, "_CHUNK_ROWS", draw.choice([25, 60, 500]))
    windows = [(None, None), (50, 51), (-5, None), *(sorted(draw.sample(range(-2, END + 9), 2)) for _ in range(4))]
    with traceconv.open_store(make_store(memory=blocks, task=tasks)) as store:
        assert store.query("FROM memory_interval").fetchall()
        for start, end in windows:
            found = {
                (row["run_id"], row["device_id"], row["level"], row["pool"]): row
                for row in store.report("memory-peak", run="all", from_ns=start, to_ns=end)
            }
            live = defaultdict(list)
            for row in store.report("memory-live", run="all", from_ns=start, to_ns=end):
                live[row["run_id"], row["device_id"]].append(row["block_id"])
            for run, device_id in {(one["run_id"], one["device_id"]) for one in blocks}:
                device = [one for one in blocks if (one["run_id"], one["device_id"]) == (run, device_id)]
                if size(device) > TOO_MUCH:
                    continue
                expected = peak(device, device, start, end)
                row = found.get((run, device_id, "device", None))
                of_peak = in_use(device, "block", expected["peak_ns"]) if expected else []
                assert sorted(live[run, device_id]) == [one["block_id"] for one in of_peak]
                assert expected == (row and {name: row[name] for name in expected or ()}), (start, end)
                for pool in ("a", "b", None) if any(one["pool"] for one in device) else ():
                    expected = peak([one for one in device if one["pool"] == pool], device, start, end)
                    row = found.get((run, device_id, "pool", pool))
                    assert expected == (row and {name: row[name] for name in expected or ()}), (start, end, pool)
        rows = list(store.report("memory-trace", run="all"))
        top = [row["id"] for row in store.report("memory-trace", run=1, top=5)]
    executed = []
    for task in tasks:
        at = task["submit_ns"] if task["submit_ns"] is not None else task["start_ns"]
        device = [one for one in blocks if (one["run_id"], one["device_id"]) == (task["run_id"], task["device_id"])]
        if at is not None and task["op_id"] is not None and device:
            executed.append((task["run_id"], task["device_id"], at, task["id"], device))
    before: dict[tuple[int, int], int | None] = {}
    assert [(row["run_id"], row["device_id"], row["at_ns"], row["id"]) for row in rows] == sorted(
        one[:4] for one in executed
    )
    for row, (run, device_id, at, _, device) in zip(rows, sorted(executed, key=lambda one: one[:4]), strict=True):
        known = any(ns <= at for ns in change_times(device, first_ns(device)))
        used = size(in_use(device, "block", at)) if known else None
        used = used if used is None or used < 2**63 else None
        last = before.get((run, device_id))
        assert row["used_bytes"] == used
        assert row["used_change_bytes"] == (None if used is None or last is None else used - last)
        before[run, device_id] = used
    # The rows are in the report's order, which remains among equal sizes.
    of_run = [row for row in rows if row["run_id"] == 1]
    of_run.sort(key=lambda row: (row["used_bytes"] is None, -(row["used_bytes"] or 0)))
    assert top == [row["id"] for row in of_run[:5]]
