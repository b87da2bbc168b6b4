"""The findings of the report trust: SQL files with a header per finding, which become one query.

    -- [finding.lost_flows]
    -- doc = "Tasks with a launch to which no flow leads, in PyTorch traces with such flows."
    -- count = "tasks"
    -- total = "tasks with a launch"
    -- reports = "exports (arrows)"
    SELECT f.run_id, 'lost_flows', NULL, …

A query returns run, finding, place, count, total and affected time. It can read the first CTEs of trust.sql. Further
keys are affected, which says what that time is, and heuristic = true.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from traceconv.schema.ddl import quote_text
from traceconv.store.documented_sql import (
    Finding,
    SqlFolder,
    check_keys,
    header_and_query,
    required_sentence,
    required_text,
)


class _Part(NamedTuple):
    findings: tuple[Finding, ...]
    query: str


@cache
def _parts() -> Mapping[str, _Part]:
    return SqlFolder(resources.files("traceconv.reports") / "sql" / "trust", _parse)


def trust_findings() -> tuple[Finding, ...]:
    """Return the findings by name."""
    return tuple(sorted((one for part in _parts().values() for one in part.findings), key=lambda one: one.name))


def findings_query() -> str:
    """Return a query with the rows of all findings, and the reports that each affects."""
    return "\nUNION ALL\n".join(_with_reports(part) for part in _parts().values())


def _with_reports(part: _Part) -> str:
    cases = " ".join(f"WHEN '{one.name}' THEN {quote_text(one.reports)}" for one in part.findings)
    columns = "run_id, finding, place, count, total, affected"
    return f"SELECT *, CASE finding {cases} END AS reports FROM (\n{part.query}\n) AS part ({columns})"  # noqa: S608 - ours


def _parse(name: str, text: str) -> _Part:
    """Parse a file. Raises HeaderError."""
    raw, query = header_and_query(name, text, frozenset({"finding"}))
    return _Part(tuple(_finding(key, entry, f"{name}.{key}") for key, entry in raw["finding"].items()), query)


def _finding(name: str, entry: Mapping[str, Any], where: str) -> Finding:
    check_keys(entry, frozenset({"doc", "count", "reports", "total", "affected", "heuristic"}), where)
    return Finding(
        name,
        required_sentence(entry, "doc", where),
        required_text(entry, "count", where),
        required_text(entry, "reports", where),
        entry.get("total"),
        entry.get("affected"),
        entry.get("heuristic") is True,
    )
