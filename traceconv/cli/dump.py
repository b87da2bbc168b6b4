"""`traceconv dump`: the records of a raw log as text."""

from __future__ import annotations

import sys
from pathlib import Path

import typer


def dump(
    paths: list[Path] = typer.Argument(..., metavar="PATH…", help="Captures (PROF_…), or .bin files of a capture."),
    record: str | None = typer.Option(None, "--type", metavar="RECORD", help="Only this record type, such as task."),
    limit: int | None = typer.Option(None, "--limit", metavar="N", min=0, help="Only the first N records."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object per line, with all fields."),
) -> None:
    """Show the records of raw logs.

    One record per line, in file order, with enum names, strings from the capture's dictionary, NULL for missing values,
    and raw timestamps (ns on the host, ticks on a device). Unknown record types are shown by the schema in the file.

    --json prints all fields and the origin of the record: _type, _file, _sequence (index in its stream) and _offset
    (byte offset in the file). Integers are exact. A string missing from the dictionary is printed as its hash.

    Exit codes: 0 all records were read; 3 some could not be read (reported on stderr); 1 not a log.

    \b
    Examples:
      traceconv dump raw/ --type task --limit 20
      traceconv dump raw/PROF_*/host/data/api.slice_0.bin
      traceconv dump raw/ --type api --json | jq .host_ns
    """
    from traceconv.base.errors import EXIT_DATA_LOSS
    from traceconv.cli.output import print_message
    from traceconv.formats.npulog.dump import DumpOptions, captures_with, dump_captures

    problems: list[str] = []

    def report(message: str) -> None:
        problems.append(message)
        print_message(message, "")

    for text in dump_captures(captures_with(paths, record), DumpOptions(record, limit, as_json, report)):
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
    if problems:
        raise typer.Exit(EXIT_DATA_LOSS)
