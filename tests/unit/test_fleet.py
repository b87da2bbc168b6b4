"""A simulated job of many ranks (benchmarks.fleet): the reports find the planted faults, and nothing else."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet import Fleet
from traceconv.api import Store, open_store
from traceconv.export.one_clock import on_one_clock
from traceconv.pipeline.ingest import ingest
from traceconv.store.database import open_store as open_store_file

#: Ends of collectives are apart by chance; a planted fault is longer.
NOISE_NS = 100_000
Truth = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("fleet")
    Fleet(16, 8, seed=3).write(folder / "job")
    return folder


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[Store]:
    ingest([folder / "job"], folder / "trace.duckdb")
    with open_store(folder / "trace.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def truth(folder: Path) -> Truth:
    found: Truth = json.loads((folder / "job" / "truth.json").read_text())
    return found


def test_its_traces_are_complete(store: Store) -> None:
    assert store.report("trust", run="all").fetchall() == []


def test_late_ranks(store: Store, truth: Truth) -> None:
    late = {
        (row["rank"], row["iteration"], row["late_in"], row["late_ns"])
        for row in store.report("stragglers")
        if row["late_ns"] > NOISE_NS
    }
    planted = {(one["rank"], one["step"], one["kind"], one["late_ns"]) for one in truth if one["rank"] is not None}
    assert {kind for _, _, kind, _ in planted} == {"compute", "data_loading", "host"}
    assert late == planted


def test_slow_link(store: Store, truth: Truth) -> None:
    speeds = defaultdict(list)
    for row in store.report("collectives", run="all"):
        if row["comm_group"].startswith("dp"):
            speeds[row["comm_group"]].append(row["transfer_bus_bytes_per_s"])
    [slow] = [one for one in truth if one["kind"] == "link"]
    usual = max(max(one) for one in speeds.values())
    factors = {group: round(usual / min(one), 1) for group, one in speeds.items()}
    assert factors == {f"dp{n}": 3.0 if f"dp{n}" == slow["comm_group"] else 1.0 for n in range(8)}


def test_clock_that_is_ahead(store: Store, truth: Truth) -> None:
    [ahead] = [one for one in truth if one["kind"] == "clock"]
    hosts = dict(store.query("SELECT run_id, host FROM run").fetchall())
    for row in store.report("collectives", run="all"):
        is_ahead = hosts[row["run_id"]] == ahead["host"] and row["comm_group"].startswith("dp")
        late = -row["clock_offset_ns"] - (ahead["late_ns"] if is_ahead else 0)
        assert abs(late) <= row["clock_error_ns"] < 2000, row
        assert 0 <= row["clock_off_ns"] <= (ahead["late_ns"] if is_ahead else 0), row


def test_a_timeline_of_all_ranks_is_on_one_clock(store: Store, truth: Truth) -> None:
    """Ranks of the host that is ahead have groups with the others, or are in one with such ranks."""
    [ahead] = [one for one in truth if one["kind"] == "clock"]
    hosts = dict(store.query("SELECT run_id, host FROM run").fetchall())
    with open_store_file(store.path) as connection:
        placed, notes = on_one_clock(connection, list(hosts))
    assert not notes
    offsets = {one.run_id: one.offset_ns for one in placed}
    for run_id, host in hosts.items():
        off = offsets[run_id] - offsets[min(hosts)] + (ahead["late_ns"] if host == ahead["host"] else 0)
        assert abs(off) < 2000, (host, off)


def test_waits_equal_a_plain_recount(store: Store, folder: Path) -> None:
    """On one host: from the start of a kernel to the last start of the same one, in integers from the text."""
    found: dict[tuple[str, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for rank in range(16):
        trace = json.loads((folder / f"job/rank{rank}.json").read_text(), parse_float=Decimal)
        steps = [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep")]
        launches = {e["args"]["correlation"]: e["ts"] for e in trace["traceEvents"] if e["name"] == "cudaLaunchKernel"}
        count: dict[tuple[str, int], int] = defaultdict(int)
        for event in trace["traceEvents"]:
            group = event.get("args", {}).get("Process Group Name", "")
            if group.startswith("tp"):
                at = launches[event["args"]["correlation"]]
                step = next(n for n, (start, end) in enumerate(steps) if start <= at < end)
                count[group, step] += 1
                found[group, step, count[group, step]].append((rank, int(event["ts"] * 1000), int(event["dur"] * 1000)))
    waits: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (group, *_), kernels in found.items():
        starts = sorted(start for _, start, _ in kernels)
        for rank, start, dur in kernels:
            is_last = start == starts[-1] and starts[0] < start
            sums = (starts[-1] - start, dur - (starts[-1] - start), is_last, is_last * (starts[-1] - starts[-2]))
            waits[group, rank] = [a + b for a, b in zip(waits[group, rank], sums, strict=True)]
    rows = {
        (row["comm_group"], row["rank"]): [row["wait_ns"], row["transfer_ns"], row["last_count"], row["late_ns"]]
        for row in store.report("collectives", run="all")
        if row["comm_group"].startswith("tp")
    }
    assert rows == dict(waits)
