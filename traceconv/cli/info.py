"""`traceconv info`: identify files and folders, and check their integrity."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, InputError, printable
from traceconv.cli.info_trace import (
    describe_document,
    describe_folder,
    describe_trace,
    document_lines,
    folder_lines,
    listed,
    seconds,
    trace_lines,
    unreadable_in,
)

if TYPE_CHECKING:
    from traceconv.formats.npulog.inspect import CaptureState, FileState
    from traceconv.pipeline.discover import Sources

_RUN_COLUMNS = (
    "run_id label group_label rank host source_format model_name start_ns end_ns epoch_known epoch_offset_ns complete"
)
_DUCKDB_MAGIC = b"DUCK"  # at byte 8


def info(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Captures, trace files, folders that contain them, .bin files, stores.",
        show_default=False,
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Only read headers and manifest, or the first events of a trace."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list with one object per file or folder."),
) -> None:
    """Identify a file and check its integrity.

    PATH is a capture (PROF_…), a single .bin file, a trace file in any format that ingest reads, a folder that contains
    some, or a store. Nothing is stored.

    For captures: writer, model, devices, time and the number of records by type, checking every block. For trace files:
    format, writer if known, top-level keys, number of events by kind, time and damage. For other JSON documents: an
    outline, to start a rule file from (ingest --rules). For stores: runs and row counts.

    Exit codes: 0 intact; 3 something is damaged or missing; 1 nothing usable.

    \b
    Examples:
      traceconv info raw/
      traceconv info raw/ --quick       trust headers and manifest
      traceconv info trace.json.gz      what an ingest would find
      traceconv info *.pftrace --quick  only the first events
      traceconv info results.json       outline of a JSON document
      traceconv info trace.duckdb
    """
    from traceconv.cli.output import print_message

    found = _Findings(as_json)
    stores = [path for path in paths if _is_duckdb(path)]
    for path in stores:
        store = _describe_store(path)
        found.add(store, _store_lines(store))
    _inspect(found, [path for path in paths if path not in stores], quick)
    if found.problems and not found.described:
        more = f"; and {len(found.problems) - 1} similar problems" if len(found.problems) > 1 else ""
        raise InputError(found.problems[0] + more)
    if as_json:
        typer.echo(json.dumps(found.described, indent=1))
    for problem in found.problems:
        print_message(problem)
    if not found.usable:
        raise typer.Exit(1)
    if found.problems or not found.intact:
        raise typer.Exit(EXIT_DATA_LOSS)


class _Findings:
    """What was found so far; without --json it is printed at once."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.described: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.intact, self.usable = True, False

    def add(
        self, description: dict[str, Any], lines: Iterable[str], *, intact: bool = True, usable: bool = True
    ) -> None:
        self.described.append(description)
        self.intact, self.usable = self.intact and intact, self.usable or usable
        if not self._as_json:
            typer.echo("\n".join(lines))


def _inspect(found: _Findings, paths: list[Path], quick: bool) -> None:
    """Inspect everything but stores."""
    from traceconv.formats.npulog.inspect import inspect_capture

    sources = _sources(paths)
    for capture, _ in sources.captures:
        state = inspect_capture(capture, scan=not quick)
        found.add(_describe_capture(state), _capture_lines(state), intact=state.intact, usable=state.usable)
    for folder, _ in sources.folders:
        found.add(describe_folder(folder), folder_lines(folder))
        found.problems += unreadable_in(folder)
    if sources.traces or sources.unusable:
        from traceconv.pipeline.inspect import inspect_document, inspect_trace

    def add_document(path: Path, problem: str) -> None:
        """Outline a document without a reader; any other file is a problem."""
        document = inspect_document(path, scan=not quick)
        if document is None:
            found.problems.append(problem)
        else:
            found.add(describe_document(document), document_lines(document), intact=document.stopped_at is None)

    for unusable in sources.unusable:
        add_document(unusable.path, unusable.message)
    for file in sources.traces:
        try:
            trace = inspect_trace(file.path, file.reader, scan=not quick)
        except InputError as error:
            if file.top is None:
                add_document(file.path, str(error))
            elif file.sure:
                found.problems.append(str(error))
            continue
        found.add(describe_trace(trace), trace_lines(trace), intact=trace.intact)


def _sources(paths: list[Path]) -> Sources:
    from traceconv.pipeline.discover import Sources, find_sources

    return find_sources(paths, None) if paths else Sources()


def _is_duckdb(path: Path) -> bool:
    if not os.path.isfile(path):
        return False  # opening a pipe would wait for its writer
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == _DUCKDB_MAGIC
    except OSError:
        return False  # reported when it is opened as a capture


def _capture_lines(state: CaptureState) -> Iterator[str]:
    from traceconv.formats.npulog.inspect import wall_clock_text

    capture = state.capture
    single = len(capture.files) == 1
    name = capture.files[0].relative_path if single else capture.path.name or str(capture.path)
    yield printable(name, 80)
    yield f"  {'a log file' if single else 'a capture'} of the NPU runtime: {_verdict(state)}"
    facts = {
        "writer": state.writer,
        "model": state.model_name,
        "host": state.host_name,
        "start": None if state.epoch_ns is None else wall_clock_text(state.epoch_ns),
        "duration": None if state.dur_ns is None else seconds(state.dur_ns),
        "manifest": "present" if capture.manifest else capture.manifest_problem,
    }
    for title, fact in facts.items():
        if fact is not None:
            yield f"  {title:<9} {printable(fact, 68)}"
    for device in state.devices:
        known = [device.name, device.kind, None if device.clock_hz is None else f"counter {device.clock_hz:,} Hz"]
        text = ", ".join(filter(None, known)) or "no description"
        yield f"  {'device ' + str(device.device_id):<9} {printable(text, 66)}"
    yield _counts("record", ("files", "bytes", "blocks", "records", "lost"))
    for stream, files in _streams(state).items():
        numbers = (
            len(files),
            sum(file.file.size_bytes for file in files),
            sum(file.block_count for file in files) if state.scanned else None,
            sum(file.total for file in files) if state.scanned or capture.manifest else None,
            sum(file.lost_count for file in files) if state.scanned else None,
        )
        yield _counts(printable(stream, _NAME_WIDTH), ["-" if number is None else f"{number:,}" for number in numbers])
    if not state.scanned:
        yield "  (--quick: record counts are from the manifest; blocks were not read)"
    if single:
        yield from _header_lines(state.files[0])
    problems = [*state.problems]
    for file in state.files:
        problems += [f"{printable(file.file.relative_path)}: {problem}" for problem in file.problems]
    yield from listed([("!", problem) for problem in problems])


def _header_lines(state: FileState) -> Iterator[str]:
    """The header of a file and the layout of its records."""
    header = state.header
    if header is None:
        return
    clock = f"{header.clock}, {header.clock_hz:,} Hz"
    yield f"  format version {header.version}, writer {header.writer_id:016x}, clock {clock}"
    yield f"  slice {header.slice_index}, first record {header.first_sequence:,} of its stream"
    for schema in header.schemas:
        yield f"  schema {schema.name}: tag {schema.tag}, {schema.size_bytes} bytes per record"
        for field in schema.fields:
            yield f"    {field.name:<26} {field.type:<10} {printable(field.unit, 30)}"


_NAME_WIDTH = 30
_WIDTHS = (6, 14, 7, 13, 8)


def _counts(name: str, cells: Iterable[str]) -> str:
    return f"  {name:<{_NAME_WIDTH}}" + "".join(f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))


def _verdict(state: CaptureState) -> str:
    if state.intact:
        return "intact" if state.scanned else "no problems found"
    return "damaged" if state.usable else "nothing readable"


def _streams(state: CaptureState) -> dict[str, list[FileState]]:
    """Group the files by owner and record type."""
    streams: dict[str, list[FileState]] = {}
    for file in state.files:
        owner = "host" if file.file.device_id is None else f"device_{file.file.device_id}"
        streams.setdefault(f"{owner}/{file.record}", []).append(file)
    return streams


def _describe_capture(state: CaptureState) -> dict[str, Any]:
    capture = state.capture
    manifest = capture.manifest
    return {
        "kind": "capture",
        "path": str(capture.path),
        "intact": state.intact,
        "usable": state.usable,
        "scanned": state.scanned,
        "manifest": "present" if manifest else capture.manifest_problem,
        "manifest_extra": dict(manifest.extra) if manifest else {},
        "writer": state.writer,
        "model_name": state.model_name,
        "host_name": state.host_name,
        "start_epoch_ns": state.epoch_ns,
        "dur_ns": state.dur_ns,
        "devices": [asdict(device) for device in state.devices],
        "files": [_describe_file(file) for file in state.files],
        "missing": list(capture.missing),
        "problems": state.problems,
    }


def _describe_file(state: FileState) -> dict[str, Any]:
    header = state.header
    about = header and {
        "version": header.version,
        "writer_id": f"{header.writer_id:016x}",
        "clock": header.clock,
        "clock_hz": header.clock_hz,
        "first_sequence": header.first_sequence,
        "slice_index": header.slice_index,
        "schemas": [schema.to_wire() for schema in header.schemas],
    }
    return {
        "path": state.file.relative_path,
        "record": state.record,
        "device_id": state.file.device_id,
        "size_bytes": state.file.size_bytes,
        "header": about,
        "block_count": state.block_count if state.scanned else None,
        "record_count": state.record_count if state.scanned else None,
        "lost_count": state.lost_count if state.scanned else None,
        "manifest_record_count": state.counted.record_count if state.counted else None,
        "problems": state.problems,
    }


def _describe_store(path: Path) -> dict[str, Any]:
    from traceconv.schema import tables
    from traceconv.schema.ddl import quote_identifier
    from traceconv.store.database import open_store

    with open_store(path, older=True) as connection:
        version, writer = connection.execute("SELECT schema_version, writer FROM store_info").fetchall()[0]
        columns = tuple(_RUN_COLUMNS.split())
        runs = connection.execute(f"SELECT {', '.join(columns)} FROM run ORDER BY run_id").fetchall()  # noqa: S608 - names above
        rows = {}
        for name in tables():
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


def _store_lines(store: dict[str, Any]) -> Iterator[str]:
    from traceconv.formats.npulog.inspect import wall_clock_text

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
