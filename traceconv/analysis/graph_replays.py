"""Operators, modules and shapes of the kernels of graph replays, from a run in which the host called the operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from traceconv.base.display import TextDisplay
from traceconv.base.errors import InputError
from traceconv.reports.statements import report_statements
from traceconv.store.replay_tables import IS_LAUNCH, clear_replays, fill_replays
from traceconv.store.writer import StoreWriter

#: Of the JSON documents.
VERSION = 1

_LAUNCHES = f"SELECT count(*) FROM api WHERE run_id = $run AND {IS_LAUNCH.format(name='name')}"  # noqa: S608 - our own words
_COUNTS = """
SELECT count(DISTINCT g.launch_id), count(*), count(coalesce(g.operator_name, g.module_name)), count(g.operator_name),
       count(g.module_name),
       count(o.input_shapes), coalesce(sum(t.dur_ns), 0)::BIGINT,
       coalesce(sum(t.dur_ns) FILTER (WHERE coalesce(g.operator_name, g.module_name) IS NOT NULL), 0)::BIGINT
FROM graph_replay AS g
JOIN task AS t ON t.run_id = g.run_id AND t.id = g.id
LEFT JOIN task_operator AS p ON p.run_id = g.run_id AND p.id = g.id AND p.attribution = 'replay'
LEFT JOIN operator AS o ON o.run_id = g.run_id AND o.operator_id = p.operator_id
WHERE g.run_id = $run
"""


@dataclass(frozen=True, slots=True, repr=False)
class GraphReplays(TextDisplay):
    """What is known of the tasks that a run's graphs ran.

    reference_run_id  run whose kernels they were aligned with
    launch_count      launches of graphs with tasks
    task_count        their tasks, except waits and events
    matched_count     those with a task of the reference, or whose node was captured in a known range
    operator_count, module_count, shape_count  those whose operator, module and shapes are known from it
    total_ns, matched_ns  durations of all and of the matched tasks
    """

    run_id: int
    reference_run_id: int
    launch_count: int
    task_count: int
    matched_count: int
    operator_count: int
    module_count: int
    shape_count: int
    total_ns: int
    matched_ns: int

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document."""
        return {"version": VERSION, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """Yield the counts and their shares."""
        tasks = self.task_count
        where = "itself" if self.run_id == self.reference_run_id else f"run {self.reference_run_id}"
        plural = "" if self.launch_count == 1 else "es"
        yield f"{self.launch_count:,} graph launch{plural} with {tasks:,} tasks, aligned with {where}"
        counts = {
            "matched": self.matched_count, "operator": self.operator_count, "module": self.module_count,
            "shapes": self.shape_count,
        }  # fmt: skip
        for name, count in counts.items():
            yield f"{name:<8}  {count:>9,}  {100 * count / max(tasks, 1):6.2f} %"
        if self.total_ns:
            yield f"{100 * self.matched_ns / self.total_ns:.2f} % of their time is matched"


def graph_replays(connection: duckdb.DuckDBPyConnection, run_id: int, reference_run_id: int) -> GraphReplays:
    """Return what the table graph_replay has of a run. Raises InputError without launches of graphs."""
    [(launches,)] = connection.execute(_LAUNCHES, {"run": run_id}).fetchall()
    if not launches:
        raise InputError("the run has no launches of graphs, such as cudaGraphLaunch")
    [row] = connection.execute(_COUNTS, {"run": run_id}).fetchall()
    if not row[1]:
        raise InputError(
            "the graph launches of the run have no kernels of their own; record the graphs' nodes "
            "(nsys profile --cuda-graph-trace=node)"
        )
    return GraphReplays(run_id, reference_run_id, *row)


def align_replays(store: Path, run_id: int, reference_run_id: int) -> None:
    """Fill the table graph_replay of a run from another reference. Raises StoreError."""

    def fill(connection: duckdb.DuckDBPyConnection) -> None:
        clear_replays(connection, run_id)
        fill_replays(connection, [run_id], reference_run_id)

    with StoreWriter(store, report_statements) as writer:
        writer.work_on(fill)
        writer.commit()
