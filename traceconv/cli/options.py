"""Options that several commands share, so that a name means the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
import typer.core

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.cli.completions import (
    complete_column,
    complete_columns,
    complete_format,
    complete_model,
    complete_rank,
    complete_run,
    complete_runs,
)

#: Formats of rows: those of `reports.render.TEXT_FORMATS`, the terminal's table and Parquet.
FORMATS = ("table", "csv", "json", "ndjson", "markdown", "parquet")
#: The formats of rows that don't come from a store.
TEXT_ONLY = FORMATS[:-1]
_BY_SUFFIX = {
    ".txt": "table",
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".md": "markdown",
    ".html": "html",
    ".parquet": "parquet",
}
#: Names of every command's help option.
HELP_NAMES = {"help_option_names": ["--help", "-h"]}


def _file_or_stdout(output: Path | None) -> Path | None:
    return None if output is not None and str(output) == "-" else output


#: Trace files to read instead of a store.
FILES = typer.Argument(
    None,
    metavar="[FILE]…",
    help="Captures, traces or folders to read instead of the store; they are ingested once and cached.",
    show_default=False,
)
CACHE = typer.Option(True, "--cache/--no-cache", help="Keep what is ingested from FILE for the next command.")


def format_option(formats: tuple[str, ...]) -> Any:  # as typer.Option, which is a default of any type
    """Declare --format for a command that writes rows in these formats."""
    help_text = f"{', '.join(formats)}. Default: by the suffix of -o, else table."
    return typer.Option(None, "--format", metavar="FORMAT", help=help_text, autocompletion=complete_format)


DB = typer.Option(None, "--db", metavar="FILE", help="The store. Default: $TRACECONV_DB, else ./trace.duckdb.")
RUN = typer.Option(
    None,
    "--run",
    metavar="N|LABEL|all",
    help="Run, by number or label, rank=N or host=NAME; several: 1,2. Default: the latest.",
    autocompletion=complete_runs,
)
ONE_RUN = typer.Option(
    None,
    "--run",
    metavar="N|LABEL",
    help="Run, by number or label, rank=N or host=NAME. Default: the latest.",
    autocompletion=complete_run,
)
MERGED_RUNS = typer.Option(
    None,
    "--run",
    metavar="N|LABEL|all",
    help="Run, by number or label, rank=N or host=NAME; several: 1,2. Default: the latest.",
    autocompletion=complete_runs,
)
ALL_RUNS = typer.Option(
    None,
    "--run",
    metavar="N|LABEL|all",
    help="Run, by number or label, rank=N or host=NAME; several: 1,2. Default: all.",
    autocompletion=complete_runs,
)
RANK = typer.Option(
    None, "--rank", metavar="N", help="Run of this rank, like --run rank=N.", autocompletion=complete_rank
)
OUTPUT = typer.Option(
    None, "--output", "-o", metavar="FILE", help="Write to FILE; - is stdout, the default.", callback=_file_or_stdout
)
MASTER = typer.Option(
    "local[*]", "--master", metavar="URL", help="For --engine spark: where Spark runs, such as spark://HOST:7077."
)
ORDER_BY = typer.Option(
    None,
    "--order-by",
    "--sort",
    metavar="COLUMN",
    help="Sort by a column, or by several: A,B; numbers descending, text ascending, or as in 'A ASC'.",
    autocompletion=complete_column,
)
COLUMNS = typer.Option(
    None,
    "--columns",
    metavar="A,B,…|all",
    help="Columns, in order. Default: the main ones for a table, else all.",
    autocompletion=complete_columns,
)
FORMAT = format_option(FORMATS)
TEXT_FORMAT = format_option(TEXT_ONLY)

DEVICE = typer.Option(None, "--device", metavar="N", help="Only this device. Default: all.")
STEPS = typer.Option(None, "--steps", metavar="A-B", help="Only these steps: 3-5, 3- or -5.")
TO = typer.Option(None, "--to", metavar="TIME", help="End of the time window.")

MODEL = typer.Argument(
    ...,
    metavar="MODEL",
    help="An .onnx file, or the name of a model.",
    show_default=False,
    autocompletion=complete_model,
)
BATCH = typer.Option(None, "--batch", help="Batch size (first dimension of every input). Default: the model's.")
DEVICE_SPEC = typer.Option(
    None, "--device-spec", metavar="FILE.toml", help="Device description. Default: the reference NPU."
)
STREAMS = typer.Option(None, "--streams", help="Maximum number of compute streams. Default: the device's.")

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class Command(typer.core.TyperCommand):
    """A command whose integers fit into 64 bits, as SQL, numpy and files need them; help names values in one way."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        for parameter in self.params:
            kind = parameter.type.name
            if parameter.metavar is None and kind.startswith(("int", "float", "str")):
                parameter.metavar = "N" if kind.startswith("int") else "VALUE"
            if hasattr(parameter.type, "readable"):  # whoever opens a file reports it: one of many doesn't stop others
                parameter.type.readable = False
        return super().get_params(ctx)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # its base has no public name
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
                shown = printable(str(value), 40)
                raise UsageError(f"{parameter.opts[0]} {shown}: must be from {_SMALLEST} to {_LARGEST}")
        return super().invoke(ctx)


def store_path(db: Path | None) -> Path:
    """Return the store that a command works on: --db, or the default."""
    from traceconv.store.database import default_store_path, named_store

    return named_store(db) if db is not None else default_store_path()


def row_format(wanted: str | None, output: Path | None, formats: tuple[str, ...] = FORMATS) -> str:
    """Return the format to write rows in: `wanted`, else by the file's suffix, else a table.

    A format can also be given as a suffix (md). Raises UsageError for an unknown format or suffix, and for Parquet
    without a file.
    """
    suffix = "" if output is None else Path(output.name.lower().removesuffix(".gz")).suffix
    if not wanted and suffix and _BY_SUFFIX.get(suffix) not in formats:
        known = ", ".join(one for one, form in _BY_SUFFIX.items() if form in formats)
        raise UsageError(f"unknown suffix: {printable(str(output))}; use {known} (also with .gz), or add --format")
    if output is not None and not wanted and _BY_SUFFIX.get(f".{output}", str(output)) in formats:
        raise UsageError(f"-o {output} names a file; for the format on stdout: --format {output}")
    chosen = _BY_SUFFIX.get(f".{wanted}", wanted) if wanted else _BY_SUFFIX.get(suffix, "table")
    if chosen not in formats:
        near = suggestion(chosen, list(formats))
        raise UsageError(f"unsupported format '{printable(chosen)}'.{near} Choose one of: {', '.join(formats)}")
    if chosen == "parquet":
        if output is None:
            raise UsageError("Parquet can't be written to stdout; name a file with -o FILE.parquet")
        try:
            str(output.absolute()).encode()
        except UnicodeEncodeError:
            raise UsageError(f"can't write {printable(str(output))}: DuckDB needs a name in UTF-8") from None
    return chosen


def wanted_columns(columns: str) -> list[str]:
    """The names in --columns."""
    return [name.strip() for name in columns.split(",")]
