"""Open a store with the installed DuckDB and print the results of typical queries as one line of JSON.

python package_walk.py FOLDER TRACE…
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb

import traceconv
from traceconv.reports.catalog import reports


def walk(folder: Path, traces: list[Path]) -> dict[str, object]:
    path = folder / "trace.duckdb"
    answers: dict[str, object] = {"runs": len(traceconv.ingest(*traces, db=path))}
    with traceconv.open_store(path) as store:
        converted: set[str] = set()
        for name, report in reports().items():
            rows = store.report(name, run="all")
            answers[name] = sorted(map(repr, rows.fetchall()))
            frames = answers[f"{name}, frames"] = [str(field.type) for field in rows.arrow().schema]
            types = {column.type for column in report.columns} - converted
            if types:  # other frames, which are made of Arrow's tables, once per type
                converted |= types
                frames += [*map(str, rows.df().dtypes), *(map(str, rows.pl().dtypes) if find_spec("polars") else ())]
            top = report.measure
            if top and answers[name]:
                answers[f"{name}, top"] = [repr(row[top]) for row in store.report(name, run="all", top=3)]
        for run_id, *_ in store.query("SELECT run_id FROM run ORDER BY run_id").fetchall():
            # A second connection to the same file in this process.
            with traceconv.open_store(path) as other:
                other.export_chrome(folder / f"{run_id}.json", run=run_id)
                other.export_perfetto(folder / f"{run_id}.pftrace", run=run_id)
            for name in (f"{run_id}.json", f"{run_id}.pftrace"):
                answers[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return answers


if __name__ == "__main__":
    out, *files = map(Path, sys.argv[1:])
    sys.stdout.write(json.dumps({"duckdb": duckdb.__version__, "answers": walk(out, files)}))
