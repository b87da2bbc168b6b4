"""DuckDB's memory while a store is written: settings, and limits by what is loaded. Larger buffers spill to disk."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from traceconv.store.database import GROUP_ROWS
from traceconv.store.text_sizes import LONG_TEXT_BYTES, NO_TEXTS, SMALL_VECTOR_BYTES, TextSizes

#: DuckDB 1, which Python 3.10 gets, holds blocks of each insert into a temporary table until the commit.
_HELD_BYTES = 64_000_000 if duckdb.__version__.startswith("1.") else 0
#: Memory limit while loading.
_LOAD_BYTES = 96_000_000 + _HELD_BYTES
#: The same while derived tables are filled: joins of tasks with operators can't spill all they need.
DERIVE_BYTES = 136_000_000 + _HELD_BYTES
#: Operators of a PyTorch trace that may launch tasks, for which that is enough; more may have as many shapes. An
#: existing store gets all rows in one transaction, so that fewer are.
_DERIVED_OPERATORS, _APPENDED_OPERATORS = 5_000_000, 1_700_000
_BYTES_PER_OPERATOR = 48
#: Such operators up to which other tables are filled in a second thread meanwhile, which takes 80 MB.
AT_ONCE_OPERATORS = 1_000_000
_LAUNCHING = """
SELECT least((SELECT count(*) FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op'),
             (SELECT count(*) FROM task WHERE run_id IN ({runs}) AND kind IS DISTINCT FROM 'sync'))
"""
#: Storing a text takes 5 times its size; one of 12 MiB fits the default limit. Texts that are read at once take 1.5
#: times their size.
_TIMES_A_TEXT, _SMALL_TEXT_BYTES = 5, 12 << 20
_TIMES_A_VECTOR = 2
#: Mean size of texts from which on DuckDB tries zstd.
_SHORTEST_ZSTD_BYTES = 16
LOAD_THREADS = 2
#: Part of it that DuckDB allocates once and reuses, so that the system doesn't clear the pages again.
_BLOCK_MEMORY = "64MB"


def prepare_to_load(connection: duckdb.DuckDBPyConnection, texts: TextSizes = NO_TEXTS) -> None:
    """Configure DuckDB to load many rows quickly in little memory."""
    execute = connection.execute
    execute(f"SET memory_limit = '{bytes_to_load(texts)}B'")
    execute(f"SET threads = {LOAD_THREADS}")
    execute(f"SET block_allocator_memory = '{_BLOCK_MEMORY}'")
    # Preserving the order of batches takes memory per thread, so DuckDB would load with one thread within the limit.
    # Rows of a batch stay together, and reports sort.
    execute("SET preserve_insertion_order = false")
    # A checkpoint would merge the partial row groups of two threads, compressing them a second time.
    execute("SET max_vacuum_tasks = 0")
    compress_texts(connection, texts)


def compress_texts(connection: duckdb.DuckDBPyConnection, texts: TextSizes) -> None:
    """Choose how DuckDB compresses such texts."""
    # The search for the best compression keeps texts until the end of a row group: for a dictionary those that differ,
    # for FSST a quarter of all, three times. Instead of FSST, zstd takes less time for files of the same size.
    without, shortest = ("fsst,dictionary", 0) if has_long_texts(texts) else ("fsst", _SHORTEST_ZSTD_BYTES)
    connection.execute(f"SET disabled_compression_methods = '{without}'")
    connection.execute(f"SET zstd_min_string_length = {shortest}")


def has_long_texts(texts: TextSizes) -> bool:
    """Whether texts are so long, and different, that they are compressed without a search for a dictionary."""
    return texts.mean_bytes > LONG_TEXT_BYTES


def threads_to_load(table: str, rows: pa.RecordBatch, texts: TextSizes) -> int:
    """Return how many threads insert such rows.

    Rows of tasks take as long to make as one thread takes to insert them. Another one's open row group would only make
    DuckDB evict buffers if both exceed three quarters of its memory. Two threads would need room for two large vectors.
    """
    group_bytes = rows.nbytes * GROUP_ROWS // max(1, rows.num_rows)
    is_large = table == "task" and LOAD_THREADS * group_bytes > _LOAD_BYTES * 3 // 4
    return 1 if is_large or texts.vector_bytes > SMALL_VECTOR_BYTES else LOAD_THREADS


def bytes_to_load(texts: TextSizes) -> int:
    """Return the memory limit for rows with such texts."""
    return _LOAD_BYTES + bytes_for_texts(texts)


def bytes_for_texts(sizes: TextSizes) -> int:
    """Return what texts need above the other limits, in few steps."""
    of_text = _TIMES_A_TEXT * sizes.longest_bytes if sizes.longest_bytes > _SMALL_TEXT_BYTES else 0
    vector_bytes = 1 << sizes.vector_bytes.bit_length()
    of_vector = _TIMES_A_VECTOR * vector_bytes if sizes.vector_bytes > SMALL_VECTOR_BYTES else 0
    return max(of_text, of_vector)


def launching_operators(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> int:
    """Return the number of operators of these runs that may launch tasks."""
    ids = ", ".join(f"{run_id:d}" for run_id in runs)
    [(count,)] = connection.execute(_LAUNCHING.format(runs=ids)).fetchall()
    return int(count)


def bytes_to_derive(launching: int, *, appended: bool) -> int:
    """Return the memory limit for filling derived tables in a new store, or for runs appended to one."""
    enough = _APPENDED_OPERATORS if appended else _DERIVED_OPERATORS
    return DERIVE_BYTES + _BYTES_PER_OPERATOR * max(0, launching - enough)
