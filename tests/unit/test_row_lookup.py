"""Rows by their IDs: dense and sparse IDs, duplicates, and IDs without a row, against a dictionary."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from traceconv.export.row_lookup import look_up


@pytest.mark.parametrize("step", [1, 3, 1 << 40])
@pytest.mark.parametrize("wanted", [[], [5], [7, 2, 7, 40, 0, 99], list(range(60, -1, -1)), [-(2**63) // (1 << 40)]])
def test_rows_by_id(step: int, wanted: list[int]) -> None:
    connection = duckdb.connect()
    numbers = [number for number in range(-2, 50) if number % 5]
    connection.execute("CREATE TABLE t (id BIGINT, one BIGINT, other INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n * step, n * n, -n) for n in numbers])
    ids = np.array([number * step for number in wanted], np.int64)
    known, columns = look_up(connection, lambda condition: f"SELECT id, one, other FROM t WHERE {condition}", ids)
    rows = {number: (number * number, -number) for number in numbers}
    assert known.tolist() == [number in rows for number in wanted]
    found = zip(*(column.tolist() for column in columns), strict=True)
    assert list(found) == [rows.get(number, (0, 0)) for number in wanted]
