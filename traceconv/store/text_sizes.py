"""Sizes of the texts of rows: some of them are in DuckDB's memory together, whatever its limit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.normalize.trace.binary import codes_of, offsets_of
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier

#: Rows that DuckDB reads at once.
VECTOR_ROWS = 2048
#: Texts that are read at once and fit DuckDB's default limit, and the size of one up to which they always do.
SMALL_VECTOR_BYTES = 24 << 20
_SMALL_BYTES = SMALL_VECTOR_BYTES // VECTOR_ROWS
#: Mean size of a column's different texts up to which there is room for DuckDB's search for a dictionary, and the size
#: of a text with which a column has none.
LONG_TEXT_BYTES, _NO_DICTIONARY_BYTES = 256, 4096
#: Limit for texts that are read at once if only the longest of all is known.
_MOST_VECTOR_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class TextSizes:
    """Sizes of texts, upper limits.

    longest_bytes  of one
    vector_bytes   of those in VECTOR_ROWS consecutive rows of a column
    mean_bytes     per row, of the different texts of a column that may have a dictionary
    """

    longest_bytes: int = 0
    vector_bytes: int = 0
    mean_bytes: int = 0

    def over(self, other: TextSizes) -> TextSizes:
        """Return the larger one of each size."""
        return TextSizes(
            max(self.longest_bytes, other.longest_bytes),
            max(self.vector_bytes, other.vector_bytes),
            max(self.mean_bytes, other.mean_bytes),
        )


NO_TEXTS = TextSizes()


def sizes_of_longest(longest_bytes: int) -> TextSizes:
    """Return the sizes of texts of which the longest one is known."""
    return TextSizes(longest_bytes, min(longest_bytes * VECTOR_ROWS, _MOST_VECTOR_BYTES))


class RecentRows:
    """The rows of a table that were inserted last, of which DuckDB may read some together with the next ones."""

    def __init__(self, table: str) -> None:
        """`table`: its name."""
        #: Columns that are compressed without a search for a dictionary.
        self._of_json = {column.name for column in tables()[table].columns if column.type == "json"}
        #: Numbers of rows, and bytes of their texts.
        self._parts: list[tuple[int, int]] = []

    def sizes_with(self, batch: pa.RecordBatch) -> TextSizes:
        """Return the sizes of texts if this batch comes next. The longest text is not searched for."""
        if not batch.num_rows:
            return NO_TEXTS
        bytes_of_parts, mean_bytes = self._sizes(batch)
        together = sum(size for _, size in self._parts) + int(bytes_of_parts[0])
        return TextSizes(0, max(together, int(bytes_of_parts.max())), mean_bytes)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""
        if not batch.num_rows:
            return
        size = int(self._sizes(batch)[0][-1])
        rows = (batch.num_rows - 1) % VECTOR_ROWS + 1
        self._parts = [*(self._parts if rows == batch.num_rows else ()), (rows, size)]
        while sum(count for count, _ in self._parts[1:]) >= VECTOR_ROWS:
            del self._parts[0]

    def _sizes(self, batch: pa.RecordBatch) -> tuple[Int64, int]:
        """Return the bytes of texts in every VECTOR_ROWS rows, and `mean_bytes`."""
        found: Int64 = np.zeros(-(-batch.num_rows // VECTOR_ROWS), np.int64)
        mean_bytes = 0
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if pa.types.is_dictionary(column.type):
                of_parts, of_column = _of_dictionary(column)
            elif pa.types.is_string(column.type):
                of_parts, of_column = _of_texts(column)
            else:
                continue
            found += of_parts
            if name not in self._of_json:
                mean_bytes = max(mean_bytes, of_column)
        return found, mean_bytes


def sizes_in_store(connection: duckdb.DuckDBPyConnection) -> TextSizes:
    """Return the sizes of texts of all runs of a store. Raises duckdb.Error."""
    return sizes_in_tables(connection).over(TextSizes(mean_bytes=mean_in_store(connection)))


def sizes_in_tables(connection: duckdb.DuckDBPyConnection) -> TextSizes:
    """Return the size of a store's longest text, and of those in VECTOR_ROWS rows. Raises duckdb.Error.

    A lake has views instead of tables, for which DuckDB has no statistics: its texts count as small.
    """
    stored = "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()"
    names = {name for (name,) in connection.execute(stored).fetchall()} & tables().keys()
    return reduce(TextSizes.over, (sizes_in_table(connection, name) for name in names), NO_TEXTS)


def sizes_in_table(connection: duckdb.DuckDBPyConnection, table: str) -> TextSizes:
    """Return the same sizes of a table. Raises duckdb.Error."""
    names = [quote_identifier(column.name) for column in tables()[table].columns if column.type in ("str", "json")]
    source = f"FROM {quote_identifier(table)}"
    stats = connection.execute(f"SELECT {', '.join(f'stats({name})::VARCHAR' for name in names) or 1} {source} LIMIT 1")
    longest = [_longest(text) for text in stats.fetchone() or ()] if names else []
    if max(longest, default=0) <= _SMALL_BYTES:
        return sizes_of_longest(max(longest, default=0))
    large = [name for name, size in zip(names, longest, strict=True) if size > _SMALL_BYTES]
    size = " + ".join(f"coalesce(strlen({name}), 0)" for name in large)
    [(longest_bytes, vector_bytes)] = connection.execute(
        "SELECT coalesce(max(longest), 0), coalesce(max(size), 0)::BIGINT "  # noqa: S608 - our names
        f"FROM (SELECT max({size}) AS longest, sum({size}) AS size {source} GROUP BY rowid // {VECTOR_ROWS})"
    ).fetchall()
    return TextSizes(longest_bytes, vector_bytes)


def mean_in_store(connection: duckdb.DuckDBPyConnection, database: str | None = None) -> int:
    """Return `mean_bytes` of a store, or of an attached one; texts count as different. Raises duckdb.Error."""
    mean = 0
    prefix = "" if database is None else f"{quote_identifier(database)}.main."
    for table, schema in tables().items():
        names = [quote_identifier(column.name) for column in schema.columns if column.type == "str"]
        if names:
            means = ", ".join(f"sum(strlen({name})) // nullif(count(*), 0)" for name in names)
            found = connection.execute(f"SELECT {means} FROM {prefix}{quote_identifier(table)}").fetchall()  # noqa: S608 - our names
            mean = max(mean, *(size or 0 for size in found[0]), 0)
    return mean


def _longest(statistics: str | None) -> int:
    """Return the size of the longest text by DuckDB's statistics of a column; a large one if they don't tell."""
    found = re.search(r"max.string.length\D{1,4}(\d+)", statistics or "", re.IGNORECASE)
    return _SMALL_BYTES + 1 if found is None else int(found[1])


def _of_texts(column: pa.StringArray) -> tuple[Int64, int]:
    """Return the bytes of every VECTOR_ROWS rows, and per row, of texts that may be in a dictionary."""
    offsets = offsets_of(column)
    mean_bytes = (int(offsets[-1]) - int(offsets[0])) // len(column)
    if mean_bytes > LONG_TEXT_BYTES:
        lengths = np.diff(offsets)
        mean_bytes = int(lengths[lengths < _NO_DICTIONARY_BYTES].sum(dtype=np.int64)) // len(column)
    return np.diff(offsets[:-1:VECTOR_ROWS], append=offsets[-1:]).astype(np.int64), mean_bytes


def _of_dictionary(column: pa.DictionaryArray) -> tuple[Int64 | int, int]:
    """Return the same of a column with a dictionary, of which a text counts once."""
    lengths = np.diff(offsets_of(column.dictionary), append=0)
    lengths[-1] = 0  # of NULL
    longest = int(lengths.max())
    if longest <= LONG_TEXT_BYTES:
        return longest * min(len(column), VECTOR_ROWS), 0
    codes = codes_of(column)
    of_parts = np.add.reduceat(lengths[codes], np.arange(0, len(codes), VECTOR_ROWS), dtype=np.int64)
    used = np.zeros(len(lengths), np.bool_)
    used[codes] = lengths[codes] < _NO_DICTIONARY_BYTES
    return of_parts, int(lengths[used].sum(dtype=np.int64)) // len(codes)
