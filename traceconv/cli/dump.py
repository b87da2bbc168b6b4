"""`traceconv dump`: the records of a log as text."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

HELP = """Show the records of raw logs as they are, one line each, in the order of the files.

In columns: names of enums, texts from the capture's dictionary, NULL for none, times as they were counted
(ns of the host, ticks of a device). Record types of a newer writer are shown by the schema in the file.

With --json every field, and where the record is from: _type, _file, _sequence (its number in its stream) and
_offset (its byte in the file). Integers are exact; a text that the dictionary does not have is the number of
its hash.

Exit code: 0 all could be read, 3 some could not (said on stderr), 1 no log.

\b
Examples:
  traceconv dump raw/ --type task --limit 20
  traceconv dump raw/PROF_*/host/data/api.slice_0.bin
  traceconv dump raw/ --type api --json | jq .host_ns
"""


def dump(
    paths: list[Path] = typer.Argument(..., metavar="PATH…", help="Captures (PROF_…), or single .bin files of one."),
    record: str | None = typer.Option(None, "--type", metavar="RECORD", help="Only this record type, such as task."),
    limit: int | None = typer.Option(None, "--limit", metavar="N", min=0, help="Only the first N records."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line, with every field."),
) -> None:
    from traceconv.base.errors import EXIT_DATA_LOSS, UsageError, printable, suggestion
    from traceconv.cli.output import say
    from traceconv.formats.npulog.discover import find_captures
    from traceconv.formats.npulog.dump import DumpOptions, dump_capture, record_types
    from traceconv.schema import records

    captures = find_captures(paths)
    if record is not None:
        known = {*records(), *(name for capture in captures for name in record_types(capture))}
        if record not in known:
            near = suggestion(record, sorted(known))
            raise UsageError(f"there is no record type '{printable(record)}'.{near} (traceconv schema lists them)")
    damaged = False

    def note(message: str) -> None:
        nonlocal damaged
        damaged = True
        say(message, "")

    left = limit
    for capture in captures:
        options = DumpOptions(record, left, as_json, note)
        for count, text in dump_capture(capture, options):
            sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
            if left is not None:
                left -= count
    sys.stdout.buffer.flush()
    if damaged:
        raise typer.Exit(EXIT_DATA_LOSS)
