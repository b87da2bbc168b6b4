"""What a job's recording needs: bytes and CPU time per event, measured, and the arithmetic for many ranks.

    python -m benchmarks.sizing [--records 1000000] [--megabytes 200] [--ranks 1000] [--seconds 3600]
                                [--events-per-second 60000] [--cores 16] [--json]

A raw capture (benchmarks.generate) and a trace with the shape of a PyTorch trace (shaped_trace), plain and compressed,
are each ingested into a store and exported to a lake, in new processes. An event is a record of the source.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import run, traceconv
from benchmarks.shaped_trace import write_shaped

_COUNT = "SELECT sum(record_count)::BIGINT AS events FROM import_account"


def _size(path: Path) -> int:
    return (
        path.stat().st_size if path.is_file() else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    )


def _inputs(top: Path, records: int, megabytes: int) -> dict[str, Path]:
    """Write the sources."""
    raw, text, packed = top / "raw", top / "trace.json", top / "trace.json.gz"
    run([sys.executable, "-m", "benchmarks.generate", "--records", str(records), "-o", str(raw)])
    write_shaped(text, "pytorch", megabytes * 1_000_000)
    with text.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return {"raw": raw, "json": text, "json.gz": packed}


def measure(records: int, megabytes: int) -> dict[str, dict[str, float]]:
    """Ingest and export each source; return what an event needs."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for kind, source in _inputs(Path(name), records, megabytes).items():
            store, lake = Path(name) / "s.duckdb", Path(name) / "lake"
            ingested = traceconv("ingest", source, "--db", store)
            exported = traceconv("export", "parquet", "--db", store, "-o", lake)
            events = int(traceconv("query", _COUNT, "--db", store, "--format", "csv").output.split()[1])
            found[kind] = {
                "events": events,
                "source_bytes": _size(source) / events,
                "store_bytes": _size(store) / events,
                "parquet_bytes": _size(lake) / events,
                "ingest_us": ingested.cpu_seconds * 1e6 / events,
                "export_us": exported.cpu_seconds * 1e6 / events,
                "ingest_peak_mb": ingested.peak_bytes / 1e6,
                "export_peak_mb": exported.peak_bytes / 1e6,
            }
            store.unlink()
            shutil.rmtree(lake)
    return found


def plan(of: dict[str, float], events: float, cores: int) -> dict[str, float]:
    """What a number of events needs: terabytes, hours of CPU time, and minutes and gigabytes on these cores."""
    cpu_seconds = events * (of["ingest_us"] + of["export_us"]) / 1e6
    return {
        "source_tb": events * of["source_bytes"] / 1e12,
        "parquet_tb": events * of["parquet_bytes"] / 1e12,
        "cpu_hours": cpu_seconds / 3600,
        "minutes": cpu_seconds / 60 / cores,
        "memory_gb": cores * max(of["ingest_peak_mb"], of["export_peak_mb"]) / 1e3,
    }


def main() -> None:
    """Measure, and print both tables."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--records", type=int, default=1_000_000, help="of the raw capture")
    arguments.add_argument("--megabytes", type=int, default=200, help="of the trace")
    arguments.add_argument("--ranks", type=int, default=1000)
    arguments.add_argument("--seconds", type=float, default=3600, help="recorded time of a rank")
    arguments.add_argument("--events-per-second", type=float, default=60_000, help="of a rank while it is recorded")
    arguments.add_argument("--cores", type=int, default=16, help="cores that ingest, each with a file of its own")
    arguments.add_argument("--json", action="store_true", help="print JSON")
    options = arguments.parse_args()
    measured = measure(options.records, options.megabytes)
    events = options.ranks * options.seconds * options.events_per_second
    plans = {kind: plan(of, events, options.cores) for kind, of in measured.items()}
    if options.json:
        print(json.dumps({"measured": measured, "events": events, "plans": plans}))
        return
    for title, rows in (("measured, per event", measured), (f"{events:,.0f} events", plans)):
        print(f"{title:<24}" + "".join(f"{kind:>14}" for kind in rows))
        for name in next(iter(rows.values())):
            print(f"  {name:<22}" + "".join(f"{of[name]:>14,.2f}" for of in rows.values()))


if __name__ == "__main__":
    main()
