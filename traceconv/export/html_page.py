"""A run, or several, as one HTML page to read and to pass on: pictures, advice and the first rows of each report.

The page loads nothing, and its only script is ours: the page's policy names its hash. Text of the trace is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from pathlib import Path

import duckdb

from traceconv.analysis.advice import advise
from traceconv.analysis.advice_of_runs import advise_all
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
from traceconv.export.one_clock import PlacedRun, on_one_clock
from traceconv.export.output import CountedFile, open_output
from traceconv.export.registry import Written
from traceconv.reports.catalog import Report, reports
from traceconv.reports.columns import find_columns
from traceconv.reports.fetch import reading
from traceconv.reports.html_document import end, filter_field, head, text
from traceconv.reports.no_rows import why_empty
from traceconv.reports.question import Question
from traceconv.reports.render import Row, Table, aligned_headings, human_rows
from traceconv.reports.result import html_table, shortened
from traceconv.reports.run import answer
from traceconv.reports.run_choice import in_runs, run_origins
from traceconv.reports.short_names import distinct
from traceconv.reports.values import human, human_duration

#: Reports that are open at first, above the others.
_OPEN = ("idle_causes", "kernels", "modules", "range_statistic", "collectives", "stragglers", "memory_peak")
#: The same for several runs.
_OPEN_OF_SEVERAL = ("late_ranks", "idle_causes", "kernels", "collectives", "collective_arrivals", "memory_peak")
#: Shown elsewhere: in the pictures, above them, and by other reports; or of no use for a single run.
_ELSEWHERE = ("breakdown", "run_summary", "trust")
_OF_SEVERAL = ("trend",)
_LARGEST_TOP = 10_000
#: Width of the names of runs in pictures, in characters.
_TITLE_WIDTH = 24
#: Names that are listed, of devices, models and the like.
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class _Answer:
    """The first rows of a report, or why it has none."""

    report: Report
    table: str
    row_count: int
    more: bool
    empty: str = ""


def export_html(
    connection: duckdb.DuckDBPyConnection, run_ids: int | Sequence[int], output: Path | None, *, top: int = 50
) -> Written:
    """Write a run, or several, as an HTML page to `output` (None: standard output; compressed if it ends in .gz).

    top  rows of each report

    Raises UsageError for a number of rows that no page should have, OutputError if the file can't be written.
    """
    if not 1 <= top <= _LARGEST_TOP:
        raise UsageError(f"top must be from 1 to {_LARGEST_TOP}, not {top}")
    runs = (run_ids,) if isinstance(run_ids, int) else tuple(run_ids)
    counts = {"reports": 0, "rows": 0}
    with open_output(output) as file, reading():
        counted = CountedFile(file)
        for part in _page(connection, runs, top, counts):
            counted.write(part.encode())
    return Written(counts, counted.size_bytes)


def _places(connection: duckdb.DuckDBPyConnection, runs: Sequence[int]) -> tuple[Sequence[PlacedRun], str]:
    """Return the names and offsets of runs in pictures, and what their times count from, for the heading.

    Runs that were not recorded at the same time begin together.
    """
    if len(runs) == 1:
        return [PlacedRun(runs[0], 0, "")], ""
    places, _ = on_one_clock(connection, runs)
    names = distinct([place.title for place in places], _TITLE_WIDTH, shortened)
    query = f"SELECT run_id, start_ns, end_ns FROM run WHERE start_ns IS NOT NULL AND {in_runs(runs)}"
    spans = {run_id: (start_ns, end_ns) for run_id, start_ns, end_ns in connection.execute(query).fetchall()}
    moved = [[ns + place.offset_ns for ns in spans[place.run_id]] for place in places if place.run_id in spans]
    if moved and max(start for start, _ in moved) <= min(end for _, end in moved):
        return [place._replace(title=names[place.title]) for place in places], ", on one clock"
    starts = {run_id: start_ns for run_id, (start_ns, _) in spans.items()}
    return [
        PlacedRun(place.run_id, -starts.get(place.run_id, 0), names[place.title]) for place in places
    ], ", from the start of each run"


def _page(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[int], top: int, counts: dict[str, int]
) -> Iterator[str]:
    places, clock = _places(connection, runs)
    labels, groups, models, paths, forms, writers, spans_ns, complete = zip(*connection.execute(
        "SELECT label, group_label, model_name, source_path, source_format, writer, TRY(end_ns - start_ns), complete "
        f"FROM run WHERE {in_runs(runs)} ORDER BY run_id"
    ).fetchall(), strict=True)  # fmt: skip
    of_job = len(runs) > 1 and len(set(groups)) == 1 and groups[0]
    yield head(_names(labels) if len(runs) == 1 else f"{f'{groups[0]}: ' if of_job else ''}{len(runs):,} runs")
    span_ns = max((one for one in spans_ns if one is not None), default=None)
    facts = [
        ("model", _names(models)), ("source", _names([Path(path or "").name for path in paths])),
        ("format", _names(forms)), ("written by", _names(writers)),
        ("span" if len(runs) == 1 else "longest span", "" if span_ns is None else human_duration(span_ns)),
        *_counts(connection, runs),
    ]  # fmt: skip
    yield (
        "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{text(fact)}</dd></div>" for name, fact in facts if fact) + "</dl>"
    )
    if len(runs) > 1:
        yield _runs_table(connection, places)
    yield _losses(connection, runs, top, incomplete=sum(one is False for one in complete))
    devices, steps = spent_by_device(connection, places), spent_by_step(connection, places)
    if devices:
        yield f"<h2>Where the time of devices goes</h2><p>{LEGEND}</p>"
        yield f"{_omitted(devices, MOST_BARS)}{bars(devices)}"
        yield f"<h3>Over time{clock}</h3>{_omitted(devices, MOST_DEVICES)}{over_time(connection, devices)}"
        if steps:
            yield f"<h3>By step</h3>{_omitted(devices, MOST_DEVICES)}"
            if max(Counter((one.run, one.device_id) for one in steps).values()) > MOST_STEPS // 2:
                yield f"<p><small>Of more than {MOST_STEPS} steps of a device, each column is the longest of a group "
                yield "of consecutive ones.</small></p>"
            yield columns(steps)
        advice = advise(connection, runs[0]) if len(runs) == 1 else advise_all(connection, runs)
        yield f"<h2>What could be faster</h2>{html_text(advice)}"
    opened, omitted = (_OPEN, (*_ELSEWHERE, *_OF_SEVERAL)) if len(runs) == 1 else (_OPEN_OF_SEVERAL, _ELSEWHERE)
    if len(runs) == 1:
        yield from _flame_graphs(connection, runs[0])
    names = [*opened, *(name for name in reports() if name not in (*opened, *omitted))]
    yield f"<h2>Reports</h2>{filter_field()}"
    empty = []
    for name in names:
        found = _answer(connection, runs, reports()[name], top)
        if found.empty:
            empty.append(f"<li>{text(found.empty)}</li>")
            continue
        counts["reports"] += 1
        counts["rows"] += found.row_count
        yield _section(found, is_open=name in opened)
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


def _names(names: Collection[str | None]) -> str:
    """Return the different names, or the first of them and how many more there are."""
    known = list(dict.fromkeys(filter(None, names)))
    more = f" and {len(known) - _MOST_NAMES:,} more" if len(known) > _MOST_NAMES else ""
    return ", ".join(known[:_MOST_NAMES]) + more


def _runs_table(connection: duckdb.DuckDBPyConnection, places: Sequence[PlacedRun]) -> str:
    """Show the runs by the names that they have in pictures, and the numbers that they have in reports."""
    titles = {place.run_id: place.title for place in places}
    rows = connection.execute(
        "SELECT run_id, label, host, source_path, TRY(end_ns - start_ns) FROM run "
        f"WHERE {in_runs(list(titles))} ORDER BY rank, run_id"
    ).fetchall()
    cells = [
        [str(run_id), titles[run_id], label, host or "-", Path(path or "-").name, human(span_ns, "ns")]
        for run_id, label, host, path, span_ns in rows
    ]
    headings = {"run_id": True, "run": False, "label": False, "host": False, "source": False, "span": True}
    opened = " open" if len(rows) <= MOST_DEVICES else ""
    return f"<details{opened}><summary>Runs</summary>{html_table('', headings, cells)}</details>"


def _counts(connection: duckdb.DuckDBPyConnection, runs: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield the numbers of tasks and the like, and the names of devices."""
    for name, sql in (
        ("tasks", f"SELECT count(*) FROM task WHERE {in_runs(runs)} AND kind IS DISTINCT FROM 'sync'"),
        ("steps", f"SELECT count(DISTINCT (run_id, step_id)) FROM step WHERE {in_runs(runs)}"),
    ):
        [(count,)] = connection.execute(sql).fetchall()
        yield name, f"{count:,}" if count else ""
    found = connection.execute(
        f"SELECT coalesce(name, kind, 'unknown'), count(*) FROM device WHERE {in_runs(runs)} AND device_id >= 0 "
        f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MOST_NAMES}"
    ).fetchall()
    yield "devices", ", ".join(f"{count:,} × {name}" for name, count in found)


def _losses(connection: duckdb.DuckDBPyConnection, runs: Sequence[int], top: int, *, incomplete: int) -> str:
    """Say what the import lost, and what the profiler lost or distorted (trust)."""
    which = "The recording" if len(runs) == 1 else f"{incomplete:,} recordings"
    lines = [f"{which} did not finish, or could not be read completely."] if incomplete else []
    lost = connection.execute(
        f"SELECT code, severity, sum(event_count) FROM import_log WHERE {in_runs(runs)} AND severity <> 'info' "
        "GROUP BY 1, 2 ORDER BY 2, 1"
    ).fetchall()
    lines += [f"{severity}: {code}" + (f", {events:,} events" if events else "") for code, severity, events in lost]
    doubts = _answer(connection, runs, reports()["trust"], top)
    if not lines and doubts.empty:
        return ""
    shown = "".join(f"<p>{text(line)}</p>" for line in lines)
    return f'<section class="losses"><h2>What was lost or distorted</h2>{shown}{doubts.table}</section>'


def _answer(connection: duckdb.DuckDBPyConnection, runs: Sequence[int], report: Report, top: int) -> _Answer:
    """Ask for all rows in the report's own order, or the largest ones first if there are more than `top`."""
    names = list(report.shown)
    if len(runs) > 1 and "run_id" not in names:
        names.insert(0, "run_id")
    shown = find_columns(report, names)
    measure = find_columns(report, [] if report.measure is None else [report.measure])
    asked = (*shown, *measure)
    parameters = {"run": runs[0]} if len(runs) == 1 else {}
    question = Question(report, parameters, asked, tuple(runs), top=top + 1, own_order=True)
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
    cells = human_rows(Table(shown, (), run_origins(connection, runs)), rows)
    titles = aligned_headings(shown)
    bars_of = next((title for title, column in zip(titles, shown, strict=True) if column in measure), None)
    table = html_table("", titles, cells, values=rows, measure=bars_of)
    return _Answer(report, table, len(rows), more)


def _section(found: _Answer, *, is_open: bool) -> str:
    report = found.report
    name = report.name.replace("_", "-")
    count = f"the first {found.row_count:,} rows" if found.more else f"{found.row_count:,} rows"
    opened = " open" if is_open else ""
    all_rows = f"<p>All rows: <code>traceconv report {name}</code></p>" if found.more else ""
    return (
        f'<details id="{name}"{opened}><summary>{escape(report.title)} <small>{name}, {count}</small></summary>'
        f"<p>{escape(report.doc)}</p>{found.table}{all_rows}</details>"
    )
