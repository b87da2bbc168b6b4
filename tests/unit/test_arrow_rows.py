"""Arrow rows that SQL statements read."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from traceconv.store.arrow_rows import execute_with


def test_rows_are_free_before_the_transaction_ends() -> None:
    rows = 1 << 14
    before = pa.total_allocated_bytes()
    with duckdb.connect() as connection:
        connection.execute("BEGIN; CREATE TABLE kept (number BIGINT)")
        for part in range(8):
            first = part * rows
            table = pa.table({"number": pa.array(range(first, first + rows))})
            for given in (table, table.to_batches()[0]):
                execute_with(connection, "INSERT INTO kept FROM part", "part", given)
            del table, given
        assert pa.total_allocated_bytes() - before < 2 * rows * 8
        assert connection.execute("SELECT count(*), sum(number)::BIGINT FROM kept").fetchall() == [
            (2 * 8 * rows, 2 * sum(range(8 * rows)))
        ]
