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
    "test_chrome_log_message": "android_logs",
    "test_chrome_log_message_args_to_json": "fields other than debug annotations",
    "test_track_event_callstacks": "__intrinsic_track_event_callstacks",
    "test_track_event_descriptions": "source_arg_set_id",
    "test_track_event_simple_state": "state",
    "test_track_event_state_state": "state",
    "test_track_event_tracks_machine_id": "machine_id",
    "test_counter_track_parent_id": "parent_id",
    "test_stack_with_categories": "slice_with_stack_id",
    "test_all_tracks_ordered_chronological": "_track_event_tracks_ordered_groups",
    "test_all_tracks_ordered_lexicographic": "_track_event_tracks_ordered_groups",
    "test_sanity_ordering": "_track_event_tracks_ordered_groups",
    "test_track_event_tracks_all_orderings": "parent_id",
    "test_track_event_tracks_explicit": "parent_id",
}
#: The entry of the page, by the end of the test's name.
DIFFERENT = {
    "test_chrome_missing_processes_args": "typed fields",
    "test_track_event_typed_args_args": "typed fields",
    "test_chrome_histogram": "typed fields",
    "test_chrome_user_event": "typed fields",
    "test_native_symbol_arg": "typed fields",
    "test_track_event_merged_debug_annotations_args": "args of tracks",
    "test_legacy_async_event": "legacy asynchronous events",
    "test_chrome_thread_is_sandboxed_tid": "IDs count from 0",
    "test_flow_events_track_event": "flows at ends",
    "test_flow_direction_corrected_by_timestamp": "flows at ends",
    "test_track_event_counters_counters": "thread counters",
    "test_track_event_name_resolution": "names of tracks",
    "test_track_event_tracks_processes": "reused process IDs",
    "test_track_event_with_atrace": "other data sources",
    "test_process_track_name": "other data sources",
    "test_descendant_slice": "unmatched ends",
    "test_display_value": "pointers",
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
    return None if value is None else str(value)


def asked(case: str, store: Path) -> tuple[list[list[str | None]], list[list[str | None]]]:
    """Rows of a case and the expected ones. Raises duckdb.Error."""
    query = (FOLDER / case / "query.sql").read_text()
    query = re.sub(r"INCLUDE PERFETTO MODULE [a-z_.]+;", "", query)
    query = re.sub(r'"([a-z_.]+)"\)', r"'\1')", query)
    query = re.sub(r"(JOIN (descendant_slice\([a-z.]+\) AS|slice_with_stack_id) [a-z0-9]+)", r"\1 ON true", query)
    lines = [line.strip() for line in (FOLDER / case / "expected.csv").read_text().splitlines()[1:]]
    expected = cells(lines)
    if not store.exists():
        ingest([FOLDER / case / "trace.pftrace"], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        connection.execute("USE perfetto")
        rows = [[printed(value) for value in row] for row in connection.execute(query).fetchall()]
    if any('"{' in line for line in lines):
        rows = [[",".join(str(value) for value in row).replace('"', "")] for row in rows]
    if not re.search(r"ORDER BY (?!ts ASC)", query):  # rows of equal times have any order
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
    counts = f"Of {len(CASES)} tests of protobuf traces, {equal} give the same rows and {len(MISSING)} an error"
    assert counts in " ".join(PAGE.read_text().split())
