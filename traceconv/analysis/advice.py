"""What could make a run faster: findings by rules, each with its evidence in SQL and the time that a fix could save.

A rule is a file in `advice_rules`: a header and a query for the time to save.

    -- title = "The host launches too slowly"
    -- doc = "When the rule applies, what is counted, and what the heuristic can't see."
    -- saving = "How saving_ns is computed, and why it is an upper bound or an estimate."
    -- basis = "upper bound"
    -- suggestion = "What to try."
    -- reads = ["idle-gaps"]
    -- evidence = "FROM idle_gaps(run := $run, device := $device) WHERE …"
    SELECT device_id, host_name AS subject, host_wait_ns AS saving_ns, 1 AS count FROM advice_gap

Rows of the query are added by device and subject. It may read the store, reports called with `(run := $run)`, and the
temporary tables of this module: advice_device, advice_middle (between the first and the last compute task), advice_gap,
advice_pause, advice_idle and advice_task. Optional keys are `least_percent`, the saving below which a finding isn't
worth its line, and `only_if`, a query for whether to run it. Evidence has expressions for WITH: with `$pauses`, `pause`
has the idle times of the device, as advice_pause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TypeAlias

import duckdb

from traceconv.base.errors import UsageError, printable
from traceconv.base.integers import LARGEST
from traceconv.reports.catalog import define_report, reports
from traceconv.store.catalogue import define
from traceconv.store.documented_sql import (
    HeaderError,
    SqlFolder,
    guard_left_joins,
    header_and_query,
    required_sentence,
    required_text,
)

#: Version of the JSON document.
VERSION = 1
#: Savings below this share of the time of the device are omitted, unless the rule has another limit.
_LEAST_PERCENT = 3
#: Subjects that a finding names.
_NAMED_SUBJECTS = 3
_BASES = ("upper bound", "estimate")
_KEYS = frozenset(
    {"title", "doc", "saving", "basis", "suggestion", "reads", "evidence", "least_percent", "only_if"}
)  # fmt: skip
#: What replaces `$pauses` in evidence: the idle times of a device, as in advice_pause.
_PAUSES = (
    "pause AS (FROM (SELECT name AS task_name, max(start_ns + dur_ns) OVER (ORDER BY start_ns, id "
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS start_ns, task.start_ns AS end_ns, "
    "CASE WHEN submit_ns <= task.start_ns THEN TRY(task.start_ns - submit_ns) END AS delay_ns FROM task "
    "WHERE run_id = $run AND device_id IS NOT DISTINCT FROM $device AND kind IS DISTINCT FROM 'sync' "
    "AND dur_ns IS NOT NULL) WHERE start_ns < end_ns)"
)
#: A finding of the report trust: its name, what is lost, and the reports affected.
_Loss: TypeAlias = tuple[str, str, str]
_CALL = re.compile(r"\b([a-z_]+)\(run :=|\bFROM ([a-z_]+)\b")

# First start and last end of compute tasks; first and last end of tasks, and how many known devices they have.
_TIMES = """
SELECT coalesce(min(start_ns) FILTER (WHERE kind = 'compute'), 0),
       coalesce(max(end_ns) FILTER (WHERE kind = 'compute'), 1),
       coalesce(min(end_ns), 0), coalesce(max(end_ns), 0), count(DISTINCT device_id)
FROM (
  SELECT device_id, kind, start_ns, TRY(start_ns + dur_ns) AS end_ns
  FROM task
  WHERE run_id = ? AND kind IS DISTINCT FROM 'sync' AND dur_ns IS NOT NULL
)
"""
# Tables for the rules. advice_pause has all idle times of devices, advice_gap those of 10 µs or more. The latency of a
# device is the shortest time from a launch to the start of the task, except for 1 % of the tasks that end an idle time.
# A task can't start before its launch and this latency, so that an idle time up to then is the host's (host_ns), and
# the rest the device's (dispatch_ns).
_TABLES = {
    "advice_device": "SELECT device_id, window_ns, collective_ns, exposed_collective_ns FROM breakdown(run := $run)",
    "advice_middle": "SELECT device_id, window_ns, copy_ns, exposed_copy_ns "
    "FROM breakdown(run := $run, from_ns := $first, to_ns := $last)",
    "advice_gap": "FROM idle_gaps(run := $run)",
    "advice_pause": """
WITH sorted AS (
  -- Each device's times are shifted beyond those of the device before, so that one window finds the latest end so far
  -- of each. On sorted rows, whose order DuckDB promises to keep, it takes half as long as windows with an order.
  SELECT t.device_id, d.shift_ns, t.start_ns, t.submit_ns, TRY(t.start_ns + t.dur_ns) AS end_ns
  FROM task AS t
  JOIN (SELECT device_id, (row_number() OVER () - 1) * $shift AS shift_ns FROM advice_device) AS d
    ON d.device_id IS NOT DISTINCT FROM t.device_id
  WHERE t.run_id = $run AND t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL
  ORDER BY d.shift_ns, t.start_ns, t.id
), reached AS (
  SELECT device_id, start_ns, submit_ns, lag(latest) OVER () - shift_ns AS reached_ns
  FROM (SELECT *, max(end_ns + shift_ns) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS latest FROM sorted)
)
SELECT device_id, reached_ns::BIGINT AS start_ns, start_ns AS end_ns,
       CASE WHEN submit_ns <= start_ns THEN TRY(start_ns - submit_ns) END AS delay_ns
FROM reached
WHERE reached_ns < start_ns AND reached_ns >= $lowest
""",
    "advice_idle": """
SELECT device_id, count(*) FILTER (WHERE gap_ns + latency_ns > delay_ns) AS host_count,
       sum(greatest(0, least(gap_ns, gap_ns + latency_ns - delay_ns))) FILTER (WHERE delay_ns IS NOT NULL) AS host_ns,
       sum(least(gap_ns, greatest(0, delay_ns - latency_ns))) FILTER (WHERE delay_ns IS NOT NULL) AS dispatch_ns
FROM (
  SELECT p.device_id, TRY(p.end_ns - p.start_ns) AS gap_ns, p.delay_ns, l.latency_ns
  FROM advice_pause AS p
  JOIN (
    SELECT device_id, quantile_disc(delay_ns::HUGEINT, 0.01) AS latency_ns FROM advice_pause GROUP BY device_id
  ) AS l ON l.device_id IS NOT DISTINCT FROM p.device_id
)
WHERE gap_ns < 10000
GROUP BY device_id
""",
    "advice_kernel": """
WITH kernel AS (
  SELECT DISTINCT op_id, CASE WHEN op_id IS NULL THEN name END AS name
  FROM task
  WHERE run_id = $run AND kind = 'compute'
)
SELECT row_number() OVER () AS kernel_id, op_id, name, kernel_label(kernel) AS label,
       kernel_category(kernel) AS category
FROM (
  SELECT k.op_id, k.name, coalesce(kernel_name(o.name, o.op_type), k.name) AS kernel
  FROM kernel AS k
  LEFT JOIN op AS o ON o.run_id = $run AND o.op_id = k.op_id
)
""",
}
# Compute tasks that ended, with the label and category of their kernel.
_TASKS = """
SELECT t.device_id, t.stream_id, t.step_id, t.id, t.task_type, t.start_ns, t.dur_ns, t.block_count, t.args, k.kernel_id,
       k.label, k.category
FROM task AS t
JOIN advice_kernel AS k ON k.op_id IS NOT DISTINCT FROM t.op_id
  AND k.name IS NOT DISTINCT FROM CASE WHEN t.op_id IS NULL THEN t.name END
WHERE t.run_id = $run AND t.kind = 'compute' AND t.dur_ns IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of `advise`; the module's docstring has its file. `reads`: reports whose losses affect it."""

    name: str
    title: str
    doc: str
    saving: str
    basis: str
    suggestion: str
    reads: tuple[str, ...]
    evidence: str
    least_percent: int
    only_if: str | None
    body: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found on a device.

    rule            its name, such as "launch-bound"
    device_id       None if unknown
    saving_ns       time that a fix could save in the run: an upper bound or an estimate, as `basis` says
    saving_percent  of the device's time, from its first to its last task
    count           gaps, tasks or calls concerned
    subjects        names of what takes most of it: kernels, host functions; from the trace
    how             how saving_ns is computed
    suggestion      what to try
    evidence        SQL that shows it: `traceconv query`
    caveats         findings of the report trust that affect it
    """

    rule: str
    title: str
    device_id: int | None
    saving_ns: int
    saving_percent: float
    basis: str
    count: int
    subjects: tuple[str, ...]
    how: str
    suggestion: str
    evidence: str
    caveats: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Advice:
    """The findings of a run by their saving, largest first. Savings may overlap, so that they don't add up.

    devices  device_id → time from its first to its last task in ns
    """

    run_id: int
    label: str
    devices: dict[int | None, int]
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document: version 1, times in ns."""
        from traceconv.analysis.advice_text import as_dict

        return as_dict(self)

    def __repr__(self) -> str:
        from traceconv.analysis.advice_text import text_lines

        return "\n".join(text_lines(self))

    def _repr_html_(self) -> str:
        from traceconv.analysis.advice_text import html_text

        return html_text(self)


@cache
def advice_rules() -> Mapping[str, Rule]:
    """Return the rules by name, in alphabetical order."""
    return SqlFolder(resources.files("traceconv.analysis") / "advice_rules", parse_rule)


def parse_rule(name: str, text: str) -> Rule:
    """Parse a rule's file. Raises HeaderError."""
    raw, query = header_and_query(name, text, _KEYS)
    body = guard_left_joins(query, name)
    basis = required_text(raw, "basis", name)
    if basis not in _BASES:
        raise HeaderError(f"{name}: basis must be one of {', '.join(_BASES)}")
    return Rule(
        name=name.replace("_", "-"), title=required_text(raw, "title", name), doc=required_sentence(raw, "doc", name),
        saving=required_sentence(raw, "saving", name), basis=basis,
        suggestion=required_sentence(raw, "suggestion", name), reads=tuple(raw.get("reads", ())),
        evidence=required_text(raw, "evidence", name).replace("$pauses", _PAUSES),
        least_percent=int(raw.get("least_percent", _LEAST_PERCENT)),
        only_if=raw.get("only_if"), body=body,
    )  # fmt: skip


def advise(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    *,
    device: int | None = None,
    top: int | None = None,
    least_percent: float | None = None,
) -> Advice:
    """Apply all rules to a run, and return the findings, or those with the largest savings (`top`).

    least_percent  omit findings that save less of the time of the device; None: by the rule

    Raises UsageError for a device without tasks.
    """
    [advice] = advise_each(connection, [run_id], device=device, least_percent=least_percent)
    return replace(advice, findings=advice.findings[:top])


def advise_each(
    connection: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    *,
    device: int | None = None,
    least_percent: float | None = None,
) -> Iterator[Advice]:
    """Do it for each of some runs. What reports and rules need is defined once."""
    defined: set[str] = set()
    lost = _losses(connection, run_ids, defined)
    for run_id in run_ids:
        yield _advise(connection, run_id, device, least_percent, lost[run_id], defined)


def _advise(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    device: int | None,
    least_percent: float | None,
    lost: Sequence[_Loss],
    defined: set[str],
) -> Advice:
    label = connection.execute("SELECT label FROM run WHERE run_id = ?", [run_id]).fetchall()[0][0]
    _create_tables(connection, run_id, defined)
    windows: dict[int | None, int] = dict(
        connection.execute(
            "SELECT device_id, window_ns FROM advice_device WHERE window_ns > 0 ORDER BY device_id"
        ).fetchall()
    )
    if device is not None:
        if device not in windows:
            known = ", ".join(str(one) for one in windows if one is not None) or "none"
            raise UsageError(f"run {run_id} has no tasks on device {device}. Devices with tasks: {known}")
        windows = {device: windows[device]}
    found = [
        finding
        for rule in advice_rules().values()
        for finding in _apply(connection, rule, run_id, windows, lost, defined)
        if 100 * finding.saving_ns
        >= (rule.least_percent if least_percent is None else least_percent) * windows[finding.device_id]
    ]
    found.sort(key=lambda one: (-one.saving_ns, one.rule, -1 if one.device_id is None else one.device_id))
    return Advice(run_id, printable(str(label), 60), windows, tuple(found))


def _create_tables(connection: duckdb.DuckDBPyConnection, run_id: int, defined: set[str]) -> None:
    first, last, lowest, highest, devices = connection.execute(_TIMES, [run_id]).fetchall()[0]
    shift = highest - lowest + 1
    fits = max(highest, -lowest) + devices * shift <= LARGEST
    values = {
        "$first": f"{first:d}", "$last": f"{last:d}", "$lowest": f"{lowest:d}",
        "$shift": f"{shift:d}::{'BIGINT' if fits else 'HUGEINT'}",
    }  # fmt: skip
    for name, body in _TABLES.items():
        _define(connection, body, defined)
        sql = _of_run(body, run_id)
        for key, value in values.items():
            sql = sql.replace(key, value)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
    connection.execute(f"CREATE OR REPLACE TEMP VIEW advice_task AS {_of_run(_TASKS, run_id)}")


def _define(connection: duckdb.DuckDBPyConnection, sql: str, defined: set[str]) -> None:
    """Create the reports, views and functions that a query uses, for this connection, unless they are `defined`."""
    if sql in defined:
        return
    define(connection, sql)
    names = {one for match in _CALL.findall(sql) for one in match if one in reports()}
    for name in sorted(names - defined):
        define_report(connection, reports()[name])
    defined |= {sql, *names}


def _of_run(sql: str, run_id: int, device: int | None = None) -> str:
    shown = "NULL" if device is None else f"{device:d}"
    return sql.replace("$run", f"{run_id:d}").replace("$device", shown)


def _losses(
    connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int], defined: set[str]
) -> Mapping[int, Sequence[_Loss]]:
    """Return the findings of the report trust for each run: name, what is lost, and the reports affected."""
    _define(connection, "FROM trust(run := run)", defined)
    [(stored,)] = connection.execute("SELECT count(*) FROM run").fetchall()
    found: dict[int, list[_Loss]] = {run_id: [] for run_id in run_ids}
    for run in ["NULL"] if len(run_ids) == stored > 1 else run_ids:  # all at once takes little longer than one
        rows = connection.execute(
            f"SELECT run_id, finding, count, total_count, reports FROM trust(run := {run}) ORDER BY ALL"  # noqa: S608 - integer
        ).fetchall()
        for run_id, name, count, total, affected in rows:
            lost = f"{count:,}" + (f" of {total:,}" if total is not None else "")
            found[run_id].append((str(name), lost, str(affected)))
    return found


def _apply(
    connection: duckdb.DuckDBPyConnection,
    rule: Rule,
    run_id: int,
    windows: Mapping[int | None, int],
    lost: Sequence[_Loss],
    defined: set[str],
) -> Iterator[Finding]:
    """Yield the rule's finding for each device on which something can be saved."""
    if rule.only_if is not None and not connection.execute(_of_run(rule.only_if, run_id)).fetchall()[0][0]:
        return
    _define(connection, rule.body, defined)
    rows = connection.execute(
        f"""
        SELECT device_id, TRY_CAST(sum(saving) AS BIGINT), sum(items)::BIGINT,
               list(subject ORDER BY saving DESC, subject)
        FROM (
          SELECT device_id, subject, sum(saving_ns::HUGEINT) AS saving, sum(count) AS items
          FROM ({_of_run(rule.body, run_id)}
          ) GROUP BY device_id, subject
        ) GROUP BY device_id ORDER BY device_id
        """  # noqa: S608 - our own query, with an integer
    ).fetchall()
    for device, saving, count, subjects in rows:
        window = windows.get(device)
        if window is None or saving is None or saving <= 0:
            continue
        saving = min(saving, window)
        names = [printable(str(one), 200) for one in subjects if one is not None][:_NAMED_SUBJECTS]
        yield Finding(
            rule=rule.name, title=rule.title, device_id=device, saving_ns=saving, saving_percent=100 * saving / window,
            basis=rule.basis, count=count, subjects=tuple(names), how=rule.saving, suggestion=rule.suggestion,
            evidence=_of_run(rule.evidence, run_id, device),
            caveats=tuple(
                f"{name}: {text}"
                for name, text, affected in lost
                if affected == "all" or any(re.search(rf"\b{report}\b", affected) for report in rule.reads)
            ),
        )  # fmt: skip
