"""The program: its commands, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import copy
import gc
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

import typer
import typer.core
import typer.main

from traceconv import native
from traceconv._version import __version__
from traceconv.base.errors import StoreMigrated, TraceconvError, command_line
from traceconv.base.interrupts import heed_at_interrupt, is_interrupt
from traceconv.base.malloc_tuning import is_starved
from traceconv.base.plugins import PluginWarning
from traceconv.base.quick_imports import make_imports_quick
from traceconv.cli import (
    advise,
    analyze,
    compare,
    dump,
    export,
    info,
    ingest,
    lake,
    mcp,
    model,
    op_profile,
    options,
    query,
    record,
    report,
    runs,
    schema,
    timeline,
    verify,
    why,
)
from traceconv.cli.mistakes import explained
from traceconv.cli.output import print_message
from traceconv.cli.streams import ReaderLeft, finish, guard_streams, leave

_HELP = """Import profiler logs of NPUs and GPUs into a DuckDB store: fast, exact, and tolerant of damaged input.

\b
Typical workflow:
  traceconv ingest trace.json.gz          import traces into ./trace.duckdb
  traceconv report summary                see what happened, on one page
  traceconv report idle-causes            find why a device is idle
  traceconv report op-statistic --top 10  find the slowest operators
  traceconv query "FROM op_statistic"     query anything else in SQL
  traceconv advise                        find what could make it faster
  traceconv compare 1 2                   name what changed between two runs
  traceconv analyze critical-path         find what a step spends its time on
  traceconv timeline                      look at it in Perfetto's viewer

Examples for each command: traceconv COMMAND --help. Results go to stdout, diagnostics to stderr. Exit codes:
0 success, 1 failure, 2 usage error, 3 success with data loss (reported on stderr); for compare: 4 limit exceeded,
5 runs that can't be compared.
"""

#: The commands, in the order of a typical workflow. The first line of a docstring is its line in the help.
COMMANDS: dict[str, Callable[..., None] | typer.Typer] = {
    "ingest": ingest.ingest,
    "report": report.report,
    "query": query.query,
    "advise": advise.advise,
    "compare": compare.compare,
    "analyze": analyze.app,
    "timeline": timeline.timeline,
    "export": export.app,
    "runs": runs.app,
    "lake": lake.app,
    "schema": schema.schema,
    "record": record.record,
    "model": model.model,
    "op-profile": op_profile.op_profile,
    "info": info.info,
    "dump": dump.dump,
    "verify": verify.verify,
    "why": why.why,
    "mcp": mcp.mcp,
}

#: Base of the errors that the argument parser raises; typer does not export it under a name of its own.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]


class _Commands(typer.core.TyperGroup):
    """Lists the commands in the order of `COMMANDS`."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # its base has no public name
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # typer would choose its own exit code
            raise ReaderLeft from None

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # its base has no public name
        return list(COMMANDS)


# Without rich: paragraphs are wrapped, examples are not, and help takes half the time.
app = typer.Typer(
    cls=_Commands,
    help=_HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=options.HELP_NAMES,
)
for _name, _command in COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        # The help of report depends on the report, so it has its own option --help.
        app.command(_name, cls=options.Command, add_help_option=_name != "report", context_settings=options.HELP_NAMES)(
            _command
        )


def _show_version(wanted: bool) -> None:
    if wanted:
        # Perfetto has a program of the same name.
        extension = "active" if native.AVAILABLE else "not active"
        typer.echo(f"traceconv {__version__} (profiler traces and NPU logs in DuckDB), C extension {extension}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        "-V",
        help="Print the version, and whether the C extension is active.",
        callback=_show_version,
        is_eager=True,
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of errors."),
) -> None: ...


@cache  # for programs that run several command lines
def _parser(name: str | None) -> Any:  # its class has no public name
    """Return the parser of one command, or of all of them (None), which takes longer to build."""
    chosen = app
    if name is not None:
        chosen = copy.copy(app)
        chosen.registered_commands = [one for one in app.registered_commands if one.name == name]
        chosen.registered_groups = [one for one in app.registered_groups if one.name == name]
    return typer.main.get_command(chosen)


def main() -> NoReturn:
    """Entry point of the `traceconv` program: run a command and exit with its code."""
    leave(program())


def program() -> int:
    """Run the command line of this process and return the exit code."""
    # Imported modules stay in memory: scanning them for garbage again and again is not worth it.
    gc.set_threshold(150_000)
    make_imports_quick()
    guard_streams()
    heed_at_interrupt()
    return finish(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return the exit code. Errors become one line on stderr."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", StoreMigrated)
            warnings.simplefilter("always", PluginWarning)
            show = warnings.showwarning
            warnings.showwarning = lambda message, kind, *place: (
                print_message(str(message))
                if issubclass(kind, (StoreMigrated, PluginWarning))
                else show(message, kind, *place)
            )
            with command_line():
                command = arguments[0] if arguments and arguments[0] in COMMANDS else None
                code = _parser(command)(arguments, prog_name="traceconv", standalone_mode=False)
    except TraceconvError as error:
        if "--debug" in arguments:
            raise
        return _fail(str(error), error.exit_code)
    except _ParserError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # help was shown instead
            return 2
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
            typer.echo(message, err=True)
            return 2
        return _fail(explained(error), 2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if "--debug" in arguments or missing in ("", "traceconv"):
            raise
        return _fail(f"the Python package {missing} is not installed; install it: pip install {missing}", 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except ReaderLeft:  # not an error
        return 0
    except Exception as error:  # each library reports lack of memory in its own way
        if is_interrupt(error):
            return _fail("interrupted", 130)
        if "--debug" in arguments or not is_starved(error):
            raise
        return _fail("out of memory; raise the memory limit, or process fewer files at a time", 1)
    if code == 130:  # Ctrl-C, as typer passes it on
        return _fail("interrupted", 130)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print_message(" ".join(message.split()))
    return code
