"""The longest chain of dependent work through each step of a run: what the step's time was spent on.

The chain is found backwards from the end of a step: each vertex is preceded by what it waited for last, until the start
of the step. So the durations of its parts add up exactly to that of the step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.analysis import dependency_kinds as kinds_of
from traceconv.analysis.dependency_graph import Graph, build_graph
from traceconv.analysis.dependency_kinds import TASK_KINDS
from traceconv.analysis.replay import chain
from traceconv.analysis.slices import load_slices
from traceconv.base.display import TextDisplay
from traceconv.base.errors import InputError, UsageError, option
from traceconv.base.int64 import Int64
from traceconv.reports.catalog import report_statements
from traceconv.store.writer import StoreWriter

#: The table in the store.
TABLE = "critical_path"
#: Kinds of parts after those of tasks.
KINDS = (*TASK_KINDS, "host", "gap", "launch", "stream", "event", "host_wait", "thread")
_EDGE_PARTS = {
    kinds_of.STREAM: "stream",
    kinds_of.LAUNCH: "launch",
    kinds_of.EVENT: "event",
    kinds_of.RECORDED_EVENT: "event",
    kinds_of.SYNC: "host_wait",
    kinds_of.RECORDED_SYNC: "host_wait",
    kinds_of.COPY: "host_wait",
    kinds_of.FLOW: "thread",
    kinds_of.QUEUE: "thread",
    kinds_of.JOIN: "thread",
}
#: [kind of dependency] Place in KINDS of the part that it is; -1 for those that are no part of their own.
_PART_OF_EDGE = np.full(len(kinds_of.WAITS), -1)
_PART_OF_EDGE[list(_EDGE_PARTS)] = [KINDS.index(name) for name in _EDGE_PARTS.values()]
_IS_INFERRED = np.isin(np.arange(len(kinds_of.WAITS)), kinds_of.INFERRED).astype(np.int64)
#: A stream that does nothing for longer waits for something unknown, as in the table device_gap.
_LONGEST_STREAM_NS = 10_000
#: Slices of the steps that are analysed together.
_GROUP_SLICES = 250_000
#: Groups that are analysed at a time.
_THREADS = 2

Result = TypeVar("Result")

_STEPS = """
SELECT s.step_id, s.device_id, coalesce(s.start_ns, s.fp_start_ns) AS start_ns, greatest(s.end_ns, t.end_ns) AS end_ns
FROM step AS s
LEFT JOIN (
  SELECT step_id, device_id, max(TRY(start_ns + dur_ns)) AS end_ns
  FROM task
  WHERE run_id = {run} AND step_id IS NOT NULL
  GROUP BY ALL
) AS t ON t.step_id = s.step_id AND (t.device_id = s.device_id OR s.device_id IS NULL)
WHERE s.run_id = {run} AND s.end_ns > coalesce(s.start_ns, s.fp_start_ns)
  AND ({device} IS NULL OR s.device_id = {device})
QUALIFY row_number() OVER (PARTITION BY s.step_id, s.device_id ORDER BY t.end_ns DESC) = 1
ORDER BY start_ns, s.step_id, s.device_id
"""
_WHOLE = """
SELECT NULL, NULL, min(least(submit_ns, start_ns)), max(TRY(start_ns + dur_ns))
FROM task
WHERE run_id = {run} AND ({device} IS NULL OR device_id = {device})
"""
#: Names on paths by their hashes. Groups are made before hashes, because there are few.
_NAMES = """
SELECT name_hash, name
FROM (
  SELECT hash(any_value(name)) AS name_hash, any_value(name) AS name
  FROM (
    SELECT any_value(name) AS name FROM task WHERE run_id = {run} GROUP BY name
    UNION ALL
    SELECT any_value(name) FROM api WHERE run_id = {run} GROUP BY name
    UNION ALL
    SELECT any_value(name) FROM "range" WHERE run_id = {run} GROUP BY name
  )
  WHERE name IS NOT NULL
  GROUP BY name
)
WHERE name_hash IN (SELECT name_hash FROM path_parts)
"""
_OPS = """
SELECT op_id, any_value(name) AS name, any_value(op_type) AS op_type
FROM op
WHERE run_id = {run} AND op_id IN (SELECT op_id FROM path_parts)
GROUP BY op_id
"""
_SHARES = """
WITH sums AS MATERIALIZED (
  SELECT kind, name, op_type, sum(dur_ns) AS total_ns FROM path_parts GROUP BY ALL
)
SELECT by_op, name, op_type, kind, sum(total_ns)::BIGINT AS total_ns,
       100 * sum(total_ns)::DOUBLE / sum(sum(total_ns)) OVER (PARTITION BY by_op)
FROM (
  SELECT false AS by_op, kind AS name, NULL AS op_type, kind, total_ns FROM sums
  UNION ALL
  SELECT true, coalesce(op_type, name, kind), op_type, kind, total_ns FROM sums
)
GROUP BY by_op, name, op_type, kind
ORDER BY 5 DESC, kind, name, op_type
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A step on a device until the end of its last task, or the time from a run's first launch to its last task.

    is_window  whether it is a part of this time
    """

    step_id: int | None
    device_id: int | None
    start_ns: int
    end_ns: int
    is_window: bool = False

    @property
    def dur_ns(self) -> int:
        """end_ns − start_ns."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Share:
    """Time on the critical paths of all steps."""

    name: str
    op_type: str | None
    kind: str
    total_ns: int
    percent: float


@dataclass(frozen=True, slots=True, repr=False)
class CriticalPath(TextDisplay):
    """The critical paths of a run's steps. `parts` has the columns of the table critical_path without the run."""

    run_id: int
    steps: tuple[Step, ...]
    parts: pa.Table
    kinds: tuple[Share, ...] = ()
    ops: tuple[Share, ...] = ()

    @property
    def inferred_ns(self) -> int:
        """Time on the paths between slices whose dependency is inferred."""
        inferred = self.parts["dur_ns"].filter(pc.equal(self.parts["dependency"], "inferred"))
        return int(pc.sum(inferred).as_py() or 0)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document: steps, and the time of each kind and op."""
        from traceconv.analysis.critical_path_text import path_dict

        return path_dict(self)

    def lines(self) -> Iterator[str]:
        from traceconv.analysis.critical_path_text import path_lines

        return path_lines(self)


def find_steps(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    *,
    device: int | None,
    first_step: int | None,
    last_step: int | None,
    from_ns: int | None,
    to_ns: int | None,
) -> list[Step]:
    """Return the steps of a run in order, or a window as one. A run without steps is a window.

    Raises UsageError, InputError.
    """
    values = {"run": run_id, "device": "NULL" if device is None else device}
    is_window, by_step = (from_ns, to_ns) != (None, None), (first_step, last_step) != (None, None)
    if is_window and by_step:
        raise UsageError(
            f"select {option('--steps')}, or a window with {option('--from', 'from_ns')} and {option('--to', 'to_ns')}"
        )
    rows = [] if is_window else connection.execute(_STEPS.format(**values)).fetchall()
    if rows:
        chosen = [
            Step(*row)
            for row in rows
            if (first_step is None or row[0] >= first_step) and (last_step is None or row[0] <= last_step)
        ]
        if not chosen:
            raise UsageError(f"the run has steps {rows[0][0]} to {rows[-1][0]}; {option('--steps')} selects none")
        return chosen
    if by_step:
        raise UsageError(f"the run has no steps; omit {option('--steps')}")
    ((_, _, start_ns, end_ns),) = connection.execute(_WHOLE.format(**values)).fetchall()
    if start_ns is None or end_ns is None or end_ns <= start_ns:
        raise InputError("the run has no tasks with times, of which dependencies could be known")
    chosen_ns = max(start_ns, start_ns if from_ns is None else from_ns), min(end_ns, end_ns if to_ns is None else to_ns)
    if chosen_ns[0] >= chosen_ns[1]:
        raise UsageError(f"the run's tasks are from {start_ns} to {end_ns} ns; the window contains none of this time")
    return [Step(None, None, *chosen_ns, is_window)]


def of_groups(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    steps: Sequence[Step],
    work: Callable[[Graph, list[Step]], Result],
    *,
    with_names: bool = False,
) -> Iterator[Result]:
    """Yield what `work` returns for the graph of consecutive steps, and these: as many as memory permits.

    A graph begins with what came right before the steps. Two threads work while the next slices are loaded.

    with_names  whether graphs have `name_hashes` and `ops`
    """
    rows = connection.execute(
        "SELECT (SELECT count(*) FROM task WHERE run_id = $run) + (SELECT count(*) FROM api WHERE run_id = $run) "
        '+ (SELECT count(*) FROM "range" WHERE run_id = $run)',
        {"run": run_id},
    ).fetchall()[0][0]
    size = max(1, len(steps) * _GROUP_SLICES // max(rows, 1)) if rows > _GROUP_SLICES else len(steps)
    groups = [list(steps[place : place + size]) for place in range(0, len(steps), size)]
    leads_ns = [group[0].dur_ns if group[0].step_id is not None else 0 for group in groups]
    windows = [
        (group[0].start_ns - lead_ns, max(step.end_ns for step in group))
        for group, lead_ns in zip(groups, leads_ns, strict=True)
    ]
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        for slices, group in zip(load_slices(connection, run_id, windows, with_names=with_names), groups, strict=True):
            if len(waiting) == _THREADS:
                yield waiting.popleft().result()
            waiting.append(pool.submit(lambda one, steps: work(build_graph(one), steps), slices, group))
        while waiting:
            yield waiting.popleft().result()


def vertices_at(graph: Graph, ns: Int64, devices: Int64, *, end: bool) -> Int64:
    """Return the vertices of starts or ends of steps: of those at this time, one of a task of its device, if possible.

    ns, devices  [step]; device -1: any
    If there are none at this time, it is the last one before; -1: there are none before.
    """
    found = np.searchsorted(graph.times, ns, "right") - 1
    chosen = np.flatnonzero(graph.is_end == end)
    tasks = chosen[graph.slices[chosen] >= graph.host_count]
    task_devices = graph.task_devices[graph.slices[tasks] - graph.host_count]
    known = np.unique(devices[devices >= 0]).tolist()
    own = ((tasks[task_devices == device], np.flatnonzero(devices == device)) for device in known)
    # What is preferred comes last.
    every = np.arange(len(ns))
    for vertices, steps in ((chosen, every), (tasks, every), *own):
        if not len(vertices):
            continue
        times = graph.times[vertices]
        places = np.searchsorted(times, ns[steps], "right") - 1 if end else np.searchsorted(times, ns[steps])
        vertex = vertices[np.clip(places, 0, len(vertices) - 1)]
        at = graph.times[vertex] == ns[steps]
        found[steps[at]] = vertex[at]
    return found


def columns_of(steps: Sequence[Step]) -> tuple[Int64, Int64, Int64]:
    """Return the starts, ends and devices of steps; -1: no device."""
    starts, ends, devices = (
        np.array(values, np.int64)
        for values in zip(
            *((s.start_ns, s.end_ns, -1 if s.device_id is None else s.device_id) for s in steps), strict=True
        )
    )
    return starts, ends, devices


def critical_path(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    *,
    device: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> CriticalPath:
    """Return the critical paths of a run's steps, or of a window.

    Raises UsageError for unknown steps, InputError without tasks.
    """
    steps = find_steps(
        connection, run_id, device=device, first_step=first_step, last_step=last_step, from_ns=from_ns, to_ns=to_ns
    )
    parts = pa.concat_tables(of_groups(connection, run_id, steps, _parts, with_names=True))
    parts = _with_texts(connection, run_id, parts)
    return CriticalPath(run_id, tuple(steps), parts, *_shares(connection, parts))


def save_path(store: Path, path: CriticalPath) -> None:
    """Write the paths to the store's table, instead of those that its run had. Raises StoreError."""
    with StoreWriter(store, report_statements) as writer:
        writer.run_sql(f"DELETE FROM {TABLE} WHERE run_id = $run", {"run": path.run_id})  # noqa: S608 - our name
        writer.insert(TABLE, path.run_id, iter(path.parts.to_batches()))
        writer.commit()


def _parts(graph: Graph, steps: Sequence[Step]) -> pa.Table:
    """Return the parts of the steps' paths, in order: with hashes of names and IDs of ops instead of texts."""
    before = graph.delays.before(graph.cause)
    step_starts, step_ends, devices = columns_of(steps)
    first = np.searchsorted(graph.times, step_starts, "right")
    last = vertices_at(graph, step_ends, devices, end=True)
    paths = [chain(before, *bounds) for bounds in zip(first.tolist(), last.tolist(), strict=True)]
    counts = np.array([len(path) for path in paths])
    path = np.concatenate(paths)
    of_step: Int64 = np.repeat(np.arange(len(steps)), counts)
    cause = graph.cause[path]
    edges = cause >= 0
    kind = graph.kinds[path]
    kind[edges] = graph.edge_kinds[cause[edges]]
    ends: Int64 = graph.times[path]
    begins = np.diff(of_step, prepend=-1) > 0
    starts: Int64 = np.where(begins, step_starts[of_step], np.roll(ends, 1))
    slices: Int64 = graph.slices[path]
    names: Int64 = np.full(len(path), KINDS.index("other"))
    task = slices - graph.host_count
    is_task = task >= 0
    names[is_task] = graph.task_kinds[task[is_task]]
    own_host = ~is_task & ~edges
    slices = np.where(own_host, graph.inside[path], slices)
    names[own_host] = np.where(slices[own_host] >= 0, KINDS.index("host"), KINDS.index("gap"))
    waited = _PART_OF_EDGE[kind]
    names = np.where(waited < 0, names, waited)
    names[(kind == kinds_of.STREAM) & (ends - starts >= _LONGEST_STREAM_NS)] = KINDS.index("gap")
    inferred: Int64 = _IS_INFERRED[kind]
    empty = np.flatnonzero(counts == 0)
    if len(empty):  # a step in which nothing starts or ends is a gap
        places = (np.cumsum(counts) - counts)[empty]
        of_step, starts, ends, names, slices, inferred = (
            np.insert(values, places, added)
            for values, added in (
                (of_step, empty), (starts, step_starts[empty]), (ends, step_ends[empty]), (names, KINDS.index("gap")),
                (slices, -1), (inferred, 0),
            )
        )  # fmt: skip
    ends[np.cumsum(np.maximum(counts, 1)) - 1] = step_ends
    # Parts of one slice and kind that follow one another are one.
    keep = ends > starts
    of_step, starts, ends, names, slices, inferred = (
        values[keep] for values in (of_step, starts, ends, names, slices, inferred)
    )
    changes = (inferred > 0) | (np.diff(of_step, prepend=-1) > 0)
    changes[1:] |= (names[1:] != names[:-1]) | (slices[1:] != slices[:-1])
    first = np.flatnonzero(changes)
    ends = ends[np.append(first[1:], len(names)) - 1]
    of_step, starts, names, slices, inferred = (values[first] for values in (of_step, starts, names, slices, inferred))
    known = (slices >= 0) & (names != KINDS.index("gap"))
    ids = np.full(len(known), -1)
    ids[known] = graph.ids[slices[known]]
    hashes, ops = np.zeros(len(known), np.uint64), np.full(len(known), -1)
    hashes[known] = graph.name_hashes[slices[known]]
    is_task = known & (slices >= graph.host_count)
    ops[is_task] = graph.ops[slices[is_task] - graph.host_count]
    return pa.table(
        {
            "step_id": pa.array([step.step_id for step in steps], pa.int64()).take(pa.array(of_step)),
            "device_id": pa.array([step.device_id for step in steps], pa.int64()).take(pa.array(of_step)),
            "path_index": np.arange(len(first)) - np.searchsorted(of_step, of_step),
            "kind": pa.DictionaryArray.from_arrays(names.astype(np.int8), list(KINDS)),
            "slice_id": pa.array(ids, pa.int64(), mask=~known),
            "name_hash": pa.array(hashes, pa.uint64(), mask=~known),
            "op_id": pa.array(ops, pa.int64(), mask=ops < 0),
            "start_ns": starts,
            "dur_ns": ends - starts,
            "dependency": pa.DictionaryArray.from_arrays(inferred.astype(np.int8), ["recorded", "inferred"]),
        }
    )


def _with_texts(connection: duckdb.DuckDBPyConnection, run_id: int, parts: pa.Table) -> pa.Table:
    """Return the parts with texts instead of hashes of names and IDs of ops.

    Raises InputError if two names have the same hash.
    """
    connection.register("path_parts", parts)
    try:
        named, ops = (connection.sql(query.format(run=run_id)).to_arrow_table() for query in (_NAMES, _OPS))
    finally:
        connection.unregister("path_parts")
    if len(pc.unique(named["name_hash"])) < len(named):
        raise InputError("two names of slices in the run have the same hash, so the names on the path are unknown")
    at, op = (
        pc.fill_null(pc.index_in(parts[key], table[key]), -1).to_numpy()
        for key, table in (("name_hash", named), ("op_id", ops))
    )
    # A task without a name has that of its op.
    at = np.where((at < 0) & (op >= 0), len(named) + op, at)
    names = [*named["name"].chunks, *ops["name"].chunks]
    for key, name, places, texts in (("name_hash", "name", at, names), ("op_id", "op_type", op, ops["op_type"].chunks)):
        known_texts = pa.concat_arrays([*texts, pa.nulls(1, pa.string())])  # -1 is the last one
        is_unknown = known_texts.is_null().to_numpy(zero_copy_only=False)[places]
        column = pa.DictionaryArray.from_arrays(
            pa.array(places, pa.int32(), mask=is_unknown), known_texts.fill_null("")
        )
        parts = parts.set_column(parts.schema.get_field_index(key), name, column)
    return parts


def _shares(connection: duckdb.DuckDBPyConnection, parts: pa.Table) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    """Return the time of each kind, and of each kind and op, largest first."""
    connection.register("path_parts", parts)
    try:
        rows = connection.execute(_SHARES).fetchall()
    finally:
        connection.unregister("path_parts")
    by_kind, by_op = (tuple(Share(*row) for by_op, *row in rows if by_op == wanted) for wanted in (False, True))
    return by_kind, by_op
