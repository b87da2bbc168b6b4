"""The queries of Perfetto's own tests of protobuf traces: the same rows, or an error that names what is missing.

A query that runs and gives other rows is an intended difference: docs/reference/perfetto-differences.md has its entry.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import duckdb
import pytest
from shared_data import shared

from traceconv.pipeline.ingest import ingest

FOLDER = shared("perfetto_proto")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "perfetto-differences.md"
CASES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())

#: What the error names, by the end of the test's name.
MISSING = {
    "test_chrome_reliable_range": "run_metric",
    "test_chrome_reliable_range_missing_browser_main": "run_metric",
    "test_chrome_reliable_range_missing_processes": "run_metric",
    "test_chrome_missing_processes": "experimental_missing_chrome_processes",
    "test_chrome_threads_skip_swapper_tid_override": "run_metric",
    "test_android_framework_track_event_enum": "__intrinsic_android_track_event_process",
}
#: The entry of the page, by the end of the test's name.
DIFFERENT = {
    "test_stack_with_categories": "other data sources",
    "test_track_event_with_atrace": "other data sources",
    "test_descendant_slice": "a begin without an end",
}


def short(case: str) -> str:
    return case.rpartition("__")[2]


def cells(lines: list[str]) -> list[list[str | None]]:
    """Cells of CSV lines. Perfetto doesn't escape quotes within a cell: a JSON text is read without them."""
    if any('"{' in line for line in lines):
        return [[line.replace('"', "")] for line in lines]
    return [[None if value == "[NULL]" else value for value in row] for row in csv.reader(lines)]


def printed(value: object) -> str | None:
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, bool):
        return str(int(value))
    return None if value in (None, "[NULL]") else str(value)


def asked(case: str, store: Path) -> tuple[list[list[str | None]], list[list[str | None]]]:
    """Rows of a case and the expected ones. Raises duckdb.Error."""
    query = (FOLDER / case / "query.sql").read_text()
    query = re.sub(r"INCLUDE PERFETTO MODULE [a-z_.]+;", "", query)
    query = re.sub(r'"([a-z_.]+)"\)', r"'\1')", query)
    query = re.sub(r"(JOIN (descendant_slice\([a-z.]+\) AS|slice_with_stack_id) [a-z0-9]+)", r"\1 ON true", query)
    lines = [line.strip() for line in (FOLDER / case / "expected.csv").read_text().splitlines()[1:]]
    # Rows of these keys are from Perfetto's content analyzer, with which its tests run.
    expected = [row for row in cells(lines) if row[0] not in ("event.category", "event.name")]
    if not store.exists():
        ingest([FOLDER / case / "trace.pftrace"], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        connection.execute("USE perfetto")
        connection.execute("SET default_null_order = 'sqlite'")
        rows = [[printed(value) for value in row] for row in connection.execute(query).fetchall()]
    if any('"{' in line for line in lines):
        rows = [[",".join(str(value) for value in row).replace('"', "")] for row in rows]
    if not re.search(r"ORDER BY (?!ts ASC|slice.ts, args.id)", query):  # rows of equal times, and IDs, have any order
        rows, expected = sorted(rows, key=str), sorted(expected, key=str)
    return rows, expected


@pytest.mark.parametrize("case", [case for case in CASES if short(case) not in MISSING.keys() | DIFFERENT.keys()])
def test_rows_are_equal_to_perfettos(case: str, tmp_path: Path) -> None:
    rows, expected = asked(case, tmp_path / "trace.duckdb")
    assert rows == expected


@pytest.mark.parametrize("case", [case for case in CASES if short(case) in MISSING])
def test_errors_name_what_is_missing(case: str, tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error, match=MISSING[short(case)]):
        asked(case, tmp_path / "trace.duckdb")


@pytest.mark.parametrize("case", [case for case in CASES if short(case) in DIFFERENT])
def test_differences_are_on_the_page(case: str, tmp_path: Path) -> None:
    rows, expected = asked(case, tmp_path / "trace.duckdb")
    assert rows != expected
    assert f"| {DIFFERENT[short(case)]}" in PAGE.read_text()


def test_the_page_has_the_counts() -> None:
    equal = len(CASES) - len(MISSING) - len(DIFFERENT)
    counts = f"Of {len(CASES)} tests of protobuf traces, {equal} give the same rows and {len(MISSING)} an error that"
    assert counts in " ".join(PAGE.read_text().split())
