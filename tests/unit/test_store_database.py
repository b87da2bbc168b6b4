"""The store's file: what is in a new one, and why others are refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from traceconv.errors import StoreError
from traceconv.schema import tables
from traceconv.schema.ddl import sql_type
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.database import create_store, default_store_path, lock_down, open_store, views

MakeStore = Callable[..., Path]


def test_default_path_is_the_variable_or_a_file_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    assert default_store_path() == Path("trace.duckdb")
    monkeypatch.setenv("TRACECONV_DB", "/some/where.duckdb")
    assert default_store_path() == Path("/some/where.duckdb")


def test_a_new_store_has_every_table_and_view_with_comments(make_store: MakeStore) -> None:
    with open_store(make_store()) as connection:
        for schema in tables().values():
            described = connection.execute(f'DESCRIBE "{schema.name}"').fetchall()
            assert [row[:2] for row in described] == [(c.name, sql_type(c)) for c in schema.columns]
        for view in views().values():
            described = connection.execute(f"DESCRIBE {view.name}").fetchall()
            assert [row[:2] for row in described] == [(c.name, c.type) for c in view.columns]
        ours = "schema_name = 'main' AND database_name = current_database() AND NOT internal"
        assert (
            connection.execute(f"SELECT table_name FROM duckdb_tables() WHERE {ours} AND comment IS NULL").fetchall()
            == []
        )
        assert (
            connection.execute(f"SELECT view_name FROM duckdb_views() WHERE {ours} AND comment IS NULL").fetchall()
            == []
        )
        uncommented = f"SELECT table_name, column_name FROM duckdb_columns() WHERE {ours} AND comment IS NULL"
        assert connection.execute(uncommented).fetchall() == []


def test_slice_is_all_three_and_thread_only_threads(make_store: MakeStore) -> None:
    store = make_store(
        task=[{"id": 1, "task_type": "AI_CORE"}],
        api=[{"id": 2, "level": "acl"}],
        range=[{"id": 3, "category": "c"}],
        process=[{"process_id": 1, "name": "python"}],
        track=[
            {"track_id": 1, "kind": "thread", "process_id": 1},
            {"track_id": 2, "kind": "thread", "process_id": None},
            {"track_id": 3, "kind": "stream"},
        ],
    )
    with open_store(store) as connection:
        slices = connection.execute("SELECT id, table_name, category FROM slice ORDER BY id").fetchall()
        assert slices == [(1, "task", "AI_CORE"), (2, "api", "acl"), (3, "range", "c")]
        threads = connection.execute("SELECT track_id, process_name FROM thread ORDER BY track_id").fetchall()
        assert threads == [(1, "python"), (2, None)]


def test_a_store_can_be_read_under_any_name(make_store: MakeStore) -> None:
    store = make_store(op=[{"op_id": 1}], task=[{"id": 1, "op_id": 1, "dur_ns": 5}], api=[{"id": 2, "dur_ns": 1}])
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{store}' AS other (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM other.slice").fetchall() == [(2,)]
        assert connection.execute("SELECT total_ns FROM other.op_statistic").fetchall() == [(5,)]
        assert connection.execute("SELECT dur_ns FROM other.op_summary").fetchall() == [(5,)]


def test_the_file_has_the_old_storage_version_also_after_an_append(make_store: MakeStore) -> None:
    store = make_store()
    with open_store(store, read_only=False) as connection:
        connection.execute("INSERT INTO run (run_id) VALUES (1)")
    with open_store(store) as connection:
        tags = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = current_database()"
        ((version,),) = connection.execute(tags).fetchall()
    assert version.startswith("v1.2.0")


def test_a_store_is_read_only_unless_asked_for(make_store: MakeStore) -> None:
    with open_store(make_store()) as connection, pytest.raises(duckdb.InvalidInputException):
        connection.execute("CREATE TABLE x (a INTEGER)")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM read_csv('/etc/hostname')",
        "COPY (SELECT 1) TO '/tmp/traceconv-out.csv'",
        "ATTACH '/tmp/traceconv-other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '1TB'",
        "SELECT * FROM secret",  # a variable of this test
    ],
)
def test_locked_down_sql_reaches_nothing_but_the_store(make_store: MakeStore, sql: str) -> None:
    secret = duckdb.sql("SELECT 1 AS a")
    with open_store(make_store()) as connection:
        lock_down(connection)
        with pytest.raises(duckdb.Error):
            connection.execute(sql)
    assert secret is not None


def test_making_a_store_over_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("dear diary")
    with pytest.raises(StoreError, match="exists already"):
        create_store(path)
    assert path.read_text() == "dear diary"
    with pytest.raises(StoreError, match="can't make"):
        create_store(tmp_path / "no" / "folder")


def no_file(path: Path) -> None: ...


def text_file(path: Path) -> None:
    path.write_text("This is a letter, not a database.\n" * 500)


def empty_file(path: Path) -> None:
    path.touch()


def zeros(path: Path) -> None:
    path.write_bytes(bytes(1 << 18))


def folder(path: Path) -> None:
    path.mkdir()


def foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE task (a INTEGER)")


def cut_off(path: Path) -> None:
    with create_store(path) as connection:
        connection.execute("CREATE TABLE t AS FROM range(100000)")
    path.write_bytes(path.read_bytes()[:20_000])


def without_info(path: Path) -> None:
    with create_store(path) as connection:
        connection.execute("CREATE TABLE store_info (schema_version BIGINT, writer VARCHAR)")


def of_version(version: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with create_store(path) as connection:
            connection.execute("CREATE TABLE store_info (schema_version BIGINT, writer VARCHAR)")
            connection.execute("INSERT INTO store_info VALUES (?, 'traceconv\x1b[2J 9')", [version])

    return make


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (no_file, "no store .* traceconv ingest"),
        (text_file, "not a DuckDB file"),
        (empty_file, "empty"),
        (zeros, "not a DuckDB file"),
        (folder, "folder"),
        (foreign, "not one that traceconv made"),
        (cut_off, "can't open"),
        (without_info, "not a whole store"),
        (of_version(SCHEMA_VERSION + 1), "upgrade traceconv"),
        (of_version(SCHEMA_VERSION - 1), "ingest its sources again"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line(tmp_path: Path, make: Callable[[Path], None], says: str) -> None:
    path = tmp_path / "s.duckdb"
    make(path)
    with pytest.raises(StoreError, match=says) as caught:
        open_store(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_store_that_is_being_written_is_refused_in_words(make_store: MakeStore) -> None:
    store = make_store()
    writer = (
        "import sys; from pathlib import Path; from traceconv.store.database import open_store\n"
        "with open_store(Path(sys.argv[1]), read_only=False): print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", writer, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match="another program is writing"):
            open_store(store)
        process.communicate("")
    open_store(store).close()


def test_a_path_that_looks_like_an_address_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("sqlite:x", "it's.duckdb", "https:x", ":memory:"):
        create_store(Path(name)).close()
        assert (tmp_path / name).is_file()
