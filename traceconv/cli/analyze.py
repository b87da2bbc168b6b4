"""`traceconv analyze`: questions about a run that need an algorithm, not SQL."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.base.malloc_tuning import limit_arenas
from traceconv.cli import options
from traceconv.cli.completions import complete_run

app = typer.Typer(
    help="Find critical paths, predict gains, attribute graph replays.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=options.HELP_NAMES,
)

#: Free memory to keep: each group of steps uses as much as the one before.
_KEPT_BYTES = 600 << 20
_FROM = typer.Option(
    None,
    "--from",
    metavar="TIME",
    help="Start of a time window to analyse instead of steps: since the start of the run (1.5ms), or absolute ns "
    "without a unit.",
)


@app.callback()
def _analyze() -> None: ...


@app.command("critical-path", cls=options.Command, context_settings=options.HELP_NAMES)
def critical_path(
    paths: list[Path] | None = options.FILES,
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    run: str | None = options.ONE_RUN,
    device: int | None = options.DEVICE,
    steps: str | None = options.STEPS,
    start: str | None = _FROM,
    end: str | None = options.TO,
    save: bool = typer.Option(
        True, "--save/--no-save", help="Write the paths to the table critical_path of the store."
    ),
    top: int | None = typer.Option(None, "--top", min=1, help="Ops to show in a table. Default: 15."),
    form: str | None = options.format_option(("table", "csv", "json")),
    output: Path | None = options.OUTPUT,
) -> None:
    """Find the longest chain of dependent work through each step.

    It shows what the time of a step was spent on, through host threads, launches, streams, events and waits. The parts
    follow one another without gaps and add up to the step, which is taken to last until the end of its last task.
    Formats: a table with the time of each kind and op, csv with all parts, json with both sums.

    The parts are in the table critical_path of the store, which "traceconv schema critical_path" describes, except for
    those of a FILE. Some dependencies are inferred.

    \b
    Examples:
      traceconv analyze critical-path
      traceconv analyze critical-path --steps 3 --format csv -o path.csv
      traceconv analyze critical-path worker0.pt.trace.json.gz
    """
    limit_arenas(kept_bytes=_KEPT_BYTES)
    from traceconv.analysis.critical_path import critical_path as find_path
    from traceconv.analysis.critical_path import find_steps, save_critical_path
    from traceconv.analysis.critical_path_text import SHOWN_OPS, path_dict, path_lines, path_table
    from traceconv.cli.one_shot import asked_run, asked_store
    from traceconv.cli.output import write_lines, write_rows
    from traceconv.cli.progress import working
    from traceconv.reports.values import json_text
    from traceconv.reports.window import parse_window

    chosen = options.row_format(form, output, ("table", "csv", "json"))
    window = parse_window(steps, start, end)
    with asked_store(db, paths or (), cache=cache) as store:
        with asked_run(store, run, "a critical path") as (connection, run_id):
            found = find_steps(connection, run_id, window, device=device)
            if not save or paths:
                with working("finding critical paths"):
                    path = find_path(connection, run_id, found, keep_parts=chosen == "csv")
        if save and not paths:
            with working("finding critical paths"):
                path = save_critical_path(store, run_id, found, keep_parts=chosen == "csv")
        if chosen == "json":
            write_lines([json_text(path_dict(path))], output)
        elif chosen == "csv":
            write_rows(path_table(path), chosen, output)
        else:
            write_lines(path_lines(path, top or SHOWN_OPS), output)


@app.command("graph-replays", cls=options.Command, context_settings=options.HELP_NAMES)
def graph_replays(
    paths: list[Path] | None = options.FILES,
    reference: str | None = typer.Option(
        None,
        "--reference",
        metavar="N|LABEL",
        help="Run in which the host called the operators, by number or label. Default: the same run.",
        autocompletion=complete_run,
    ),
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    run: str | None = options.ONE_RUN,
    form: str | None = options.format_option(("table", "json")),
    output: Path | None = options.OUTPUT,
) -> None:
    """Find the operators, modules and shapes of graph replays.

    A launch of a CUDA or HIP graph runs kernels without calls of their operators. The kernels are aligned with
    those of a reference, in which the host called the operators. What matches is in the table graph_replay, and
    op-tree, roofline and kernels --by-shape use it. An ingest aligns a run with itself; --reference aligns it with
    another run of the store. It is a heuristic: no operator is given to a kernel that could be of several.

    \b
    Examples:
      traceconv analyze graph-replays
      traceconv ingest eager.json graphs.json
      traceconv analyze graph-replays --run 2 --reference 1
    """
    from traceconv.analysis.graph_replays import align_replays
    from traceconv.analysis.graph_replays import graph_replays as count_replays
    from traceconv.base.errors import UsageError
    from traceconv.cli.one_shot import asked_run, asked_store
    from traceconv.cli.output import write_lines
    from traceconv.reports.run_choice import one_run
    from traceconv.reports.values import json_text

    chosen = options.row_format(form, output, ("table", "json"))
    if paths and reference is not None:
        raise UsageError("--reference needs a store with both runs; ingest the files first")
    with asked_store(db, paths or (), cache=cache) as store:
        with asked_run(store, run, "an alignment of graph replays") as (connection, run_id):
            reference_id = run_id if reference is None else one_run(connection, reference, "a reference")[0]
            count_replays(connection, run_id, reference_id)
        if not paths:
            align_replays(store, run_id, reference_id)
        with asked_run(store, str(run_id), "an alignment of graph replays") as (connection, _):
            replays = count_replays(connection, run_id, reference_id)
        if chosen == "json":
            write_lines([json_text(replays.to_dict())], output)
        else:
            write_lines(replays.lines(), output)


@app.command("what-if", cls=options.Command, context_settings=options.HELP_NAMES)
def what_if(
    paths: list[Path] | None = options.FILES,
    op_type: str | None = typer.Option(
        None, "--op-type", metavar="TYPE", help="Ops of this type or name are faster, or tasks with this name."
    ),
    category: str | None = typer.Option(
        None, "--category", help="Kernels of this category are faster: gemm, attention, as in the report kernels."
    ),
    launched_by: str | None = typer.Option(
        None,
        "--launched-by",
        metavar="NAME",
        help="Tasks launched inside operators, modules or functions of this name are faster.",
    ),
    host_range: str | None = typer.Option(
        None, "--host-range", metavar="NAME", help="Ranges and calls of this name take less time on the host."
    ),
    speed_up: str | None = typer.Option(None, "--speed-up", metavar="FACTOR", help="How much faster: 2, 1.5."),
    no_launch_cost: bool = typer.Option(False, "--no-launch-cost", help="Calls that launch tasks take no time."),
    overlap_communication: bool = typer.Option(
        False, "--overlap-communication", help="Nothing waits for collectives to move data."
    ),
    no_host_waits: bool = typer.Option(False, "--no-host-waits", help="No call waits for the device."),
    db: Path | None = options.DB,
    cache: bool = options.CACHE,
    run: str | None = options.ONE_RUN,
    device: int | None = options.DEVICE,
    steps: str | None = options.STEPS,
    start: str | None = _FROM,
    end: str | None = options.TO,
    form: str | None = options.format_option(("table", "json")),
    output: Path | None = options.OUTPUT,
) -> None:
    """Predict how long steps would take with a change.

    Their dependencies are replayed: everything else keeps its duration, and a delay without a known cause stays as it
    is. The replay of the unchanged trace is shown next to the answer. In captures of the NPU, tasks that run at once
    share cores and memory bandwidth; in other traces, they don't compete.

    \b
    Examples:
      traceconv analyze what-if --op-type MatMulV2 --speed-up 2
      traceconv analyze what-if --category gemm --speed-up 1.5
      traceconv analyze what-if --launched-by aten::mm --speed-up 2
      traceconv analyze what-if --no-launch-cost
      traceconv analyze what-if --overlap-communication worker0.pt.trace.json.gz
    """
    limit_arenas(kept_bytes=_KEPT_BYTES)
    from traceconv.analysis.what_if import make_change
    from traceconv.analysis.what_if import what_if as predict
    from traceconv.cli.one_shot import asked_run, asked_store
    from traceconv.cli.output import write_lines
    from traceconv.reports.values import json_text
    from traceconv.reports.window import parse_window

    chosen = options.row_format(form, output, ("table", "json"))
    window = parse_window(steps, start, end)
    change = make_change(
        speed_up, op_type=op_type, category=category, launched_by=launched_by, host_range=host_range,
        no_launch_cost=no_launch_cost, overlap_communication=overlap_communication, no_host_waits=no_host_waits,
    )  # fmt: skip
    with asked_store(db, paths or (), cache=cache) as store:
        with asked_run(store, run, "a prediction") as (connection, run_id):
            answer = predict(connection, run_id, change, window, device=device)
        if chosen == "json":
            write_lines([json_text(answer.to_dict())], output)
        else:
            write_lines(answer.lines(), output)
