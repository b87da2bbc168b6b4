"""op-statistic gives the same rows from totals and from tasks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import traceconv
from traceconv.store.op_totals import fill_op_totals

OPS = 5
#: Two of these have a sum of more than 64 bits.
TOO_LONG = 2**63 - 1


@pytest.mark.parametrize("seed", range(3))
def test_totals_are_those_of_the_tasks(make_store: Callable[..., Path], seed: int) -> None:
    draw = random.Random(seed)
    tasks = [
        {
            "id": n, "run_id": draw.choice([1, 1, 2, 3]), "device_id": draw.choice([0, 1, None]), "start_ns": n,
            "op_id": draw.choice([*range(OPS + 1), None]), "core_type": draw.choice(["AI_CORE", "MIX_AIC", None]),
            "dur_ns": draw.choice([None, draw.randrange(9), draw.randrange(-9, 10**6)]), "step_id": n % 4,
        }
        for n in range(draw.choice([30, 300]))
    ]  # fmt: skip
    tasks += [{"id": 1000 + n, "run_id": 3, "op_id": 1, "dur_ns": TOO_LONG} for n in range(2)]
    ops = [
        {"op_id": n, "run_id": run, "op_type": draw.choice("ABC"), "executions_per_task": draw.choice([None, None, 3])}
        for n in range(OPS)
        for run in (1, 2, 3)
    ]
    path = make_store(task=tasks, op=ops)

    def found() -> list[list[object]]:
        with traceconv.open_store(path) as store:
            questions = [{"run": run} for run in ("all", 1, 2, 3)]
            questions += [{"run": 1, "device": 1}, {"run": 1, "steps": "1-2"}, {"run": 1, "step": 3}]
            return [[dict(row) for row in store.report("op-statistic", **one)] for one in questions]  # type: ignore[arg-type]

    from_tasks = found()
    assert all(from_tasks)
    with duckdb.connect(str(path)) as connection:
        fill_op_totals(connection, [1, 2, 3])
        runs = "SELECT DISTINCT run_id FROM op_total ORDER BY run_id"
        assert connection.execute(runs).fetchall() == [(1,), (2,)]
    assert found() == from_tasks
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM op_total WHERE run_id = 1")
    assert found() == from_tasks
