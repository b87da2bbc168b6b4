"""A lake of many tasks: reports straight from Parquet, by CPU time and peak memory, and the rate of exports and ingest.

    python -m benchmarks.lake [--tasks 10000000] [--run-tasks 1000000] [--json]

A run of the sample mini_transformer is repeated at later times until it has a million tasks, and exported. The other
runs are links to its files with entries of their own, so a lake of 100 million tasks takes the space of one run, and is
read from memory. The busy times of a run are compared with the unions of its tasks' intervals, computed in Python.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
from pathlib import Path

from benchmarks.measure import Measured, part, traceconv
from traceconv.lake.entries import Entry, entry_name, key_of, read_lake
from traceconv.lake.folder import lake_folder
from traceconv.store.database import open_store

_DATA = Path(__file__).parent / "data" / "lake"
_SAMPLE = Path(__file__).parents[1] / "sample_traces" / "mini_transformer"
_REPORTS = ("op-statistic", "breakdown")
_KINDS = {"compute_ns": ("compute",), "copy_ns": ("copy",), "collective_ns": ("collective",)}


def repeat(lake: Path, times: int) -> None:
    """Add runs with the files of the first one until there are `times`."""
    [first, *_] = read_lake(lake_folder(lake)).entries
    for number in range(1, times):
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        run = {**first.run, "label": f"run-{number}", "source_digest": digest}
        entry = Entry(key_of(digest), digest, first.added_ns + number, first.longest_text_bytes, run, first.files)
        for old, new in zip(first.paths(), entry.paths(), strict=True):
            (lake / new).parent.mkdir(parents=True, exist_ok=True)
            os.link(lake / old, lake / new)
        (lake / entry_name(entry.key)).write_bytes(entry.to_json())


def union_ns(store: Path, kinds: tuple[str, ...] | None) -> dict[int, int]:
    """Return the length of the union of the tasks' intervals by device; None: of all kinds except sync."""
    found: dict[int, int] = {}
    reached: dict[int, int] = {}
    sql = (
        "SELECT device_id, kind, start_ns, dur_ns FROM task WHERE start_ns IS NOT NULL AND dur_ns > 0 ORDER BY start_ns"
    )
    with open_store(store) as connection:
        for device, kind, start_ns, dur_ns in connection.execute(sql).fetchall():
            if kind in kinds if kinds else kind != "sync":
                end_ns = start_ns + dur_ns
                found[device] = found.get(device, 0) + max(0, end_ns - max(start_ns, reached.get(device, start_ns)))
                reached[device] = max(end_ns, reached.get(device, end_ns))
    return found


def check(store: Path, answers: dict[str, str], runs: int) -> None:
    """Compare each run's breakdown with the unions, and its operators with those of the store."""
    expected = {name: union_ns(store, kinds) for name, kinds in {"busy_ns": None, **_KINDS}.items()}
    rows = list(csv.DictReader(answers["breakdown"].splitlines()))
    assert len(rows) == runs * len(expected["busy_ns"])
    for row in rows:
        for name, by_device in expected.items():
            assert int(row[name]) == by_device.get(int(row["device_id"]), 0), (name, row)
    of_store = traceconv("report", "op-statistic", "--db", store, "--format", "csv").output.splitlines()[1:]
    lines = [line.split(",", 1)[1] for line in answers["op-statistic"].splitlines()[1:]]
    assert lines == [line.split(",", 1)[1] for line in of_store] * runs


def measure(tasks: int, run_tasks: int) -> dict[str, float]:
    """Build the lake and run the reports; return the measurements."""
    shutil.rmtree(_DATA, ignore_errors=True)
    _DATA.mkdir(parents=True)
    small, store, lake = _DATA / "small.duckdb", _DATA / "run.duckdb", _DATA / "lake"
    traceconv("ingest", _SAMPLE, "--db", small)
    part("multiply", str(small), str(store), str(run_tasks))
    exported = traceconv("export", "parquet", "--db", store, "-o", lake)
    back = traceconv("ingest", lake, "--db", _DATA / "back.duckdb")
    size = sum(path.stat().st_size for path in lake.rglob("*.parquet"))
    found = {
        "store_bytes": store.stat().st_size, "lake_bytes": size, "export_cpu_seconds": exported.cpu_seconds,
        "export_peak_bytes": exported.peak_bytes, "ingest_cpu_seconds": back.cpu_seconds,
        "ingest_peak_bytes": back.peak_bytes,
    }  # fmt: skip
    runs = -(-tasks // run_tasks)
    repeat(lake, runs)
    answers: dict[str, str] = {}
    for name in _REPORTS:
        done: Measured = traceconv("lake", "report", name, lake, "--run", "all", "--format", "csv")
        answers[name] = done.output
        found |= {
            f"{name}_seconds": done.seconds, f"{name}_cpu_seconds": done.cpu_seconds,
            f"{name}_peak_bytes": done.peak_bytes,
        }  # fmt: skip
    check(store, answers, runs)
    return found


def main() -> None:
    """Run the benchmark and print its measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000_000, help="tasks of all runs together")
    parser.add_argument("--run-tasks", type=int, default=1_000_000, help="tasks of a run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    found = measure(chosen.tasks, chosen.run_tasks)
    if chosen.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:<32}{value / 1e6:>12,.1f} MB" if name.endswith("_bytes") else f"{name:<32}{value:>12.2f} s")


if __name__ == "__main__":
    main()
