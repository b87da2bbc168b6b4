"""`traceconv info`: identify files and folders, and check their integrity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import EXIT_DATA_LOSS

if TYPE_CHECKING:
    from traceconv.inspection.run import FileInfo


def info(
    paths: list[Path] = typer.Argument(
        ...,
        metavar="PATH…",
        help="Captures, trace files, folders that contain them, .bin files, stores, lakes.",
        show_default=False,
    ),
    quick: bool = typer.Option(
        False,
        "--quick",
        help="Only read headers and manifest, the first events of a trace, or the sizes of a lake's files.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list with one object per file or folder."),
) -> None:
    """Identify a file and check its integrity.

    PATH is a capture (PROF_…), a single .bin file, a trace file in any format that ingest reads, a folder that contains
    some, a store or a lake. Nothing is stored.

    For captures: writer, model, devices, time and the number of records by type, checking every block. For trace files:
    format, writer if known, top-level keys, number of events by kind, time and damage. For other JSON documents: an
    outline, to start a rule file from (ingest --rules). For stores and lakes: runs and
    row counts; the files of a lake are compared with their digests.

    Exit codes: 0 intact; 3 something is damaged or missing; 1 nothing usable.

    \b
    Examples:
      traceconv info raw/
      traceconv info raw/ --quick       trust headers and manifest
      traceconv info trace.json.gz      what an ingest would find
      traceconv info *.pftrace --quick  only the first events
      traceconv info results.json       outline of a JSON document
      traceconv info trace.duckdb
      traceconv info lake
    """
    from traceconv.cli.output import print_message
    from traceconv.inspection.run import info as identify

    def show(one: FileInfo) -> None:
        if not as_json:
            typer.echo("\n".join(one.text))

    found = identify(paths, quick=quick, on_found=show)
    if as_json:
        typer.echo(json.dumps([one.details for one in found], indent=1))
    for problem in found.problems:
        print_message(problem)
    if not any(one.usable for one in found):
        raise typer.Exit(1)
    if not found.intact:
        raise typer.Exit(EXIT_DATA_LOSS)
