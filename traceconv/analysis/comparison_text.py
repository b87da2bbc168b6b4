"""A comparison as text, Markdown, HTML, JSON, and rows of a table."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from traceconv.analysis.comparison import VERSION, Change, Comparison, OpChange, RunSummary
from traceconv.base.errors import printable
from traceconv.reports.render import Table, markdown_table, markdown_text
from traceconv.reports.result import html_table, shortened, text_table
from traceconv.reports.short_names import LONGEST_NAME, distinct
from traceconv.reports.values import Cell, human_duration
from traceconv.store.documented_sql import SqlColumn

#: Rows of a table for people.
SHOWN_OPS = 15
_WIDTH = 80
#: Width of the names of ops, so that the table has 80 columns.
_OP_WIDTH = 32
#: Of the names without shapes, before both are shortened.
_NAME_WIDTH = 80
_COLUMNS = {
    "status": ("VARCHAR", "enum", "matched, new or vanished."),
    "paired_by": ("VARCHAR", "enum", "Rule that paired it; NULL if it is not matched."),
    "name": ("VARCHAR", "text", "Op, or operator that launched the kernels."),
    "op_type": ("VARCHAR", "text", "Op type; NULL if unknown, and for operators."),
    "kind": ("VARCHAR", "enum", "compute, copy or collective; NULL if unknown."),
    "scope": ("VARCHAR", "text", "Modules around it; NULL if unknown."),
    "path": ("VARCHAR", "text", "Operators that launched it, outermost first; NULL if unknown."),
    "base_shapes": ("VARCHAR", "text", "Input shapes in the base; NULL if unknown."),
    "new_shapes": ("VARCHAR", "text", "Input shapes in the new run; NULL if unknown."),
    "base_kernels": ("VARCHAR", "text", "Short names of an operator's kernels with the most time."),
    "new_kernels": ("VARCHAR", "text", "The same in the new run."),
    "base_count": ("BIGINT", "count", "Executions in the compared steps."),
    "new_count": ("BIGINT", "count", "The same in the new run."),
    "base_total_ns": ("BIGINT", "ns", "Sum of their durations inside the steps."),
    "new_total_ns": ("BIGINT", "ns", "The same in the new run."),
    "base_ns": ("BIGINT", "ns", "Mean per step and device; all rows and parts add up to the step."),
    "new_ns": ("BIGINT", "ns", "The same in the new run."),
    "base_p50_ns": ("BIGINT", "ns", "Median over steps."),
    "new_p50_ns": ("BIGINT", "ns", "The same in the new run."),
    "change_ns": ("BIGINT", "ns", "new_ns − base_ns."),
    "low_ns": ("BIGINT", "ns", "Lower end of its 95 % interval; NULL with one step."),
    "high_ns": ("BIGINT", "ns", "Upper end of its 95 % interval; NULL with one step."),
    "change_percent": ("DOUBLE", "percent", "100 change_ns / base_ns; NULL if that is 0."),
    "significant": ("BOOLEAN", "flag", "Whether the interval excludes 0; NULL with one step."),
}


def ops_table(comparison: Comparison) -> Table:
    """Return a row per op, with all columns."""
    columns = tuple(SqlColumn(name, *rest) for name, rest in _COLUMNS.items())
    return Table(columns, [[list(_row(op).values()) for op in comparison.ops]])


def as_dict(comparison: Comparison) -> dict[str, object]:
    """Return the JSON document."""
    return {
        "version": VERSION,
        "base": _run(comparison.base),
        "new": _run(comparison.new),
        "not_comparable": list(comparison.not_comparable),
        "step": {
            **_change(comparison.step),
            "p50_percent": comparison.p50_percent,
            "p50_interval_percent": _list(comparison.p50_interval),
            "busy_percent": comparison.busy_percent,
            "busy_interval_percent": _list(comparison.busy_interval),
            "slower_percent": comparison.slower_percent,
            "undisturbed_percent": comparison.undisturbed_percent,
            "disturbance": comparison.disturbance,
            "on_host": comparison.on_host,
        },
        "fail_over": {"limit_percent": comparison.limit_percent, "failed": comparison.failed},
        "parts": {name: _change(change) for name, change in comparison.parts.items()},
        "ops": [_row(op) for op in comparison.ops],
    }


def text_lines(comparison: Comparison, top: int = SHOWN_OPS) -> Iterator[str]:
    """Yield the summary, the parts of the step and the ops with the largest changes, in at most 80 columns."""
    for line in heading(comparison):
        yield from textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
    for columns, cells in (_parts(comparison), _ops(comparison, top)):
        if cells:
            yield ""
            yield from text_table(columns, cells).split("\n")
    yield from _more(comparison, top)


def markdown_lines(comparison: Comparison, top: int = SHOWN_OPS) -> Iterator[str]:
    """Yield the same as Markdown, for a pull request."""
    mark = ("✗ " if comparison.failed else "✓ ") if comparison.limit_percent is not None else ""
    first, *rest = heading(comparison)
    yield f"### {mark}{markdown_text(first)}"
    yield ""
    for line in rest:
        yield f"- {markdown_text(line)}"
    for columns, cells in (_parts(comparison), _ops(comparison, top)):
        if cells:
            yield ""
            yield from markdown_table(columns, cells)
    for line in _more(comparison, top):
        yield ""
        yield markdown_text(line)


def html_text(comparison: Comparison) -> str:
    """Return the same as HTML, for notebooks."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in heading(comparison))
    return lines + html_table("parts", *_parts(comparison)) + html_table("ops", *_ops(comparison, SHOWN_OPS))


def heading(comparison: Comparison) -> Iterator[str]:
    """Yield the change of the step, and what was compared."""
    unit = comparison.base.unit
    step = comparison.step
    percent = "" if step.percent is None else f" ({step.percent:+.2f} %)"
    yield f"{unit}: {human_duration(step.base_ns)} → {human_duration(step.new_ns)}, {signed(step.change_ns)}{percent}"
    for role, run in (("base", comparison.base), ("new", comparison.new)):
        yield f"{role}: {_described(run)}"
    if comparison.p50_interval is not None:
        yield f"median step: {_interval(comparison.p50_percent, comparison.p50_interval)}"
    if comparison.undisturbed_percent is not None:
        yield (
            f"undisturbed step: {comparison.undisturbed_percent:+.2f} %; the median step of the new run takes "
            f"{comparison.disturbance:.2f} × as long"
        )
    if comparison.busy_interval is not None and not comparison.on_host:
        yield f"busy time: {_interval(comparison.busy_percent, comparison.busy_interval)} of the step"
    for reason in comparison.not_comparable:
        yield f"compared anyway: {reason}"
    if comparison.limit_percent is not None:
        limit = comparison.limit_percent
        raised = comparison.raised_limit(limit)
        more = f", raised to {raised:.2f} % as steps of the new run are disturbed" if raised > limit + 0.005 else ""
        yield f"limit {limit:g} %{more}: " + ("exceeded" if comparison.failed else "not exceeded")


def _described(run: RunSummary) -> str:
    devices = ", ".join(dict.fromkeys(run.devices))
    count = f"{len(run.devices)} × " if len(run.devices) > 1 else ""
    steps = ""
    if run.unit == "step":
        steps = f", {run.steps:,} steps" + (f", {run.left_out:,} left out" if run.left_out else "")
    model = f", {printable(run.model_name, 30)}" if run.model_name else ""
    return f"{printable(run.name, 40)}{model} on {count}{printable(devices, 40)}{steps}"


def _interval(percent: float, ends: tuple[float, float]) -> str:
    return f"{percent:+.2f} % (95 % interval {ends[0]:+.2f} to {ends[1]:+.2f} %)"


def _parts(comparison: Comparison) -> tuple[dict[str, bool], list[list[str]]]:
    changes = {**comparison.parts, comparison.base.unit: comparison.step}
    columns = {"part": False, "base": True, "new": True, "change": True, "95 % interval": True}
    return columns, [[name, *_cells(change)] for name, change in changes.items()]


def _cells(change: Change) -> list[str]:
    interval = "-"
    if change.low_ns is not None and change.high_ns is not None:
        interval = f"{signed(change.low_ns)} … {signed(change.high_ns)}"
    return [human_duration(change.base_ns), human_duration(change.new_ns), signed(change.change_ns), interval]


def _ops(comparison: Comparison, top: int) -> tuple[dict[str, bool], list[list[str]]]:
    shown = [op for op in comparison.ops[:top] if op.time.change_ns]
    columns = {"op": False, "base": True, "new": True, "change": True, "": False}
    return columns, [[name, *_cells(op.time)[:3], _mark(op)] for op, name in zip(shown, op_labels(shown), strict=True)]


def op_labels(ops: Sequence[OpChange]) -> list[str]:
    """Return short names of ops with their first input shapes; where these are equal, with what they are called in."""
    names = [printable(op.name, LONGEST_NAME) for op in ops]
    different = distinct(names, _NAME_WIDTH, shortened)
    shapes = [printable((op.new_shapes or op.base_shapes or "").split(";")[0], 100) for op in ops]
    labels = [f"{different[name]} {shape}".rstrip() for name, shape in zip(names, shapes, strict=True)]
    groups: dict[str, list[int]] = {}
    for place, label in enumerate(labels):
        groups.setdefault(label, []).append(place)
    for label, places in groups.items():
        for place, around in zip(places, _callers([ops[place] for place in places]), strict=True):
            labels[place] = f"{label} in {printable(around, 100)}" if around else label
    short = distinct(labels, _OP_WIDTH, shortened)
    return [short[label] for label in labels]


def _callers(ops: Sequence[OpChange]) -> Sequence[str]:
    """Return the innermost operators or modules around ops that differ, "" if none do."""
    around = [[*(op.scope or "").split(" > "), *(op.path or "").split(" > ")[:-1]][::-1] for op in ops]
    columns = [column for column in zip_longest(*around, fillvalue="") if len(set(column)) > 1]
    return max(columns, key=lambda column: len(set(column)), default=[""] * len(ops))


def _mark(op: OpChange) -> str:
    """What is special about a row: it is in one run only, has other executions, or its change may be noise."""
    if op.status != "matched":
        return op.status
    if op.base_count != op.new_count:
        return f"{op.base_count:,}→{op.new_count:,}×"
    return "noise" if op.time.significant is False else ""


def _more(comparison: Comparison, top: int) -> Iterator[str]:
    left = sum(op.time.change_ns != 0 for op in comparison.ops[top:])
    same = sum(op.time.change_ns == 0 for op in comparison.ops)
    found = [f"{left:,} more ops with smaller changes"] * bool(left) + [f"{same:,} ops without a change"] * bool(same)
    if found:
        yield ", ".join(found)


def signed(ns: int) -> str:
    """Format a change."""
    return ("+" if ns > 0 else "") + human_duration(ns)


def _run(run: RunSummary) -> dict[str, object]:
    return {
        "name": run.name, "run_id": run.run_id, "model_name": run.model_name, "devices": list(run.devices),
        "unit": run.unit, "steps": run.steps, "left_out_steps": run.left_out, "mean_ns": run.mean_ns,
        "p50_ns": run.p50_ns,
    }  # fmt: skip


def _list(ends: tuple[float, float] | None) -> list[float] | None:
    return None if ends is None else list(ends)


def _change(change: Change) -> dict[str, object]:
    return {
        "base_ns": change.base_ns, "new_ns": change.new_ns, "change_ns": change.change_ns, "low_ns": change.low_ns,
        "high_ns": change.high_ns, "change_percent": change.percent, "significant": change.significant,
    }  # fmt: skip


def _row(op: OpChange) -> dict[str, Cell]:
    """Return the columns of an op, in their order."""
    changes = _change(op.time)
    found: dict[str, Cell] = {}
    for name in _COLUMNS:
        if name in ("base_kernels", "new_kernels"):
            found[name] = ", ".join(getattr(op, name)) or None
        else:
            found[name] = changes[name] if name in changes else getattr(op, name)
    return found
