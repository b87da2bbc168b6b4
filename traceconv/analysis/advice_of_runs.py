"""Advice about all runs of a store, such as the ranks of a job: their findings, added up, and the runs with most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from traceconv.analysis.advice import VERSION, Advice, Finding, advise_each
from traceconv.base.errors import UsageError
from traceconv.reports.run_choice import NO_RUNS, in_runs


@dataclass(frozen=True, slots=True)
class CommonFinding:
    """A finding of some runs.

    saving_ns, saving_percent  sum over these runs, in all and in percent of the time of all devices of theirs
    run_ids  the runs, that with the largest saving in percent first
    largest  the finding of that run
    """

    rule: str
    saving_ns: int
    saving_percent: float
    run_ids: tuple[int, ...]
    largest: Finding

    @property
    def evidence(self) -> str:
        """The query of that finding."""
        return self.largest.evidence


@dataclass(frozen=True, slots=True, repr=False)
class AdviceOfRuns:
    """The advice of each run, and the findings of all, those first that save most in total.

    names  run_id → its rank, or its label if the rank is unknown
    """

    runs: tuple[Advice, ...]
    findings: tuple[CommonFinding, ...]
    names: dict[int, str]

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document: version 1, with the document of each run."""
        return {"version": VERSION, "runs": [advice.to_dict() for advice in self.runs]}

    def __repr__(self) -> str:
        from traceconv.analysis.advice_text import text_lines

        return "\n".join(text_lines(self))

    def _repr_html_(self) -> str:
        from traceconv.analysis.advice_text import html_text

        return html_text(self)


def advise_all(
    connection: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int] = (),
    *,
    device: int | None = None,
    top: int | None = None,
    least_percent: float | None = None,
) -> AdviceOfRuns:
    """Apply all rules to each of some runs, of all if `run_ids` is empty.

    The options are those of `advise`, but `top` is about the findings of all runs.

    Raises UsageError as `advise` does, and if the store is empty.
    """
    query = f"SELECT run_id, rank FROM run WHERE {in_runs(run_ids)} ORDER BY run_id"  # noqa: S608 - integers
    ranks: dict[int, int | None] = dict(connection.execute(query).fetchall())
    if not ranks:
        raise UsageError(NO_RUNS)
    runs = tuple(advise_each(connection, [*ranks], device=device, least_percent=least_percent))
    labels = {advice.run_id: advice.label for advice in runs}
    names = {run_id: labels[run_id] if rank is None else f"rank {rank}" for run_id, rank in ranks.items()}
    by_rule: dict[str, dict[int, list[Finding]]] = defaultdict(lambda: defaultdict(list))
    for advice in runs:
        for one in advice.findings:
            by_rule[one.rule][advice.run_id].append(one)
    windows = {advice.run_id: sum(advice.devices.values()) for advice in runs}
    found = []
    for rule, of_runs in by_rule.items():
        saving = {run_id: sum(one.saving_ns for one in ones) for run_id, ones in of_runs.items()}
        ordered = sorted(of_runs, key=lambda run_id: (-saving[run_id] / windows[run_id], run_id))
        percent = 100 * sum(saving.values()) / sum(windows[run_id] for run_id in of_runs)
        found.append(CommonFinding(rule, sum(saving.values()), percent, tuple(ordered), of_runs[ordered[0]][0]))
    found.sort(key=lambda one: (-one.saving_ns, one.rule))
    return AdviceOfRuns(runs, tuple(found[:top]), names)
