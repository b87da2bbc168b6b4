"""`traceconv why`: the bytes of the source that a row came from."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from traceconv.cli import options

HELP = """Show where a row came from: the bytes of its source, decoded, with file and place.

TABLE and ID name the row by the table's own key: task, api, range and marker by id; op, step, flow, track, process,
device, fusion, run and source by theirs; memory by block_id; slice and thread as their tables; a sample of counter
by TRACK_ID@TS_NS.

A row of a begin and an end shows both; a task of a vendor's folder also the records of the CSV files that completed
it. Records of raw logs are decoded field by field and shown in hex; events of trace files are shown as their JSON
text, in which nothing but line breaks is changed; rows of tables with the headings of their columns. Places in packed
files count in the unpacked text. At most 8 KiB of a piece are shown. A row that was computed says what from.

The source is read where it lay at ingest, relative to this folder or to the store's, or where --source says. It must
be what it was then: size and checksum are compared.

Exit code: 0 shown, 1 the source is gone or was changed, 2 there is no such row (the nearest are named).

\b
Examples:
  traceconv why task 1099511627776
  traceconv why op 3 --run 2
  traceconv why counter 7@1700000000123456789 --json
  traceconv why slice 1099511627777 --source /mnt/archive/trace.json.gz
"""


def why(
    table: str = typer.Argument(..., metavar="TABLE", help="Table of the row, such as task."),
    row_id: str = typer.Argument(..., metavar="ID", help="Its number in the table's key; of counter TRACK_ID@TS_NS."),
    run: str | None = typer.Option(
        None, "--run", metavar="N|LABEL", help="The run of the row, by number or label. Default: the latest."
    ),
    source: Path | None = typer.Option(
        None, "--source", metavar="PATH", help="Where the run's source lies now, if it was moved."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object, with the row and all that was found."),
    db: Path | None = options.DB,
) -> None:
    from traceconv.cli.output import print_lines, say
    from traceconv.cli.why_text import as_json as json_of
    from traceconv.cli.why_text import lines_of
    from traceconv.provenance.find import why as find
    from traceconv.reports.current_store import open_current_store

    path = options.store_path(db)
    with open_current_store(path) as connection:
        answer = find(connection, path, table, row_id, run=run, source=source)
    print_lines([json_of(answer)] if as_json else lines_of(answer))
    sys.stdout.flush()
    for problem in answer.problems:
        say(problem)
    if answer.problems:
        raise typer.Exit(1)
