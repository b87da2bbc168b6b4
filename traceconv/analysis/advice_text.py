"""Advice as text, Markdown, HTML, JSON, and rows of a table."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator

from traceconv.analysis.advice import VERSION, Advice, Finding
from traceconv.base.errors import option
from traceconv.reports.render import Table, markdown_table, markdown_text
from traceconv.reports.result import html_table, shortened, text_table
from traceconv.reports.values import human_duration
from traceconv.store.documented_sql import SqlColumn

_WIDTH = 80
_NOTE = "Savings may overlap, so they don't add up. Percentages are of the time of the device."
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


def findings_table(advice: Advice) -> Table:
    """Return a row per finding, with all columns."""
    columns = tuple(SqlColumn(name, *rest) for name, rest in _COLUMNS.items())
    rows = [
        [", ".join(value) or None if isinstance(value, tuple) else value for value in _values(one)]
        for one in advice.findings
    ]
    return Table(columns, [rows])


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


def text_lines(advice: Advice) -> Iterator[str]:
    """Yield the findings as a table, then each with its details, in at most 80 columns."""
    yield from _heading(advice)
    if not advice.findings:
        return
    yield ""
    yield from text_table(*_rows(advice.findings)).split("\n")
    yield ""
    yield from textwrap.wrap(_NOTE, _WIDTH)
    for number, one in enumerate(advice.findings, 1):
        yield ""
        yield from textwrap.wrap(f"{number}. {one.title}{_where(one)}", _WIDTH, subsequent_indent="   ")
        for text in _details(one):
            yield from textwrap.wrap(text, _WIDTH, initial_indent="   ", subsequent_indent="   ")
    yield ""
    yield f"Queries that show them: {option('--format markdown, or json', 'evidence of each of `findings`')}"


def markdown_lines(advice: Advice) -> Iterator[str]:
    """Yield the same as Markdown."""
    first, *rest = _heading(advice)
    yield f"### {markdown_text(first)}"
    for line in rest:
        yield ""
        yield markdown_text(line)
    if not advice.findings:
        return
    yield ""
    yield from markdown_table(*_rows(advice.findings))
    yield ""
    yield _NOTE
    for number, one in enumerate(advice.findings, 1):
        yield ""
        yield f"{number}. **{markdown_text(one.title + _where(one))}**"
        for text in _details(one):
            yield f"   - {markdown_text(text)}"
        yield f"   - `{one.evidence}`"


def html_text(advice: Advice) -> str:
    """Return the same as HTML, for notebooks."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in _heading(advice))
    if not advice.findings:
        return lines
    items = "".join(
        f"<li><b>{html.escape(one.title + _where(one))}</b><br>"
        + "<br>".join(html.escape(text) for text in _details(one))
        + f"<details><summary>query that shows it</summary><code>{html.escape(one.evidence)}</code></details></li>"
        for one in advice.findings
    )
    return lines + html_table("findings", *_rows(advice.findings)) + f"<p>{_NOTE}</p><ol>{items}</ol>"


def _heading(advice: Advice) -> Iterator[str]:
    devices = ", ".join(
        f"device {'-' if device is None else device}: {human_duration(ns)}" for device, ns in advice.devices.items()
    )
    count = len(advice.findings)
    yield f"run {advice.run_id} ({shortened(advice.label, 40)}), {count} finding{'s' if count != 1 else ''}"
    yield devices or "no device has tasks with start times, and all rules are about devices"


def _rows(findings: tuple[Finding, ...]) -> tuple[dict[str, bool], list[list[str]]]:
    columns = {"": True, "finding": False, "device": True, "saving": True, "%": True, "basis": False, "count": True}
    return columns, [
        [
            str(number), one.rule, "-" if one.device_id is None else str(one.device_id), human_duration(one.saving_ns),
            f"{one.saving_percent:.1f}", one.basis, f"{one.count:,}",
        ]
        for number, one in enumerate(findings, 1)
    ]  # fmt: skip


def _where(finding: Finding) -> str:
    return "" if finding.device_id is None else f" (device {finding.device_id})"


def _details(finding: Finding) -> Iterator[str]:
    if finding.subjects:
        yield "Mostly: " + ", ".join(shortened(subject, 60) for subject in finding.subjects)
    yield f"Saving: {finding.how}"
    yield f"Try: {finding.suggestion}"
    if finding.caveats:
        yield f"Caution, the trace is incomplete (trust): {', '.join(finding.caveats)}"
