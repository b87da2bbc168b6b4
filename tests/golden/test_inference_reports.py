"""Inference reports: the tables in the documentation of Furiosa's SDK, and cases worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from stores import query as ask

MakeStore = Callable[..., Path]

#: Durations of the four inferences in the documentation, in ns.
DOCUMENT = (3_027_309, 2_111_363, 1_824_769, 1_584_494)
PERCENTILES = ("0.5", "0.9", "0.95", "0.97", "0.99", "0.999")


def inferences(durations: Sequence[int | None], **more: object) -> list[dict[str, object]]:
    return [
        {"id": n, "kind": "inference", "start_ns": 10 * n, "dur_ns": dur, **more} for n, dur in enumerate(durations)
    ]


def nearest(value: Fraction) -> int:
    """Round to the nearest integer, half to even."""
    return round(value)


def by_definition(durations: Sequence[int]) -> list[int]:
    """Return the mean and the percentiles, interpolated linearly at index p (n − 1)."""
    values = sorted(durations)
    found = [nearest(Fraction(sum(values), len(values)))]
    for percentile in PERCENTILES:
        place = Fraction(percentile) * (len(values) - 1)
        low = place.numerator // place.denominator
        high = min(low + 1, len(values) - 1)
        found.append(nearest(values[low] + (values[high] - values[low]) * (place - low)))
    return found


def test_latency_has_the_numbers_of_the_documentation(make_store: MakeStore) -> None:
    store = make_store(range=inferences(DOCUMENT))
    assert ask(store, "FROM inference_latency") == [
        (1, 4, 0, 1584494, 3027309, 2136984, 1968066, 2752525, 2889917, 2944874, 2999831, 3024561)
    ]


def test_latency_by_label_has_a_row_for_the_innermost_annotation(make_store: MakeStore) -> None:
    """Of the parent span, also on another thread, else of the enclosing range; NULL for none."""
    spans = [
        {"id": 10, "kind": "annotation", "name": "warm up", "span_id": "1"},
        {"id": 11, "kind": "annotation", "name": "run", "span_id": "2"},
        {"id": 12, "kind": "module", "name": "module", "span_id": "3"},
    ]
    places: list[dict[str, object]] = [
        {"parent_span_id": "1"}, {"parent_span_id": "2"}, {"parent_id": 11}, {"parent_id": 12}
    ]  # fmt: skip
    runs = [row | more for row, more in zip(inferences((9, 4, 6, 5)), places, strict=True)]
    store = make_store(range=[*spans, *runs, *inferences((None,), id=20)])
    found = ask(store, "SELECT label, count, unfinished_count, min_ns, mean_ns, median_ns FROM latency_by_label()")
    assert found == [("run", 2, 0, 4, 5, 5), ("warm up", 1, 0, 9, 9, 9), (None, 1, 1, 5, 5, 5)]


@pytest.mark.parametrize(
    "durations",
    [
        (7,),
        (0, 0),
        (10, 11),  # the median is halfway: rounded to even
        (11, 12),
        (1, 2, 4),
        tuple(range(1001)),
        tuple((n * 7919) % 10_007 for n in range(997)),
        (2**62 + 1, 2**62 + 4, 3),  # too large for a double, with sums beyond 64 bits
        (2**63 - 1, 2**63 - 2, 2**63 - 4),
    ],
)
def test_latency_is_exact(durations: tuple[int, ...], make_store: MakeStore) -> None:
    store = make_store(range=inferences(durations))
    columns = "mean_ns, median_ns, p90_ns, p95_ns, p97_ns, p99_ns, p99_9_ns"
    assert ask(store, f"SELECT {columns} FROM inference_latency") == [tuple(by_definition(durations))]


def test_latency_of_each_run_and_without_ended_inferences(make_store: MakeStore) -> None:
    store = make_store(
        range=[
            *inferences([5, None, 7]),
            *inferences([None], run_id=2),
            {"id": 9, "run_id": 3, "kind": "annotation", "name": "Inference", "start_ns": 0, "dur_ns": 1},
        ]
    )
    columns = "run_id, count, unfinished_count, min_ns, max_ns, mean_ns, p99_9_ns"
    rows = [(1, 2, 1, 5, 7, 6, 7), (2, 0, 1, None, None, None, None)]
    assert ask(store, f"SELECT {columns} FROM inference_latency") == rows
    assert ask(store, f"SELECT {columns} FROM inference_latency(run := 2)") == rows[1:]


def test_inferences_and_host_operators_name_their_thread(make_store: MakeStore) -> None:
    store = make_store(
        track=[{"track_id": 4, "kind": "thread", "tid_text": "40"}],
        range=[
            {"id": 1, "kind": "inference", "track_id": 4, "trace_id": "7c", "span_id": "40", "start_ns": 5,
             "dur_ns": 9},
            {"id": 2, "kind": "external_op", "track_id": 4, "name": "Quantize", "item_index": 0, "start_ns": 6,
             "dur_ns": 2, "step_id": 3},
            {"id": 3, "kind": "annotation", "track_id": 4, "name": "step", "start_ns": 1, "dur_ns": 1},
            {"id": 4, "kind": "annotation", "track_id": 8, "name": "층 🚀", "item_index": 1, "start_ns": 7,
             "dur_ns": 1},
        ],
    )  # fmt: skip
    assert ask(store, "FROM inference") == [(1, 1, "7c", "40", "40", None, 5, 9)]
    assert ask(store, "SELECT thread, name, operator_index, dur_ns FROM external_operator") == [
        ("40", "Quantize", 0, 2),
        (None, "층 🚀", 1, 1),
    ]
    assert ask(store, "SELECT name FROM external_operator(step := 3)") == [("Quantize",)]
    assert ask(store, "SELECT id FROM inference(step := 3)") == []


def execution(id_: int, start_ns: int, dur_ns: int | None, **more: object) -> dict[str, object]:
    return {"id": id_, "kind": "execution", "start_ns": start_ns, "dur_ns": dur_ns, "pe_index": 0, **more}


def task(id_: int, start_ns: int, dur_ns: int | None, kind: str = "compute", **more: object) -> dict[str, object]:
    return {"id": id_, "start_ns": start_ns, "dur_ns": dur_ns, "kind": kind, "name": "LowLevelConv2d", **more}


TIMES = "SELECT id, npu_total_ns, npu_run_ns, npu_io_wait_ns, operator_count FROM npu_execution"


def test_numbered_executions_have_the_tasks_with_their_number(make_store: MakeStore) -> None:
    store = make_store(
        range=[execution(1, 0, 100, correlation_id=7), execution(2, 100, None, correlation_id=8)],
        task=[
            task(10, 0, 60, execution_id=7),
            task(11, 40, 60, execution_id=7),  # at the same time as the previous one: run time exceeds the duration
            task(12, 90, 9, "copy", execution_id=7),
            task(13, 500, 4, execution_id=8),  # at another time, but with the execution's number
            task(14, 600, None, execution_id=8),
            task(15, 20, 5),
        ],
    )
    assert ask(store, TIMES) == [(1, 100, 120, -20, 2), (2, None, 4, None, 1)]
    assert ask(store, f"{TIMES}(run := 2)") == []


def test_unnumbered_executions_have_the_tasks_that_name_or_follow_them(make_store: MakeStore) -> None:
    def named(span: str) -> str:
        return f'{{"trace_id": "aa", "parent_span_id": "{span}"}}'

    store = make_store(
        range=[
            execution(1, 0, 100, trace_id="aa", span_id="01"),
            execution(2, 50, 100, trace_id="aa", span_id="02"),
            execution(3, 1_000, 100, pe_index=1),
            execution(4, 1_000, 10),
        ],
        task=[
            task(10, 60, 30, args=named("01")),  # 2 started later, but the task names 1
            task(11, 60, 40, args=named("02")),
            task(12, 1_000, 7, device_id=1),
            task(13, 1_001, 70, device_id=1),
            task(14, 1_001, 3),
            task(15, 1_002, 3, "copy"),
        ],
    )
    assert ask(store, TIMES) == [(1, 100, 30, 70, 1), (2, 100, 40, 60, 1), (4, 10, 3, 7, 1), (3, 100, 77, 23, 2)]


def test_operators_on_average(make_store: MakeStore) -> None:
    store = make_store(
        op=[{"op_id": 1, "op_type": "Conv2D"}, {"op_id": 2, "op_type": "Conv2D"}],
        task=[
            task(1, 0, 1, op_id=1),
            task(2, 1, 1, op_id=2, device_id=1),
            task(3, 2, 2, op_id=2),
            task(4, 3, None, op_id=1),
            task(5, 0, 100),
            task(6, 0, 1_000, "copy", name="Load"),
        ],
    )
    rows = ask(store, "FROM npu_operator")
    assert rows == [
        (1, "LowLevelConv2d", Decimal(100), 1, 0, 100),
        (1, "Conv2D", Decimal("1.333333"), 3, 1, 4),
    ]
    assert ask(store, "SELECT name, count FROM npu_operator(device := 1)") == [("Conv2D", 1)]
