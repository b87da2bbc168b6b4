"""Add runs to a lake: Parquet files for each table, in partitions by group and run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from traceconv.base.errors import InputError, OutputError, UsageError, option, printable
from traceconv.export.registry import Written
from traceconv.lake.entries import Entry, TableFile, Value, entry_name, key_of, parse_entry
from traceconv.lake.folder import LakeFolder, lake_folder, new_file_name
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier, quote_text, sql_type
from traceconv.store.load_memory import bytes_for_texts
from traceconv.store.text_sizes import VECTOR_ROWS, sizes_in_tables

if TYPE_CHECKING:
    from traceconv.schema.model import TableSchema

#: Rows are ordered by the columns of these that a table has, so that statistics of row groups exclude most of them,
#: unless they are in order but for neighbours, as ingest mostly leaves them: sorting takes half as long as the rest.
_ORDER = ("device_id", "start_ns", "alloc_ns", "ts_ns", "at_ns", "src_ns", "id")
#: DuckDB's memory for sorting and for the groups of rows that are being written, and how many times the size of the
#: longest text, and of those that are read at once, it has besides. It spills what it sorts.
_MEMORY_BYTES = 250_000_000
_TIMES_A_TEXT, _TIMES_A_VECTOR = 8, 4
#: Rows of a group, which has statistics, fewer if their texts are larger than this; and by how much the ranges of the
#: groups' times may overlap without a sort.
_GROUP_ROWS, _GROUP_TEXT_BYTES = 122_880, 32 << 20
_MOST_OVERLAP = 4
#: Columns of the table run that users and migrations change.
_CHANGED = ("label", "group_label", "schema_version")
#: Files that are moved into the lake at the same time.
_WRITERS = 8


def export_parquet(
    connection: duckdb.DuckDBPyConnection, run_id: int, output: Path | None, *, overwrite: bool = False
) -> Written:
    """Add a run to the lake `output`, which is created if it does not exist.

    A run with the same digest that is already in the lake is kept, unless `overwrite`. Readers see the run when its
    entry is written, after all files. Raises UsageError without `output`, OutputError if the lake can't be written.
    """
    if output is None:
        raise UsageError("export parquet needs a folder: pass -o DIR")
    folder = lake_folder(output)
    entry, added = add_run(connection, run_id, folder, overwrite=overwrite)
    if not added:
        label = printable(str(_run_row(connection, run_id)["label"]), 60)
        note = f"{label} is already in {folder.shown}; {option('--overwrite')} replaces it"
        return Written({}, 0, path=output, notes=(note,))
    return Written(
        {file.table: file.row_count for file in entry.files},
        sum(file.size_bytes for file in entry.files),
        path=output,
    )


def add_run(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    folder: LakeFolder,
    *,
    overwrite: bool = False,
    added_ns: int | None = None,
) -> tuple[Entry, bool]:
    """Add a run to a lake; return its entry, and False if the lake had one already, which is kept.

    added_ns  when it was added, since the Unix epoch; None: now. A replaced run keeps its time.

    Raises OutputError if the lake can't be written.
    """
    run = _run_row(connection, run_id)
    digest = str(run["source_digest"]) if run["source_digest"] is not None else _content_digest(connection, run_id)
    key = key_of(digest)
    before, exists = _entry_in(folder, key, overwrite=overwrite)
    if before is not None and before.digest != digest:
        raise OutputError(f"{folder.shown} has another run with the key {key}, {before.label}; use another folder")
    if before is not None and not overwrite:
        return before, False
    if before is not None:
        added_ns = before.added_ns
    texts = sizes_in_tables(connection)
    text_bytes = _TIMES_A_TEXT * texts.longest_bytes + _TIMES_A_VECTOR * bytes_for_texts(texts)
    connection.execute(f"SET memory_limit = '{_MEMORY_BYTES + text_bytes}B'")
    with folder.staging() as staging:
        written = (_write_table(connection, run_id, name, staging) for name in tables())
        files = tuple(file for file in written if file is not None)
        entry = Entry(key, digest, time.time_ns() if added_ns is None else added_ns, texts.longest_bytes, run, files)
        with ThreadPoolExecutor(_WRITERS) as pool:  # each waits for the disk or the network
            list(pool.map(lambda one: folder.publish(staging / one[1].name, one[0]), entry.paths().items()))
    if not folder.publish_entry(entry_name(key), entry.to_json(), replace=exists):
        folder.remove(entry.paths())  # another program was faster
        return entry, False
    if before is not None:
        folder.remove(before.paths())
    return entry, True


def _entry_in(folder: LakeFolder, key: str, *, overwrite: bool) -> tuple[Entry | None, bool]:
    """Return the entry of a run, and whether there is a file for it, which may be damaged if it is overwritten."""
    [content] = folder.read([entry_name(key)])
    if isinstance(content, FileNotFoundError):
        return None, False
    try:
        return parse_entry(key, content), True
    except InputError as error:
        if overwrite:
            return None, True
        raise OutputError(
            f"{folder.shown}: the entry {entry_name(key)} {error} ({option('--overwrite')} replaces it)"
        ) from error


def _run_row(connection: duckdb.DuckDBPyConnection, run_id: int) -> Mapping[str, Value]:
    names = [column.name for column in tables()["run"].columns[1:]]
    selected = ", ".join(map(quote_identifier, names))
    [row] = connection.execute(f"SELECT {selected} FROM run WHERE run_id = ?", [run_id]).fetchall()
    return dict(zip(names, row, strict=True))


def _content_digest(connection: duckdb.DuckDBPyConnection, run_id: int) -> str:
    """A digest of the rows, for a run without one of its source: a static profile, or a trace from standard input.

    It is only of what an ingest reads, and no later command or version changes.
    """
    digest = hashlib.sha256()
    for name, schema in tables().items():
        if schema.derived_from or schema.since:
            continue
        columns = ", ".join(
            quote_identifier(column.name)
            for column in schema.columns[1:]
            if not column.since and (name != "run" or column.name not in _CHANGED)
        )
        sql = f"SELECT count(*), sum(hash({columns})) FROM {quote_identifier(name)} WHERE run_id = ?"
        digest.update(f"{name} {connection.execute(sql, [run_id]).fetchall()}\n".encode())
    return digest.hexdigest()


def _mean_bytes(connection: duckdb.DuckDBPyConnection, run_id: int, schema: TableSchema) -> int:
    """Return the mean size of the texts in a row of a run."""
    texts = [quote_identifier(column.name) for column in schema.columns if sql_type(column) == "VARCHAR"]
    in_all = " + ".join(f"coalesce(sum(strlen({text})), 0)" for text in texts) or "0"
    source = f"FROM {quote_identifier(schema.name)} WHERE run_id = {run_id:d}"
    [(mean,)] = connection.execute(f"SELECT coalesce(({in_all}) // nullif(count(*), 0), 0)::BIGINT {source}").fetchall()
    return int(mean)


def _order(connection: duckdb.DuckDBPyConnection, source: str, columns: Sequence[str]) -> Sequence[str]:
    """Return the columns to sort by: none of them if most rows are already near their place."""
    for place, column in enumerate(columns):
        near = f"sum(high::HUGEINT - low) <= {_MOST_OVERLAP} * (max(high)::HUGEINT - min(low))"
        [(first, last, is_near)] = connection.execute(
            f"SELECT min(low), max(high), {near} "
            f"FROM (SELECT min({column}) AS low, max({column}) AS high {source} GROUP BY rowid // {_GROUP_ROWS})"
        ).fetchall()
        if first != last:
            return [] if is_near and column != '"device_id"' else columns[place:]
    return []


def _write_table(connection: duckdb.DuckDBPyConnection, run_id: int, name: str, staging: Path) -> TableFile | None:
    """Write the rows of a run, if there are any, without run_id."""
    columns = {quote_identifier(column.name): sql_type(column) for column in tables()[name].columns[1:]}
    source = f"FROM {quote_identifier(name)} WHERE run_id = {run_id:d}"
    counts = ", ".join(f"count({column})" for column in columns)
    [(rows, *known)] = connection.execute(f"SELECT count(*), {counts} {source}").fetchall()
    if not rows:
        return None
    # The sort moves complete rows, so columns without any value are added after it.
    stored = [column for column, count in zip(columns, known, strict=True) if count]
    order = _order(connection, source, [column for column in map(quote_identifier, _ORDER) if column in stored])
    sorted_by = f" ORDER BY {', '.join(order)}" if order else ""
    selected = ", ".join(
        column if column in stored else f"NULL::{kind} AS {column}" for column, kind in columns.items()
    )
    file = staging / new_file_name()
    mean_bytes = _mean_bytes(connection, run_id, tables()[name])
    group_rows = max(VECTOR_ROWS, min(_GROUP_ROWS, _GROUP_TEXT_BYTES // max(1, mean_bytes)))
    try:
        [(count,)] = connection.execute(
            f"COPY (SELECT {selected} FROM (SELECT {', '.join(stored) or 'NULL'} {source}{sorted_by})) "
            f"TO {quote_text(str(file))} (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {group_rows})"
        ).fetchall()
        size, digest = file.stat().st_size, hashlib.sha256()
        with file.open("rb") as stream:
            while part := stream.read(1 << 20):
                digest.update(part)
    except (duckdb.Error, OSError) as error:
        raise OutputError(
            f"can't write the table {name} as Parquet: {printable(str(error).splitlines()[0])}"
        ) from error
    return TableFile(name, file.name, count, size, digest.hexdigest())
