"""Columns read from the pages of a SQLite file equal what SQLite reads, also of unusual and damaged files."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from traceconv import native
from traceconv.base.errors import InputError
from traceconv.formats.common.columns import json_objects
from traceconv.formats.common.sqlite_database import ROWS, Database
from traceconv.formats.common.sqlite_pages import Pages

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="pages are read by the C extension")
INTEGERS = [0, 1, -1, 127, -128, 40_000, -8_000_000, 2**31, 2**40, -(2**47), 2**63 - 1, -(2**63)]
COLUMNS = ("a", "b", "c", "d")


def written(path: Path, count: int, *, page_bytes: int = 4096, rare: tuple[object, ...] = (), seed: int = 0) -> Path:
    """Write a table with integers, NULL, texts and floats; every 400th row has one of the values `rare`."""
    rng = random.Random(seed)
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA page_size = {page_bytes}")
    db.execute("CREATE TABLE t (a INTEGER NOT NULL, b INTEGER, unread TEXT, c TEXT, d REAL)")
    texts = ["", "one", "two ünï", None]
    rows: list[tuple[object, ...]] = [
        (rng.choice(INTEGERS), rng.choice([*INTEGERS, None]), "x" * (place % 50), rng.choice(texts), None)
        for place in range(count)
    ]
    for place in range(0, count if rare else 0, 400):
        rows[place] = (1, rng.choice(rare), None, "three", rng.choice([0.5, float("inf"), 2.0, None]))
    db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    db.commit()
    db.close()
    return path


def both(path: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], int]:
    """Return the rows as read by columns and by SQLite, and how many batches the pages gave."""
    db = Database(path)
    assert db._pages is not None
    batches = [db._pages.rows(db._roots["t"], [(0, False)], ROWS)] if "t" in db.tables else []
    count = sum(1 for batch in batches for _, _, values in batch if values is not None)
    by_columns: list[tuple[Any, ...]] = []
    for number, columns in db.columns_of("t", COLUMNS):
        values = [column.to_pylist() if isinstance(column, pa.Array) else list(column) for column in columns]
        assert {len(one) for one in values} == {number}
        by_columns += zip(*values, strict=True)
    db.close()
    # SQLite checks a page when it is read first: what it can read of a damaged file depends on what was read before.
    db = Database(path)
    by_rows = [row for rows in db.scan("t", COLUMNS) for row in rows]
    db.close()
    return by_columns, by_rows, count


@pytest.mark.parametrize("page_bytes", [512, 4096, 65536])
@pytest.mark.parametrize("rare", [(), (None, 1.5, "text", b"blob", "long" * 20_000)])
def test_columns_are_what_sqlite_reads(tmp_path: Path, page_bytes: int, rare: tuple[object, ...]) -> None:
    found, expected, batches = both(written(tmp_path / "t.sqlite", 40_000, page_bytes=page_bytes, rare=rare))
    assert len(expected) == 40_000
    assert found == expected
    assert batches == 3 or rare  # without rare values, all are read here


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM t WHERE a > 0",
        "DELETE FROM t",
        "UPDATE t SET rowid = rowid * -1000000007",
        "ALTER TABLE t ADD COLUMN e INTEGER DEFAULT 7",
        "ALTER TABLE t ADD COLUMN e INTEGER GENERATED ALWAYS AS (a) VIRTUAL",
        "UPDATE t SET c = CAST(x'61ff62' AS TEXT) WHERE rowid % 7 = 1",
        "CREATE TABLE u (a INTEGER PRIMARY KEY, b, c, d); INSERT INTO u SELECT rowid * 5, b, c, d FROM t;"
        "DROP TABLE t; ALTER TABLE u RENAME TO t",
        "CREATE TABLE u (a, b, c, d, e PRIMARY KEY) WITHOUT ROWID; INSERT INTO u SELECT a, b, c, d, rowid FROM t;"
        "DROP TABLE t; ALTER TABLE u RENAME TO t",
    ],
)
def test_changed_tables(tmp_path: Path, change: str) -> None:
    path = written(tmp_path / "t.sqlite", 2_000)
    with sqlite3.connect(path) as db:
        db.executescript(change)
    db.close()
    found, expected, _ = both(path)
    assert found == expected


def test_columns_between_rowids(tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", 3000, page_bytes=512, rare=(1 << 40, 0.5))
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM t WHERE rowid % 7 = 3 OR rowid BETWEEN 1000 AND 1200")
    connection.close()
    db = Database(path)
    db.columns("t")
    rng = random.Random(7)
    for after, until in [(0, 3000), (2999, 3000), *(sorted(rng.sample(range(3001), 2)) for _ in range(200))]:
        expected = db.rows_between("t", COLUMNS, after, until)
        last = db.rows_between("t", ("rowid",), after, until)
        found = db.columns_between("t", COLUMNS, (after, last[-1][0] if last else until), len(expected))
        values = [one.to_pylist() if isinstance(one, pa.Array) else list(one) for one in found or ()]
        assert list(zip(*values, strict=True)) == expected
    assert db.columns_between("t", COLUMNS, (0, 3000), 5) is None
    db.close()


def test_one_text_that_is_not_utf_8_is_replaced(tmp_path: Path) -> None:
    path = written(tmp_path / "t.sqlite", 2 * ROWS)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            f"UPDATE t SET b = rowid, c = 'x' || rowid; UPDATE t SET c = CAST(x'61ff62' AS TEXT) WHERE b = {ROWS + 5};"
            "CREATE INDEX of_b ON t (b); CREATE TABLE u (b INTEGER); INSERT INTO u SELECT b FROM t"
        )
    connection.close()
    expected = [(number, "a\ufffdb" if number == ROWS + 5 else f"x{number}") for number in range(1, 2 * ROWS + 1)]
    for read in (
        lambda db: [row for rows in db.scan("t", ("b", "c")) for row in rows],
        lambda db: [row[1:] for rows in db.scan("t", ("b", "c"), numbered=True) for row in rows],
        lambda db: [row[1:] for row in db.joined(("u", "b"), ("t", "b"), ("b", "c"), range(1, 2 * ROWS + 1), 3 * ROWS)],
        lambda db: db.matching("t", "b", range(1, 2 * ROWS + 1), ("c",)),
        lambda db: db.rows_between("t", ("b", "c"), None, 2 * ROWS),
    ):
        db = Database(path)
        assert read(db) == expected
        db.close()


@pytest.mark.parametrize("seed", range(24))
def test_damaged_pages(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(written(tmp_path / "t.sqlite", 600, page_bytes=512).read_bytes())
    for _ in range(3):
        place = rng.randrange(512, len(data))
        # The header of a page is hit more often than by chance.
        data[place - (place % 512 - rng.randrange(12)) * rng.randrange(2)] = rng.randrange(256)
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(data)
    try:
        found, expected, _ = both(path)
    except InputError:
        return
    # What SQLite reads of a damaged page depends on what was read before: at most one page with 15 rows differs.
    assert sum((Counter(map(repr, found)) - Counter(map(repr, expected))).values()) <= 15
    assert sum((Counter(map(repr, expected)) - Counter(map(repr, found))).values()) <= 15


def test_a_tree_that_refers_to_itself_ends(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path / "t.sqlite", 600, page_bytes=512).read_bytes())
    root = 2
    data[(root - 1) * 512 + 8 : (root - 1) * 512 + 12] = root.to_bytes(4, "big")
    path = tmp_path / "loop.sqlite"
    path.write_bytes(data)
    pages = Pages(path)
    assert sum(count for count, _, _ in pages.rows(root, [(0, False)], 100)) < 1_000
    pages.close()


def test_json_objects_of_integers_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [[1, None, -(2**63)], [None, None, 'q"\\ü'], [2.5, "t", None], [None, None, None]]
    arrays = [pa.array(columns[0]), *columns[1:]]
    expected = [b'{"a":1,"c":2.5}', b'{"c":"t"}', '{"a":-9223372036854775808,"b\\"":"q\\"\\\\ü"}'.encode()]
    for available in (True, False):
        monkeypatch.setattr(native, "AVAILABLE", available)
        assert json_objects(("a", 'b"', "c", "d"), arrays, 3).to_pylist() == expected
    assert json_objects((), (), 2).to_pylist() == [b"{}", b"{}"]


def test_json_objects_in_c_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    bounds = [sign * 10**power + one for power in range(19) for one in (-1, 0) for sign in (-1, 1)]
    numbers = [[rng.choice([*bounds, *INTEGERS]) for _ in range(500)], [rng.choice([5, None]) for _ in range(500)]]
    texts = [rng.choice(["", "é" * 9, "x" * 40, 'a"\n\u2028', None, 2.5]) for _ in range(500)]
    columns = [pa.array(numbers[0]), pa.array(numbers[1], pa.int64()), texts, [1] * 500]
    expected = [
        {key: value for key, value in zip("abcd", row, strict=True) if value is not None}
        for row in zip(*numbers, texts, [1] * 500, strict=True)
    ]
    found = json_objects(tuple("abcd"), columns, 500)
    assert [json.loads(text) for text in found.to_pylist()] == expected
    monkeypatch.setattr(native, "AVAILABLE", False)
    assert json_objects(tuple("abcd"), columns, 500).to_pylist() == found.to_pylist()


@pytest.mark.parametrize(("page_bytes", "usable_bytes", "place"), [(512, 513, 0), (500, 500, 0), (512, 512, 1)])
def test_wrong_arguments_are_refused(page_bytes: int, usable_bytes: int, place: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        native.sqlite_rows(bytes(page_bytes), page_bytes, usable_bytes, np.array([place], np.int32), 1, -1, 0, 10, 0)
