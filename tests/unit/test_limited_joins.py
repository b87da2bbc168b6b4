"""The first rows by a joined column are those of the report, in its order: values are equal, unknown, or NaN."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from traceconv.reports import first_rows
from traceconv.reports.filters import parse_filter
from traceconv.reports.question import Question, find_report
from traceconv.reports.run import answer
from traceconv.store.database import open_store
from traceconv.store.documented_sql import OrderTerm

_GROUPS = ("PipeUtilization", "Memory")
_COLUMNS = {
    "op_summary": (
        "metric_group", "aic_mac_ratio", "op_name", "aic_mac_time_ns", "aicore_time_ns", "aic_l1_read_gib_per_s",
    ),
    "launch": ("queue_length", "certain"),
}  # fmt: skip


@pytest.fixture(params=(False, True), ids=("devices", "device"))
def store(request: pytest.FixtureRequest, make_store: Callable[..., Path]) -> Path:
    """Tasks of several devices, with values of vendors, or of one without."""
    rng = random.Random(1)
    devices = (0,) if request.param else (0, 1, None)
    values = () if request.param else ('{"aic_mac_ratio": "NaN", "aic_mac_time_ns": 3}',)

    def some(*values: object) -> object:
        return rng.choice(values)

    tasks = [
        {
            "id": place, "device_id": some(*devices), "stream_id": 0, "name": "t", "op_id": some(1, 2, 3, None),
            "kind": some("kernel", "collective"), "start_ns": some(place, place * 2, 40, None),
            "dur_ns": some(1, 2, None), "submit_ns": some(place // 2, None), "api_id": some(1, None),
            "block_count": some(1, 2, None),
        }
        for place in range(90)
    ]  # fmt: skip
    return make_store(
        task=tasks,
        op=[{"op_id": 1, "name": "b"}, {"op_id": 2, "name": "a"}],
        device=[{"device_id": 0, "core_clock_hz": 10**9, "ai_core_count": 2, "clock_error_ns": 5}],
        task_pmu=[
            {
                "id": place, "metric_group": group, "aic_total_cycles": some(0, 4, 8, 8, None),
                "aic_mac_cycles": some(0, 4, None), "aic_l1_read_bytes": some(64, 128, None),
                "vendor_values": some(*values, None),
            }
            for group in _GROUPS
            for place in range(90) if rng.random() < 0.8
        ],
    )  # fmt: skip


@pytest.mark.parametrize("name", list(_COLUMNS))
def test_first_rows(name: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_rows, "_ID_RANGE", 32)
    report = find_report(name)
    with open_store(store) as connection:
        for column in _COLUMNS[name]:
            for order, top, filters in (
                ((OrderTerm(column, True),), 9, ()),
                ((OrderTerm(column, False), OrderTerm("dur_ns", True)), 3, (parse_filter(report, "device_id=0"),)),
            ):
                every = Question(report, {"run": 1}, report.columns, filters=filters, order=order)
                first = [row for rows in answer(connection, replace(every, top=top)) for row in rows]
                rows = [row for rows in answer(connection, every) for row in rows]
                assert repr(first) == repr(rows[:top]), (column, order, top)


def test_settings_of_the_user_are_kept(store: Path) -> None:
    report = find_report("launch")
    question = Question(report, {"run": 1}, report.columns, order=(OrderTerm("queue_length", True),), top=3)
    with open_store(store) as connection:
        for given in ("", "filter_pushdown,join_order"):
            connection.execute(f"SET disabled_optimizers = '{given}'")
            assert len([row for rows in answer(connection, question) for row in rows]) == 3
            assert connection.execute("SELECT current_setting('disabled_optimizers')").fetchone() == (given,)
