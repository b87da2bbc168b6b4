"""`traceconv runs`: list, label, delete and merge the runs of a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import printable
from traceconv.cli import options
from traceconv.cli.completions import complete_runs

if TYPE_CHECKING:
    from traceconv.pipeline.runs import StoredRun

#: Runs that the question before a deletion lists.
_LISTED_RUNS = 5

app = typer.Typer(
    help="List, label, delete and merge the runs of a store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=options.HELP_NAMES,
)


@app.callback()
def _runs() -> None: ...


@app.command("list", cls=options.Command)
def list_runs(
    db: Path | None = options.DB,
    form: str | None = options.FORMAT,
    output: Path | None = options.OUTPUT,
) -> None:
    """List the runs with what distinguishes them.

    A table omits columns without a value. Other formats have all columns, also host, source_path, start_ns, lost_count
    and source_bytes.

    \b
    Examples:
      traceconv runs list
      traceconv runs list --db night.duckdb --format csv
    """
    from traceconv.cli.output import print_message, write_parquet_file, write_rows
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.run_choice import NO_RUNS
    from traceconv.reports.runs import RUNS_SQL, runs_table, stored_runs

    chosen_format = options.row_format(form, output)
    with open_current_store(options.store_path(db)) as connection:
        if chosen_format == "parquet" and output is not None:
            write_parquet_file(connection, RUNS_SQL, [], output)
            return
        rows = stored_runs(connection)
    if not rows:
        print_message(NO_RUNS)
    write_rows(runs_table(rows, for_people=chosen_format in ("table", "markdown")), chosen_format, output)


@app.command("label", cls=options.Command)
def label(
    run: str = typer.Argument(
        ...,
        metavar="RUN",
        help="Run, as for --run; for --group also several: 1,2 or all.",
        autocompletion=complete_runs,
    ),
    text: str | None = typer.Argument(None, metavar="LABEL", help="The new label, which no other run has."),
    group: str | None = typer.Option(None, "--group", metavar="NAME", help='The new group label; "" removes it.'),
    db: Path | None = options.DB,
) -> None:
    """Set the label of a run, or the group label of runs.

    \b
    Examples:
      traceconv runs label 2 baseline
      traceconv runs label 1,2 --group job7
      traceconv runs label rank=0 rank0 --group job7
    """
    from traceconv.cli.output import print_message
    from traceconv.pipeline.runs import find_runs, label_runs

    store = options.store_path(db)
    runs = find_runs(store, [run])
    label_runs(store, runs, label=text, group=group, on_wait=_waiting(store))
    changes = [f"label {printable(text)}"] if text is not None else []
    if group is not None:
        changes.append(f"group {printable(group)}" if group else "no group")
    print_message(f"{_named(runs)}: {', '.join(changes)}", "")


@app.command("delete", cls=options.Command)
def delete(
    wanted: list[str] = typer.Argument(
        ..., metavar="RUN…", help="Runs, as for --run: 2, LABEL, rank=1, 3,4 or all.", autocompletion=complete_runs
    ),
    yes: bool = typer.Option(False, "--yes", "-y", help="Don't ask for confirmation, which only a terminal does."),
    db: Path | None = options.DB,
) -> None:
    """Delete runs and shrink the file of the store.

    The rows are deleted in one transaction; then the file is rewritten without their space, which needs free space for
    a copy of the remaining runs. Other runs keep their numbers.

    \b
    Examples:
      traceconv runs delete 2
      traceconv runs delete rank=1 rank=2 --yes
    """
    from traceconv.cli.output import print_message
    from traceconv.pipeline.runs import delete_runs, find_runs
    from traceconv.reports.values import human_bytes

    store = options.store_path(db)
    runs = find_runs(store, wanted)
    question = f"Delete {_named(runs)} from {printable(str(store))}?"
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        print_message("nothing was deleted")
        raise typer.Exit(1)
    deleted = delete_runs(store, runs, _waiting(store))
    print_message(f"deleted {_named(runs)}", "")
    sizes = f"{human_bytes(deleted.bytes_before)} → {human_bytes(deleted.bytes_after)}"
    if deleted.problem is None:
        print_message(f"{printable(str(store))}: {sizes}", "")
    else:
        print_message(
            f"{printable(str(store))} did not shrink: {deleted.problem}; the next ingest uses its free space", ""
        )


@app.command("merge", cls=options.Command)
def merge(
    others: list[Path] = typer.Argument(..., metavar="OTHER.duckdb…", help="The stores to copy the runs of."),
    db: Path | None = options.DB,
    replace: bool = typer.Option(False, "--replace", help="Replace runs of the same source instead of keeping them."),
) -> None:
    """Copy all runs of other stores into the store.

    The merge is a single transaction. Runs get new numbers, after those in the store. A run whose source is already in
    the store is skipped. An older store is migrated first. The store is created if it does not exist.

    \b
    Examples:
      traceconv runs merge night.duckdb
      traceconv runs merge rank*.duckdb --db job.duckdb
      traceconv runs merge night.duckdb --replace
    """
    from traceconv.cli.output import print_message
    from traceconv.pipeline.runs import merge_stores

    store = options.store_path(db)
    merged = merge_stores(others, store, replace=replace, on_wait=_waiting(store))
    shown = printable(str(store))
    for run in merged:
        name = f"{printable(str(run.other))}: run {run.other_id} ({printable(run.label)})"
        if run.action == "kept":
            print_message(f"{name} is already in {shown} as run {run.run_id}; skipped (--replace replaces it)", "")
        else:
            print_message(f"{name} {run.action} as run {run.run_id}", "")
    added = sum(run.action != "kept" for run in merged)
    print_message(
        f"{added:,} of {len(merged):,} runs merged into {shown}" if merged else "nothing to merge: no runs", ""
    )


def _named(runs: Sequence[StoredRun]) -> str:
    """The numbers and labels of runs; those of many are shortened."""
    names = ", ".join(f"{run.run_id} ({printable(run.label, 60)})" for run in runs[:_LISTED_RUNS])
    more = f", … and {len(runs) - _LISTED_RUNS:,} more" if len(runs) > _LISTED_RUNS else ""
    return f"run{'s' if len(runs) > 1 else ''} {names}{more}"


def _waiting(store: Path) -> Callable[[], None]:
    from traceconv.cli.output import print_message

    return lambda: print_message(
        f"waiting for another program to finish writing {printable(str(store))} (Ctrl-C to cancel)"
    )
