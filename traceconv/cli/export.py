"""`traceconv export`: a run in the format of another program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import UsageError
from traceconv.cli import options

if TYPE_CHECKING:
    import duckdb

HELP = """Write a run in a format that other programs open."""

CHROME_HELP = """Write a run as a Chrome trace, for Perfetto's viewer or chrome://tracing.

Every task, call, range, step, counter, marker, flow and memory block of the run is in it, with all its columns.
Times are microseconds since the run's first event, exact to the nanosecond; otherData.base_ns is that event's time.

\b
Examples:
  traceconv export chrome -o trace.json
  traceconv export chrome -o trace.json.gz --run 2 --device 0
  traceconv export chrome -o - | gzip > trace.json.gz

Open the file at https://ui.perfetto.dev (it stays in your browser) or in chrome://tracing.
"""

MEMORY_FLOW_HELP = """Draw the memory of a run's devices over time, as an SVG picture.

Each block of memory is a rectangle: its addresses upwards, its time to the right, its colour what it is for. Under the
pointer it tells its tensor, op, size and times. Addresses that were never used are folded, the peak is marked, and
below the map are the bytes in use and reserved. The file stays small: what can't be seen is drawn together.

\b
Examples:
  traceconv export memory-flow -o memory.svg
  traceconv export memory-flow -o memory.svg --run 2 --device 0

Open the file in any browser. In numbers: traceconv report memory-peak, memory-live and memory-trace.
"""

PERFETTO_HELP = """Write a run as a Perfetto trace in protobuf, for Perfetto's viewer and trace processor.

Every task, call, range, step, marker and counter of the run is in it, on tracks of its process, device or stream, with
its columns as arguments, and an arrow for each flow. Times are exact nanoseconds. The file is smaller than a Chrome
trace. A Chrome trace can be ingested again as the run that it was; of this one slices come back as ranges.

\b
Examples:
  traceconv export perfetto -o trace.pftrace
  traceconv export perfetto -o trace.pftrace --run 2 --device 0
  traceconv export perfetto -o small.pftrace --no-args

Open the file at https://ui.perfetto.dev (it stays in your browser).
"""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

_OUTPUT = typer.Option(
    ..., "--output", "-o", metavar="FILE", help="File to write; compressed when it ends in .gz; - for stdout."
)
_RUN = typer.Option(
    None, "--run", metavar="N|LABEL", help="The run: by number or label, rank=N, host=NAME. Default: the latest."
)
_DEVICE = typer.Option(None, "--device", metavar="N", help="Leave out what lies on other devices.")


@app.callback()
def _export() -> None: ...


@app.command("chrome", cls=options.Command, help=CHROME_HELP)
def chrome(
    output: Path = _OUTPUT, db: Path | None = options.DB, run: str | None = _RUN, device: int | None = _DEVICE
) -> None:
    from traceconv.base.malloc_tuning import limit_arenas

    limit_arenas()
    from traceconv.cli.output import say
    from traceconv.export.chrome import export_chrome
    from traceconv.reports.current_store import open_current_store

    target = _target(output)
    with open_current_store(options.store_path(db)) as connection:
        run_id = _one_run(connection, run, "a Chrome trace")
        summary = export_chrome(connection, run_id, target, device_id=device)
    rows = ", ".join(f"{count:,} {name}" for name, count in summary.rows.items() if count)
    say(f"{'stdout' if target is None else output}: {rows or 'no rows'} ({summary.size_bytes:,} bytes of JSON)")


@app.command("memory-flow", cls=options.Command, help=MEMORY_FLOW_HELP)
def memory_flow(
    output: Path = _OUTPUT, db: Path | None = options.DB, run: str | None = _RUN, device: int | None = _DEVICE
) -> None:
    from traceconv.cli.output import say
    from traceconv.export.memory_flow import describe, export_memory_flow
    from traceconv.reports.current_store import open_current_store

    target = _target(output)
    with open_current_store(options.store_path(db)) as connection:
        run_id = _one_run(connection, run, "a picture of memory")
        flow = export_memory_flow(connection, run_id, target, device_id=device)
    say(f"{'stdout' if target is None else output}: {describe(flow)}")


@app.command("perfetto", cls=options.Command, help=PERFETTO_HELP)
def perfetto(
    output: Path = _OUTPUT,
    db: Path | None = options.DB,
    run: str | None = _RUN,
    device: int | None = _DEVICE,
    with_args: bool = typer.Option(True, "--args/--no-args", help="Whether slices have arguments beside their name."),
) -> None:
    from traceconv.base.malloc_tuning import limit_arenas

    limit_arenas()
    from traceconv.cli.output import say
    from traceconv.export.perfetto import export_perfetto
    from traceconv.reports.current_store import open_current_store

    target = _target(output)
    with open_current_store(options.store_path(db)) as connection:
        run_id = _one_run(connection, run, "a Perfetto trace")
        summary = export_perfetto(connection, run_id, target, device_id=device, with_args=with_args)
    rows = ", ".join(f"{count:,} {name}" for name, count in summary.rows.items() if count)
    say(f"{'stdout' if target is None else output}: {rows or 'no rows'} ({summary.size_bytes:,} bytes)")
    if summary.timeless:
        say(f"{summary.timeless:,} markers without a time are not in the trace")
    if summary.loose_flows:
        say(f"{summary.loose_flows:,} flows have an end that is not in the trace: no arrow shows them")


def _target(output: Path) -> Path | None:
    """The file to write, None for stdout. Raises UsageError when that is a terminal, on which names would act."""
    if str(output) != "-":
        return output
    if sys.stdout.isatty():
        raise UsageError("stdout is a terminal: name a file with -o, or pipe the export into a program")
    return None


def _one_run(connection: duckdb.DuckDBPyConnection, wanted: str | None, what: str) -> int:
    """The run that --run names, the latest without it; says so where there are several."""
    from traceconv.cli.output import say
    from traceconv.reports.run import choose_run

    choice = choose_run(connection, wanted)
    if choice.run_id is None:
        raise UsageError(
            f"{what} holds one run; choose it with --run N"
            if choice.run_count
            else "the store has no run; ingest one with: traceconv ingest PATH"
        )
    if wanted is None and choice.run_count > 1:
        say(f"run {choice.run_id}, the latest of {choice.run_count}; choose another with --run N")
    return choice.run_id
