"""Columns without values are generated: the rows of a store are those inserted, whichever columns get values when."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from stores import query

from traceconv.pipeline.ingest import ingest
from traceconv.pipeline.runs import delete_runs, find_runs
from traceconv.schema import table
from traceconv.schema.arrow import arrow_schema
from traceconv.store import empty_columns, small_inserts
from traceconv.store.writer import StoreWriter

#: Columns of calls that are inserted: numbers, texts and JSON.
FIELDS = [arrow_schema("api").field(name) for name in ("id", "name", "step_id", "category", "args", "correlation_id")]
NAMES = [field.name for field in FIELDS]


def generated_columns(store: Path, of: str) -> set[str]:
    listed = f"SELECT column_name FROM duckdb_columns() WHERE table_name = '{of}' AND column_default LIKE 'CAST(NULL%'"
    return {name for (name,) in query(store, listed)}


def batch_of(given: list[str], valued: list[str], ids: Iterator[int]) -> pa.RecordBatch:
    """Three rows with the columns `given`, with values in the column `id` and, except in some rows, in `valued`."""
    rows: list[dict[str, object]] = []
    for row in itertools.islice(ids, 3):
        values = {name: row if name.endswith("_id") else f'{{"n": {row}}}' for name in valued if row % 4}
        rows.append({"id": row, **values})
    return pa.RecordBatch.from_pylist(rows, pa.schema([one for one in FIELDS if one.name in ("id", *given)]))


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_inserted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(small_inserts, "SMALL_ROWS", 0)
    choice = random.Random(seed)
    expected: list[dict[str, Any]] = []
    ids = itertools.count(1)
    store = tmp_path / "s.duckdb"
    writer = StoreWriter(store, tuple)
    try:
        for _ in range(12):
            action = choice.choice(["insert", "insert", "collect", "update", "reopen"])
            if action == "reopen":
                writer.commit()
                generated = generated_columns(store, "api").intersection(NAMES)
                assert not any(row[name] is not None for row in expected for name in generated)
                writer = StoreWriter(store, tuple)
            elif action == "update":
                column = choice.choice(["step_id", "correlation_id"])
                writer.run_sql(f"UPDATE api SET {column} = id WHERE id % 2 = 0")
                for row in expected:
                    if row["id"] % 2 == 0:
                        row[column] = row["id"]
            else:
                given = choice.sample(NAMES[1:], choice.randrange(3))
                valued = choice.sample(given, choice.randrange(len(given) + 1))
                batches = [batch_of(given, valued, ids) for _ in range(choice.choice([1, 3]))]
                if action == "insert":
                    writer.insert("api", 1, iter(batches))
                else:
                    writer.insert_of_runs("api", [1] * len(batches), [3] * len(batches), batches)
                rows = pa.Table.from_batches(batches).to_pylist()
                expected += [dict.fromkeys(NAMES) | row for row in rows]
        writer.commit()
    finally:
        writer.__exit__()
    stored = query(store, f"SELECT run_id, {', '.join(NAMES)} FROM api ORDER BY id")
    assert stored == [(1, *row.values()) for row in expected]
    described = "SELECT column_name, comment IS NOT NULL FROM duckdb_columns() WHERE table_name = 'api' ORDER BY {}"
    assert query(store, described.format("column_index")) == [(column.name, True) for column in table("api").columns]


def test_the_first_statement_decides_which_columns_of_counters_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s.duckdb"
    with StoreWriter(store, tuple) as writer:  # one with few rows
        writer.run_sql("INSERT INTO task_pmu (run_id, id, aic_total_cycles) VALUES (1, 1, 10)")
        writer.commit()
    assert generated_columns(store, "task_pmu") == set()
    monkeypatch.setattr(empty_columns, "_MANY_ROWS", -1)
    for names in (("aic_total_cycles",), ("aic_total_cycles", "aiv_total_cycles")):  # and another group's
        store.unlink()
        with StoreWriter(store, tuple) as writer:
            for number, name in enumerate(names):
                writer.run_sql(f"INSERT INTO task_pmu (run_id, id, {name}) VALUES (1, {number}, 10)")
            writer.commit()
        assert ("aiv_total_cycles" in generated_columns(store, "task_pmu")) == (len(names) == 1)
        assert query(store, "SELECT id, aic_total_cycles, aiv_total_cycles FROM task_pmu ORDER BY id") == [
            (0, 10, None), (1, None, 10),
        ][: len(names)]  # fmt: skip


def test_columns_that_have_values_only_late_or_in_another_run(tmp_path: Path) -> None:
    store, count, late = tmp_path / "s.duckdb", 100_000, 90_000
    begin = '{"ph": "X", "pid": 1, "tid": 1, "name": "a", "ts": %d, "dur": 1'  # and args only in the last events
    lines = [begin % ts + (', "cat": "c", "args": {"n": 1}}' if ts >= late else "}") for ts in range(count)]
    (tmp_path / "late.json").write_text(f"[{','.join(lines)}]")
    ingest([tmp_path / "late.json"], store)
    generated = generated_columns(store, "range")
    assert "thread_start_ns" in generated
    assert not {"category", "args", "run_id", "name"} & generated
    with duckdb.connect(store) as connection:
        connection.execute("ALTER TABLE range ADD COLUMN note VARCHAR DEFAULT 'mine'")
    (tmp_path / "other.json").write_text(f'[{begin % 5}, "tts": 7}}]')
    ingest([tmp_path / "other.json"], store)
    assert "thread_start_ns" not in generated_columns(store, "range")
    counts = "count(*), count(category), count(args), count(thread_start_ns), max(start_ns), min(args), min(note)"
    assert query(store, f"SELECT run_id, {counts} FROM range GROUP BY run_id ORDER BY run_id") == [
        (1, count, count - late, count - late, 0, (count - 1) * 1000, '{"n": 1}', "mine"),
        (2, 1, 0, 0, 1, 5000, None, None),
    ]
    delete_runs(store, find_runs(store, ["1"]))  # and rewrites the store
    assert query(store, "SELECT run_id, id IS NOT NULL, thread_start_ns FROM range") == [(2, True, 7000)]
