"""Values as text: human-readable durations, exact microseconds, valid JSON."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.cli.tables import lines, shortened
from traceconv.reports.values import human_bytes, human_duration, human_moments, json_text, thousandths


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (-999, "-999 ns"),
        (1_000, "1.000 µs"),
        (1_584_123, "1.584 ms"),
        (999_999, "999.999 µs"),
        (999_999_499, "999.999 ms"),
        (999_999_500, "1.000 s"),
        (-1_584_000, "-1.584 ms"),
        (59_999_000_000, "59.999 s"),
        (125_000_000_000, "2 min 05.000 s"),
        (3_723_004_000_000, "1 h 02 min 03.004 s"),
    ],
)
def test_human_duration(ns: int, text: str) -> None:
    assert human_duration(ns) == text
    assert human_duration(Decimal(ns)) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (-(2**30), "-1.0 GiB"),
        (2**60, "1048576.0 TiB"),
    ],
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([1000, 10**6, 10**9]))
def test_thousandths_are_exact(value: int, unit: int) -> None:
    exact = (Decimal(value) / unit).quantize(Decimal("0.001"), ROUND_HALF_UP)
    assert Decimal(thousandths(value, unit)) == exact


@given(st.text())
def test_json_text_is_valid_and_free_of_control_characters(text: str) -> None:
    shown = json_text(text)
    assert shown.isprintable()
    assert json.loads(shown) == text


@given(st.text(), st.integers(1, 30))
def test_shortened_text_fits_and_short_text_is_unchanged(text: str, width: int) -> None:
    from rich.cells import cell_len

    shown = shortened(text, width)
    assert cell_len(shown) <= width
    assert shown == text if cell_len(text) <= width else "…" in shown


def test_timestamps_are_relative_to_the_start_of_the_run() -> None:
    start = 1_720_000_000_000_000_000
    for times, shown in (
        ([1_000], ["1.000 µs"]),
        ([0, 999], ["0.000 µs", "0.999 µs"]),
        ([762_486_000, None], ["762.486 ms", "-"]),
        ([762_486_001, 5], ["762.486001 ms", "0.000005 ms"]),
        ([762_486_010, -50], ["762.48601 ms", "-0.00005 ms"]),
        ([90_000_000_000, 1_500_000], ["90.0000 s", "0.0015 s"]),
        ([[1_000, 2_000_000], None, []], ["0.001 ms, 2.000 ms", "-", ""]),
    ):
        assert human_moments([_since(start, time) for time in times], [start] * len(times)) == shown
    assert human_moments([5, 1_000], [None, 0]) == ["5 ns", "1.000 µs"]


def _since(start: int, time: object) -> object:
    if isinstance(time, list):
        return [start + one for one in time]
    return start + time if isinstance(time, int) else None


def test_table_fits_its_width_and_keeps_numbers_intact() -> None:
    rows = [["12345", "a/very/long/name/of/an/op/in/a/deep/model", "7 ns"], ["1", "b", "1.584 ms"]]
    drawn = [line for _, line in lines(["id", "name", "dur"], rows, [True, False, True], 40, first=True)]
    assert drawn == [
        "   id  name                          dur",
        "─────  ───────────────────────  ────────",
        "12345  a/very/long…/deep/model      7 ns",
        "    1  b                        1.584 ms",
    ]


def test_headings_are_wrapped_before_text_is_shortened() -> None:
    headings, rows = ["iteration_time", "op_name"], [["7 ns", "a_name_of_an_op"]]
    wide = [line for _, line in lines(headings, rows, [True, False], 31, first=True)]
    assert wide[0] == "iteration_time  op_name"
    narrow = [line for _, line in lines(headings, rows, [True, False], 27, first=True)]
    assert narrow == [
        "iteration_",
        "      time  op_name",
        "──────────  ───────────────",
        "      7 ns  a_name_of_an_op",
    ]


def test_row_that_is_too_wide_becomes_a_block_of_lines() -> None:
    drawn = [line for _, line in lines(["id", "name"], [["1234567890", "x" * 50]], [True, False], 15, first=True)]
    assert drawn == ["id    1234567890", f"name  {'x' * 50}", ""]
