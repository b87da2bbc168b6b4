"""`traceconv export`: a subcommand for each target of `traceconv.export.registry`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path

import typer
import typer.core
import typer.main

from traceconv.base.errors import UsageError
from traceconv.cli import options
from traceconv.cli.output import print_message
from traceconv.export.registry import EXPORTS, Export, all_exports, find_export

_OUTPUT = typer.Option(
    ..., "--output", "-o", metavar="FILE", help="Output file, compressed if it ends in .gz; - is stdout."
)
_FOLDER = typer.Option(
    None, "--output", "-o", metavar="DIR", help="Folder to write it into. Default: the PROF folder of the run."
)
_LAKE = typer.Option(..., "--output", "-o", metavar="DIR", help="The lake: a folder, or s3://BUCKET/FOLDER.")
#: Threads get heaps in turn, in the order in which they start. With this many, the one that writes shares none with the
#: main thread, for which it would wait.
_HEAPS = 12
_METAVARS = {bool: None, int: "N", str: "TEXT"}


class _Targets(typer.core.TyperGroup):
    """The built-in targets, and those of other packages when one is requested or all are listed."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # its base has no public name
        return [export.name for export in all_exports(lambda error: print_message(str(error)))]

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def,override]  # likewise
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        _add(group, find_export(cmd_name))
        return typer.main.get_command(group)


app = typer.Typer(
    cls=_Targets,
    help="Write a run in a format that other programs open.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings=options.HELP_NAMES,
)


@app.callback()
def _export() -> None: ...


def _add(group: typer.Typer, export: Export) -> None:
    """Add the command of a target: its signature has the common options and those of the target."""

    def command(
        paths: list[Path] | None, output: Path | None, db: Path | None, cache: bool, run: str | None, **own: object
    ) -> None:
        from traceconv.cli.one_shot import asked_store

        with asked_store(db, paths or (), cache=cache) as store:
            _write(export, output, store, run, own)

    parameters: dict[str, tuple[object, object]] = {
        "paths": (list[Path] | None, options.FILES),
        "output": (Path, _LAKE) if export.many_runs else (Path | None, _FOLDER) if export.folder else (Path, _OUTPUT),
        "db": (Path | None, options.DB),
        "cache": (bool, options.CACHE),
        "run": (str | None, _runs_option(export)),
    }
    for option in export.options:
        declaration = option.flag
        if option.kind is bool and option.default:
            declaration += f"/--no-{option.flag[2:]}"
        kind = option.kind if option.default is not None else option.kind | None
        metavar = option.metavar or _METAVARS[option.kind]
        parameters[option.name] = kind, typer.Option(option.default, declaration, metavar=metavar, help=option.help)
    command.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=kind)
            for name, (kind, declared) in parameters.items()
        ]
    )
    group.command(export.name, cls=options.Command, help=_help(export), context_settings=options.HELP_NAMES)(command)


def _runs_option(export: Export) -> object:
    if export.many_runs:
        return options.ALL_RUNS
    return options.MERGED_RUNS if export.merges else options.ONE_RUN


def _help(export: Export) -> str:
    command = f"  traceconv export {export.name}"
    examples = ["\b", "Examples:"]
    if export.many_runs:
        examples += [f"{command} -o {export.file}", f"{command} --run 2 -o s3://bucket/{export.file}"]
    elif export.folder:
        examples += [command, f"{command} --run 2 -o {export.file}"]
    else:
        examples += [f"{command} -o {export.file}", f"{command} -o {export.file}.gz --run 2"]
    return "\n\n".join(filter(None, [f"Write a run as {export.title}.", export.doc, "\n".join(examples)]))


def _write(export: Export, output: Path | None, store: Path, run: str | None, own: Mapping[str, object]) -> None:
    limit_heaps()
    from traceconv.cli.progress import working
    from traceconv.reports.current_store import open_current_store

    target = None if str(output) == "-" and not export.folder else output
    if target is None and not export.folder and sys.stdout.isatty():
        # Names in the trace could contain control sequences.
        raise UsageError("stdout is a terminal; name a file with -o, or pipe the output to a program")
    with open_current_store(store) as connection:
        run_ids, note = export.runs(connection, run)
        if note is not None:
            print_message(note)
        with working(f"writing {output or export.name}"):
            written = export.write(connection, run_ids, target, own)
    for line in written.notes:
        print_message(line)
    name = written.path or target or "stdout"
    print_message(f"{name}: {_counts(written.rows) or 'no rows'} ({written.size_bytes:,} bytes)")
    if omitted := _counts(written.omitted):
        print_message(f"not in {name}: {omitted}")


def limit_heaps() -> None:
    """Limit the heaps of the process, before Arrow is imported, to as many as an export needs."""
    from traceconv.base.malloc_tuning import limit_arenas

    limit_arenas(_HEAPS)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)


for _target in EXPORTS:
    _add(app, _target)
