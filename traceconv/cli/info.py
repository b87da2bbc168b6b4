"""`traceconv info`: what a file or folder is, and whether it is whole."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from traceconv.cli.info_trace import (
    describe_document,
    describe_folder,
    describe_trace,
    document_lines,
    folder_lines,
    trace_lines,
    unreadable_in,
)

if TYPE_CHECKING:
    from traceconv.formats.npulog.inspect import CaptureState, FileState
    from traceconv.pipeline.discover import Sources

HELP = """Say what a file or folder is, and whether it is whole.

PATH is a capture (PROF_…), a single .bin file of one, a trace file of any format that ingest reads, a folder
that holds some, or a store. Of a capture: who wrote it, which model and devices, when, and how many records of
each type there are, found by reading every block and checking it. Of a trace file: its format, who wrote it as far
as it is known, what stands around its events, how many there are of each kind and when, and what is damaged.
Of any other JSON document: its outline, as a start for a rule file that says where its items are (ingest --rules).
Nothing is stored. Of a store: its runs, and the rows of its tables.

Exit code: 0 all is whole, 3 something is damaged or missing, 1 nothing that can be used.

\b
Examples:
  traceconv info raw/
  traceconv info raw/ --quick      trust headers and manifest, read no blocks
  traceconv info trace.json.gz     what an ingest would find in it
  traceconv info *.pftrace --quick read the first events only
  traceconv info results.json      outline of a JSON document
  traceconv info trace.duckdb
"""

_SHOWN_PROBLEMS = 20
_RUN_COLUMNS = (
    "run_id label group_label rank host source_format model_name start_ns end_ns epoch_known epoch_offset_ns complete"
)
_DUCKDB_MAGIC = b"DUCK"  # at byte 8


def info(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Captures, trace files, folders that hold some, .bin files, stores.",
        show_default=False,
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Read headers and the manifest only; of a trace its first events."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON list, an object for each thing found."),
) -> None:
    from traceconv.base.errors import EXIT_DATA_LOSS, InputError
    from traceconv.cli.output import say
    from traceconv.formats.npulog.inspect import inspect_capture

    described: list[dict[str, Any]] = []
    whole, usable = True, False

    def tell(one: dict[str, Any], lines: Iterator[str]) -> None:
        described.append(one)
        if not as_json:
            typer.echo("\n".join(lines))

    stores = [path for path in paths if _is_duckdb(path)]
    for path in stores:
        one = _describe_store(path)
        tell(one, _store_lines(one))
        usable = True
    found = _sources([path for path in paths if path not in stores])
    problems: list[str] = []
    for capture, _ in found.captures:
        state = inspect_capture(capture, scan=not quick)
        whole, usable = whole and state.whole, usable or state.usable
        tell(_describe_capture(state), _capture_lines(state))
    for folder, _ in found.folders:
        usable = True
        tell(describe_folder(folder), folder_lines(folder))
        problems += unreadable_in(folder)
    if found.traces or found.unusable:
        from traceconv.pipeline.inspect import inspect_document, inspect_trace  # with all that it alone needs

    def tell_document(path: Path, problem: str) -> None:
        """The outline of a document that no reader knows; the problem with any other file."""
        nonlocal whole, usable
        document = inspect_document(path, scan=not quick)
        if document is None:
            problems.append(problem)
            return
        whole, usable = whole and document.stopped_at is None, True
        tell(describe_document(document), document_lines(document))

    for unusable in found.unusable:
        tell_document(unusable.path, unusable.message)
    for file in found.traces:
        try:
            trace = inspect_trace(file.path, file.reader, scan=not quick)
        except InputError as error:
            if file.top is None:
                tell_document(file.path, str(error))
            elif file.sure:
                problems.append(str(error))
            continue
        whole, usable = whole and trace.whole, True
        tell(describe_trace(trace), trace_lines(trace))
    if problems and not described:
        raise InputError(problems[0] if len(problems) == 1 else f"{problems[0]}; and {len(problems) - 1} more like it")
    if as_json:
        typer.echo(json.dumps(described, indent=1))
    for problem in problems:
        say(problem)
    if not usable:
        raise typer.Exit(1)
    if problems or not whole:
        raise typer.Exit(EXIT_DATA_LOSS)


def _sources(paths: list[Path]) -> Sources:
    from traceconv.pipeline.discover import Sources, find_sources

    return find_sources(paths, None) if paths else Sources()


def _is_duckdb(path: Path) -> bool:
    if not os.path.isfile(path):
        return False  # opening a pipe would wait for who writes it
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == _DUCKDB_MAGIC
    except OSError:
        return False  # said when it is looked for as a capture


def _capture_lines(state: CaptureState) -> Iterator[str]:
    from traceconv.base.errors import printable
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
        "duration": None if state.dur_ns is None else f"{state.dur_ns // 10**9}.{state.dur_ns % 10**9:09d} s",
        "manifest": "there" if capture.manifest else capture.manifest_problem,
    }
    for title, fact in facts.items():
        if fact is not None:
            yield f"  {title:<9} {printable(fact, 68)}"
    for device in state.devices:
        known = [device.name, device.kind, None if device.clock_hz is None else f"counter {device.clock_hz:,} Hz"]
        text = ", ".join(part for part in known if part is not None) or "does not describe itself"
        yield f"  {'device ' + str(device.device_id):<9} {printable(text, 66)}"
    heads = ("files", "bytes", "blocks", "records", "lost")
    yield f"  {'record':<{_NAME_WIDTH}}" + "".join(
        f"{head:>{width}}" for head, width in zip(heads, _WIDTHS, strict=True)
    )
    for stream, files in _streams(state).items():
        numbers: tuple[int | None, ...] = (
            len(files),
            sum(file.file.size_bytes for file in files),
            sum(file.block_count for file in files) if state.scanned else None,
            sum(file.total for file in files) if state.scanned or capture.manifest else None,
            sum(file.lost_count for file in files) if state.scanned else None,
        )
        cells = ("-" if number is None else f"{number:,}" for number in numbers)
        yield f"  {printable(stream, _NAME_WIDTH):<{_NAME_WIDTH}}" + "".join(
            f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True)
        )
    if not state.scanned:
        yield "  (--quick: records as the manifest counts them; no block was read)"
    if single:
        yield from _header_lines(state.files[0])
    problems = _problems(state)
    for problem in problems[:_SHOWN_PROBLEMS]:
        yield from textwrap.wrap(printable(problem), 78, initial_indent="  ! ", subsequent_indent="    ")
    if len(problems) > _SHOWN_PROBLEMS:
        yield f"  ! and {len(problems) - _SHOWN_PROBLEMS:,} more (--json has them)"


def _header_lines(state: FileState) -> Iterator[str]:
    """What one file says of itself, and how its records are laid out."""
    header = state.header
    if header is None:
        return
    clock = f"{header.clock}, {header.clock_hz:,} Hz"
    yield f"  format version {header.version}, writer {header.writer_id:016x}, clock {clock}"
    yield f"  slice {header.slice_index}, first record {header.first_sequence:,} of its stream"
    for schema in header.schemas:
        yield f"  schema {schema.name}: tag {schema.tag}, {schema.size_bytes} bytes a record"
        for field in schema.fields:
            yield f"    {field.name:<26} {field.type:<10} {_shown(field.unit)}"


def _shown(text: str) -> str:
    from traceconv.base.errors import printable

    return printable(text, 30)


_NAME_WIDTH = 30
_WIDTHS = (6, 14, 7, 13, 8)


def _verdict(state: CaptureState) -> str:
    if state.whole:
        return "whole" if state.scanned else "no problem seen"
    return "damaged" if state.usable else "nothing in it can be read"


def _problems(state: CaptureState) -> list[str]:
    from traceconv.base.errors import printable

    found = list(state.problems)
    for file in state.files:
        found += [f"{printable(file.file.relative_path)}: {problem}" for problem in file.problems]
    return found


def _streams(state: CaptureState) -> dict[str, list[FileState]]:
    """The files by owner and record type."""
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
        "whole": state.whole,
        "usable": state.usable,
        "scanned": state.scanned,
        "manifest": "there" if manifest else capture.manifest_problem,
        "manifest_extra": dict(manifest.extra) if manifest else {},
        "writer": state.writer,
        "model_name": state.model_name,
        "host_name": state.host_name,
        "start_epoch_ns": state.epoch_ns,
        "dur_ns": state.dur_ns,
        "devices": [
            {"device_id": one.device_id, "name": one.name, "kind": one.kind, "clock_hz": one.clock_hz}
            for one in state.devices
        ],
        "files": [_describe_file(file) for file in state.files],
        "missing": list(capture.missing),
        "problems": state.problems,
    }


def _describe_file(state: FileState) -> dict[str, Any]:
    header = state.header
    return {
        "path": state.file.relative_path,
        "record": state.record,
        "device_id": state.file.device_id,
        "size_bytes": state.file.size_bytes,
        "header": None
        if header is None
        else {
            "version": header.version,
            "writer_id": f"{header.writer_id:016x}",
            "clock": header.clock,
            "clock_hz": header.clock_hz,
            "first_sequence": header.first_sequence,
            "slice_index": header.slice_index,
            "schemas": [schema.to_wire() for schema in header.schemas],
        },
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
    from traceconv.base.errors import printable
    from traceconv.formats.npulog.inspect import wall_clock_text

    yield f"{printable(store['path'], 60)}: a store, {store['size_bytes']:,} bytes"
    yield f"  schema version {store['schema_version']}, made by {printable(str(store['writer']), 40)}"
    for run in store["runs"]:
        state = "complete" if run["complete"] else "with losses (see import_log)"
        yield f"  run {run['run_id']}: {printable(str(run['label']), 50)}, {state}"
        known = ((title, run[name]) for title, name in (("rank", "rank"), ("host", "host"), ("group", "group_label")))
        whose = ", ".join(f"{title} {printable(str(value), 60)}" for title, value in known if value is not None)
        if whose:
            yield f"    {whose}"
        start, end = run["start_ns"], run["end_ns"]
        if start is not None and end is not None:
            dur_ns = end - start
            since = wall_clock_text(start) if run["epoch_known"] else f"{start} ns"
            model = f", model {printable(run['model_name'], 30)}" if run["model_name"] else ""
            yield f"    {since}, {dur_ns // 10**9}.{dur_ns % 10**9:09d} s{model}"
    for name, count in store["rows"].items():
        if count:
            yield f"  {name:<20}{count:>16,} rows"
