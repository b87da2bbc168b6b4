"""The store's file: the content of a new one, and why other files are rejected."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest
from stores import query

import traceconv
from traceconv.base.cache_folder import cache_folder
from traceconv.base.errors import StoreError
from traceconv.pipeline.ingest import ingest
from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.schema.ddl import sql_type
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store import database, valid_files
from traceconv.store.catalogue import time_limit, views, wrong_in
from traceconv.store.database import connect_ahead, create_store, default_store_path, lock_down, open_store
from traceconv.store.migrations import OLDEST_VERSION
from traceconv.store.writer import StoreWriter

MakeStore = Callable[..., Path]


def test_default_path_is_the_variable_or_a_file_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACECONV_DB", raising=False)
    assert default_store_path() == Path("trace.duckdb")
    monkeypatch.setenv("TRACECONV_DB", "/some/where.duckdb")
    assert default_store_path() == Path("/some/where.duckdb")


def test_a_connection_that_was_created_ahead_is_used_once(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, connect = make_store(), Mock(side_effect=duckdb.connect)
    monkeypatch.setattr(duckdb, "connect", connect)
    connect_ahead()
    connect_ahead()
    for _ in range(2):
        open_store(store).close()
    assert connect.call_count == 2


def test_a_new_store_has_every_table_and_view_with_comments(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('[{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]')
    ingest([tmp_path / "t.json"], tmp_path / "s.duckdb")
    with open_store(tmp_path / "s.duckdb") as connection:
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


def test_a_group_of_rows_has_half_of_duckdbs_usual_size(tmp_path: Path) -> None:
    with create_store(tmp_path / "store.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT i FROM range(130_000) numbers(i)")
        connection.execute("CHECKPOINT")
        groups = (
            "SELECT row_group_id, sum(count) FROM pragma_storage_info('t') WHERE segment_type = 'BIGINT' GROUP BY 1"
        )
        assert sorted(connection.execute(groups).fetchall()) == [(0, 61_440), (1, 61_440), (2, 7_120)]


def test_slice_is_all_three_and_thread_only_threads(make_store: MakeStore) -> None:
    store = make_store(
        task=[{"id": 1, "category": "kernel", "task_type": "AI_CORE"}],
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
        assert slices == [(1, "task", "kernel"), (2, "api", None), (3, "range", "c")]
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


def test_a_store_is_read_only_by_default(make_store: MakeStore) -> None:
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
    with pytest.raises(StoreError, match="already exists"):
        create_store(path)
    assert path.read_text() == "dear diary"
    with pytest.raises(StoreError, match=r"can't create .*/no/folder: its folder does not exist$"):
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


def truncated(path: Path) -> None:
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
    ("make", "message"),
    [
        (no_file, "does not exist; create .*ingest"),
        (text_file, "not a DuckDB file"),
        (empty_file, "empty"),
        (zeros, "not a DuckDB file"),
        (folder, "folder"),
        (foreign, "was not created by traceconv"),
        (truncated, "can't open"),
        (without_info, "not a complete store"),
        (of_version(SCHEMA_VERSION + 1), "upgrade traceconv"),
        (of_version(OLDEST_VERSION - 1), "ingest its sources again into a new store"),
        (of_version(SCHEMA_VERSION - 1), "to migrate it"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    path = tmp_path / "s.duckdb"
    make(path)
    with pytest.raises(StoreError, match=message) as caught:
        open_store(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_store_that_is_being_written_is_refused_with_a_clear_error(make_store: MakeStore) -> None:
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


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("INSERT INTO run (run_id) VALUES (1)", "duplicate or NULL run_id"),
        ("INSERT INTO run (run_id) VALUES (NULL)", "duplicate or NULL run_id"),
        ("CREATE MACRO sum(a) AS 7", "macro sum shadows a DuckDB function"),
        ("CREATE MACRO count(a) AS 7", "macro count"),
        ("CREATE MACRO max(a) AS (SELECT max(i) FROM range(1000000000000) AS r(i))", "macro max"),
        ("CREATE MACRO duckdb_tables() AS TABLE SELECT 1", "macro duckdb_tables"),
        ("DROP TABLE run; CREATE VIEW run AS SELECT i AS run_id FROM range(1000000000000) AS r(i)", "no table run"),
        ("DROP TABLE task; CREATE VIEW task AS FROM api", "no table task"),
        ("ALTER TABLE task ALTER dur_ns TYPE VARCHAR", "column dur_ns of its table task"),
        ("ALTER TABLE task DROP dur_ns", "column dur_ns of its table task"),
        ("DROP TABLE counter; CREATE TABLE counter (run_id BIGINT, value AS (run_id + 1))", "of its table counter"),
        (
            "DROP TABLE store_info; CREATE VIEW store_info AS FROM range(1000000000000) AS a, range(9000) AS b",
            "was not created by traceconv",
        ),
        ("INSERT INTO store_info SELECT 6, 'x' FROM range(1000000)", "not a complete store"),
    ],
)
def test_a_hostile_store_is_refused_in_one_line(make_store: MakeStore, sql: str, message: str) -> None:
    path = make_store(run=[{"run_id": 1}])
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)
    with pytest.raises(StoreError, match=message) as caught:
        open_store(path)
    assert str(caught.value).isprintable()


def test_a_checked_store_is_checked_again_only_after_a_change(
    make_store: MakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "cache"))
    checked = Mock(wraps=wrong_in)
    monkeypatch.setattr(database, "wrong_in", checked)
    path = make_store()

    def opened() -> int:
        """Open the store as a new process does; return the number of checks so far."""
        monkeypatch.setattr(valid_files, "_known", set())
        monkeypatch.setattr(valid_files, "_read", set())
        open_store(path).close()
        return checked.call_count

    assert [opened(), opened()] == [1, 2]  # the file is new: a later change could have the same time
    monkeypatch.setattr(valid_files, "_SETTLED_NS", 0)
    assert [opened(), opened()] == [3, 3]
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE MACRO sum(a) AS 7")
    with pytest.raises(StoreError, match="shadows"):
        opened()
    (tmp_path / "cache/valid-stores").write_bytes(b"\xff")
    with pytest.raises(StoreError, match="shadows"):
        opened()


def test_what_users_add_to_a_store_stays_and_their_macros_work(make_store: MakeStore) -> None:
    path = make_store(task=[{"id": 1, "dur_ns": 5, "kind": "compute"}])
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "ALTER TABLE task ADD COLUMN note VARCHAR; CREATE VIEW my_tasks AS FROM task; CREATE SCHEMA mine; "
            "CREATE TABLE notes (text VARCHAR); CREATE MACRO ms(a) AS a / 1e6; CREATE TYPE mood AS ENUM ('good')"
        )
    assert query(path, "SELECT ms(dur_ns) FROM my_tasks") == [(5e-06,)]
    with traceconv.open_store(path) as store:
        assert [row["dur_ns"] for row in store.report("task-time")] == [5]


ENDLESS = "SELECT i AS run_id, i AS id FROM range(1000000000000) AS a(i), range(1000000000000)"


def test_reports_and_exports_are_of_our_own_views_and_macros(make_store: MakeStore, tmp_path: Path) -> None:
    """Those in the file may be older, a user's, or anything."""
    path = make_store(
        run=[{"run_id": 1, "start_ns": 0}],
        op=[{"op_id": 1, "op_type": "Conv2D"}],
        track=[{"track_id": 1, "kind": "stream"}],
        task=[{"id": 1, "op_id": 1, "track_id": 1, "start_ns": 1, "dur_ns": 5, "kind": "compute"}],
        memory=[{"block_id": 1, "kind": "block", "address": 0, "size_bytes": 64, "alloc_ns": 1, "free_ns": 5}],
    )

    def answers() -> list[object]:
        with traceconv.open_store(path) as store:
            found: list[object] = [list(store.report(name, top=top)) for name in reports() for top in (None, 1)]
            store.export_memory_flow(tmp_path / "m.svg")
            store.export_chrome(tmp_path / "t.json")
            found += [(tmp_path / name).read_bytes() for name in ("m.svg", "t.json")]
            found += [store.why("task", 1).rows]
        return found

    sound = answers()
    with duckdb.connect(str(path)) as connection:
        for name in [*views(), *reports()]:
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS {ENDLESS}")
        for name, report in reports().items():
            parameters = ", ".join(f"{one.name} := NULL" for one in report.parameters)
            connection.execute(f"CREATE OR REPLACE MACRO {name}({parameters}) AS TABLE {ENDLESS}")
        for name in ("cycles_ns(a, b, c, d)", "share(a, b)", "gib_per_s(a, b, c)"):
            connection.execute(f"CREATE OR REPLACE MACRO {name} AS 7")
    assert answers() == sound


def test_a_slow_catalogue_query_is_interrupted(make_store: MakeStore) -> None:
    endless = f"SELECT count(*) FROM ({ENDLESS}) WHERE hash(run_id) = 7"
    late = pytest.raises(StoreError, match="takes more than")
    with open_store(make_store()) as connection, late, time_limit(connection, 0.2):
        connection.execute(endless).fetchall()


@pytest.mark.parametrize("name", ["a\\b.duckdb", "\udcff.duckdb"])
def test_a_name_that_duckdb_cannot_open_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    trace = tmp_path / "t.json"
    trace.write_text('[{"ph":"X","name":"a","ts":1,"dur":1,"pid":1,"tid":1}]')
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreError, match=r"(backslash|UTF-8)"):
        ingest([trace], tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_a_tilde_without_a_home_folder_is_a_file_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACECONV_DB", "~nobody-of-this-name/s.duckdb")
    assert default_store_path() == Path("~nobody-of-this-name/s.duckdb")
    monkeypatch.setenv("TRACECONV_CACHE", "~nobody-of-this-name")
    assert cache_folder() is None


def test_a_valid_store_is_checked_again_after_any_change(make_store: MakeStore) -> None:
    store = make_store(task=[{"id": 1}])
    open_store(store).close()
    before = store.stat()
    with duckdb.connect(store) as connection:
        connection.execute("CREATE MACRO sum(x) AS 42")
    os.utime(store, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StoreError, match="its macro sum shadows a DuckDB function"):
        open_store(store)
    other = make_store(task=[{"id": 1}])
    open_store(other).close()
    with duckdb.connect(other) as connection:
        connection.execute("SET checkpoint_threshold = '1TB'; PRAGMA disable_checkpoint_on_shutdown")
        connection.execute("DROP TABLE task CASCADE")
    assert other.with_name(other.name + ".wal").exists()  # and the file is as it was
    with pytest.raises(StoreError, match="it has no table task"):
        open_store(other)


def test_what_dropped_temporary_tables_of_runs_hold_has_room(tmp_path: Path) -> None:
    """DuckDB frees it at the commit. A new store may be committed between runs: nobody sees it."""
    state = """
SELECT (SELECT coalesce(sum(memory_usage_bytes + temporary_storage_bytes), 0)::BIGINT FROM duckdb_memory()
        WHERE tag = 'IN_MEMORY_TABLE'), current_setting('memory_limit')"""
    for is_new in (True, False):
        with StoreWriter(tmp_path / "new.duckdb", tuple) as writer:
            [(_, limit)] = writer.fetch(state)
            writer.run_sql("CREATE TEMP TABLE one AS SELECT range AS n FROM range(5_000_000)")
            writer.run_sql("DROP TABLE temp.one")
            assert writer.fetch(state)[0][0] > 32_000_000
            writer.end_run()
            [(held_bytes, limit_then)] = writer.fetch(state)
            assert (held_bytes == 0, limit_then == limit) == (is_new, is_new)
            if is_new:
                assert not (tmp_path / "new.duckdb").exists()
                writer.commit()
