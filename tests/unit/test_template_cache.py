"""A store created from the cached template equals one created by the statements, whatever happens to the cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from stores import query

from traceconv.reports.statements import report_statements
from traceconv.store import template_cache
from traceconv.store.template_cache import empty_store
from traceconv.store.writer import StoreWriter

_CONTENTS = (
    "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() ORDER BY ALL",
    "SELECT schema_name, view_name, sql, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT schema_name, function_name, parameters, macro_definition, comment FROM duckdb_functions() "
    "WHERE NOT internal ORDER BY ALL",
    "FROM store_info",
)


def _more_statements() -> list[str]:
    return [*report_statements(), "CREATE VIEW one AS SELECT 1 AS one"]


def _contents(path: Path) -> list[list[tuple[object, ...]]]:
    return [query(path, sql) for sql in _CONTENTS]


def _new_store(path: Path) -> Path:
    with StoreWriter(path, report_statements) as writer:
        writer.commit()
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRACECONV_CACHE", str(folder))
    return folder


def test_a_store_from_the_cache_equals_one_from_the_statements(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _new_store(tmp_path / "first.duckdb"), _new_store(tmp_path / "second.duckdb")
    (kept,) = folder.iterdir()
    assert kept.name.startswith("blank-store-")
    monkeypatch.setenv("TRACECONV_CACHE", "")
    assert empty_store(report_statements) is None
    made = _contents(_new_store(tmp_path / "made.duckdb"))
    assert all(made)
    assert _contents(first) == _contents(second) == made


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another's"])
def test_damage_in_the_cache_does_no_harm(folder: Path, damage: str) -> None:
    whole = empty_store(report_statements)
    (kept,) = folder.iterdir()
    content = kept.read_bytes()
    kept.write_bytes(
        {
            "cut": content[:-9],
            "flipped": content[:40] + b"\xff\x00" + content[42:],
            "empty": b"",
            "another's": b"x" * 99,
        }[damage]
    )
    again = empty_store(report_statements)
    assert whole is not None
    assert again is not None
    assert len(again) == len(whole)
    assert kept.read_bytes()[:16] != b"" and len(kept.read_bytes()) == pytest.approx(len(content), rel=0.1)


@pytest.mark.long
def test_other_statements_have_a_template_of_their_own(folder: Path, tmp_path: Path) -> None:
    empty_store(report_statements)
    (before,) = folder.iterdir()
    content = empty_store(_more_statements)
    assert len(set(folder.iterdir()) - {before}) == 1
    assert content is not None
    (tmp_path / "other.duckdb").write_bytes(content)
    assert query(tmp_path / "other.duckdb", "FROM one") == [(1,)]


def test_few_templates_are_kept(folder: Path) -> None:
    for number in range(9):
        old = folder / f"blank-store-{number}"
        folder.mkdir(exist_ok=True)
        old.write_bytes(b"")
        os.utime(old, (number, number))
    empty_store(report_statements)
    kept = {file.name for file in folder.iterdir()}
    assert kept > {"blank-store-6", "blank-store-7", "blank-store-8"} and len(kept) == 4


def test_an_unwritable_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "file" / "cache"))
    assert empty_store(report_statements) is None
    with duckdb.connect(str(_new_store(tmp_path / "s.duckdb"))) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchall() == [(0,)]


_OPENED = """
import sys
import traceconv.cli.app
import traceconv.pipeline.ingest
import traceconv.reports.catalog
from traceconv.reports.statements import report_statements
from traceconv.store import template_cache
from traceconv.store.statements import store_statements

opened = set()
sys.addaudithook(lambda name, arguments: opened.add(str(arguments[0])) if name == "open" else None)
template_cache._key(report_statements)
known = frozenset(opened)
opened.clear()
store_statements()
report_statements()
print(*sorted(file for file in opened if file.endswith((".toml", ".sql", ".json"))), sep="\\n")
unknown = opened - known
assert not unknown, unknown
"""


def test_the_key_depends_on_every_file_that_statements_are_made_from() -> None:
    done = subprocess.run([sys.executable, "-c", _OPENED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 50


def test_a_changed_file_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    file = tmp_path / "views" / "one.sql"
    file.parent.mkdir()
    (tmp_path / "module.py").write_text("")
    monkeypatch.setattr(template_cache, "_SOURCES", {})
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path)
    for content in ("SELECT 1", "SELECT 2"):
        file.write_text(content)
        keys.add(template_cache._key.__wrapped__(report_statements))
    file.rename(file.with_name("two.sql"))
    keys.add(template_cache._key.__wrapped__(report_statements))
    assert len(keys) == 3
