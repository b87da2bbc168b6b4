"""The longest chain of dependent work through each step of a run: what the step's time was spent on.

The chain is found backwards from the end of a step: each vertex is preceded by what it waited for last, until the start
of the step. So the durations of its parts add up exactly to that of the step.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.analysis import dependency_kinds as kinds_of
from traceconv.analysis.dependency_graph import Graph, build_graph
from traceconv.analysis.dependency_kinds import TASK_KINDS
from traceconv.analysis.path_names import PathNames
from traceconv.analysis.replay import chain
from traceconv.analysis.slices import load_slices
from traceconv.base.arrays import NDArray
from traceconv.base.display import TextDisplay
from traceconv.base.errors import InputError, UsageError
from traceconv.base.int64 import Int64
from traceconv.base.workers import Workers
from traceconv.reports.statements import report_statements
from traceconv.reports.steps import chosen_steps
from traceconv.reports.window import Window
from traceconv.store.database import MEMORY_LIMIT
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
    kinds_of.MEET: "collective",
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

_WHOLE = """
SELECT min(least(submit_ns, start_ns)), max(TRY(start_ns + dur_ns))
FROM task
WHERE run_id = $run AND ($device IS NULL OR device_id = $device)
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
    """The critical paths of a run's steps.

    parts        with the columns of the table critical_path without the run; empty if they are only in the store
    inferred_ns  time on the paths between slices whose dependency is inferred
    """

    run_id: int
    steps: tuple[Step, ...]
    parts: pa.Table
    inferred_ns: int
    kinds: tuple[Share, ...]
    ops: tuple[Share, ...]

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
    window: Window,
    *,
    device: int | None = None,
) -> list[Step]:
    """Return the steps of a run in order, or a window of time as one. A run without steps is such a window.

    Raises UsageError, InputError.
    """
    window.require_steps_or_times()
    steps = [] if window.has_times else chosen_steps(connection, run_id, window, device=device)
    if steps:
        return [Step(*step) for step in steps]
    from_ns, to_ns = window.times(connection, [run_id])
    ((start_ns, end_ns),) = connection.execute(_WHOLE, {"run": run_id, "device": device}).fetchall()
    if start_ns is None or end_ns is None or end_ns <= start_ns:
        raise InputError("the run has no tasks with times: it has critical paths only for steps, if recorded")
    chosen_ns = max(start_ns, start_ns if from_ns is None else from_ns), min(end_ns, end_ns if to_ns is None else to_ns)
    if chosen_ns[0] >= chosen_ns[1]:
        raise UsageError(f"the run's tasks are from {start_ns} to {end_ns} ns; the window contains none of this time")
    return [Step(None, None, *chosen_ns, window.has_times)]


def of_groups(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    steps: Sequence[Step],
    work: Callable[[Graph, list[Step]], Result],
    *,
    with_names: bool = False,
    with_needs: bool = False,
) -> Iterator[Result]:
    """Yield what `work` returns for the graph of consecutive steps, and these: as many as memory permits.

    A graph begins with what came right before the steps. Two threads work while the next slices are loaded.

    with_names, with_needs  whether graphs have `name_keys` and `ops`, or `needs`
    """
    counts = " + ".join(
        f"(SELECT count(*) FROM {table} WHERE run_id = $run AND start_ns BETWEEN $start AND $end)"  # noqa: S608 - ours
        for table in ("task", "api", '"range"')
    )
    span = {"start": min(step.start_ns for step in steps), "end": max(step.end_ns for step in steps)}
    [[rows]] = connection.execute(f"SELECT {counts}", {"run": run_id, **span}).fetchall()
    size = max(1, len(steps) * _GROUP_SLICES // max(rows, 1)) if rows > _GROUP_SLICES else len(steps)
    groups = [list(steps[place : place + size]) for place in range(0, len(steps), size)]
    leads_ns = [group[0].dur_ns if group[0].step_id is not None else 0 for group in groups]
    windows = [
        (group[0].start_ns - lead_ns, max(step.end_ns for step in group))
        for group, lead_ns in zip(groups, leads_ns, strict=True)
    ]
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        loaded = load_slices(connection, run_id, windows, with_names=with_names, with_needs=with_needs)
        for slices, group in zip(loaded, groups, strict=True):
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
    (at_ns, of_device), same = np.unique(np.stack((ns, devices)), axis=1, return_inverse=True)
    first, after = (np.searchsorted(graph.times, at_ns, side) for side in ("left", "right"))
    found = after - 1
    counts = after - first
    places = np.repeat(np.arange(len(at_ns)), counts)
    vertices = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    fits = graph.is_end[vertices] == end
    places, vertices = places[fits], vertices[fits]
    task = graph.slices[vertices] - graph.host_count
    is_task = task >= 0
    preference = is_task.astype(np.int64)
    preference[is_task] += graph.task_devices[task[is_task]] == of_device[places[is_task]]
    # The last one of each place is what is wanted: the last of equal ends, the first of equal starts.
    order = np.lexsort((vertices if end else -vertices, preference, places))
    last = np.flatnonzero(np.diff(places[order], append=-1))
    found[places[order][last]] = vertices[order][last]
    wanted: Int64 = found[same.reshape(-1)]
    return wanted


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
    steps: Sequence[Step],
    *,
    insert: Callable[[pa.Table], object] | None = None,
    keep_parts: bool = True,
) -> CriticalPath:
    """Return the critical paths of steps of a run that `find_steps` found.

    insert      is passed some parts after others
    keep_parts  return them all, too, which takes about 100 bytes of memory for each
    """
    names, totals = PathNames(connection, run_id), _Totals()
    kept: list[pa.Table] = []
    for found in of_groups(connection, run_id, steps, _parts, with_names=True):
        parts = found.table(names)
        totals.add(parts)
        if insert is not None:
            insert(parts)
        kept.append(parts if keep_parts else parts.schema.empty_table())
    return CriticalPath(run_id, tuple(steps), pa.concat_tables(kept), totals.inferred_ns, *totals.shares())


def save_critical_path(store: Path, run_id: int, steps: Sequence[Step], *, keep_parts: bool = True) -> CriticalPath:
    """Write the paths to the store's table as they are found, instead of those that the run had, and return them.

    Raises StoreError if the store can't be written.
    """
    with StoreWriter(store, report_statements) as writer:
        writer.run_sql(f"DELETE FROM {TABLE} WHERE run_id = $run", {"run": run_id})  # noqa: S608 - our name

        stored: deque[Future[int]] = deque()

        def insert(parts: pa.Table) -> None:
            # In another thread, while the next slices are loaded.
            if stored:
                stored.popleft().result()
            stored.append(pool.submit(writer.insert, TABLE, run_id, iter(parts.to_batches())))

        with Workers(1, "traceconv-path") as pool, writer.cursor() as cursor:
            # With the limit for loading, evicting what two groups read would take 40 % more CPU time.
            cursor.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
            path = critical_path(cursor, run_id, steps, insert=insert, keep_parts=keep_parts)
            stored.popleft().result()
        writer.commit()
    return path


class _Totals:
    """Sums of the parts' time by kind, name and op type."""

    def __init__(self) -> None:
        self._total_ns: Counter[tuple[str, str | None, str | None]] = Counter()
        self.inferred_ns = 0

    def add(self, parts: pa.Table) -> None:
        keys = ("kind", "name", "op_type", "dependency")
        sums = parts.group_by(keys, use_threads=False).aggregate([("dur_ns", "sum")])
        texts = (sums.column(name).cast(pa.string()).to_pylist() for name in keys)
        for kind, name, op_type, dependency, total_ns in zip(
            *texts, sums.column("dur_ns_sum").to_pylist(), strict=True
        ):
            self._total_ns[kind, name, op_type] += total_ns
            self.inferred_ns += total_ns if dependency == "inferred" else 0

    def shares(self) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
        """Return the time of each kind, and of each kind and op, largest first."""
        kinds: Counter[tuple[str, str | None, str]] = Counter()
        ops: Counter[tuple[str, str | None, str]] = Counter()
        for (kind, name, op_type), total_ns in self._total_ns.items():
            kinds[kind, None, kind] += total_ns
            ops[next(text for text in (op_type, name, kind) if text is not None), op_type, kind] += total_ns
        whole_ns = kinds.total()
        by_kind, by_op = (
            tuple(
                Share(*key, total_ns, 100 * total_ns / whole_ns)
                for key, total_ns in sorted(
                    sums.items(), key=lambda one: (-one[1], one[0][2], one[0][0], one[0][1] is None, one[0][1] or "")
                )
            )
            for sums in (kinds, ops)
        )
        return by_kind, by_op


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of steps' paths, in order.

    of_step     the place of the part's step in `steps`
    kinds       in KINDS
    slices      IDs, -1: none; name_keys: as in the graph; ops: IDs of ops, -1: none
    starts, durations  in ns
    inferred    1: the dependency is inferred
    """

    steps: Sequence[Step]
    of_step: Int64
    kinds: Int64
    slices: Int64
    name_keys: NDArray[np.uint64]
    ops: Int64
    starts: Int64
    durations: Int64
    inferred: Int64

    def table(self, names: PathNames) -> pa.Table:
        """Return the columns of the table critical_path without the run."""
        name, op_type = names.columns(self.slices, self.name_keys, self.ops)
        of_step = pa.array(self.of_step)
        return pa.table(
            {
                "step_id": pa.array([step.step_id for step in self.steps], pa.int64()).take(of_step),
                "device_id": pa.array([step.device_id for step in self.steps], pa.int64()).take(of_step),
                "path_index": np.arange(len(of_step)) - np.searchsorted(self.of_step, self.of_step),
                "kind": pa.DictionaryArray.from_arrays(self.kinds.astype(np.int8), list(KINDS)),
                "slice_id": pa.array(self.slices, pa.int64(), mask=self.slices < 0),
                "name": name,
                "op_type": op_type,
                "start_ns": self.starts,
                "dur_ns": self.durations,
                "dependency": pa.DictionaryArray.from_arrays(self.inferred.astype(np.int8), ["recorded", "inferred"]),
            }
        )


def _parts(graph: Graph, steps: Sequence[Step]) -> _Parts:
    """Return the parts of the steps' paths."""
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
    name_keys, ops = np.zeros(len(known), np.uint64), np.full(len(known), -1)
    name_keys[known] = graph.name_keys[slices[known]]
    is_task = known & (slices >= graph.host_count)
    ops[is_task] = graph.ops[slices[is_task] - graph.host_count]
    return _Parts(steps, of_step, names, ids, name_keys, ops, starts, ends - starts, inferred)
