"""Rows out of a command: to the terminal, a pipe or a file, in the format that was asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from traceconv.base.errors import OutputError, printable

if TYPE_CHECKING:
    import duckdb

    from traceconv.reports.filters import Value
    from traceconv.reports.render import Table


#: No line is longer than this.
_LONGEST_LINE = 1 << 20


def say(text: str, prefix: str = "traceconv: ") -> None:
    """Print one line to stderr, without control characters."""
    print(prefix + printable(text, _LONGEST_LINE), file=sys.stderr)  # noqa: T201 - the only output to stderr


def write_table(table: Table, output: Path | None, *, row_limit: int | None) -> None:
    """Print a formatted table; report on stderr if it is truncated."""
    from traceconv.cli.tables import show
    from traceconv.export.output import open_output

    if output is None and sys.stdout.isatty():
        drawn, complete = show(table, None, row_limit=row_limit)
        if not complete:
            say(f"the first {drawn} rows; for others: --top N, --filter, or --format csv -o FILE")
        return
    with _reader_may_leave(output), open_output(output) as file:
        show(table, file, row_limit=row_limit)


def write_rows(table: Table, form: str, output: Path | None, *, row_limit: int | None = None) -> None:
    """Write rows as a table for people, or in a text format."""
    from traceconv.reports.render import TEXT_FORMATS

    if form == "table":
        write_table(table, output, row_limit=row_limit)
    else:
        write_text(TEXT_FORMATS[form](table), output)


def write_text(chunks: Iterable[str], output: Path | None) -> None:
    """Writes a text format to a file or to standard output as it comes."""
    from traceconv.export.output import open_output

    escape = output is None and sys.stdout.isatty()
    with _reader_may_leave(output), open_output(output) as file:
        for chunk in chunks:
            # On a terminal, nothing of a trace may act on it; a file gets what the format says.
            file.write((_harmless(chunk) if escape else chunk).encode())


def write_parquet_file(
    connection: duckdb.DuckDBPyConnection, sql: str, values: list[Value], output: Path, partial: Path | None = None
) -> None:
    """Writes the rows of a statement to a Parquet file, which appears whole or not at all.

    partial  the name to write it under until it is whole, when the connection may write to no other
    """
    from traceconv.export.output import partial_of
    from traceconv.reports.run import write_parquet

    target = Path(os.path.realpath(output))
    if os.path.exists(target) and not os.path.isfile(target):
        raise OutputError(f"can't write {printable(str(output))}: it is no plain file")
    partial = partial or partial_of(target)
    try:
        write_parquet(connection, sql, values, partial)
        partial.replace(target)
    except OSError as error:
        raise OutputError(f"can't write {printable(str(output))}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def print_lines(lines: Iterable[str]) -> None:
    """Prints our own text to standard output."""
    write_text((line + "\n" for line in lines), None)


@contextmanager
def _reader_may_leave(output: Path | None) -> Iterator[None]:
    """Whoever reads our standard output may stop (`| head`): that ends the work, and is no error."""
    try:
        yield
    except BrokenPipeError:
        if output is not None:
            raise


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(_shown(text))


def _shown(text: str) -> Iterator[str]:
    for character in text:
        yield character if character.isprintable() or character == "\n" else f"\\x{ord(character):02x}"
