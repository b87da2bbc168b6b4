"""DuckDB's memory limit: what its cache keeps, and queries that run out of memory although they could sort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from commands import Command

from traceconv.reports import fetch, msprof_csv
from traceconv.store.memory_limit import shrink_cache, sorted_on_disk


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


def test_a_query_that_was_asked_again_needs_not_be_read_to_its_end() -> None:
    def ask() -> Iterator[object]:
        list(asked(connection, limits, 2))
        yield from connection.sql("FROM range(1_000_000)").to_arrow_reader(1)

    connection, limits = duckdb.connect(config={"memory_limit": "400MiB"}), list[str]()
    rows = sorted_on_disk(connection, ask)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    limit = connection.cursor().execute("SELECT current_setting('memory_limit')").fetchall()
    assert limit == [("400.0 MiB",)]


@pytest.mark.parametrize("form", ["csv", "msprof-csv"])
def test_the_command_asks_again_too(
    make_store: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, command: Command, form: str
) -> None:
    """Its connection is restricted; the error was that the store may be damaged."""
    for module in (fetch, msprof_csv):
        monkeypatch.setattr(module, "sorted_on_disk", asked_twice)
    task = {"id": 1, "op_id": 1, "start_ns": 0, "dur_ns": 5, "kind": "compute", "task_type": "AI_CORE"}
    store = make_store(task=[task], op=[{"op_id": 1, "op_type": "MatMul"}])
    assert "MatMul" in command("report", "op-statistic", "--db", store, "--format", form).out


def asked_twice(connection: duckdb.DuckDBPyConnection, ask: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """sorted_on_disk, if DuckDB runs out of memory the first time."""
    failures = [duckdb.OutOfMemoryException("could not allocate block")]

    def failing() -> Iterator[Any]:
        if failures:
            raise failures.pop()
        yield from ask()

    return sorted_on_disk(connection, failing)


def used_bytes(connection: duckdb.DuckDBPyConnection) -> int:
    [(used,)] = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    return int(used)


def limit(connection: duckdb.DuckDBPyConnection) -> object:
    return connection.execute("SELECT current_setting('memory_limit')").fetchall()


def test_the_cache_shrinks_to_a_third_of_the_limit(tmp_path: Path) -> None:
    for number in (1, 2):  # The second connection reads blocks from the file.
        with duckdb.connect(tmp_path / "store.duckdb", config={"memory_limit": "60MiB"}) as connection:
            if number == 1:
                connection.execute("CREATE TABLE t AS SELECT hash(range) AS a, hash(-range) AS b FROM range(2_000_000)")
                continue
            connection.execute("SELECT sum(a::DOUBLE + b::DOUBLE) FROM t").fetchall()
            assert used_bytes(connection) > 30 << 20
            shrink_cache(connection)
            assert used_bytes(connection) <= 20 << 20
            assert limit(connection) == [("60.0 MiB",)]


def test_what_cannot_be_removed_from_memory_stays() -> None:
    with duckdb.connect(config={"memory_limit": "60MiB", "temp_directory": ""}) as connection:
        connection.execute("CREATE TABLE t AS SELECT hash(range) AS a, hash(-range) AS b FROM range(2_000_000)")
        used = used_bytes(connection)
        assert used > 30 << 20
        shrink_cache(connection)
        assert used_bytes(connection) == used
        assert limit(connection) == [("60.0 MiB",)]
