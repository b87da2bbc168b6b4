"""Cells of msprof's CSV files: exact numbers in the formats of real files, and texts that can't break a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traceconv
from traceconv.reports.current_store import open_current_store
from traceconv.reports.msprof_csv import _cell, msprof_csv
from traceconv.reports.question import Question, find_report
from traceconv.store.documented_sql import SqlColumn

duckdb = pytest.importorskip("duckdb")
MakeStore = Callable[..., Path]
HOSTILE = [
    "=1+2",
    'say "hi"',
    "a,b",
    "two\nlines",
    "cr\ronly",
    "\r\n",
    "'; DROP TABLE task --",
    "",
    "é\t€ ",
    '"',
    "N/A",
]


def cells(values: list[object], kind: str, conversion: str, *, timestamp: bool = False) -> list[str]:
    column = SqlColumn("v", kind, "ns", "", timestamp=timestamp, msprof="V", msprof_as=conversion)
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT {_cell('v', column)} FROM (SELECT unnest(?::{kind}[]) AS v)", [values]
        ).fetchall()
    return [row[0] for row in rows]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_every_nanosecond_is_kept(values: list[object]) -> None:
    assert [Decimal(cell) * 1000 for cell in cells(values, "BIGINT", "us")] == values
    assert [Decimal(cell) * 1000 for cell in cells(values, "BIGINT", "short_us")] == values
    stamps = cells(values, "BIGINT", "us", timestamp=True)
    assert all(stamp.endswith("\t") and len(stamp.partition(".")[2]) == 4 for stamp in stamps)
    assert [Decimal(cell) * 1024 for cell in cells(values, "BIGINT", "kb")] == values


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_ratios_have_up_to_three_decimals(values: list[object]) -> None:
    assert [float(cell) for cell in cells(values, "DOUBLE", "ratio")] == [float(f"{value:.3f}") for value in values]


@pytest.mark.parametrize(
    ("value", "kind", "conversion", "text"),
    [
        (None, "BIGINT", "us", "N/A"),
        (0, "BIGINT", "us", "0.000"),
        (-2, "BIGINT", "us", "-0.002"),
        (14_060, "BIGINT", "short_us", "14.06"),
        (15_000, "BIGINT", "short_us", "15.0"),
        (100, "BIGINT", "short_us", "0.1"),
        (Decimal("1500.500"), "DECIMAL(22,3)", "short_us", "1.501"),
        (Decimal("-1500.500"), "DECIMAL(22,3)", "us", "-1.501"),
        (588, "BIGINT", "kb", "0.57421875"),
        (1024, "BIGINT", "kb", "1"),
        (102400, "BIGINT", "kb", "100"),
        (0, "BIGINT", "kb", "0"),
        (0.98765, "DOUBLE", "ratio", "0.988"),
        (0.0, "DOUBLE", "ratio", "0.0"),
        (22.01, "DOUBLE", "ratio", "22.01"),
        (False, "BOOLEAN", "flag", "NO"),
        (True, "BOOLEAN", "flag", "YES"),
        (None, "BOOLEAN", "flag", "N/A"),
        ("1,3;2", "VARCHAR", "shapes", '"""1,3;2"""'),
        (None, "VARCHAR", "shapes", "N/A"),
    ],
)
def test_formats_are_those_of_real_files(value: object, kind: str, conversion: str, text: str) -> None:
    assert cells([value], kind, conversion) == [text]


def test_means_are_rounded_half_up() -> None:
    means = [Decimal(n) / 1000 for n in range(-5000, 5000, 7)]
    exact = [(mean / 1000).quantize(Decimal("0.001"), ROUND_HALF_UP) for mean in means]
    assert [Decimal(cell) for cell in cells([*means], "DECIMAL(22,3)", "us")] == exact


def test_hostile_texts_are_read_back(make_store: MakeStore) -> None:
    names = [f"{text}#{number}" for number, text in enumerate(HOSTILE)] + HOSTILE
    store = make_store(task=[{"id": n, "start_ns": n, "dur_ns": 1, "name": name} for n, name in enumerate(names)])
    report = find_report("task-time")
    with open_current_store(store) as connection:
        text = "".join(msprof_csv(connection, Question(report, {}, report.columns)))
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert [row[header.index("kernel_name")] for row in rows] == names
    assert {len(row) for row in rows} == {len(header)}


def test_a_report_that_msprof_does_not_have_is_refused(make_store: MakeStore) -> None:
    report = find_report("memory-peak")
    with open_current_store(make_store()) as connection, pytest.raises(traceconv.UsageError, match="no equivalent"):
        next(msprof_csv(connection, Question(report, {}, report.columns)))
