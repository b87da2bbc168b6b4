"""A comparison as an HTML page: how the changes of ops, overlap and idle time lead from one step to the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from traceconv.analysis.comparison import Change, Comparison
from traceconv.analysis.comparison_text import heading, op_labels, ops_table, signed
from traceconv.reports.html_document import end, filter_field, head, text
from traceconv.reports.render import Table, aligned_headings, human_rows
from traceconv.reports.result import html_table
from traceconv.reports.svg import chart, decimal, label, line, percent, rect, ticks, time_unit
from traceconv.reports.values import human_duration

#: Ops with a bar of their own.
_BARS = 15
#: Rows of the table by default.
SHOWN_OPS = 200

# In tenths of a pixel.
_ROW, _BAR, _AXIS = 220, 150, 200
#: Part of the width for bars, in percent: the rest is for the last one's amount.
_PLOT = 80
#: Columns of the table that come first; those without values are left out.
_FIRST = ("name", "status", "base_ns", "new_ns", "change_ns", "change_percent", "low_ns", "high_ns")


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar from start_ns to end_ns. interval_ns: where its end may be, with a confidence of 95 %."""

    name: str
    css: str
    start_ns: int
    end_ns: int
    amount: str
    interval_ns: tuple[int, int] | None = None


def page(comparison: Comparison, top: int = SHOWN_OPS) -> Iterator[str]:
    """Yield an HTML page with the summary, a waterfall of the changes, and a table of `top` ops."""
    first, *rest = heading(comparison)
    yield head(f"{comparison.base.name} → {comparison.new.name}")
    verdict = "" if comparison.limit_percent is None else "losses" if comparison.failed else "passed"
    facts = "".join(f"<p>{text(one)}</p>" for one in rest)
    yield f'<section class="{verdict}"><p><b>{text(first)}</b></p>{facts}</section>'
    yield "<h2>What changed</h2><p><small>From the mean step of the base to that of the new run; the bars add up "
    yield f"exactly. Lines: 95 % intervals.</small></p>{_waterfall(list(_bars(comparison)), comparison.base.unit)}"
    yield f"<h2>Ops</h2>{filter_field()}{_ops(comparison, top)}"
    yield end("traceconv compare")


def _bars(comparison: Comparison) -> Iterator[_Bar]:
    at_ns = comparison.step.base_ns
    yield _Bar("base", "c0", 0, at_ns, human_duration(at_ns))
    shown = [op for op in comparison.ops[:_BARS] if op.time.change_ns]
    others = [op.time.change_ns for op in comparison.ops[len(shown) :] if op.time.change_ns]
    changes = [*zip(op_labels(shown), [op.time for op in shown], strict=True)]
    if others:
        changes.append((f"{len(others):,} other ops", Change(0, sum(others), None, None)))
    changes += [(name, change) for name, change in comparison.parts.items() if name in ("overlap", "idle")]
    for name, change in changes:
        if change.change_ns:
            low_ns, high_ns = change.low_ns, change.high_ns
            interval_ns = None if low_ns is None or high_ns is None else (at_ns + low_ns, at_ns + high_ns)
            css = "c1" if change.change_ns > 0 else "c5"
            yield _Bar(name, css, at_ns, at_ns + change.change_ns, signed(change.change_ns), interval_ns)
            at_ns += change.change_ns
    yield _Bar("new", "c0", 0, at_ns, human_duration(at_ns))


def _waterfall(bars: Sequence[_Bar], unit: str) -> str:
    """Draw a bar per change, each from where the one above ends."""
    points = [bars[0].end_ns, bars[-1].end_ns]
    for bar in bars[1:-1]:
        points += (bar.start_ns, bar.end_ns, *(bar.interval_ns or ()))
    first_ns, last_ns = min(points), max(points) + 1
    if first_ns > 0:  # Changes of some percent would be too small to see from 0 on.
        first_ns = first_ns - (last_ns - first_ns) // 4 if first_ns * 2 > last_ns else 0

    def across(ns: int) -> str:
        return percent((max(ns, first_ns) - first_ns) * _PLOT, (last_ns - first_ns) * 100)

    scale, unit_name = time_unit(last_ns)
    marks = [(across(tick), f"{decimal(tick, scale)} {unit_name}") for tick in ticks(first_ns, last_ns, 5)]
    grid = "".join(line(x, 0, x, _ROW, "t") for x, _ in marks)
    rows = []
    for bar in bars:
        low_ns, high_ns = sorted((max(bar.start_ns, first_ns), max(bar.end_ns, first_ns)))
        width = percent((high_ns - low_ns) * _PLOT, (last_ns - first_ns) * 100)
        drawn = [grid, rect(across(low_ns), 0, width, _BAR, bar.css, f"{text(bar.name)}&#10;{bar.amount}")]
        if bar.interval_ns is not None:
            ends = [across(ns) for ns in bar.interval_ns]
            drawn.append(line(ends[0], _BAR // 2, ends[1], _BAR // 2, "w"))
            high_ns = max(high_ns, *bar.interval_ns)
        drawn.append(label(across(high_ns), 115, f"&#160;{bar.amount}"))
        rows.append((text(bar.name), "".join(drawn), _ROW))
    rows.append(("", "".join(label(x, 140, name, "m", anchor="middle") for x, name in marks), _AXIS))
    note = "" if first_ns <= 0 else "<p><small>The axis doesn't start at 0.</small></p>"
    return f"{chart(rows, f'Changes of the {unit}')}{note}"


def _ops(comparison: Comparison, top: int) -> str:
    table = ops_table(comparison)
    rows = table.rows()
    names = [*_FIRST, *(name for name in table.names if name not in _FIRST)]
    places = [table.names.index(name) for name in names]
    places = [place for place in places if any(row[place] not in (None, "") for row in rows)]
    columns = tuple(table.columns[place] for place in places)
    shown = [[row[place] for place in places] for row in rows[:top]]
    if not shown:
        return ""
    cells = human_rows(Table(columns, ()), shown)
    made = html_table("", aligned_headings(columns), cells, values=shown, measure="change")
    left = f"<p>{len(rows) - top:,} more ops with smaller changes</p>" if len(rows) > top else ""
    return f'<details id="ops" open><summary>{len(shown):,} ops</summary>{made}{left}</details>'
