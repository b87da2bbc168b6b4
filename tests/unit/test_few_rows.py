"""Few rows, which are numbered in Python, have the same distinct values and texts as many."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from traceconv.events import trace
from traceconv.events.trace import Coded
from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.trace import distinct
from traceconv.normalize.trace.distinct import distinct_rows


@pytest.mark.parametrize("count", [0, 1, 2, 50, 128])
def test_distinct_rows_of_few(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rng = random.Random(count)
    columns = [
        np.array([rng.choice(values) for _ in range(count)], dtype)
        for values, dtype in (([-1, 0, 3], np.int32), ([-(2**63), 2**63 - 1, 5], np.int64), ([7], np.int16))
    ]
    of_few = distinct_rows(*columns)
    monkeypatch.setattr(distinct, "_FEW_ROWS", -1)
    of_many = distinct_rows(*columns)
    for few, many in zip(of_few, of_many, strict=True):
        assert few.dtype == many.dtype
        assert few.tolist() == many.tolist()


def test_text_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    for distinct_texts in (["a", None, "b", ""], ["only"], [None]):
        column = Coded(np.array([rng.randrange(len(distinct_texts)) for _ in range(60)], np.int32), distinct_texts)
        places = np.array(sorted(rng.sample(range(60), 40)), np.intp)
        few = column.text(places)
        monkeypatch.setattr(trace, "_FEW_ROWS", -1)
        assert few.to_pylist() == column.text(places).to_pylist() == list(column.take(places))
        monkeypatch.undo()


def test_rows_from_tuples_without_any_value() -> None:
    batch = rows_from_tuples("device", ("name", "device_id", "kind"), [(None, 1, "GPU"), (None, 2, None)])
    assert batch.schema.names == ["device_id", "kind", "name"]
    assert batch.to_pylist() == [
        {"device_id": 1, "kind": "GPU", "name": None},
        {"device_id": 2, "kind": None, "name": None},
    ]
    assert batch.schema.field("name").type == pa.string()
