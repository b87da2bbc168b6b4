"""Stores and lakes, as `traceconv info` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceconv.base.errors import printable
from traceconv.formats.npulog.inspect import wall_clock_text
from traceconv.inspection.traces import seconds
from traceconv.lake.entries import check_files
from traceconv.lake.views import usable_lake
from traceconv.reports.fetch import reading
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.database import open_store

_RUN_COLUMNS = (
    "run_id", "label", "group_label", "rank", "host", "source_format", "model_name", "start_ns", "end_ns",
    "epoch_known", "epoch_offset_ns", "complete",
)  # fmt: skip


def describe_store(path: Path) -> dict[str, Any]:
    """Describe a store for --json: its runs, and the number of rows of each table. Raises StoreError."""
    with open_store(path, older=True) as connection, reading():
        version, writer = connection.execute("SELECT schema_version, writer FROM store_info").fetchall()[0]
        runs = connection.execute(f"SELECT {', '.join(_RUN_COLUMNS)} FROM run ORDER BY run_id").fetchall()  # noqa: S608 - names above
        rows = {}
        for name in (table.name for table in tables().values() if table.since <= version):
            (rows[name],) = connection.execute(f"SELECT count(*) FROM {quote_identifier(name)}").fetchall()[0]  # noqa: S608 - our own names
    return {
        "kind": "store",
        "path": str(path),
        "schema_version": version,
        "writer": writer,
        "size_bytes": path.stat().st_size,
        "runs": [dict(zip(_RUN_COLUMNS, run, strict=True)) for run in runs],
        "rows": rows,
    }


def describe_lake(path: Path, *, check: bool) -> dict[str, Any]:
    """Describe a lake for --json: its runs, the number of rows of each table, and what is missing or damaged.

    check  read all files and compare their digests

    Raises InputError for a folder that can't be read.
    """
    lake = usable_lake(path)
    rows = dict.fromkeys(tables(), 0)
    for entry in lake.entries:
        for file in entry.files:
            rows[file.table] += file.row_count
    runs = [{**entry.run, "run_id": number} for number, entry in enumerate(lake.entries, start=1)]
    return {
        "kind": "lake",
        "path": str(path),
        "schema_versions": sorted({entry.schema_version for entry in lake.entries}),
        "size_bytes": sum(file.size_bytes for entry in lake.entries for file in entry.files),
        "runs": [{name: run[name] for name in _RUN_COLUMNS} for run in runs],
        "rows": rows,
        "notes": lake.notes(),
        "problems": [*lake.problems, *(check_files(lake) if check else ())],
    }


def store_lines(store: dict[str, Any]) -> Iterator[str]:
    """Describe it in lines of 80 columns."""
    yield f"{printable(store['path'], 60)}: a store, {store['size_bytes']:,} bytes"
    yield f"  schema version {store['schema_version']}, written by {printable(str(store['writer']), 40)}"
    yield from _content_lines(store)


def lake_lines(lake: dict[str, Any]) -> Iterator[str]:
    """Describe it in lines of 80 columns, except notes and problems."""
    yield f"{printable(lake['path'], 60)}: a lake, {lake['size_bytes']:,} bytes in Parquet files"
    if versions := ", ".join(map(str, lake["schema_versions"])):
        yield f"  schema version {versions}"
    yield from _content_lines(lake)
    yield from (f"  {line}" for line in (*lake["notes"], *lake["problems"]))


def _content_lines(store: dict[str, Any]) -> Iterator[str]:
    """Describe the runs and tables of a store or lake."""
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
