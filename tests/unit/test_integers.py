"""Integers in texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceconv.base.integers import parse_int64


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_of_64_bits(number: int) -> None:
    assert parse_int64(str(number)) == number


@pytest.mark.parametrize(("text", "number"), [("+5", 5), ("-0", 0), ("007", 7), (5.0, 5)])
def test_other_ways_to_write_them(text: object, number: int) -> None:
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    "text",
    [
        True,
        None,
        [1],
        1.5,
        float("inf"),
        1e300,
        2**63,
        "",
        "-",
        "--5",
        "+-5",
        " 5",
        "5 ",
        "5\n",
        "1_000",
        "²",
        "٣",
        "1.0",
        "1e3",
        "0x10",
        str(2**63),
        "9" * 5000,
    ],
)
def test_other_values_are_not_integers(text: object) -> None:
    assert parse_int64(text) is None
