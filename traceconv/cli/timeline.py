"""`traceconv timeline`: a run in Perfetto's viewer."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.cli import options
from traceconv.export.registry import EXCERPT

_STEPS, _FROM, _TO = (typer.Option(None, one.flag, metavar=one.metavar, help=one.help) for one in EXCERPT)


def timeline(
    paths: list[Path] | None = options.FILES,
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    run: str | None = options.MERGED_RUNS,
    device: int | None = typer.Option(None, "--device", metavar="N", help="Omit rows of other devices."),
    steps: str | None = _STEPS,
    start: str | None = _FROM,
    end: str | None = _TO,
    args: bool = typer.Option(True, "--args/--no-args", help="Include the arguments of slices."),
    critical_path: bool = typer.Option(
        False, "--critical-path", help="Show the path that traceconv analyze critical-path found as arrows."
    ),
) -> None:
    """Show a run, or several, in Perfetto's viewer, in the browser.

    The run is exported as by "traceconv export perfetto", even if Perfetto can't open its format. The page
    https://ui.perfetto.dev reads it from this machine, over port 9001, and sends it nowhere. The command ends when
    the page has read it.

    If this machine has no browser, forward the port to one that does, with ssh -L 9001:127.0.0.1:9001 HOST, and open
    the address that is printed.

    \b
    Examples:
      traceconv timeline
      traceconv timeline report.sqlite
      traceconv timeline --run 2 --critical-path
      traceconv timeline trace.json.gz --steps 3-4
      traceconv timeline rank0.json rank1.json --run all
    """
    from traceconv.base.temporary_folder import temporary_folder
    from traceconv.cli.export import limit_heaps
    from traceconv.cli.one_shot import asked_store
    from traceconv.cli.output import print_message, write_lines
    from traceconv.export.registry import find_export
    from traceconv.export.viewer import show_trace
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.fetch import reading

    limit_heaps()

    def print_address(address: str) -> None:
        write_lines([address])
        print_message("waiting until a browser has read the timeline from this address; Ctrl-C to stop")

    with asked_store(db, paths or (), cache=cache) as store, temporary_folder() as folder:
        trace = folder / "trace.pftrace"
        with open_current_store(store) as connection, reading():
            export = find_export("perfetto")
            run_ids, note = export.runs(connection, run)
            if note is not None:
                print_message(note)
            written = export.write(
                connection, run_ids, trace,
                {
                    "device": device, "steps": steps, "from_ns": start, "to_ns": end, "args": args,
                    "critical_path": critical_path,
                },
            )  # fmt: skip
        for line in written.notes:
            print_message(line)
        show_trace(trace, print_address)
