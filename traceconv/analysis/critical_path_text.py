"""Critical paths and answers to what-if questions as text, JSON, and rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from traceconv.base.errors import printable
from traceconv.reports.render import Table
from traceconv.reports.result import shortened, text_table
from traceconv.reports.short_names import LONGEST_NAME, distinct
from traceconv.reports.values import human_duration
from traceconv.schema import tables
from traceconv.store.documented_sql import table_columns

if TYPE_CHECKING:
    from traceconv.analysis.critical_path import CriticalPath, Step
    from traceconv.analysis.what_if import Change, WhatIf

#: Of the JSON documents.
VERSION = 1
#: Rows of a table for people.
SHOWN_OPS = 15
_SHOWN_STEPS = 10
_OP_WIDTH = 44
_FASTER = {
    "op_type": "{}", "category": "kernels of the category {}", "launched_by": "tasks launched by {}",
    "host_range": "{} on the host",
}  # fmt: skip


def path_lines(path: CriticalPath, top: int = SHOWN_OPS) -> Iterator[str]:
    """Yield the time of each kind and of the ops with the most time, in at most 80 columns."""
    total_ns = sum(step.dur_ns for step in path.steps)
    yield f"critical path of {_described(path.steps)}: {human_duration(total_ns)}"
    covered_ns = _covered_ns(path.steps)
    if covered_ns < total_ns:
        yield f"steps overlap; if each moment counts once, they take {human_duration(covered_ns)}"
    if path.inferred_ns:
        yield f"{human_duration(path.inferred_ns)} of it follow from inferred dependencies"
    yield ""
    columns = {"kind": False, "total": True, "%": True}
    yield from _lines(columns, [[one.name, human_duration(one.total_ns), f"{one.percent:.2f}"] for one in path.kinds])
    shown = path.ops[:top]
    if not shown:
        return
    labels = [printable(one.name, LONGEST_NAME) for one in shown]
    short = distinct(labels, _OP_WIDTH, shortened)
    yield ""
    yield from _lines(
        {"op": False, "kind": False, "total": True, "%": True},
        [
            [short[label], one.kind, human_duration(one.total_ns), f"{one.percent:.2f}"]
            for one, label in zip(shown, labels, strict=True)
        ],
    )
    if len(path.ops) > top:
        yield f"{len(path.ops) - top:,} more with less time"


def path_table(path: CriticalPath) -> Table:
    """Return the parts of all paths, with the columns of the table critical_path."""
    rows = ([[path.run_id, *row.values()] for row in batch.to_pylist()] for batch in path.parts.to_batches())
    return Table(table_columns(tables()["critical_path"]), rows)


def path_dict(path: CriticalPath) -> dict[str, object]:
    """Return the JSON document."""
    return {
        "version": VERSION,
        "run_id": path.run_id,
        "steps": [_step(step) for step in path.steps],
        "inferred_ns": path.inferred_ns,
        "kinds": [{"kind": one.kind, "total_ns": one.total_ns, "percent": one.percent} for one in path.kinds],
        "ops": [asdict(one) for one in path.ops],
    }


def what_if_lines(answer: WhatIf) -> Iterator[str]:
    """Yield the answer, with the replay of the unchanged trace next to it."""
    yield f"{_described([one.step for one in answer.steps])}, with {', '.join(_changes(answer.change))}:"
    yield (
        f"{human_duration(answer.measured_ns)} → {human_duration(answer.predicted_ns)} ({answer.change_percent:+.2f} %)"
    )
    if len(answer.steps) > 1:
        yield (
            f"from the first to the last: {human_duration(answer.total_measured_ns)} → "
            f"{human_duration(answer.total_predicted_ns)} ({answer.total_change_percent:+.2f} %)"
        )
    yield f"replay of the unchanged trace: {human_duration(answer.replayed_ns)} ({answer.replay_error_percent:+.3f} %)"
    if answer.unlaunched_count:
        yield f"{answer.unlaunched_count:,} of {answer.task_count:,} tasks have no known launch: what they waited for"
        yield "on the host is unknown, so gaps before them on their stream stay as measured"
    if answer.shares_device:
        yield "tasks that run at once share cores and memory bandwidth"
    if answer.during_collectives:
        yield "tasks that become faster compete for memory with collectives, whose needs are"
        yield "unknown: steps may take longer than predicted"
    if len(answer.steps) > 1:
        yield ""
        columns = {"step": True, "device": True, "measured": True, "replayed": True, "predicted": True}
        yield from _lines(
            columns,
            [
                ["-" if number is None else str(number) for number in (one.step.step_id, one.step.device_id)]
                + [human_duration(ns) for ns in (one.measured_ns, one.replayed_ns, one.predicted_ns)]
                for one in answer.steps[:_SHOWN_STEPS]
            ],
        )
        if len(answer.steps) > _SHOWN_STEPS:
            yield f"{len(answer.steps) - _SHOWN_STEPS:,} more steps; --format json has all"


def what_if_dict(answer: WhatIf) -> dict[str, object]:
    """Return the JSON document."""
    change = asdict(answer.change)
    change["speed_up"] = None if answer.change.speed_up is None else float(answer.change.speed_up)
    return {
        "version": VERSION,
        "run_id": answer.run_id,
        "change": change,
        "measured_ns": answer.measured_ns,
        "replayed_ns": answer.replayed_ns,
        "predicted_ns": answer.predicted_ns,
        "change_percent": answer.change_percent,
        "total_measured_ns": answer.total_measured_ns,
        "total_replayed_ns": answer.total_replayed_ns,
        "total_predicted_ns": answer.total_predicted_ns,
        "total_change_percent": answer.total_change_percent,
        "replay_error_percent": answer.replay_error_percent,
        "task_count": answer.task_count,
        "unlaunched_count": answer.unlaunched_count,
        "shares_device": answer.shares_device,
        "during_collectives": answer.during_collectives,
        "steps": [
            {
                **_step(one.step), "measured_ns": one.measured_ns, "replayed_ns": one.replayed_ns,
                "predicted_ns": one.predicted_ns,
            }
            for one in answer.steps
        ],
    }  # fmt: skip


def _described(steps: Sequence[Step]) -> str:
    if steps[0].step_id is None:
        return "a window of the run" if steps[0].is_window else "the run"
    return f"{len(steps):,} steps" if len(steps) > 1 else f"step {steps[0].step_id}"


def _covered_ns(steps: Sequence[Step]) -> int:
    """Return the time in any of the steps."""
    covered_ns, end_ns = 0, None
    for step in sorted(steps, key=lambda step: step.start_ns):
        start_ns = step.start_ns if end_ns is None else max(step.start_ns, end_ns)
        if step.end_ns > start_ns:
            covered_ns += step.end_ns - start_ns
            end_ns = step.end_ns
    return covered_ns


def _changes(change: Change) -> Iterator[str]:
    if change.faster is not None and change.speed_up is not None:
        by, name = change.faster
        yield f"{_FASTER[by].format(printable(name, 60))} {float(change.speed_up):g} times as fast"
    if change.no_launch_cost:
        yield "launching calls that take no time"
    if change.overlap_communication:
        yield "communication that nothing waits for"
    if change.no_host_waits:
        yield "calls that don't wait for the device"


def _step(step: Step) -> dict[str, object]:
    return {
        "step_id": step.step_id, "device_id": step.device_id, "start_ns": step.start_ns, "end_ns": step.end_ns,
    }  # fmt: skip


def _lines(columns: dict[str, bool], cells: list[list[str]]) -> list[str]:
    return text_table(columns, cells).split("\n")
