"""The program: the commands put together, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys

import typer

from traceconv import __version__
from traceconv.cli import dump, info, ingest, query, record, report, schema
from traceconv.errors import TraceconvError

_HELP = """Profiler logs of NPUs and GPUs into DuckDB: fast, exact, and calm with broken files."""

#: Base of the errors that the argument parser raises; typer does not export it under a name of its own.
_ParserError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(help=_HELP, no_args_is_help=True, pretty_exceptions_enable=False)
app.command("dump", help=dump.HELP)(dump.dump)
app.command("info", help=info.HELP)(info.info)
app.command("ingest")(ingest.ingest)
app.command("query")(query.query)
app.command("record", help=record.HELP)(record.record)
app.command("report", add_help_option=False)(report.report)
app.command("schema")(schema.schema)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"traceconv {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_show_version, is_eager=True
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None: ...


def main() -> None:
    """Entry point of the `traceconv` program: runs a command and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command line; errors become one line on stderr. Returns the exit code."""
    try:
        code = app(arguments, prog_name="traceconv", standalone_mode=False)
    except TraceconvError as error:
        if "--debug" in arguments:
            raise
        return _fail(str(error), error.exit_code)
    except _ParserError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # the help was shown instead
            return 2
        return _fail(message, 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped", 130)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): that is no error, and nothing more can be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"traceconv: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201 - stderr is for talk
    return code
