"""Memory in a vendor's folder: memory allocated before the recording counts; tracks of one name are distinguished."""

from __future__ import annotations

import csv
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from stores import query

from traceconv.pipeline.ingest import ingest

T0_NS = 1_736_408_883_709_301_000
UNITS = {"KB": 1024, "MB": 1 << 20}
Moments = dict[tuple[int, str], list[tuple[int, int, int]]]


def us(ns: int | None) -> str:
    return "" if ns is None else f"{Decimal(ns) / 1000:f}\t"


def simulated(seed: int, unit: str, places: int | None) -> tuple[list[dict[str, Any]], Moments]:
    """Rows of operator_memory.csv, and (ns, allocated, reserved) of each allocation, by device and pool.

    Of what was allocated before the recording, some is freed in it: as a row of its own, or seen in the totals alone.
    """
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    moments: Moments = {}
    for device in (0, 3):
        for pool, prefix in (("PTA", "aten::"), ("GE", "cann::")):
            hidden = [512 * draw.randrange(1, 9000) for _ in range(8)]
            live: list[dict[str, Any]] = []
            reserved, ns = 8 << 20, T0_NS + draw.randrange(1000)

            def text(value: int) -> str:
                amount = Decimal(value) / UNITS[unit]
                return f"{amount:f}" if places is None else f"{amount:.{places}f}"

            for number in range(60):
                ns += draw.randrange(1, 5000)
                what = draw.random()
                if what < 0.2 and live:
                    live.pop(draw.randrange(len(live)))["free"] = ns
                elif what < 0.25 and hidden:
                    hidden.pop()
                elif what < 0.3 and hidden:
                    size = hidden.pop()
                    rows.append({"name": f"{prefix}old", "size": -size, "alloc": None, "free": ns, "device": device})
                else:
                    size = 512 * draw.randrange(1, 4000)
                    live.append(
                        {"name": f"{prefix}op{number}", "size": size, "alloc": ns, "free": None, "device": device}
                    )
                    rows.append(live[-1])
                    total = sum(hidden) + sum(row["size"] for row in live)
                    reserved = max(reserved, total + (2 << 20))
                    if number == 50:
                        reserved -= 1 << 20
                    live[-1] |= {"total": text(total), "reserved": text(reserved)}
                    moments.setdefault((device, pool), []).append((ns, total, reserved))
    return rows, moments


def write(folder: Path, rows: list[dict[str, Any]], unit: str | None) -> Path:
    folder = folder / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir()
    with (folder / "operator_memory.csv").open("w", newline="") as file:
        out = csv.writer(file)
        totals = [f"Allocation Total Allocated({unit})", f"Allocation Total Reserved({unit})"] if unit else []
        names = ["Name", "Size(KB)", "Allocation Time(us)", "Release Time(us)", *totals, "Stream Ptr", "Device Type"]
        out.writerow(names)
        for row in rows:
            cells = [row.get("total", ""), row.get("reserved", "")] if unit else []
            size = f"{Decimal(row['size']) / 1024:f}"
            out.writerow([row["name"], size, us(row["alloc"]), us(row["free"]), *cells, "12", f"NPU:{row['device']}"])
    return folder


def stored(folder: Path, tmp_path: Path) -> Path:
    ingest([folder], tmp_path / "trace.duckdb")
    return tmp_path / "trace.duckdb"


@pytest.mark.parametrize("unit", ["MB", "KB"])
@pytest.mark.parametrize("seed", range(4))
def test_memory_allocated_before_the_recording_counts(seed: int, unit: str, tmp_path: Path) -> None:
    rows, moments = simulated(seed, unit, None)
    store = stored(write(tmp_path, rows, unit), tmp_path)
    usage = query(store, "SELECT device_id, pool, ts_ns, used_bytes, reserved_bytes FROM memory_usage")
    peaks = query(store, "SELECT device_id, pool, peak_used_bytes, peak_ns, reserved_bytes FROM memory_peak")
    levels = {(device, pool, ns): (used, reserved) for device, pool, ns, used, reserved in usage}
    for (device, pool), found in moments.items():
        assert [(ns, *levels[device, pool, ns]) for ns, _, _ in found] == found
        most = max(total for _, total, _ in found)
        at = min(ns for ns, total, _ in found if total == most)
        held = next(reserved for ns, _, reserved in found if ns == at)
        assert (device, pool, most, at, held) in peaks
    assert sorted((device, pool or "") for device, pool, *_ in peaks) == [
        (device, pool) for device in (0, 3) for pool in ("", "GE", "PTA")
    ]


def test_rounded_totals_add_no_blocks(tmp_path: Path) -> None:
    rows, moments = simulated(1, "MB", 3)
    exact, _ = simulated(1, "MB", None)
    (tmp_path / "exact").mkdir()
    store = stored(write(tmp_path, rows, "MB"), tmp_path)
    peaks = query(store, "SELECT device_id, pool, peak_used_bytes FROM memory_peak WHERE level = 'pool'")
    count = query(store, "SELECT count(*) FROM memory WHERE op_id IS NULL")
    store = stored(write(tmp_path / "exact", exact, "MB"), tmp_path / "exact")
    assert count == query(store, "SELECT count(*) FROM memory WHERE op_id IS NULL")
    for device, pool, peak in peaks:
        assert abs(peak - max(total for _, total, _ in moments[device, pool])) < 2 * 1049


def test_without_totals_only_blocks_count(tmp_path: Path) -> None:
    rows, _ = simulated(2, "MB", None)
    store = stored(write(tmp_path, rows, None), tmp_path)
    assert query(store, "SELECT count(*), count(*) FILTER (kind = 'segment') FROM memory") == [(len(rows), 0)]
    assert query(store, "SELECT DISTINCT reserved_bytes FROM memory_peak") == [(None,)]


def test_counters_of_one_name_in_two_files_are_distinguished(tmp_path: Path) -> None:
    folder = write(tmp_path, [], "MB")
    (folder / "memory_record.csv").write_text(
        "Component,Timestamp(us),Total Allocated(MB),Stream Ptr,Device Type\nAPP,1736408883576247.350\t,5,,NPU:1\n"
        "PTA,1736408883576247.350\t,4,77,NPU:1\n"
    )
    (folder / "npu_module_mem.csv").write_text(
        "Component,Timestamp(us),Total Reserved(MB),Device\nAPP,1736408883576247.350\t,7,NPU:1\n"
    )
    store = stored(folder, tmp_path)
    tracks = query(
        store,
        "SELECT k.name, k.device_id, c.value_int FROM track AS k JOIN counter AS c USING (run_id, track_id) ORDER BY 1",
    )
    assert tracks == [
        ("APP (memory_record)", 1, 5),
        ("APP (npu_module_mem)", 1, 7),
        ("PTA (memory_record, stream 77)", 1, 4),
    ]
