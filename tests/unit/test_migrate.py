"""Stores of an older schema version get the reports of a fresh ingest, and no failure on the way harms them."""

from __future__ import annotations

import errno
import lzma
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import duckdb
import pytest
from commands import Command

import traceconv
from traceconv.base.errors import StoreError, StoreMigrated
from traceconv.pipeline.ingest import ingest
from traceconv.reports.catalog import reports
from traceconv.reports.current_store import open_current_store
from traceconv.schema import table, tables
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store import migrate, migrations
from traceconv.store.catalogue import views
from traceconv.store.database import open_store
from traceconv.store.migrations import OLDEST_VERSION

ROOT = Path(__file__).parents[2]
#: A store as the oldest schema version that can be migrated had it, and the capture that it was made from.
GOLDEN = ROOT / "tests" / "golden" / f"schema_{OLDEST_VERSION}"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    store = tmp_path / "old.duckdb"
    store.write_bytes(lzma.decompress((GOLDEN / "mini_transformer.duckdb.xz").read_bytes()))
    return store


def version(store: Path) -> int:
    with duckdb.connect(str(store), read_only=True) as connection:
        [(found,)] = connection.execute("SELECT schema_version FROM store_info").fetchall()
        return int(found)


def definitions(connection: duckdb.DuckDBPyConnection) -> set[tuple[object, ...]]:
    return {
        row
        for sql in (
            "SELECT schema_name, view_name, sql, comment FROM duckdb_views() WHERE NOT internal",
            "SELECT schema_name, function_name, parameters::VARCHAR, macro_definition, comment FROM duckdb_functions() "
            "WHERE NOT internal",
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal",
        )
        for row in connection.execute(sql).fetchall()
    }


def test_a_migrated_store_has_the_definitions_and_the_reports_of_a_fresh_one(
    old: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fresh")
    with tarfile.open(GOLDEN / "mini_transformer.tar.xz") as captures:
        captures.extractall(folder, filter="data")
    ingest([folder / "mini_transformer"], folder / "fresh.duckdb")
    with pytest.warns(StoreMigrated, match=f"from schema version {OLDEST_VERSION} to {SCHEMA_VERSION}$"):
        open_current_store(old).close()
    with open_store(old) as migrated, open_store(folder / "fresh.duckdb") as made:
        assert definitions(made) <= definitions(migrated)  # the report `breakdown` had a second name
        derived = [table.name for table in tables().values() if table.derived_from]
        for name in [*reports(), *views(), *derived]:
            rows = f"SELECT * FROM {name} ORDER BY ALL"
            assert migrated.execute(rows).fetchall() == made.execute(rows).fetchall(), name
    assert list(old.parent.iterdir()) == [old]


def test_a_report_migrates_and_reports_it_once(old: Path, command: Command) -> None:
    arguments = ["report", "op-statistic", "--format", "csv", "--db", str(old)]
    first = command(*arguments)
    assert first.err == f"traceconv: {old} was migrated from schema version {OLDEST_VERSION} to {SCHEMA_VERSION}\n"
    assert command(*arguments) == (first.out, "")


def test_info_shows_the_older_version_and_changes_nothing(old: Path, command: Command) -> None:
    assert f"schema version {OLDEST_VERSION}" in command("info", old).out
    assert version(old) == OLDEST_VERSION


def test_an_ingest_adds_to_a_migrated_store_and_keeps_what_its_user_added(old: Path) -> None:
    with duckdb.connect(str(old)) as connection:
        connection.execute("CREATE TABLE mine AS SELECT 7 AS seven; CREATE VIEW my_ops AS SELECT name FROM op")
    old.chmod(0o640)
    with pytest.warns(StoreMigrated):
        ingest([ROOT / "sample_traces" / "mini_transformer"], old)
    with traceconv.open_store(old) as store:
        assert store.connection.execute("SELECT seven, (SELECT count(*) FROM my_ops) > 0 FROM mine").fetchall() == [
            (7, True)
        ]
        assert store.connection.execute("SELECT run_id FROM run ORDER BY run_id").fetchall() == [(1,), (2,)]
    assert old.stat().st_mode & 0o777 == 0o640


def test_new_columns_are_filled_or_listed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = {"task": "call_ns", "api": "category", "marker": "name"}
    with duckdb.connect(str(old)) as connection:
        for name, column in new.items():
            connection.execute(f"ALTER TABLE {name} DROP COLUMN {column}")
        connection.execute("UPDATE run SET source_format = 'chrome_json'")
    schemas = dict(tables())
    for name, column in new.items():
        columns = [one._replace(since=SCHEMA_VERSION) if one.name == column else one for one in table(name).columns]
        schemas[name] = table(name)._replace(columns=tuple(columns))
    schemas["marker"] = schemas["marker"]._replace(filled_by=("npulog",))
    monkeypatch.setattr(migrations, "tables", lambda: schemas)
    monkeypatch.setattr(migrations, "FILLS", {"task.call_ns": "UPDATE task SET call_ns = id"})
    with pytest.warns(StoreMigrated, match=r"NULL in its runs until these are ingested again: api\.category$"):
        store = traceconv.open_store(old)
    with store:
        counts = "SELECT (SELECT bool_and(call_ns = id) FROM task), (SELECT count(category) FROM api)"
        assert store.connection.execute(counts).fetchall() == [(True, 0)]


def test_a_store_that_cannot_be_written_is_read_from_a_migrated_copy(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK)
    content = old.read_bytes()
    with pytest.warns(StoreMigrated, match="temporary copy"):
        store = traceconv.open_store(old)
    with store:
        assert list(store.report("op-summary"))
        assert list(scratch.iterdir()) == []
    assert old.read_bytes() == content


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), duckdb.IOException("no room")])
def test_a_failure_leaves_the_store_unchanged(old: Path, failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise failure

    content = old.read_bytes()
    monkeypatch.setattr(migrate, "sync", fail)
    with pytest.raises(StoreError, match=r"can't migrate .*: (No space|no room).*; the store is as it was before"):
        open_current_store(old)
    assert old.read_bytes() == content
    assert list(old.parent.iterdir()) == [old]


def test_a_kill_leaves_the_store_unchanged_and_the_next_run_migrates_it(old: Path) -> None:
    killed = (
        "import os, signal, sys; from pathlib import Path; from traceconv.store import migrate\n"
        "migrate.sync = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from traceconv.reports.current_store import open_current_store; open_current_store(Path(sys.argv[1]))"
    )
    content = old.read_bytes()
    assert subprocess.run([sys.executable, "-c", killed, str(old)], check=False).returncode == -9
    assert old.read_bytes() == content
    with pytest.warns(StoreMigrated):
        open_current_store(old).close()
    assert list(old.parent.iterdir()) == [old]


def test_rows_in_the_log_of_a_killed_writer_are_migrated_too(old: Path) -> None:
    killed = (
        "import duckdb, os, signal, sys\n"
        "connection = duckdb.connect(sys.argv[1]); connection.execute(\"SET checkpoint_threshold = '1GB'\")\n"
        "connection.execute('CREATE TABLE late AS SELECT 1 AS one'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", killed, str(old)], check=False)
    assert old.with_name(old.name + ".wal").exists()
    with pytest.warns(StoreMigrated):
        connection = open_current_store(old)
    with connection:
        assert connection.execute("FROM late").fetchall() == [(1,)]
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.long
def test_several_programs_that_open_an_older_store_at_once_all_read_it(old: Path) -> None:
    reader = "import sys, traceconv; print(len(list(traceconv.open_store(sys.argv[1]).report('op-statistic'))))"
    processes = [
        subprocess.Popen([sys.executable, "-W", "ignore", "-c", reader, str(old)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    answers = {process.communicate()[0] for process in processes}
    assert len(answers) == 1
    assert answers.pop().strip().isdigit()


def test_a_damaged_older_store_is_refused_in_one_line(old: Path) -> None:
    with duckdb.connect(str(old)) as connection:
        connection.execute("ALTER TABLE task DROP COLUMN wait_ns")
    with pytest.raises(StoreError, match="not a valid store: column wait_ns of its table task"):
        open_current_store(old)
    assert version(old) == OLDEST_VERSION
