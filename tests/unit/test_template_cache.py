"""A store created from the cached template equals one created by the statements, whatever happens to the cache."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from traceconv.reports.catalog import report_statements
from traceconv.store.database import open_store
from traceconv.store.template_cache import empty_store
from traceconv.store.writer import StoreWriter

_CONTENTS = (
    "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() ORDER BY ALL",
    "SELECT schema_name, view_name, sql, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT schema_name, function_name, parameters, macro_definition, comment FROM duckdb_functions() "
    "WHERE NOT internal ORDER BY ALL",
    "FROM store_info",
)


def _contents(path: Path) -> list[list[tuple[object, ...]]]:
    with open_store(path) as connection:
        return [connection.execute(sql).fetchall() for sql in _CONTENTS]


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
    assert empty_store(report_statements()) is None
    made = _contents(_new_store(tmp_path / "made.duckdb"))
    assert all(made)
    assert _contents(first) == _contents(second) == made


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another's"])
def test_damage_in_the_cache_does_no_harm(folder: Path, damage: str) -> None:
    whole = empty_store(report_statements())
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
    again = empty_store(report_statements())
    assert whole is not None
    assert again is not None
    assert len(again) == len(whole)
    assert kept.read_bytes()[:16] != b"" and len(kept.read_bytes()) == pytest.approx(len(content), rel=0.1)


def test_other_statements_replace_the_cached_template(folder: Path, tmp_path: Path) -> None:
    empty_store(report_statements())
    (before,) = folder.iterdir()
    content = empty_store([*report_statements(), "CREATE VIEW one AS SELECT 1 AS one"])
    (after,) = folder.iterdir()
    assert after != before
    assert content is not None
    (tmp_path / "other.duckdb").write_bytes(content)
    with open_store(tmp_path / "other.duckdb") as connection:
        assert connection.execute("FROM one").fetchall() == [(1,)]


def test_an_unwritable_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TRACECONV_CACHE", str(tmp_path / "file" / "cache"))
    assert empty_store(report_statements()) is None
    with duckdb.connect(str(_new_store(tmp_path / "s.duckdb"))) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchall() == [(0,)]
