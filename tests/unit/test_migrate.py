"""Stores of the previous schema version get the reports of a fresh ingest, and no failure on the way harms them."""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import duckdb
import pytest
from commands import Command

import traceconv
from traceconv.base.errors import StoreError, StoreMigrated
from traceconv.pipeline.ingest import ingest
from traceconv.reports.catalog import reports
from traceconv.reports.current_store import open_current_store
from traceconv.schema import tables
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store import migrate
from traceconv.store.catalogue import views
from traceconv.store.database import open_store

ROOT = Path(__file__).parents[2]
#: Made by the last versions of traceconv that wrote these schema versions, from the captures in schema_5.
STORES = sorted(
    (ROOT / "tests" / "golden").glob("schema_*/*.duckdb.xz"),
    key=lambda path: (int(path.parent.name.removeprefix("schema_")), path.name),
)
CAPTURES = ROOT / "tests" / "golden" / "schema_5"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return unpack(STORES[0], tmp_path)


def unpack(packed: Path, folder: Path) -> Path:
    store = folder / "old.duckdb"
    with lzma.open(packed) as content, store.open("wb") as file:
        shutil.copyfileobj(content, file)
    return store


def version(store: Path) -> int:
    with duckdb.connect(str(store), read_only=True) as connection:
        [(found,)] = connection.execute("SELECT schema_version FROM store_info").fetchall()
        return int(found)


def definitions(connection: duckdb.DuckDBPyConnection) -> list[object]:
    return [
        connection.execute(sql).fetchall()
        for sql in (
            "SELECT schema_name, view_name, sql, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
            "SELECT schema_name, function_name, parameters, macro_definition, comment FROM duckdb_functions() "
            "WHERE NOT internal ORDER BY ALL",
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
        )
    ]


def sample_of(packed: Path) -> str:
    return packed.name.split(".")[0]


#: A migration from the oldest version makes all steps; those between begin later.
_ENDS = {STORES[0].parent, STORES[-1].parent}
MIGRATED = [
    pytest.param(
        path,
        marks=() if path.parent in _ENDS else pytest.mark.long,
        id=f"{path.parent.name}-{sample_of(path)}",
    )
    for path in STORES
]


@pytest.fixture(scope="module")
def fresh_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns a fresh store of a sample, which no test may change."""

    def make(sample: str) -> Path:
        folder = tmp_path_factory.mktemp("fresh")
        with tarfile.open(CAPTURES / f"{sample}.tar.xz") as captures:
            captures.extractall(folder)
        ingest([folder / sample], folder / "fresh.duckdb")
        return folder / "fresh.duckdb"

    return cache(make)


@pytest.mark.parametrize("packed", MIGRATED)
def test_a_migrated_store_has_the_definitions_and_the_reports_of_a_fresh_one(
    tmp_path: Path, packed: Path, fresh_of: Callable[[str], Path]
) -> None:
    store, fresh = unpack(packed, tmp_path), fresh_of(sample_of(packed))
    before = version(store)
    with pytest.warns(StoreMigrated, match=f"from schema version {before} to {SCHEMA_VERSION}$"):
        open_current_store(store).close()
    with open_store(store) as migrated, open_store(fresh) as made:
        assert definitions(migrated) == definitions(made)
        derived = [table.name for table in tables().values() if table.derived_from]
        for name in [*reports(), *views(), *derived]:
            rows = f"SELECT * FROM {name} ORDER BY ALL"
            assert migrated.execute(rows).fetchall() == made.execute(rows).fetchall(), name
    assert [path.name for path in tmp_path.iterdir()] == ["old.duckdb"]


def test_a_report_migrates_and_reports_it_once(old: Path, command: Command) -> None:
    arguments = ["report", "op-statistic", "--format", "csv", "--db", str(old)]
    first = command(*arguments)
    assert first.err == f"traceconv: {old} was migrated from schema version 5 to {SCHEMA_VERSION}\n"
    assert command(*arguments) == (first.out, "")


def test_info_shows_the_older_version_and_changes_nothing(old: Path, command: Command) -> None:
    assert "schema version 5" in command("info", old).out
    assert version(old) == 5


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


def test_columns_that_another_programs_trace_lacks_are_listed(old: Path) -> None:
    with duckdb.connect(str(old)) as connection:
        connection.execute("UPDATE run SET source_format = 'chrome_json'")
    with pytest.warns(StoreMigrated, match=r"NULL in .* ingested again: api\.category, .*, task_pmu\.vendor_values$"):
        store = traceconv.open_store(old)
    with store:
        counts = "SELECT count(kind_source), count(stream_wait_ns) = count(*) FROM task WHERE start_ns IS NOT NULL"
        assert store.connection.execute(counts).fetchall() == [(0, True)]


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
    assert version(old) == 5
