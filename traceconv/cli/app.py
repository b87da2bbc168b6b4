"""The program: the commands put together, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import gc
import sys
import warnings

import typer
import typer.core

from traceconv import native
from traceconv._version import __version__
from traceconv.base.errors import StoreMigrated, TraceconvError
from traceconv.base.malloc_tuning import is_starved
from traceconv.base.plugins import PluginWarning
from traceconv.cli import (
    dump,
    export,
    info,
    ingest,
    model,
    op_profile,
    options,
    query,
    record,
    report,
    schema,
    verify,
    why,
)
from traceconv.cli.output import say
from traceconv.cli.streams import ReaderLeft, finish, guard_streams

_HELP = """Profiler logs of NPUs and GPUs into one DuckDB store: fast, exact, and calm with broken files.

\b
The walk, from a model to answers:
  traceconv record resnet50 -o raw/       run it on the reference NPU, log it
  traceconv ingest raw/                   logs into the store ./trace.duckdb
  traceconv report op-statistic --top 10  which operators take the time
  traceconv query "FROM op_statistic"     anything else, in SQL
  traceconv export chrome -o trace.json   a timeline, for ui.perfetto.dev

Each command has examples: traceconv COMMAND --help. stdout is data, stderr is talk. Exit codes: 0 done, 1 it
can't be done, 2 the call is wrong, 3 done but data was lost on the way (stderr says how much and where).
"""

#: The commands in the order in which a newcomer meets them, with a line on each.
COMMANDS = {
    "record": "Run a model on the reference NPU and log it.",
    "ingest": "Read logs into the store.",
    "report": "Answer a question from the store.",
    "query": "Ask the store in SQL.",
    "export": "Write a run as another program's format.",
    "schema": "Describe the tables, views and reports.",
    "model": "Say what a model costs, before it runs.",
    "op-profile": "Run one op alone on the reference NPU.",
    "info": "Say what a file is, and whether it is whole.",
    "dump": "Show the records of raw logs.",
    "verify": "Compute a vendor's tables again, and compare.",
    "why": "Show the bytes that a row came from.",
}

#: Base of the errors that the argument parser raises; typer does not export it under a name of its own.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]


class _Walk(typer.core.TyperGroup):
    """Lists the commands in the order of `COMMANDS`."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # its base has no public name
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # typer would make an exit code of its own of it
            raise ReaderLeft from None

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # its base has no public name
        return sorted(super().list_commands(ctx), key=list(COMMANDS).index)


# Without rich: paragraphs are wrapped, examples are not, and the help of a command takes half the time.
app = typer.Typer(cls=_Walk, help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command("dump", cls=options.Command, help=dump.HELP, short_help=COMMANDS["dump"])(dump.dump)
app.add_typer(export.app, name="export", short_help=COMMANDS["export"])
app.command("info", cls=options.Command, help=info.HELP, short_help=COMMANDS["info"])(info.info)
app.command("ingest", cls=options.Command, short_help=COMMANDS["ingest"])(ingest.ingest)
app.command("model", cls=options.Command, help=model.HELP, short_help=COMMANDS["model"])(model.model)
app.command("op-profile", cls=options.Command, help=op_profile.HELP, short_help=COMMANDS["op-profile"])(
    op_profile.op_profile
)
app.command("query", cls=options.Command, short_help=COMMANDS["query"])(query.query)
app.command("record", cls=options.Command, help=record.HELP, short_help=COMMANDS["record"])(record.record)
app.command("report", cls=options.Command, add_help_option=False, short_help=COMMANDS["report"])(report.report)
app.command("schema", cls=options.Command, short_help=COMMANDS["schema"])(schema.schema)
app.command("verify", cls=options.Command, help=verify.HELP, short_help=COMMANDS["verify"])(verify.verify)
app.command("why", cls=options.Command, help=why.HELP, short_help=COMMANDS["why"])(why.why)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"traceconv {__version__}, C extension {'active' if native.AVAILABLE else 'not active'}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version, and whether the C extension is active.",
        callback=_show_version,
        is_eager=True,
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None: ...


class _NoPandas:
    """pyarrow would load it, where it is installed, to know its types when it sees them: they don't come up here."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Refuses the import."""
        if name == "pandas":
            raise ModuleNotFoundError("the program does without pandas", name=name)


def main() -> None:
    """Entry point of the `traceconv` program: runs a command and ends the process with its exit code."""
    # What a program loads stays: it is not worth looking through for garbage again and again.
    gc.set_threshold(150_000)
    sys.meta_path.insert(0, _NoPandas)
    guard_streams()
    sys.exit(finish(run(sys.argv[1:])))


def run(arguments: list[str]) -> int:
    """Runs one command line; errors become one line on stderr. Returns the exit code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", StoreMigrated)
            warnings.simplefilter("always", PluginWarning)
            show = warnings.showwarning
            warnings.showwarning = lambda message, kind, *place: (
                say(str(message)) if issubclass(kind, (StoreMigrated, PluginWarning)) else show(message, kind, *place)
            )
            code = app(arguments, prog_name="traceconv", standalone_mode=False)
    except TraceconvError as error:
        if "--debug" in arguments:
            raise
        return _fail(str(error), error.exit_code)
    except _ParserError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # the help was shown instead
            return 2
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help
            typer.echo(message, err=True)
            return 2
        return _fail(message, 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except ReaderLeft:  # that is no error, and nothing more can be said
        return 0
    except Exception as error:  # libraries say that memory is short each in a way of its own
        if "--debug" in arguments or not is_starved(error):
            raise
        return _fail("out of memory: give the process more of it, or fewer files at a time", 1)
    if code == 130:  # Ctrl-C, as typer passes it on
        return _fail("stopped", 130)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    say(" ".join(message.split()))
    return code
