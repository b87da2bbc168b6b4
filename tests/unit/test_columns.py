"""Untyped values of a source as columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from traceconv import native
from traceconv.formats.common.columns import integers, json_objects

VALUES: list[list[Any]] = [
    [37.5, 50.0],  # Arrow truncates floats, if it is asked for integers
    [1, 2.5, None],
    [50.0],
    [True, 1],
    [2**63, -(2**63), 1],
    ["a", 1, None, 0.5],
    [None, None],
]


@pytest.mark.parametrize("values", VALUES, ids=str)
@pytest.mark.parametrize("in_c", [True, False])
def test_values_are_kept_as_they_are(values: list[Any], in_c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "AVAILABLE", in_c and native.AVAILABLE)
    texts = json_objects(("v",), [values], len(values)).to_pylist()
    found = [json.loads(text).get("v") for text in texts]
    assert list(map(repr, found)) == list(map(repr, values))


@pytest.mark.parametrize("values", VALUES, ids=str)
def test_what_is_no_integer_of_64_bits_is_null(values: list[Any]) -> None:
    wanted = [value if type(value) is int and value < 2**63 else None for value in values]
    assert integers(values).equals(pa.array(wanted, pa.int64()))
