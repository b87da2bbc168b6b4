"""How long the steps of a run would take if something were faster, by replaying its dependency graph.

Work that is not changed keeps its duration, and what nothing explains stays a fixed delay, so the replay of the
unchanged graph gives the measured times. Tasks that run at once share their device, if their needs are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np

from traceconv.analysis.contention import contention, divided, replays_of, resources_of
from traceconv.analysis.critical_path import Step, columns_of, find_steps, of_groups, vertices_at
from traceconv.analysis.dependency_graph import Graph
from traceconv.analysis.dependency_kinds import COPY, HOST, IDLE, MEET, RECORDED_SYNC, RUN, SYNC, TASK_KINDS
from traceconv.analysis.faster_slices import CHOICES, faster_slices
from traceconv.analysis.replay import Delays
from traceconv.analysis.slices import Columns
from traceconv.base.display import TextDisplay
from traceconv.base.errors import UsageError, option, printable
from traceconv.base.int64 import Int64, Mask
from traceconv.reports.window import Window
from traceconv.store.database import new_cursor

#: Tasks during some steps, and how many of them have no call that launched them.
_LAUNCHED = """
SELECT count(*), count(*) FILTER (api_id IS NULL)
FROM task
WHERE run_id = $run AND kind IS DISTINCT FROM 'sync' AND start_ns BETWEEN $start AND $end
  AND ($device IS NULL OR device_id = $device)
"""
#: Delay of a dependency that is gone.
_NEVER = -(2**61)
#: Later times, of replays in which everything takes a million times as long, are this one, so that no sum overflows.
_LATEST_NS = 2**62 + 2**61
_MOST_SPEED = 1_000_000
#: IDs in a smaller range are looked up in a table.
_MOST_IDS = 2**26


@dataclass(frozen=True, slots=True)
class Change:
    """What would be different.

    speed_up               what is chosen by one of the next four takes 1 / speed_up of its time
    op_type                tasks of ops of this type or name, or of this name if they have no op
    category               tasks of this category of kernels
    launched_by            tasks that are launched inside ranges of this name
    host_range             the host's time in ranges and calls of this name
    no_launch_cost         calls that launch tasks take no time
    overlap_communication  nothing waits for the time that collectives take
    no_host_waits          no call waits for the device
    """

    speed_up: Fraction | None = None
    op_type: str | None = None
    category: str | None = None
    launched_by: str | None = None
    host_range: str | None = None
    no_launch_cost: bool = False
    overlap_communication: bool = False
    no_host_waits: bool = False

    @property
    def faster(self) -> tuple[str, str] | None:
        """What gets faster: how it is chosen, and the name."""
        return next(((by, name) for by in CHOICES if (name := getattr(self, by)) is not None), None)


@dataclass(frozen=True, slots=True)
class StepChange:
    """Durations of a step: as measured, of the replay without a change, and of the replay with it."""

    step: Step
    measured_ns: int
    replayed_ns: int
    predicted_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf(TextDisplay):
    """The answer to a change.

    total_measured_ns  from the start of the first step to the end of the last one; if memory doesn't permit to replay
                       all steps together, the sum of these times of groups of consecutive steps. The other totals are
                       of the same time
    task_count, unlaunched_count  tasks during the steps, and those whose launching call is unknown
    shares_device      whether tasks that run at once compete in the replay; False: none do, or their needs are unknown
    during_collectives  whether tasks that become faster compete for memory with collectives of several devices, whose
                       needs are unknown: steps may take longer than predicted
    """

    run_id: int
    change: Change
    steps: tuple[StepChange, ...]
    total_measured_ns: int
    total_replayed_ns: int
    total_predicted_ns: int
    task_count: int
    unlaunched_count: int
    shares_device: bool
    during_collectives: bool

    @property
    def measured_ns(self) -> int:
        """Sum of the steps, which may overlap."""
        return sum(step.measured_ns for step in self.steps)

    @property
    def replayed_ns(self) -> int:
        """Sum of the steps in the replay without a change."""
        return sum(step.replayed_ns for step in self.steps)

    @property
    def predicted_ns(self) -> int:
        """Sum of the steps in the replay with the change."""
        return sum(step.predicted_ns for step in self.steps)

    @property
    def change_percent(self) -> float:
        """Change of the sum of the steps."""
        return 100 * (self.predicted_ns - self.measured_ns) / self.measured_ns

    @property
    def total_change_percent(self) -> float:
        """Change of the time from the first step to the last."""
        return 100 * (self.total_predicted_ns - self.total_measured_ns) / self.total_measured_ns

    @property
    def replay_error_percent(self) -> float:
        """Difference of the replay without a change from the measurement."""
        return 100 * (self.replayed_ns - self.measured_ns) / self.measured_ns

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document."""
        from traceconv.analysis.critical_path_text import what_if_dict

        return what_if_dict(self)

    def lines(self) -> Iterator[str]:
        from traceconv.analysis.critical_path_text import what_if_lines

        return what_if_lines(self)


def make_change(speed_up: float | str | None, **parts: Any) -> Change:
    """Return a change with a speed-up such as 2 or "1.5". parts: the other attributes.

    Raises UsageError if nothing changes, or if what gets faster, or how much, is not given or given twice.
    """
    change = Change(None if speed_up is None else _parse_speed_up(speed_up), **parts)
    given = sum(getattr(change, by) is not None for by in CHOICES)
    choices = ", ".join(option("--" + by.replace("_", "-")) for by in CHOICES)
    if given != (speed_up is not None):
        raise UsageError(f"{option('--speed-up')} needs one of {choices}, and each of them needs it")
    if change == Change():
        raise UsageError(
            f"pass what would change: {option('--speed-up')} with one of {choices}; "
            f"{option('--no-launch-cost')}, {option('--overlap-communication')} or {option('--no-host-waits')}"
        )
    return change


def _parse_speed_up(text: str | float) -> Fraction:
    try:
        factor = Fraction(str(text).strip().removesuffix("x").removesuffix("×"))
    except (ValueError, ZeroDivisionError):
        factor = Fraction(0)
    if not Fraction(1, _MOST_SPEED) <= factor <= _MOST_SPEED or factor.denominator > _MOST_SPEED:
        raise UsageError(f"{option('--speed-up')} needs a factor such as 2 or 1.5, not '{printable(str(text), 60)}'")
    return factor


def what_if(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    change: Change,
    window: Window,
    *,
    device: int | None = None,
) -> WhatIf:
    """Return the durations of a run's steps, or of a window, with a change.

    Raises UsageError for an unknown name or step.
    """
    steps = find_steps(connection, run_id, window, device=device)
    faster = np.empty(0, np.int64)
    if change.faster is not None:
        faster = faster_slices(connection, run_id, *change.faster)

    resources = resources_of(connection, run_id)

    def read(sql: str) -> Columns:
        # Two threads replay, and query, while the next slices are loaded.
        with new_cursor(connection) as cursor:
            return Columns.read(cursor, sql)

    def replay(graph: Graph, group: list[Step]) -> tuple[list[list[tuple[int, int]]], bool, bool]:
        """Return the starts and ends of the steps without and with the change, whether tasks compete, and whether those
        that become faster do so with collectives.
        """
        shared, asking = contention(read, run_id, graph, resources), np.empty(0, np.int64)
        is_faster = np.concatenate([_are_among(ids, faster) for ids in np.split(graph.ids, [graph.host_count])])
        delays = changed_delays(graph, change, is_faster)
        if shared is None:
            replays = [graph.delays.times(graph.times), delays.times(graph.times)]
        else:
            changed = shared
            if change.speed_up is not None:
                shared_ends = shared.ends
                chosen = is_faster[graph.slices[shared_ends]]
                changed = shared.faster(chosen, change.speed_up)
                asking = shared_ends[chosen & changed.needs_most_memory]
            replays = replays_of(graph.times, (graph.delays, shared), (delays, changed))
        return list(_spans(graph, group, replays)), shared is not None, _during_collectives(graph, asking)

    found, totals, shares_device, during_collectives, done = [], [0, 0, 0], False, False, 0
    for (replayed, predicted), shares, in_collectives in of_groups(
        connection, run_id, steps, replay, with_needs=resources is not None
    ):
        shares_device |= shares
        during_collectives |= in_collectives
        group = steps[done : done + len(replayed)]
        done += len(group)
        for step, before, after in zip(group, replayed, predicted, strict=True):
            found.append(StepChange(step, step.dur_ns, before[1] - before[0], after[1] - after[0]))
        measured = [(step.start_ns, step.end_ns) for step in group]
        for place, spans in enumerate((measured, replayed, predicted)):
            totals[place] += max(end for _, end in spans) - min(start for start, _ in spans)
    span = {"start": min(step.start_ns for step in steps), "end": max(step.end_ns for step in steps)}
    [[tasks, unlaunched]] = connection.execute(_LAUNCHED, {"run": run_id, "device": device, **span}).fetchall()
    measured_ns, replayed_ns, predicted_ns = totals
    return WhatIf(
        run_id, change, tuple(found), measured_ns, replayed_ns, predicted_ns, tasks, unlaunched, shares_device,
        during_collectives,
    )  # fmt: skip


def _during_collectives(graph: Graph, ends: Int64) -> bool:
    """Return whether tasks ran while a collective of several devices moved data on theirs. ends: their vertices."""
    meet = np.flatnonzero(graph.edge_kinds == MEET)
    if not len(ends) or not len(meet):
        return False
    times, begins_ns = graph.times, graph.times - graph.delays.delay_ns
    collectives = np.unique(graph.delays.targets_of(meet))
    own_devices, of_collectives = (
        graph.task_devices[graph.slices[one] - graph.host_count] for one in (ends, collectives)
    )
    for device in np.unique(own_devices).tolist():
        # In the order of their ends: the first that ends after the task starts.
        moving, own = collectives[of_collectives == device], ends[own_devices == device]
        at = np.searchsorted(times[moving], times[graph.delays.previous[own]], "right")
        own, at = own[at < len(moving)], at[at < len(moving)]
        if (np.minimum.accumulate(begins_ns[moving][::-1])[::-1][at] < times[own]).any():
            return True
    return False


def _are_among(ids: Int64, wanted: Int64) -> Mask:
    """Return which IDs are among others, which are in order."""
    found = np.zeros(len(ids), bool)
    if len(ids):
        least, largest = int(ids.min()), int(ids.max())
        wanted = wanted[np.searchsorted(wanted, least) : np.searchsorted(wanted, largest, "right")]
        if len(wanted) and largest - least < _MOST_IDS:
            # IDs of a window's tasks are close to one another, as are those of its host slices.
            table = np.zeros(largest - least + 1, bool)
            table[wanted - least] = True
            found = table[ids - least]
        elif len(wanted):
            found = wanted[np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)] == ids
    return found


def changed_delays(graph: Graph, change: Change, is_faster: Mask) -> Delays:
    """Return the delays of a graph with a change; is_faster: [slice] whether it takes 1 / speed_up of its time."""
    delays = graph.delays
    delay_ns, edge_ns = delays.delay_ns.copy(), delays.edge_ns.copy()

    def taking_time(chosen: Mask) -> Int64:
        """Return the vertices before which a chosen slice takes time: the ends of tasks, and those inside calls."""
        found = [np.flatnonzero(chosen[graph.slices] & (graph.kinds == RUN))]
        if chosen[: graph.host_count].any():
            on_host = np.flatnonzero(((graph.kinds == HOST) | (graph.kinds == IDLE)) & (graph.inside >= 0))
            found.append(on_host[chosen[graph.inside[on_host]]])
        return np.concatenate(found)

    if change.speed_up is not None:
        faster = taking_time(is_faster)
        delay_ns[faster] = divided(delay_ns[faster], change.speed_up)
    if change.overlap_communication:
        tasks = np.concatenate((np.full(graph.host_count, -1), graph.task_kinds))
        delay_ns[taking_time(tasks == TASK_KINDS.index("collective"))] = 0
    if change.no_launch_cost:
        delay_ns[taking_time(graph.launches)] = 0
    meet = np.flatnonzero(graph.edge_kinds == MEET)
    if len(meet):
        edge_ns[meet] = delay_ns[delays.targets_of(meet)]
    if change.no_host_waits:
        edge_ns[np.isin(graph.edge_kinds, (SYNC, RECORDED_SYNC, COPY))] = _NEVER
    return replace(delays, delay_ns=delay_ns, edge_ns=edge_ns)


def _spans(graph: Graph, steps: Sequence[Step], replays: Sequence[Int64]) -> Iterator[list[tuple[int, int]]]:
    """Yield the (start, end) of steps for each replay: times of the vertices. A step ends not before its last task.

    If the launches of most of its tasks are unknown, nothing holds them to the host's time: such a step lasts from its
    first task to its last one, and as long before and after them as measured.
    """
    starts, ends, devices = columns_of(steps)
    bounds = [(ns, vertices_at(graph, ns, devices, end=end)) for ns, end in ((starts, False), (ends, True))]
    step_ids = np.array([step.step_id or 0 for step in steps])
    vertices = np.flatnonzero(graph.is_end & (graph.slices >= graph.host_count))
    tasks = graph.slices[vertices] - graph.host_count
    task_ids = graph.task_steps[tasks] if steps[0].step_id is not None else np.zeros_like(tasks)
    order = np.argsort(task_ids, kind="stable")
    vertices, tasks, task_ids = vertices[order], tasks[order], task_ids[order]
    # Per device: its steps that have tasks, the ends of all tasks by step, and where those of the steps begin.
    groups = []
    for device in np.unique(devices).tolist():
        kept = np.full(len(tasks), True) if device < 0 else graph.task_devices[tasks] == device
        ids, begins = np.unique(task_ids[kept], return_index=True)
        own = np.flatnonzero((devices == device) & np.isin(step_ids, ids))
        if not len(own):
            continue
        places = np.searchsorted(ids, step_ids[own])
        groups.append((own, vertices[kept], begins, places))
        share = np.add.reduceat(np.where(graph.is_launched[tasks[kept]], -1, 1), begins)[places]
        firsts = np.minimum.reduceat(graph.delays.previous[vertices[kept]], begins)[places]
        lasts = np.maximum.reduceat(vertices[kept], begins)[places]
        for (_, at), of_tasks in zip(bounds, (firsts, lasts), strict=True):
            at[own[share > 0]] = of_tasks[share > 0]
    for times in replays:
        times = np.minimum(times, _LATEST_NS)
        found = []
        for ns, at in bounds:
            shifted, known = ns.copy(), at >= 0
            shifted[known] = times[at[known]] + (ns[known] - graph.times[at[known]])
            found.append(shifted)
        for own, ends_of_tasks, begins, places in groups:
            last = np.maximum.reduceat(times[ends_of_tasks], begins)[places]
            found[1][own] = np.maximum(found[1][own], last)
        yield list(zip(found[0].tolist(), found[1].tolist(), strict=True))
