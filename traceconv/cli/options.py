"""The options that several commands have: the same name means the same on each."""

from __future__ import annotations

from pathlib import Path

import typer
import typer.core

from traceconv.base.errors import UsageError, printable, suggestion

DB = typer.Option(None, "--db", metavar="FILE", help="The store. Default: $TRACECONV_DB, else ./trace.duckdb.")
RUN = typer.Option(
    None,
    "--run",
    metavar="N|LABEL|all",
    help="The run to look at: by number or label, as rank=N or host=NAME; all of them. Default: the latest.",
)
ONE_RUN = typer.Option(
    None, "--run", metavar="N|LABEL", help="Run, by number or label, rank=N or host=NAME. Default: the latest."
)
OUTPUT = typer.Option(
    None, "--output", "-o", metavar="FILE", help="Write to FILE, whole or not at all. Default: stdout."
)

#: Formats of rows; the names are those of `reports.render.TEXT_FORMATS` and what is drawn elsewhere.
FORMATS = ("table", "csv", "json", "ndjson", "markdown", "parquet")
_BY_SUFFIX = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".md": "markdown",
    ".parquet": "parquet",
}

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


class Command(typer.core.TyperCommand):
    """A command whose whole numbers are ones that SQL, numpy and files can hold."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # its base has no public name
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(value, int) and not _SMALLEST <= value <= _LARGEST:
                raise UsageError(
                    f"{parameter.opts[0]} {printable(str(value), 40)}: whole numbers go from {_SMALLEST} to {_LARGEST}"
                )
        return super().invoke(ctx)


def store_path(db: Path | None) -> Path:
    """The store that a command works on: what --db says, or the default."""
    from traceconv.store.database import default_store_path, named_store

    return named_store(db) if db is not None else default_store_path()


def row_format(wanted: str | None, output: Path | None, formats: tuple[str, ...] = FORMATS) -> str:
    """The format to write rows in: as asked, else by the file's name, else a table.

    Raises UsageError for one that is not there, and for Parquet without a file.
    """
    if wanted is None:
        suffix = "" if output is None else output.name.lower().removesuffix(".gz")
        chosen = _BY_SUFFIX.get(Path(suffix).suffix, "table")
        chosen = chosen if chosen in formats else "table"
    elif wanted in formats:
        chosen = wanted
    else:
        near = suggestion(wanted, list(formats))
        raise UsageError(f"there is no format '{printable(wanted)}'.{near} Choose one of: {', '.join(formats)}")
    if chosen == "parquet":
        if output is None:
            raise UsageError("Parquet is not for a terminal or a pipe; name a file: -o FILE.parquet")
        try:
            str(output.absolute()).encode()
        except UnicodeEncodeError:
            raise UsageError(f"can't write {printable(str(output))}: DuckDB needs a name in UTF-8") from None
    return chosen
