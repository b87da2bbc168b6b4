"""Advice as text, Markdown, HTML, JSON, and rows of a table."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from traceconv.analysis.advice import VERSION, Advice, Finding
from traceconv.analysis.advice_of_runs import AdviceOfRuns, CommonFinding
from traceconv.base.errors import option
from traceconv.reports.render import Table, markdown_table, markdown_text
from traceconv.reports.result import html_table, shortened, text_table
from traceconv.reports.values import human_duration
from traceconv.store.documented_sql import SqlColumn

_WIDTH = 80
_NOTE = "Savings may overlap, so they don't add up. Percentages are of the time of the device."
_NOTE_OF_RUNS = """\
Savings are sums over the runs that have the finding, and may overlap. Percentages are of the time of their devices."""
#: Runs that a finding names.
_NAMED_RUNS = 8
_COLUMNS = {
    "rule": ("VARCHAR", "text", "Name of the rule."),
    "title": ("VARCHAR", "text", "What was found."),
    "device_id": ("BIGINT", "id", "Device; NULL if unknown."),
    "saving_ns": ("BIGINT", "ns", "Time in the run that a fix could save."),
    "saving_percent": (
        "DOUBLE",
        "percent",
        "The same in percent of the time of the device, from its first to its last task.",
    ),
    "basis": ("VARCHAR", "enum", "upper bound or estimate."),
    "count": ("BIGINT", "count", "Gaps, tasks or calls concerned."),
    "subjects": ("VARCHAR", "text", "What takes most of it, joined by ', '."),
    "how": ("VARCHAR", "text", "How saving_ns is computed."),
    "suggestion": ("VARCHAR", "text", "What to try."),
    "evidence": ("VARCHAR", "text", "SQL that shows it."),
    "caveats": ("VARCHAR", "text", "Losses of the profiler that affect it, joined by ', '; NULL if none."),
}


def findings_table(advice: Advice | AdviceOfRuns) -> Table:
    """Return a row per finding, with all columns; of several runs, the first one is run_id."""
    columns = [SqlColumn(name, *rest) for name, rest in _COLUMNS.items()]
    rows = [
        [run.run_id, *(", ".join(one) or None if isinstance(one, tuple) else one for one in _values(found))]
        for run in (advice.runs if isinstance(advice, AdviceOfRuns) else (advice,))
        for found in run.findings
    ]
    if isinstance(advice, AdviceOfRuns):
        return Table((SqlColumn("run_id", "BIGINT", "id", "Run."), *columns), [rows])
    return Table(tuple(columns), [[row[1:] for row in rows]])


def as_dict(advice: Advice) -> dict[str, object]:
    """Return the JSON document."""
    names = tuple(_COLUMNS)
    return {
        "version": VERSION,
        "run": {"run_id": advice.run_id, "label": advice.label},
        "devices": [{"device_id": device, "window_ns": ns} for device, ns in advice.devices.items()],
        "findings": [
            {name: list(one) if isinstance(one, tuple) else one for name, one in zip(names, values, strict=True)}
            for values in map(_values, advice.findings)
        ],
    }


def _values(finding: Finding) -> list[object]:
    return [getattr(finding, name) for name in _COLUMNS]


@dataclass(frozen=True, slots=True)
class _Page:
    """What all formats show. `items`: of each finding, its title, its details and a query as evidence."""

    heading: list[str]
    note: str
    columns: dict[str, bool]
    rows: list[list[str]]
    items: list[tuple[str, list[str], str]]


def text_lines(advice: Advice | AdviceOfRuns) -> Iterator[str]:
    """Yield the findings as a table, then each with its details, in at most 80 columns."""
    page = _page(advice)
    yield from page.heading
    if not page.items:
        return
    yield ""
    yield from text_table(page.columns, page.rows).split("\n")
    yield ""
    yield from textwrap.wrap(page.note, _WIDTH)
    for number, (title, details, _) in enumerate(page.items, 1):
        yield ""
        yield from textwrap.wrap(f"{number}. {title}", _WIDTH, subsequent_indent="   ")
        for text in details:
            yield from textwrap.wrap(text, _WIDTH, initial_indent="   ", subsequent_indent="   ")
    yield ""
    yield f"For the queries that show them: {option('--format markdown or json', 'evidence of each of `findings`')}"


def markdown_lines(advice: Advice | AdviceOfRuns) -> Iterator[str]:
    """Yield the same as Markdown."""
    page = _page(advice)
    yield f"### {markdown_text(page.heading[0])}"
    for line in page.heading[1:]:
        yield ""
        yield markdown_text(line)
    if not page.items:
        return
    yield ""
    yield from markdown_table(page.columns, page.rows)
    yield ""
    yield page.note
    for number, (title, details, evidence) in enumerate(page.items, 1):
        yield ""
        yield f"{number}. **{markdown_text(title)}**"
        for text in details:
            yield f"   - {markdown_text(text)}"
        yield f"   - `{evidence}`"


def html_text(advice: Advice | AdviceOfRuns) -> str:
    """Return the same as HTML, for notebooks."""
    page = _page(advice)
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in page.heading)
    if not page.items:
        return lines
    items = "".join(
        f"<li><b>{html.escape(title)}</b><br>"
        + "<br>".join(html.escape(text) for text in details)
        + f"<details><summary>query that shows it</summary><code>{html.escape(evidence)}</code></details></li>"
        for title, details, evidence in page.items
    )
    return lines + html_table("findings", page.columns, page.rows) + f"<p>{page.note}</p><ol>{items}</ol>"


def _page(advice: Advice | AdviceOfRuns) -> _Page:
    return _page_of_runs(advice) if isinstance(advice, AdviceOfRuns) else _page_of_run(advice)


def _page_of_run(advice: Advice) -> _Page:
    devices = ", ".join(
        f"device {'-' if device is None else device}: {human_duration(ns)}" for device, ns in advice.devices.items()
    )
    heading = [
        f"run {advice.run_id} ({shortened(advice.label, 40)}), {_counted(len(advice.findings), 'finding')}",
        devices
        or "no device has tasks with start times, and all rules are about devices; the reports summary and op-tree "
        "show what takes the host's time",
    ]
    columns = {"": True, "finding": False, "device": True, "saving": True, "%": True, "basis": False, "count": True}
    rows = [
        [
            str(number), one.rule, "-" if one.device_id is None else str(one.device_id), human_duration(one.saving_ns),
            f"{one.saving_percent:.1f}", one.basis, f"{one.count:,}",
        ]
        for number, one in enumerate(advice.findings, 1)
    ]  # fmt: skip
    items = [(one.title + _where(one), list(_details(one)), one.evidence) for one in advice.findings]
    return _Page(heading, _NOTE, columns, rows, items)


def _page_of_runs(advice: AdviceOfRuns) -> _Page:
    heading = [f"{_counted(len(advice.runs), 'run')}, {_counted(len(advice.findings), 'finding')}"]
    if idle := sum(not run.devices for run in advice.runs):
        heading.append(f"{_counted(idle, 'run')} without tasks with start times: all rules are about devices")
    columns = {"": True, "finding": False, "runs": True, "saving": True, "%": True, "most": True, "of run": False}
    rows = [
        [
            str(number), one.rule, str(len(one.run_ids)), human_duration(one.saving_ns), f"{one.saving_percent:.1f}",
            f"{one.largest.saving_percent:.1f}", f"{one.run_ids[0]} ({shortened(advice.names[one.run_ids[0]], 20)})",
        ]
        for number, one in enumerate(advice.findings, 1)
    ]  # fmt: skip
    items = [
        (one.largest.title, list(_details_of_runs(one, len(advice.runs))), one.largest.evidence)
        for one in advice.findings
    ]
    return _Page(heading, _NOTE_OF_RUNS, columns, rows, items)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _where(finding: Finding) -> str:
    return "" if finding.device_id is None else f" (device {finding.device_id})"


def _details_of_runs(finding: CommonFinding, run_count: int) -> Iterator[str]:
    rest = len(finding.run_ids) - _NAMED_RUNS
    named = ", ".join(map(str, finding.run_ids[:_NAMED_RUNS])) + (f" and {rest} more" if rest > 0 else "")
    yield "In all runs" if len(finding.run_ids) == run_count else f"In {_counted(len(finding.run_ids), 'run')}: {named}"
    yield from _details(finding.largest)


def _details(finding: Finding) -> Iterator[str]:
    if finding.subjects:
        yield "Mostly: " + ", ".join(shortened(subject, 60) for subject in finding.subjects)
    yield f"Saving: {finding.how}"
    yield f"Try: {finding.suggestion}"
    if finding.caveats:
        yield f"Caution, the trace is incomplete. Report trust finds {', '.join(finding.caveats)}"
