"""Arrow rows that SQL statements read."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from traceconv.store import arrow_rows
from traceconv.store.arrow_rows import GroupedInserts, execute_with


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


def test_rows_are_inserted_in_complete_groups_unless_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "GROUP_ROWS", 4)
    monkeypatch.setattr(arrow_rows, "_MOST_BYTES", 1000)
    counts = []
    insert = arrow_rows.execute_with

    def counted(connection: duckdb.DuckDBPyConnection, statement: str, name: str, rows: pa.RecordBatchReader) -> None:
        table = rows.read_all()
        counts.append(table.num_rows)
        insert(connection, statement, name, table)

    monkeypatch.setattr(arrow_rows, "execute_with", counted)
    texts = [["a", "b", "c"], ["d"] * 6, [], ["e"] * 17, ["f" * 990], ["g"]]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE kept (text VARCHAR)")
        inserts = GroupedInserts(connection, "INSERT INTO kept FROM part", "part")
        for given in texts:
            inserts.add(pa.table({"text": pa.array(given, pa.string())}))
        inserts.end()
        [(kept,)] = connection.execute("SELECT list(text ORDER BY text) FROM kept").fetchall()
    assert kept == [text for given in texts for text in given]
    assert counts == [8, 16, 3, 1]
