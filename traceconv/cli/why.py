"""`traceconv why`: the source bytes of a row."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from traceconv.cli import options
from traceconv.cli.completions import complete_table


def why(
    table: str = typer.Argument(
        ..., metavar="TABLE", help="Table of the row, such as task.", autocompletion=complete_table
    ),
    row_id: str = typer.Argument(..., metavar="ID", help="ID in that table; for counter, use TRACK_ID@TS_NS."),
    run: str | None = options.ONE_RUN,
    source: Path | None = typer.Option(
        None, "--source", metavar="PATH", help="Current path of the run's source, if it was moved."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object with the row and its complete evidence."),
    db: Path | None = options.DB,
) -> None:
    """Show the source bytes of a row.

    The bytes are decoded and shown with their file and byte offset.

    TABLE and ID identify the row by the table's key: id for task, api, range, marker and the view slice; block_id for
    memory; TRACK_ID@TS_NS for counter; otherwise the table's own ID, such as op_id or track_id.

    A row made from a begin and an end event shows both; a task of a vendor's output folder also shows the CSV rows that
    completed it. Records of raw logs are decoded and shown in hex; events of trace files are shown as JSON, reformatted
    only; table rows with their column headings. Offsets in compressed files refer to the decompressed data. At most
    8 KiB are shown per piece. Derived rows list their inputs.

    The source is looked up at its path at ingest, relative to this folder or to the store, or at --source. It must be
    unchanged since ingest: size and checksum are compared.

    Exit codes: 0 shown; 1 the source is missing or has changed; 2 no such row (the nearest are listed).

    \b
    Examples:
      traceconv why task 1099511627776
      traceconv why op 3 --run 2
      traceconv why counter 7@1700000000123456789 --json
      traceconv why slice 1099511627777 --source /mnt/archive/trace.json.gz
    """
    from traceconv.cli.output import print_message, write_lines
    from traceconv.provenance.find import why as find
    from traceconv.provenance.text import as_json as json_of
    from traceconv.provenance.text import lines_of
    from traceconv.reports.current_store import open_current_store

    path = options.store_path(db)
    with open_current_store(path) as connection:
        answer = find(connection, path, table, row_id, run=run, source=source)
    write_lines([json_of(answer)] if as_json else lines_of(answer))
    sys.stdout.flush()
    for problem in answer.problems:
        print_message(problem)
    if answer.problems:
        raise typer.Exit(1)
