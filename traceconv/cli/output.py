"""A command's output: rows in the requested format to the terminal, a pipe or a file, and diagnostics."""

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


#: Maximum length of a line.
_LONGEST_LINE = 1 << 20


def print_message(text: str, prefix: str = "traceconv: ") -> None:
    """Print a diagnostic line to stderr, without control characters."""
    print(prefix + printable(text, _LONGEST_LINE), file=sys.stderr)  # noqa: T201 - the only place for diagnostics


def write_table(table: Table, output: Path | None, *, row_limit: int | None) -> None:
    """Write a table for people, with a note if not all rows are shown."""
    from traceconv.cli.tables import show
    from traceconv.export.output import open_output

    if output is None and sys.stdout.isatty():
        drawn = show(table, None, row_limit=row_limit)
        if drawn.left_out:
            print_message(f"not shown: {', '.join(drawn.left_out)}; select columns with --columns")
        if not drawn.complete:
            print_message(f"showing the first {drawn.rows} rows; for all, use a pipe, or --format csv -o FILE")
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
    """Write text to a file or to standard output as it is produced."""
    from traceconv.export.output import open_output

    escape = output is None and sys.stdout.isatty()
    with _reader_may_leave(output), open_output(output) as file:
        for chunk in chunks:
            # A terminal would interpret control characters; a file gets the exact text.
            file.write((_harmless(chunk) if escape else chunk).encode())


def write_parquet_file(
    connection: duckdb.DuckDBPyConnection, sql: str, values: list[Value], output: Path, partial: Path | None = None
) -> None:
    """Write the rows of a statement to a Parquet file, which appears only when it is complete.

    partial  temporary name of the file, if the connection can write to no other
    """
    from traceconv.export.output import partial_of, reason
    from traceconv.reports.fetch import write_parquet

    target = Path(os.path.realpath(output))
    if os.path.exists(output) and not os.path.isfile(output):  # of /dev/stdout, target may not exist
        raise OutputError(f"can't write {printable(str(output))}: it is not a regular file")
    if not target.parent.is_dir():
        raise OutputError(f"can't write {printable(str(output))}: its folder does not exist")
    partial = partial or partial_of(target)
    try:
        write_parquet(connection, sql, values, partial)
        partial.replace(target)
    except OSError as error:
        raise OutputError(f"can't write {printable(str(output))}: {reason(error)}") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def write_lines(lines: Iterable[str], output: Path | None = None) -> None:
    """Write lines to a file or to standard output as they are produced."""
    write_text((line + "\n" for line in lines), output)


@contextmanager
def _reader_may_leave(output: Path | None) -> Iterator[None]:
    """The reader of standard output may stop reading (`| head`): that ends the work, and is not an error."""
    try:
        yield
    except BrokenPipeError:
        if output is not None:
            raise


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)
