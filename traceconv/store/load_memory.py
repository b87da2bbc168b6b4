"""DuckDB's memory while a store is written: settings, and limits by what is loaded. Larger buffers spill to disk."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from traceconv.store.database import GROUP_ROWS

#: Memory limit while loading.
_LOAD_BYTES = 96_000_000
#: The same while derived tables are filled: joins of tasks with operators can't spill all they need.
DERIVE_BYTES = 136_000_000
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
#: Storing a string takes 5 times its size; one of 12 MiB fits the default limit.
_TIMES_A_TEXT, SMALL_TEXT_BYTES = 5, 12 << 20
LOAD_THREADS = 2
#: Part of it that DuckDB allocates once and reuses, so that the system doesn't clear the pages again.
_BLOCK_MEMORY = "64MB"


def prepare_to_load(connection: duckdb.DuckDBPyConnection) -> None:
    """Configure DuckDB to load many rows quickly in little memory."""
    execute = connection.execute
    execute(f"SET memory_limit = '{_LOAD_BYTES}B'")
    execute(f"SET threads = {LOAD_THREADS}")
    execute(f"SET block_allocator_memory = '{_BLOCK_MEMORY}'")
    # Preserving the order of batches takes memory per thread, so DuckDB would load with one thread within the limit.
    # Rows of a batch stay together, and reports sort.
    execute("SET preserve_insertion_order = false")
    # A checkpoint would merge the partial row groups of two threads, compressing them a second time.
    execute("SET max_vacuum_tasks = 0")


def threads_to_load(table: str, rows: pa.RecordBatch) -> int:
    """Return how many threads insert such rows.

    Rows of tasks take as long to make as one thread takes to insert them. Another one's open row group would only make
    DuckDB evict buffers if both exceed three quarters of its memory.
    """
    group_bytes = rows.nbytes * GROUP_ROWS // max(1, rows.num_rows)
    return 1 if table == "task" and LOAD_THREADS * group_bytes > _LOAD_BYTES * 3 // 4 else LOAD_THREADS


def bytes_to_load(text_bytes: int) -> int:
    """Return the memory limit for rows with strings of up to `text_bytes`."""
    return _LOAD_BYTES + _TIMES_A_TEXT * text_bytes


def launching_operators(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> int:
    """Return the number of operators of these runs that may launch tasks."""
    ids = ", ".join(f"{run_id:d}" for run_id in runs)
    [(count,)] = connection.execute(_LAUNCHING.format(runs=ids)).fetchall()
    return int(count)


def bytes_to_derive(launching: int, *, appended: bool) -> int:
    """Return the memory limit for filling derived tables in a new store, or for runs appended to one."""
    enough = _APPENDED_OPERATORS if appended else _DERIVED_OPERATORS
    return DERIVE_BYTES + _BYTES_PER_OPERATOR * max(0, launching - enough)
