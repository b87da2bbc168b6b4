"""Queries that run out of memory although they could sort on disk."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from traceconv.store.memory_limit import sorted_on_disk


def asked(connection: duckdb.DuckDBPyConnection, limits: list[str], enough: int) -> Iterator[int]:
    """A query that fails until it was asked as often as is enough."""
    [(limit,)] = connection.execute("SELECT current_setting('memory_limit')").fetchall()
    limits.append(limit)
    if len(limits) < enough:
        raise duckdb.OutOfMemoryException("could not allocate block")
    yield from (1, 2)


def test_a_query_without_memory_is_asked_again_with_less() -> None:
    connection = duckdb.connect(config={"memory_limit": "400MiB"})
    limits: list[str] = []
    assert list(sorted_on_disk(connection, lambda: asked(connection, limits, 2))) == [1, 2]
    assert limits == ["400.0 MiB", "300.0 MiB"]
    limits.clear()
    assert list(sorted_on_disk(connection, lambda: asked(connection, limits, 3))) == [1, 2]
    assert limits == ["400.0 MiB", "300.0 MiB", "953.6 MiB"]
    with pytest.raises(duckdb.OutOfMemoryException):
        list(sorted_on_disk(connection, lambda: asked(connection, limits, 9)))
    assert connection.execute("SELECT current_setting('memory_limit')").fetchall() == [("400.0 MiB",)]
