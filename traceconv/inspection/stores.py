"""Stores, as `traceconv info` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceconv.base.errors import printable
from traceconv.formats.npulog.inspect import wall_clock_text
from traceconv.inspection.traces import seconds
from traceconv.reports.run import reading
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.database import open_store

_RUN_COLUMNS = (
    "run_id label group_label rank host source_format model_name start_ns end_ns epoch_known epoch_offset_ns complete"
)


def describe_store(path: Path) -> dict[str, Any]:
    """Describe a store for --json: its runs, and the number of rows of each table. Raises StoreError."""
    with open_store(path, older=True) as connection, reading():
        version, writer = connection.execute("SELECT schema_version, writer FROM store_info").fetchall()[0]
        columns = tuple(_RUN_COLUMNS.split())
        runs = connection.execute(f"SELECT {', '.join(columns)} FROM run ORDER BY run_id").fetchall()  # noqa: S608 - names above
        rows = {}
        for name in (table.name for table in tables().values() if table.since <= version):
            (rows[name],) = connection.execute(f"SELECT count(*) FROM {quote_identifier(name)}").fetchall()[0]  # noqa: S608 - our own names
    return {
        "kind": "store",
        "path": str(path),
        "schema_version": version,
        "writer": writer,
        "size_bytes": path.stat().st_size,
        "runs": [dict(zip(columns, run, strict=True)) for run in runs],
        "rows": rows,
    }


def store_lines(store: dict[str, Any]) -> Iterator[str]:
    """Describe it in lines of 80 columns."""
    yield f"{printable(store['path'], 60)}: a store, {store['size_bytes']:,} bytes"
    yield f"  schema version {store['schema_version']}, written by {printable(str(store['writer']), 40)}"
    for run in store["runs"]:
        state = "complete" if run["complete"] else "with losses (see import_log)"
        yield f"  run {run['run_id']}: {printable(str(run['label']), 50)}, {state}"
        known = ((title, run[name]) for title, name in (("rank", "rank"), ("host", "host"), ("group", "group_label")))
        whose = ", ".join(f"{title} {printable(str(value), 60)}" for title, value in known if value is not None)
        if whose:
            yield f"    {whose}"
        start, end = run["start_ns"], run["end_ns"]
        if start is not None and end is not None:
            since = wall_clock_text(start) if run["epoch_known"] else f"{start} ns"
            model = f", model {printable(run['model_name'], 30)}" if run["model_name"] else ""
            yield f"    {since}, {seconds(end - start)}{model}"
    for name, count in store["rows"].items():
        if count:
            yield f"  {name:<20}{count:>16,} rows"
