"""`traceconv lake`: add runs to a folder of many, and reports and queries on it without an import."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import typer

from traceconv.base.errors import EXIT_DATA_LOSS, UsageError, printable
from traceconv.cli import ingest, options, query, report

_LAKE = typer.Argument(..., metavar="DIR", help="The lake: a folder, or s3://BUCKET/FOLDER.", show_default=False)

app = typer.Typer(
    help="Fill and read a lake: runs as Parquet, in a folder or on S3.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=options.HELP_NAMES,
)


@app.callback()
def _lake() -> None: ...


@app.command("list", cls=options.Command)
def list_lake(
    lake: Path = _LAKE,
    form: str | None = options.FORMAT,
    output: Path | None = options.OUTPUT,
    check: bool = typer.Option(False, "--check", help="Read all files and compare their digests."),
) -> None:
    """List the runs of a lake, with the numbers that --run selects.

    Runs are numbered in the order in which they were added. A run with a missing or incomplete file is omitted and
    reported; --check finds damage within files too.

    \b
    Examples:
      traceconv lake list lake
      traceconv lake list s3://bucket/lake --format csv
      traceconv lake list lake --check
    """
    from traceconv.cli.output import print_message
    from traceconv.cli.runs import list_runs
    from traceconv.lake.entries import check_files
    from traceconv.lake.views import usable_lake

    _check_lake(lake)
    found = usable_lake(lake)
    problems = [*found.problems, *(check_files(found) if check else ())]
    for line in (*problems, *found.notes()):
        print_message(line)
    list_runs(db=lake, form=form, output=output)
    if problems:
        raise typer.Exit(EXIT_DATA_LOSS)


@app.command("ingest", cls=options.Command)
def ingest_into_lake(
    paths: list[Path] = ingest.PATHS,
    into: Path = typer.Option(..., "--into", metavar="DIR", help="The lake: a folder, or s3://BUCKET/FOLDER."),
    replace: bool = typer.Option(False, "--replace", help="Replace runs that are already in the lake."),
    reader: str | None = ingest.READER,
    pattern: str | None = ingest.PATTERN,
    group: str | None = ingest.GROUP,
    rules: list[Path] = ingest.RULES,
    max_event_mb: int = ingest.MAX_EVENT_MB,
    max_ratio: int = ingest.MAX_RATIO,
    jobs: int | None = ingest.JOBS,
    engine: str = typer.Option(
        "duckdb",
        "--engine",
        metavar="ENGINE",
        help="What reads the files: duckdb, on this machine, or spark, on executors (pip install 'traceconv[spark]').",
    ),
    master: str = options.MASTER,
) -> None:
    """Add logs and traces to a lake, and create it if needed.

    Files are read as by traceconv ingest. Each run is added once it is complete: an ingest that was stopped leaves
    complete runs, and the same command adds the others. Files whose content is in the lake are kept.

    With --engine spark, each executor reads some of the files. It needs the same version of traceconv, and access to
    the files and the lake at the same paths. The lake is the same as without Spark.

    Exit codes: 0 success; 3 success with losses or unusable files; 1 nothing usable.

    \b
    Examples:
      traceconv lake ingest traces/ --into lake
      traceconv lake ingest rank*.json.gz --into s3://bucket/lake --group job7
      traceconv lake ingest D --into lake --engine spark --master spark://H:7077
    """
    ingest.prepare_memory()
    from traceconv.pipeline.ingest import naming_of, trace_options_of
    from traceconv.pipeline.lake_ingest import ingest_into_lake as ingest_paths

    ingest.show_result(
        lambda observer: ingest_paths(
            paths,
            into,
            replace=replace,
            observer=observer,
            reader=reader,
            trace_options=trace_options_of(rules, max_event_mb, max_ratio),
            naming=naming_of(pattern, group),
            jobs=jobs,
            engine=engine,
            master=master,
        )
    )


def _on_lake(command: Callable[..., None], doc: str, **fixed: object) -> Callable[..., None]:
    """Return a command with a lake as its last argument, and the other options of `command` on a store.

    fixed  values of parameters that have no option here
    """
    signature = inspect.signature(command)
    annotations = inspect.get_annotations(command, eval_str=True)
    fixed |= {"db": None, "cache": True}

    def on_lake(lake: Path, **given: object) -> None:
        _check_lake(lake)
        command(**given, **fixed, paths=[lake])

    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "paths":
            parameters.append(parameter.replace(name="lake", default=_LAKE, annotation=Path))
        elif parameter.name not in fixed:
            parameters.append(parameter.replace(annotation=annotations[parameter.name]))
    on_lake.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    on_lake.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    on_lake.__doc__ = doc
    return on_lake


def _check_lake(path: Path) -> None:
    from traceconv.lake.folder import is_lake

    if not is_lake(path):
        shown = printable(str(path))
        raise UsageError(f"{shown} is not a lake; create one with: traceconv lake ingest PATH --into {shown}")


app.command("report", cls=options.Command)(
    _on_lake(
        report.report,
        """Run a built-in report on a lake.

    Options are those of traceconv report; only the files and columns that the report needs are read.

    \b
    Examples:
      traceconv lake report op-statistic lake --run all
      traceconv lake report stragglers lake --run rank=0,rank=1
      traceconv lake report breakdown s3://bucket/lake --run 3
    """,
        sample=False,
        first=False,
        show_list=False,
        show_help=False,
    )
)
app.command("query", cls=options.Command)(
    _on_lake(
        query.query,
        """Query a lake in SQL.

    The tables are those of a store, with the runs numbered as in traceconv lake list. Reports are views and macros.

    \b
    Examples:
      traceconv lake query "FROM op_statistic(run := 2)" lake
      traceconv lake query "FROM run" lake --format csv
    """,
        file=None,
    )
)
