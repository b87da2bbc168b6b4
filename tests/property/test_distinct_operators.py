"""Operators are numbered in batches as they would be one by one, and so are the tasks of their calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from traceconv.base.integers import LARGEST
from traceconv.normalize.operators.described import described
from traceconv.normalize.operators.distinct import OPERATOR_SCHEMA, DistinctOperators
from traceconv.normalize.operators.registry import work_of
from traceconv.store.operator_tables import _within_calls

NAMES = {1: "my::op", 2: "aten::mm", 3: "aten::linear", 4: "aten::add", 5: "other"}
FORMULAS = {number: name for number, name in NAMES.items() if number in (2, 3, 4)}
SHAPES: list[object] = [[2, 3], [3, 4], [4, 3], [], [[1, 2], [3]], [-1]]
CALLS = pa.schema(
    [("run_id", pa.int64()), ("id", pa.int64()), ("name", pa.int64()), ("dims", pa.string()), ("types", pa.string()),
     ("values", pa.string())]
)  # fmt: skip


def random_call(random: Random, number: int) -> tuple[object, ...]:
    count = random.randrange(4)
    dims = json.dumps(
        [random.choice(SHAPES) for _ in range(count)], separators=random.choice([(",", ":"), (", ", ": ")])
    )
    types = json.dumps([random.choice(["float", "float", "Scalar", ""]) for _ in range(count)])
    name = random.choice(list(NAMES))
    return (
        random.randrange(1, 3), number, name, random.choice([dims, dims, dims, None]),
        random.choice([types, types, types, None, "{}"]),
        random.choice([None, '["1", ""]']) if name in FORMULAS else None,
    )  # fmt: skip


def one_by_one(calls: list[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Yield run and call, operator, operator without work, whether it is composite and a product, and new operators."""
    ids: dict[tuple[object, ...], int] = {}
    for run_id, number, name, dims, types, values in calls:
        work, shown = None, (None, None)
        if isinstance(dims, str) and isinstance(types, str):
            shapes, names = described(pa.array([dims]), pa.array([types]))
            shown = shapes[0].as_py(), names[0].as_py()
            if name in FORMULAS:
                work = work_of(NAMES[name], dims, types, values)  # type: ignore[index, arg-type]
        kind = (work.category, work.compute_type) if work else (None, None)
        numbers = (work.flops, work.read_bytes, work.write_bytes) if work else (None, None, None)
        rows = [(run_id, name, *shown, *kind, *numbers)]
        if work and work.is_composite:
            rows.append((run_id, name, *shown, *kind, None, None, None))
        new = [row for row in dict.fromkeys(rows) if row not in ids]
        for row in new:
            ids[row] = len(ids) + 1
        is_matrix = work is not None and work.category == "gemm" and work.flops is not None
        found = (run_id, number, ids[rows[0]], ids[rows[-1]], bool(work and work.is_composite), is_matrix)
        yield found, [(ids[row], *row) for row in new]


@pytest.mark.parametrize("seed", range(40))
def test_operators_are_numbered_in_order(seed: int) -> None:
    random = Random(seed)
    calls = [random_call(random, number) for number in range(random.randrange(1, 400))]
    # NULLs are last, as in the store.
    calls.sort(key=lambda call: [(value is None, value or 0) for value in (call[0], *call[2:])])
    found, added = [], []
    distinct = DistinctOperators(FORMULAS)
    while calls and len(found) < len(calls):
        part = calls[len(found) : len(found) + random.randrange(1, 60)]
        columns = [pa.array(values, kind) for values, kind in zip(zip(*part, strict=True), CALLS.types, strict=True)]
        rows, new = distinct.take(pa.RecordBatch.from_arrays(columns, schema=CALLS))
        found += rows.tolist()
        added += list(zip(*(column.to_pylist() for column in new), strict=True))
        assert [column.type for column in new] == OPERATOR_SCHEMA.types
    expected = list(one_by_one(calls))
    assert found == [row for row, _ in expected]
    assert added == [row for _, rows in expected for row in rows]
    assert distinct.count == len(added)


@pytest.mark.parametrize("seed", range(20))
def test_first_tasks_and_least_ranks_of_calls(seed: int) -> None:
    """A call has tasks on several devices; devices and starts may be unknown."""
    random = Random(seed)
    rows = [
        (number, random.randrange(1, 3), random.randrange(8), random.choice([None, 0, 1]),
         random.choice([None, 5, 6, LARGEST]), random.randrange(4))
        for number in random.sample(range(100), random.randrange(1, 60))
    ]  # fmt: skip
    names = ("id", "run_id", "range_id", "device_id", "start_ns", "rank")
    tasks = pa.table(
        {name: pa.array(column, pa.int64()) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    )
    ranks, is_first = _within_calls(tasks)
    for row, rank, first in zip(rows, ranks.tolist(), is_first.tolist(), strict=True):
        call = [other for other in rows if other[1:4] == row[1:4]]
        assert rank == min(other[5] for other in call)
        assert first == (row == min(call, key=lambda other: (other[4] is None, other[4] or 0, other[0])))
