"""A run as the folder that `msprof --export=on` writes: mindstudio_profiler_output, with its timeline and tables.

The folder is written next to its place under another name and renamed when it is complete.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path

import duckdb

from traceconv.base.errors import InputError, OutputError, UsageError, option, printable
from traceconv.export.msprof_timeline import Timeline
from traceconv.export.output import CountedFile, open_output, partial_of, reason
from traceconv.export.registry import Written
from traceconv.export.timeline import exporting, limit_memory
from traceconv.reports.filters import make_filter
from traceconv.reports.msprof_csv import msprof_csv
from traceconv.reports.question import Question, find_report

FOLDER = "mindstudio_profiler_output"
#: DuckDB's limits. Next to the timeline's, the process has batches of its rows.
_TIMELINE_BYTES, _TABLES_BYTES = 150_000_000, 200_000_000
_TABLES = {
    "op_summary": "Executed operators and collectives: times, shapes and hardware counters of each execution.",
    "op_statistic": "Device time by operator type and core: calls, total, shortest, mean and longest time, share.",
    "step_trace": "Iterations: start of the forward pass, end of the backward pass, end, and the times in between.",
    "task_time": "All tasks of the devices: kernels, copies, collectives and events, with start, end and duration.",
    "fusion_op": "Fused operators: the operators that each replaces, and the memory it needs.",
    "api_statistic": "Host time by layer and call: calls, total, mean, shortest and longest time, variance.",
}
_TIMELINES = {
    "msprof": "Timeline of host calls, device tasks, communication, their overlap, and counters.",
    "step_trace": "Timeline of the iterations, also in msprof_*.json.",
}
_FILE = re.compile(rf"(?:(?:{'|'.join(_TABLES)})_\d{{14}}\.csv|(?:{'|'.join(_TIMELINES)})_\d{{14}}\.json|README\.txt)")
_README = """\
Profile of run {label}, written by traceconv in the layout of msprof.

{files}

Timestamps are microseconds since {origin}; in tables, each ends with a tab, so that spreadsheets show all digits.
Durations are microseconds. N/A: the value does not exist or was not recorded. The number in the file names is the start
of the recording in UTC. Files that do not apply to the recording are absent.

Open the timelines at https://ui.perfetto.dev or in chrome://tracing, the tables in a spreadsheet. Check the tables
against the timeline with: traceconv verify FOLDER
"""


def export_msprof(
    connection: duckdb.DuckDBPyConnection, run_id: int, output: Path | None, *, overwrite: bool = False
) -> Written:
    """Write a run as `mindstudio_profiler_output` in the folder `output`, by default in the PROF folder of the run.

    `overwrite` replaces such a folder, unless it has files that this function doesn't write. The connection's memory
    limit is set, and it gets temporary tables. Raises UsageError if there is no place for it, OutputError if it can't
    be written, StoreError if the store can't be read, InputError if the run has nothing to export.
    """
    with exporting(connection, run_id, _TIMELINE_BYTES, estimates=False):
        _check_devices(connection, run_id)
        target = _target(connection, run_id, output)
        timeline = Timeline(connection, run_id)
        with _new_folder(target, overwrite=overwrite) as folder:
            return _write(connection, run_id, timeline, folder, target)


def _check_devices(connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
    found = connection.execute("SELECT DISTINCT kind FROM device WHERE run_id = ? ORDER BY 1", [run_id]).fetchall()
    kinds = [str(kind) for (kind,) in found if kind is not None]
    if kinds and "NPU" not in kinds:
        raise InputError(
            f"run {run_id} is of a {printable(kinds[0])}, but msprof's layout is for NPUs; use: traceconv export chrome"
        )
    queries = " UNION ALL ".join(
        f"(SELECT 1 FROM {table} WHERE run_id = {run_id} LIMIT 1)"
        for table in ("task", "api", "range", "counter", "step")
    )
    if not connection.execute(queries).fetchall():
        raise InputError(f"run {run_id} has no tasks, calls, ranges, counters or steps to export")


def _target(connection: duckdb.DuckDBPyConnection, run_id: int, output: Path | None) -> Path:
    if output is not None:
        return output / FOLDER
    [(path,)] = connection.execute("SELECT source_path FROM run WHERE run_id = ?", [run_id]).fetchall()
    source = None if path is None else Path(path)
    if source is None or not source.name.startswith("PROF_") or not source.is_dir():
        where = "unknown" if path is None else printable(str(path))
        raise UsageError(f"the source of run {run_id} ({where}) is not a PROF folder here; name a folder with -o DIR")
    return source / FOLDER


@contextmanager
def _new_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the `with` block succeeds; otherwise nothing changes."""
    shown = printable(str(target))
    target = Path(os.path.realpath(target))
    partial, old = partial_of(target), partial_of(target)
    made: list[Path] = []
    try:
        _check_place(target, shown, overwrite=overwrite)
        made = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        yield partial
        if overwrite and target.is_dir():
            target.rename(old)
        try:
            partial.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise OutputError(f"can't write {shown}: {reason(error)}") from None
        raise


def _check_place(target: Path, shown: str, *, overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    if not overwrite or not target.is_dir():
        flags = option("--overwrite", "overwrite=True"), option("-o DIR", "path")
        advice = (
            f"replace it with {flags[0]}, or name another folder with {flags[1]}" if target.is_dir() else "remove it"
        )
        raise OutputError(f"{shown} already exists; {advice}")
    others = sorted(
        entry.name for entry in os.scandir(target) if not entry.is_file() or not _FILE.fullmatch(entry.name)
    )
    if others:
        raise OutputError(
            f"{shown} has files that this command does not write, such as {printable(others[0], 100)}; "
            "move them, or name another folder with -o DIR"
        )


def _write(
    connection: duckdb.DuckDBPyConnection, run_id: int, timeline: Timeline, folder: Path, target: Path
) -> Written:
    query = "SELECT label, start_ns, epoch_known FROM run WHERE run_id = ?"
    [(label, start_ns, epoch_known)] = connection.execute(query, [run_id]).fetchall()
    written: dict[str, str] = {}
    size_bytes = 0

    def write(name: str, doc: str, content: Callable[[CountedFile], None]) -> None:
        nonlocal size_bytes
        with open_output(folder / name) as file:
            counted = CountedFile(file)
            content(counted)
        written[name] = doc
        size_bytes += counted.size_bytes

    stamp = f"{datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=(start_ns or 0) // 10**9):%Y%m%d%H%M%S}"
    counts: dict[str, int] = {}
    omitted: dict[str, int] = {}

    def write_timeline(file: CountedFile) -> None:
        found, left = timeline.write(file)
        counts.update(found)
        omitted.update(left)

    write(f"msprof_{stamp}.json", _TIMELINES["msprof"], write_timeline)
    if timeline.steps:
        write(f"step_trace_{stamp}.json", _TIMELINES["step_trace"], timeline.write_steps)
    limit_memory(connection, _TABLES_BYTES)
    for name, doc in _TABLES.items():
        lines = _lines(connection, run_id, name)
        header, first = next(lines), next(lines, None)
        if first is not None:
            texts = chain((header, first), lines)
            write(f"{name}_{stamp}.csv", doc, lambda file, texts=texts: _write_texts(file, texts))  # type: ignore[misc]
    origin = "1970-01-01 UTC" if epoch_known else "an unknown time"
    files = "\n".join(f"{name}\n    {doc}" for name, doc in written.items())
    readme = _README.format(label=printable(str(label)), files=files, origin=origin)
    write("README.txt", "", lambda file: file.write(readme.encode()))
    return Written({**counts, "files": len(written)}, size_bytes, omitted, target)


def _lines(connection: duckdb.DuckDBPyConnection, run_id: int, name: str) -> Iterator[str]:
    report = find_report(name)
    others = ("annotation", "marker") if name == "step_trace" else ()  # steps of the host's program
    filters = tuple(make_filter(report, "step_source", "!=", other) for other in others)
    return msprof_csv(connection, Question(report, {"run": run_id}, report.columns, filters=filters))


def _write_texts(file: CountedFile, texts: Iterator[str]) -> None:
    for text in texts:
        file.write(text.encode())
