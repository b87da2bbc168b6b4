"""The queries of Perfetto's JSON importer tests give the expected rows on the schema `perfetto`."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import duckdb
import pytest
from shared_data import shared

from traceconv.base.errors import InputError
from traceconv.pipeline.ingest import ingest

FOLDER = shared("perfetto_json")
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())

#: Intended differences; docs/reference/perfetto-differences.md gives the reasons.
DIFFERENT = {
    "DynamicTables__test_connected_flow": "table functions with a column as argument are not SQL of DuckDB",
    "GeckoParser__test_gecko_markers": "a Firefox profile is not a Chrome trace",
    "JsonParser__test_json_thread_state": "there is no table of scheduler states",
    "JsonParser__test_json_thread_state_sched": "there is no table of scheduler states",
}


def test_the_differences_are_few() -> None:
    assert len(CASES) - len(DIFFERENT) >= 38


def rows_of(text: str) -> list[tuple[str | None, ...]]:
    """Rows of expected.csv without the header, as text."""
    lines = list(csv.reader(io.StringIO(text)))
    return [tuple(None if value == "[NULL]" else value for value in line) for line in lines[1:]]


def printed(value: object) -> str | None:
    if isinstance(value, float):
        return f"{value:.6f}"
    return None if value is None else str(value)


@pytest.mark.parametrize("case", [name for name in CASES if name not in DIFFERENT])
def test_rows_are_equal_to_perfettos(case: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.duckdb"
    ingest([FOLDER / case / "trace.json"], path)
    query = (FOLDER / case / "query.sql").read_text()
    query = re.sub(r"INCLUDE PERFETTO MODULE [a-z_.]+;", "", query)
    expected = rows_of((FOLDER / case / "expected.csv").read_text())
    if case == "JsonParser__test_json_flow":
        query = (
            query.rstrip().rstrip(";") + " GROUP BY ALL ORDER BY slice.ts LIMIT 1"
        )  # Perfetto's query has no GROUP BY
    with duckdb.connect(str(path), read_only=True) as store:
        store.execute("USE perfetto")
        query = re.sub(r'= "([A-Za-z0-9]+)"', r"= '\1'", query)  # DuckDB reads double quotes as identifiers
        rows = [tuple(map(printed, row)) for row in store.execute(query).fetchall()]
    if "ORDER BY" not in query.upper():  # then by Perfetto's row IDs
        rows, expected = sorted(rows, key=str), sorted(expected, key=str)
    assert rows == expected


def test_a_firefox_profile_is_refused_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no array of events"):
        ingest([FOLDER / "GeckoParser__test_gecko_markers" / "trace.json"], tmp_path / "trace.duckdb")
