"""The report range-statistic has the numbers of PyTorch's key_averages().

Recorded with torch 2.14.1 on a CPU: two steps of training a small network with record_shapes. key_averages.json has
name, number of calls, CPU total and Self CPU in ns, and the same by input shapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from traceconv.pipeline.ingest import ingest

FOLDER = Path(__file__).parent / "key_averages"
#: An operator inside one of its name, as its only child, is the same call to PyTorch: mean calls the overload mean.out.
MERGED = {"aten::mean", "aten::div_", "aten::div", "aten::mul"}
STEPS = "regexp_replace(name, '^ProfilerStep#[0-9]+$', 'ProfilerStep*')"
MERGING = """
WITH child AS (
  SELECT parent_id, count(*) AS children FROM range WHERE parent_id IS NOT NULL GROUP BY parent_id
), inner_call AS (
  SELECT r.id, p.id AS outer_id, r.self_ns
  FROM range AS r
  JOIN range AS p ON p.id = r.parent_id AND p.name = r.name
  JOIN child AS c ON c.parent_id = p.id AND c.children = 1
)
SELECT regexp_replace(r.name, '^ProfilerStep#[0-9]+$', 'ProfilerStep*') AS name, {shapes} count(*), sum(r.dur_ns),
       sum(r.self_ns) + coalesce(sum(i.self_ns), 0)
FROM range AS r
LEFT JOIN inner_call AS i ON i.outer_id = r.id
WHERE r.id NOT IN (SELECT id FROM inner_call)
GROUP BY ALL
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    path = tmp_path_factory.mktemp("key_averages") / "s.duckdb"
    ingest([FOLDER / "trace.json.gz"], path)
    with duckdb.connect(str(path), read_only=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def averages() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "key_averages.json").read_text())
    return found


def test_calls_total_and_self_time(store: duckdb.DuckDBPyConnection, averages: dict[str, Any]) -> None:
    rows = store.execute(
        f"SELECT {STEPS} AS name, sum(count), sum(total_ns), sum(self_ns) FROM range_statistic GROUP BY ALL"
    ).fetchall()
    found = {name: numbers for name, *numbers in rows}
    wanted = {name: numbers for name, *numbers in averages["rows"]}
    assert found.keys() <= wanted.keys()
    assert {name for name in wanted if found[name] != wanted[name]} == MERGED
    # Self time is not affected by merging.
    assert {name: found[name][2] for name in MERGED} == {name: wanted[name][2] for name in MERGED}


def test_operators_that_call_themselves_are_merged(store: duckdb.DuckDBPyConnection, averages: dict[str, Any]) -> None:
    rows = store.execute(MERGING.format(shapes="")).fetchall()
    found = sorted([*row] for row in rows if row[0] != "PyTorch Profiler (0)")
    assert found == sorted(averages["rows"])


def test_calls_by_shape(store: duckdb.DuckDBPyConnection, averages: dict[str, Any]) -> None:
    shapes = "coalesce(r.args -> '$.\"Input Dims\"', '[]')::VARCHAR,"
    rows = store.execute(MERGING.format(shapes=shapes)).fetchall()
    found = sorted(
        [name, json.loads(dims), *numbers] for name, dims, *numbers in rows if name != "PyTorch Profiler (0)"
    )
    assert found == sorted([name, json.loads(dims), *numbers] for name, dims, *numbers in averages["by_shape"])
