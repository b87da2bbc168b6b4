"""allocating_range and memory-statistic against a plain recount of random PyTorch traces."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from stores import query as ask

import traceconv

NAMES = ("aten::conv2d", "aten::empty", "aten::resize_", "aten::empty_strided", "aten::mm")


def random_trace(draw: random.Random) -> list[dict[str, Any]]:
    """Nested operators, modules and functions on three threads, and allocations at any time."""
    events: list[dict[str, Any]] = []

    def nest(tid: int, start: int, end: int, depth: int) -> None:
        while start < end and depth < 6:
            start += draw.randint(0, 9)
            length = draw.randint(1, max(end - start, 1))
            if start + length > end:
                return
            name, category = draw.choice(
                [*((name, "cpu_op") for name in NAMES), ("nn.Module: Linear_0", "python_function"),
                 ("train.py(3): step", "python_function"), ("epoch", "user_annotation")]
            )  # fmt: skip
            args = {"Python id": len(events), "Python module id": 0} if category == "python_function" else {}
            events.append({"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, "ts": start, "dur": length,
                           "args": args})  # fmt: skip
            nest(tid, start, start + length, depth + 1)
            start += length + draw.randint(1, 9)

    for tid in (1, 2, 3):
        nest(tid, 0, 200, 0)
    total = 0
    for address, at in enumerate(sorted(draw.choices(range(220), k=60)), 1):
        size = draw.randint(1, 1_000)
        total += size
        where = {"pid": 7, "tid": draw.choice((1, 2, 3, 4)), "ts": at}
        events.append({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", **where,
                       "args": {"Bytes": size, "Addr": address << 20, "Device Type": 1, "Device Id": 0,
                                "Total Allocated": total}})  # fmt: skip
    return events


def innermost(
    event: dict[str, Any], slices: list[dict[str, Any]], kinds: tuple[str, ...], skip: tuple[str, ...] = ()
) -> Any:
    """Return the name of the last slice around an event that began before all others, of some categories."""
    around = [
        one for one in slices
        if one["tid"] == event["tid"] and one["ts"] <= event["ts"] <= one["ts"] + one["dur"]
    ]  # fmt: skip
    names = [one["name"] for one in around if one["cat"] in kinds and not one["name"].startswith(skip)]
    return names[-1] if names else None


@pytest.mark.parametrize("seed", range(6))
def test_blocks_belong_to_the_ranges_around_their_allocation(tmp_path: Path, seed: int) -> None:
    events = random_trace(random.Random(seed))
    slices = [event for event in events if event["ph"] == "X"]
    trace = tmp_path / "a.pt.trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    store = tmp_path / "a.duckdb"
    traceconv.ingest(trace, db=store)
    expected, sums = {}, defaultdict(int)
    for event in events:
        if event["ph"] == "i":
            operator = innermost(event, slices, ("cpu_op",), ("aten::empty", "aten::resize_"))
            operator = operator or innermost(event, slices, ("cpu_op",))
            module = innermost(event, [one for one in slices if "nn.Module" in one["name"]], ("python_function",))
            other = innermost(event, [one for one in slices if "step" not in one["name"]],
                              ("user_annotation", "python_function"))  # fmt: skip
            expected[event["args"]["Addr"]] = (operator or other, module)
            sums[operator or other, module] += event["args"]["Bytes"]
    found = ask(
        store, "SELECT m.address, range_name, module_name FROM memory AS m JOIN allocating_range USING (block_id)"
    )
    assert {address: tuple(names) for address, *names in found} == expected
    rows = traceconv.open_store(store).report("memory-statistic", by_module=True)
    assert {(row["allocated_by"], row["module_name"]): row["allocated_bytes"] for row in rows} == sums
