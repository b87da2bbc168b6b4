"""Timelines of captures have the load of each device as counters, which plain arithmetic on the rows reproduces."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

import traceconv
from traceconv.base.errors import StoreError
from traceconv.export import load_counters
from traceconv.export.load_counters import Timed, running_sums


def test_counters_of_a_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_counters, "_BATCH_ROWS", 40)
    capture = traceconv.record("mini_transformer", tmp_path, iterations=2, devices=2, streams=3, deterministic=True)
    traceconv.ingest(capture, db=tmp_path / "t.duckdb")
    with traceconv.open_store(tmp_path / "t.duckdb") as store:
        store.export_chrome(tmp_path / "t.json")
        store.export_perfetto(tmp_path / "t.pftrace")
        tasks = store.query(
            "SELECT device_id, kind, op_id, submit_ns, start_ns, start_ns + dur_ns FROM task"
        ).fetchall()
        blocks = store.query(
            "SELECT device_id, alloc_ns, free_ns FROM memory WHERE kind = 'block' AND purpose <> 'workspace'"
        ).fetchall()
    document = json.loads((tmp_path / "t.json").read_text(), parse_float=Decimal)
    devices = {
        event["pid"]: int(event["args"]["name"].split(":")[0].split()[1])
        for event in document["traceEvents"]
        if event["name"] == "process_name" and event["args"]["layer"] == "device"
    }
    base_ns = int(document["otherData"]["base_ns"])
    found: dict[tuple[str, int], list[tuple[int, Decimal]]] = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "C" and event["name"].split(" (")[0] in ("Pending ops", "Live tensors", "Utilisation"):
            name = event["name"].split(" (")[0]
            found[name, devices[event["pid"]]].append((base_ns + int(event["ts"] * 1000), event["args"]["value"]))
    assert set(found) == {
        (name, device) for name in ("Pending ops", "Live tensors", "Utilisation") for device in (0, 1)
    }
    for (name, device), samples in found.items():
        ops = [(submit, start) for on, _, op, submit, start, _ in tasks if on == device and op is not None]
        own = [(alloc or base_ns, free) for on, alloc, free in blocks if on == device]
        work = [(start, end) for on, kind, *_, start, end in tasks if on == device and kind != "sync"]
        if name == "Utilisation":
            first, last = min(start for start, _ in work), max(end for _, end in work)
            assert samples[0][0] == first and samples[-1] == (last, 0) and len(samples) == 101
            for (low, percent), (high, _) in itertools.pairwise(samples):
                busy = covered([(max(start, low), min(end, high)) for start, end in work])
                assert float(percent) == pytest.approx(float(Fraction(100 * busy, high - low)))
            continue
        levels = ops if name == "Pending ops" else own
        assert max(value for _, value in samples) > 1
        assert all(one != other for (_, one), (_, other) in itertools.pairwise(samples))
        for ts_ns, value in samples:
            assert value == sum(begin <= ts_ns and (end is None or end > ts_ns) for begin, end in levels)
    # A trace that is ingested again has the rows of the capture; the counters are computed again.
    traceconv.ingest(tmp_path / "t.json", tmp_path / "t.pftrace", db=tmp_path / "again.duckdb")
    with traceconv.open_store(tmp_path / "again.duckdb") as store:
        names = "SELECT DISTINCT t.name FROM counter JOIN track AS t USING (run_id, track_id)"
        assert not {"Pending ops", "Live tensors", "Utilisation"} & {name for (name,) in store.query(names).fetchall()}


def covered(intervals: list[tuple[int, int]]) -> int:
    """Length of the union."""
    total, until = 0, None
    for low, high in sorted(interval for interval in intervals if interval[0] < interval[1]):
        total += max(0, high - (low if until is None else max(low, until)))
        until = high if until is None else max(until, high)
    return total


def test_sums_of_changes() -> None:
    connection = duckdb.connect()
    changes = "(VALUES (3, 2), (1, 5), (3, -2), (4, -5), (NULL, 1)) AS t(ts_ns, change)"
    [found] = running_sums(connection, [Timed(changes, "ts_ns", ("change", "1"))])
    assert [column.tolist() for column in found] == [[1, 3, 4], [5, 5, 0], [1, 3, 4]]
    with pytest.raises(StoreError, match="64 bits"):
        list(running_sums(connection, [Timed("range(3) AS r(n)", "n", (f"{2**62}",))]))


@pytest.mark.parametrize("most_rows", [1, 2, 100])
def test_sums_of_changes_in_chunks(monkeypatch: pytest.MonkeyPatch, most_rows: int) -> None:
    """Changes at one time are in one chunk, also if they come from several SELECTs and are many."""
    monkeypatch.setattr("traceconv.export.load_counters._CHUNK_ROWS", most_rows)
    connection = duckdb.connect()
    blocks = "(SELECT n AS first, n + 5 AS until FROM range(-10, 10) AS r(n))"
    parts = [Timed(blocks, "first", ("1",)), Timed(blocks, "until", ("-1",))]
    times, sums = (np.concatenate(columns).tolist() for columns in zip(*running_sums(connection, parts), strict=True))
    assert dict(zip(times, sums, strict=True)) == {
        t: sum(n <= t < n + 5 for n in range(-10, 10)) for t in range(-10, 15)
    }
    assert times == sorted(times)
