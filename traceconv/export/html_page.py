"""A run as one HTML page to read and to pass on: pictures, advice and the first rows of each report.

The page loads nothing, and its only script is ours: the page's policy names its hash. Text of the trace is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from pathlib import Path

import duckdb

from traceconv.analysis.advice import advise
from traceconv.analysis.advice_text import html_text
from traceconv.base.errors import UsageError
from traceconv.export.flame_graph import LEGEND as FLAME_LEGEND
from traceconv.export.flame_graph import device_and_host_nodes, flame_graph
from traceconv.export.html_charts import (
    LEGEND,
    MOST_BARS,
    MOST_DEVICES,
    MOST_STEPS,
    Spent,
    bars,
    columns,
    over_time,
    spent_by_device,
    spent_by_step,
)
from traceconv.export.output import CountedFile, open_output
from traceconv.export.registry import Written
from traceconv.reports.catalog import Report, reports
from traceconv.reports.columns import find_columns
from traceconv.reports.fetch import reading
from traceconv.reports.html_document import end, filter_field, head, text
from traceconv.reports.no_rows import why_empty
from traceconv.reports.question import Question
from traceconv.reports.render import Row, Table, aligned_headings, human_rows
from traceconv.reports.result import html_table
from traceconv.reports.run import answer
from traceconv.reports.run_choice import run_origins
from traceconv.reports.values import human_duration

#: Reports that are open at first, above the others.
_OPEN = ("idle_causes", "kernels", "modules", "range_statistic", "collectives", "stragglers", "memory_peak")
#: Shown elsewhere: in the pictures, above them, and by other reports; or of no use for a single run.
_ELSEWHERE = ("breakdown", "run_summary", "trust", "trend")
_LARGEST_TOP = 10_000


@dataclass(frozen=True, slots=True)
class _Answer:
    """The first rows of a report, or why it has none."""

    report: Report
    table: str
    row_count: int
    more: bool
    empty: str = ""


def export_html(connection: duckdb.DuckDBPyConnection, run_id: int, output: Path | None, *, top: int = 50) -> Written:
    """Write a run as an HTML page to `output` (None: standard output; compressed if it ends in .gz).

    top  rows of each report

    Raises UsageError for a number of rows that no page should have, OutputError if the file can't be written.
    """
    if not 1 <= top <= _LARGEST_TOP:
        raise UsageError(f"top must be from 1 to {_LARGEST_TOP}, not {top}")
    counts = {"reports": 0, "rows": 0}
    with open_output(output) as file, reading():
        counted = CountedFile(file)
        for part in _page(connection, run_id, top, counts):
            counted.write(part.encode())
    return Written(counts, counted.size_bytes)


def _page(connection: duckdb.DuckDBPyConnection, run_id: int, top: int, counts: dict[str, int]) -> Iterator[str]:
    [(label, model, path, form, writer, span_ns, complete)] = connection.execute(
        "SELECT label, model_name, source_path, source_format, writer, TRY(end_ns - start_ns), complete "
        "FROM run WHERE run_id = ?",
        [run_id],
    ).fetchall()
    yield head(str(label))
    facts = [
        ("model", model), ("source", Path(path or "").name), ("format", form), ("written by", writer),
        ("span", None if span_ns is None else human_duration(span_ns)), *_counts(connection, run_id),
    ]  # fmt: skip
    yield (
        "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{text(fact)}</dd></div>" for name, fact in facts if fact) + "</dl>"
    )
    yield _losses(connection, run_id, top, complete=complete)
    devices, steps = spent_by_device(connection, run_id), spent_by_step(connection, run_id)
    if devices:
        yield f"<h2>Where the time of devices goes</h2><p>{LEGEND}</p>"
        yield f"{_omitted(devices, MOST_BARS)}{bars(devices)}"
        yield f"<h3>Over time</h3>{_omitted(devices, MOST_DEVICES)}{over_time(connection, run_id, devices)}"
        if steps:
            yield f"<h3>By step</h3>{_omitted(devices, MOST_DEVICES)}"
            if len(steps) > MOST_STEPS // 2:
                yield f"<p><small>Of more than {MOST_STEPS} steps of a device, each column is the longest of a group "
                yield "of consecutive ones.</small></p>"
            yield columns(steps)
        yield f"<h2>What could be faster</h2>{html_text(advise(connection, run_id))}"
    yield from _flame_graphs(connection, run_id)
    names = [*_OPEN, *(name for name in reports() if name not in (*_OPEN, *_ELSEWHERE))]
    yield f"<h2>Reports</h2>{filter_field()}"
    empty = []
    for name in names:
        found = _answer(connection, run_id, reports()[name], top)
        if found.empty:
            empty.append(f"<li>{text(found.empty)}</li>")
            continue
        counts["reports"] += 1
        counts["rows"] += found.row_count
        yield _section(found)
    yield f"<details><summary>Reports without rows</summary><ul>{''.join(empty)}</ul></details>" if empty else ""
    yield end("traceconv export html")


def _flame_graphs(connection: duckdb.DuckDBPyConnection, run_id: int) -> Iterator[str]:
    device, host = map(flame_graph, device_and_host_nodes(connection, run_id))
    if host:
        yield f"<h2>Flame graphs</h2><p>A click on a box widens it. {FLAME_LEGEND}</p>"
        yield f"<h3>Time of devices, by what launched it</h3>{device}" if device else ""
        yield f"<h3>Time of the host</h3>{host}"


def _omitted(devices: Sequence[Spent], most: int) -> str:
    """Say that a picture doesn't show all devices."""
    return f"<p><small>The first {most} of {len(devices):,} devices.</small></p>" if len(devices) > most else ""


def _counts(connection: duckdb.DuckDBPyConnection, run_id: int) -> Iterator[tuple[str, str]]:
    """Yield the numbers of tasks and the like, and the names of devices."""
    for name, sql in (
        ("tasks", "SELECT count(*) FROM task WHERE run_id = ? AND kind IS DISTINCT FROM 'sync'"),
        ("steps", "SELECT count(DISTINCT step_id) FROM step WHERE run_id = ?"),
    ):
        [(count,)] = connection.execute(sql, [run_id]).fetchall()
        yield name, f"{count:,}" if count else ""
    found = connection.execute(
        "SELECT coalesce(name, kind, 'unknown'), count(*) FROM device WHERE run_id = ? AND device_id >= 0 "
        "GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 5",
        [run_id],
    ).fetchall()
    yield "devices", ", ".join(f"{count:,} × {name}" for name, count in found)


def _losses(connection: duckdb.DuckDBPyConnection, run_id: int, top: int, *, complete: bool | None) -> str:
    """Say what the import lost, and what the profiler lost or distorted (trust)."""
    lines = [] if complete is not False else ["The recording did not finish, or could not be read completely."]
    lost = connection.execute(
        "SELECT code, severity, sum(event_count) FROM import_log WHERE run_id = ? AND severity <> 'info' "
        "GROUP BY 1, 2 ORDER BY 2, 1",
        [run_id],
    ).fetchall()
    lines += [f"{severity}: {code}" + (f", {events:,} events" if events else "") for code, severity, events in lost]
    doubts = _answer(connection, run_id, reports()["trust"], top)
    if not lines and doubts.empty:
        return ""
    shown = "".join(f"<p>{text(line)}</p>" for line in lines)
    return f'<section class="losses"><h2>What was lost or distorted</h2>{shown}{doubts.table}</section>'


def _answer(connection: duckdb.DuckDBPyConnection, run_id: int, report: Report, top: int) -> _Answer:
    """Ask for all rows in the report's own order, or the largest ones first if there are more than `top`."""
    shown = find_columns(report, list(report.shown))
    measure = find_columns(report, [] if report.measure is None else [report.measure])
    asked = (*shown, *measure)
    question = Question(report, {"run": run_id}, asked, (run_id,), top=top + 1, own_order=True)
    rows: list[Row] = [row for batch in answer(connection, question) for row in batch]
    if not rows:
        return _Answer(report, "", 0, False, why_empty(connection, question))
    more = len(rows) > top
    if more and measure and report.is_listed:
        rows.remove(min(rows, key=lambda row: (row[-1] is not None, row[-1])))
    elif more and measure:
        known = [row for row in rows if row[-1] is not None]
        known.sort(key=itemgetter(-1), reverse=True)
        rows = known + [row for row in rows if row[-1] is None]
    rows = [row[: len(shown)] for row in rows[:top]]
    cells = human_rows(Table(shown, (), run_origins(connection, (run_id,))), rows)
    titles = aligned_headings(shown)
    bars_of = next((title for title, column in zip(titles, shown, strict=True) if column in measure), None)
    table = html_table("", titles, cells, values=rows, measure=bars_of)
    return _Answer(report, table, len(rows), more)


def _section(found: _Answer) -> str:
    report = found.report
    name = report.name.replace("_", "-")
    count = f"the first {found.row_count:,} rows" if found.more else f"{found.row_count:,} rows"
    opened = " open" if report.name in _OPEN else ""
    all_rows = f"<p>All rows: <code>traceconv report {name}</code></p>" if found.more else ""
    return (
        f'<details id="{name}"{opened}><summary>{escape(report.title)} <small>{name}, {count}</small></summary>'
        f"<p>{escape(report.doc)}</p>{found.table}{all_rows}</details>"
    )
