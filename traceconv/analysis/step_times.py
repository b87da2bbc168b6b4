"""Where the time of a run's steps goes on its devices: into ops, overlap of ops, and idle time, exact to the ns.

A window is a step on a device; of a run without steps, the time from its first to its last task, on each device. Tasks
count with the part of their duration that is inside the window. For each window,

    duration = durations of all ops − overlap + idle

where overlap is the time that these durations count more than once, since ops ran at the same time. Tasks of kind sync
(waits and events) don't count as work, as in the view step_busy.

A run of a framework without a device, such as a PyTorch trace of the CPU only, is measured by the ranges of its host,
of all threads together. They nest, so that each counts with its self time; overlap is what threads did at the same
time, and idle time is that outside all ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from traceconv.base.errors import IncomparableError, UsageError, option, printable
from traceconv.base.int64 import Int64

#: Windows are grouped into at most this many samples of consecutive steps.
MAX_SAMPLES = 512
#: Ops beyond the ones with the most time are one op.
MAX_OPS = 10_000
#: Separates the names of a path.
SEPARATOR = "\x1f"
_BATCH_ROWS = 1 << 17
#: Steps left out of a run with at least this many, if the user doesn't say how many.
_STEPS_WITH_WARMUP = 3
#: A sum near the limit of 64 bits.
_LARGEST_SUM = 2.0**62

_TASKS = (
    "task AS t WHERE t.run_id = {run} AND t.kind IS DISTINCT FROM 'sync' AND t.start_ns IS NOT NULL "
    "AND TRY(t.start_ns + t.dur_ns) IS NOT NULL{device}"
)
#: Self times of ranges, as pieces of tasks. Steps, and the range that is the recording, are not work. Names of Python's
#: built-in methods have addresses, which differ between runs.
_HOST_TASKS = """
CREATE TEMP TABLE compare_host_task AS
WITH work AS (
  SELECT r.id, r.parent_id, r.kind, regexp_replace(r.name, ' at 0x[0-9a-f]+', '') AS name, r.start_ns,
         r.start_ns + r.dur_ns AS end_ns,
         TRY(r.args ->> '$."Input Dims"') AS shapes,
         r.kind = 'annotation' AND EXISTS (
           FROM step AS s
           WHERE s.run_id = {run} AND s.start_ns = r.start_ns AND s.end_ns = TRY(r.start_ns + r.dur_ns)
         ) AS is_step
  FROM "range" AS r
  WHERE r.run_id = {run} AND r.category IS DISTINCT FROM 'Trace' AND TRY(r.start_ns + r.dur_ns) IS NOT NULL
), point AS (
  SELECT id, start_ns AS until_ns, start_ns AS next_ns, true AS is_first
  FROM work
  UNION ALL
  SELECT p.id, greatest(c.start_ns, p.start_ns), least(c.end_ns, p.end_ns), false
  FROM work AS c
  JOIN work AS p ON p.id = c.parent_id
  UNION ALL
  SELECT id, end_ns, end_ns, false
  FROM work
), piece AS (
  SELECT id, is_first, until_ns, max(next_ns) OVER (
           PARTITION BY id ORDER BY NOT is_first, until_ns, next_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
         ) AS begin_ns
  FROM point
)
SELECT NULL::BIGINT AS device_id, NULL::BIGINT AS op_id, NULL::BIGINT AS submit_ns, w.id, w.kind, w.name, w.shapes,
       p.is_first, coalesce(p.begin_ns, p.until_ns) AS start_ns, p.until_ns - coalesce(p.begin_ns, p.until_ns) AS dur_ns
FROM piece AS p
JOIN work AS w ON w.id = p.id
WHERE NOT w.is_step AND (p.is_first OR p.begin_ns < p.until_ns)
"""
#: Steps of all devices are steps of the host.
_STEPS = """
SELECT DISTINCT d.device_index, coalesce(s.start_ns, s.fp_start_ns) AS start_ns, s.end_ns
FROM step AS s
JOIN compare_device AS d ON s.device_id IS NULL OR s.device_id = d.device_id
  OR d.device_id IS NULL AND NOT EXISTS (FROM task WHERE run_id = {run})
WHERE s.run_id = {run} AND TRY(s.end_ns - coalesce(s.start_ns, s.fp_start_ns)) > 0
  AND ({first} IS NULL OR s.step_id >= {first}) AND ({last} IS NULL OR s.step_id <= {last})
ORDER BY d.device_index, start_ns, s.end_ns
"""
_LAUNCHES = """
CREATE TEMP TABLE compare_launch AS
SELECT id, range_id
FROM launching_range
WHERE run_id = {run} AND range_kind = 'host_op' AND found_by <> 'graph'
"""
#: The framework's operators that launched tasks, with those around them from the outermost to the innermost.
_OPERATORS = """
CREATE TEMP TABLE compare_operator AS
WITH RECURSIVE launched AS (
  SELECT range_id, count(*) AS task_count
  FROM compare_launch
  GROUP BY range_id
), climb AS (
  SELECT l.range_id, l.range_id AS next_id, NULL::VARCHAR AS path, NULL::VARCHAR AS scope
  FROM launched AS l
  UNION ALL
  SELECT c.range_id, r.parent_id,
         CASE WHEN r.kind = 'host_op' THEN concat_ws(chr(31), r.name, c.path) ELSE c.path END,
         CASE WHEN r.kind = 'module' THEN concat_ws(chr(31), r.name, c.scope) ELSE c.scope END
  FROM climb AS c
  JOIN "range" AS r ON r.run_id = {run} AND r.id = c.next_id
)
SELECT l.range_id, p.path, p.scope, TRY(r.args ->> '$."Input Dims"') AS shapes, l.task_count
FROM launched AS l
JOIN (
  SELECT c.range_id, max_by(c.path, length(c.path)) AS path, max_by(c.scope, length(c.scope)) AS scope
  FROM climb AS c
  GROUP BY c.range_id
) AS p ON p.range_id = l.range_id
JOIN "range" AS r ON r.run_id = {run} AND r.id = l.range_id
"""
_WITH_OPERATOR = (
    "LEFT JOIN compare_launch AS c ON c.id = t.id LEFT JOIN compare_operator AS l ON l.range_id = c.range_id "
)
#: Names of tasks without an op end with numbers that differ between executions.
_NAME = (
    "CASE WHEN t.op_id IS NULL THEN CASE WHEN right(t.name, 1) BETWEEN '0' AND '9' "
    "THEN regexp_replace(t.name, '(_[0-9]+)+$', '') ELSE t.name END END"
)
_KEYS = """
CREATE TEMP TABLE compare_key AS
SELECT least(row_number() OVER (ORDER BY total_ns DESC, first_ns, op_id, name, path, scope, shapes), {most}) - 1 AS key,
       *
FROM (
  SELECT t.op_id, t.kind, {name} AS name, {operator}, sum(t.dur_ns) AS total_ns,
         min(coalesce(t.submit_ns, t.start_ns)) AS first_ns
  FROM {tasks}
  GROUP BY ALL
)
"""
_KEY_TEXTS = """
SELECT k.key, k.kind, coalesce(o.name, k.name), o.op_type, coalesce(k.scope, o.scope_path), k.path,
       coalesce(k.shapes, o.input_shapes), coalesce(k.task_count, 1)
FROM compare_key AS k
LEFT JOIN op AS o ON o.run_id = {run} AND o.op_id = k.op_id
ORDER BY k.key, k.first_ns
"""
_PIECES = """
SELECT d.device_index::BIGINT AS device, k.key::BIGINT AS key, t.start_ns AS start, t.start_ns + t.dur_ns AS end
FROM {tasks}
ORDER BY d.device_index, t.start_ns
"""


@dataclass(frozen=True, slots=True)
class Op:
    """What ran: an op of a model, an operator of a framework with the kernel it launched, or a plain kernel.

    path      names of the operators that launched it, outermost first; empty if unknown
    scope     modules around it; empty if unknown
    name      name of the model's op or of the kernel
    shapes    input shapes, as in op.input_shapes
    task_count  largest number of tasks that one execution of the operator launched
    """

    kind: str | None
    name: str | None
    op_type: str | None
    scope: str
    path: tuple[str, ...]
    shapes: str | None
    task_count: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of a run's windows by op and sample: a sample is one step on all devices, or several consecutive ones.

    unit      "step", or "run" if the run has no steps
    on_host   whether these are times of the host, since the run has no tasks of a device
    devices   kind and name of each device
    steps     number of steps compared, of the device with the most; `left_out`: leading ones left out
    windows   [sample] number of windows; span_ns, busy_ns: [sample] sums of their durations and busy times
    ops       in the order of their first launch, with count: [op] tasks that started inside the windows
    op_ns     [op, sample] durations inside the windows
    idle_ns   [op, sample] idle times of devices inside the windows that ended with a task of the op
    """

    unit: str
    on_host: bool
    devices: tuple[tuple[str | None, str | None], ...]
    model_name: str | None
    steps: int
    left_out: int
    windows: Int64
    span_ns: Int64
    busy_ns: Int64
    ops: tuple[Op, ...]
    count: Int64
    op_ns: Int64
    idle_ns: Int64

    @property
    def waits_for_host(self) -> bool:
        """Whether the devices are idle for most of the time."""
        return 2 * int(self.busy_ns.sum()) < int(self.span_ns.sum())

    def undisturbed_ns(self) -> int:
        """Return the time of a window that nothing interrupts: the shortest one of each op and of idle time, before
        each op if there is a device, − overlap.

        Other processes interrupt or slow down some of the steps, but seldom the same op in each.
        """
        ops, idle = ((ns // self.windows).min(axis=1) for ns in (self.op_ns, self.idle_ns))
        rest = (self.span_ns - self.busy_ns - self.idle_ns.sum(axis=0)) // self.windows
        overlap = (self.op_ns.sum(axis=0) - self.busy_ns) // self.windows
        return int(ops.sum() + idle.sum() + rest.min() - overlap.min())


def measure_steps(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    *,
    device: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    warmup: int | None = None,
) -> StepTimes:
    """Measure the windows of a run.

    first_step, last_step  only steps with these IDs (step.step_id)
    warmup                 leading steps of each device to leave out; None: 1 if there are 3 or more, and no first_step

    Raises UsageError for an unknown device or if no step is left, IncomparableError for a run without tasks
    and without ops of a framework.
    """
    where = "" if device is None else f" AND t.device_id = {device:d}"
    tasks = _TASKS.format(run=f"{run_id:d}", device=where)
    on_host = device is None and _has_only_host_ops(connection, run_id)
    try:
        if on_host:
            connection.execute(_HOST_TASKS.format(run=f"{run_id:d}"))
            tasks = "compare_host_task AS t WHERE true"
        return _measured(connection, run_id, tasks, on_host, device, first_step, last_step, warmup)
    finally:
        for name in ("device", "operator", "launch", "key", "host_task"):
            connection.execute(f"DROP TABLE IF EXISTS temp.compare_{name}")


def _has_only_host_ops(connection: duckdb.DuckDBPyConnection, run_id: int) -> bool:
    found: bool = connection.execute(
        "SELECT NOT EXISTS (FROM task WHERE run_id = $1) "
        "AND EXISTS (FROM \"range\" WHERE run_id = $1 AND kind = 'host_op')",
        [run_id],
    ).fetchall()[0][0]
    return found


def _measured(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    tasks: str,
    on_host: bool,
    device: int | None,
    first_step: int | None,
    last_step: int | None,
    warmup: int | None,
) -> StepTimes:
    connection.execute(
        "CREATE TEMP TABLE compare_device AS SELECT row_number() OVER (ORDER BY device_id) - 1 AS device_index, "  # noqa: S608 - integers and our names
        f"device_id, start_ns, end_ns FROM (SELECT t.device_id, min(t.start_ns) AS start_ns, "
        f"max(t.start_ns + t.dur_ns) AS end_ns FROM {tasks} GROUP BY t.device_id)"
    )
    devices = connection.execute(
        "SELECT d.kind, d.name FROM compare_device AS c LEFT JOIN device AS d ON d.run_id = ? "
        "AND d.device_id = c.device_id ORDER BY c.device_index",
        [run_id],
    ).fetchall()
    if not devices:
        if (
            device is not None
            and connection.execute("SELECT 1 FROM task WHERE run_id = ? LIMIT 1", [run_id]).fetchone()
        ):
            raise UsageError(f"run {run_id} has no tasks of {option('--device')} {device}")
        label = connection.execute("SELECT label FROM run WHERE run_id = ?", [run_id]).fetchall()[0][0]
        advice = option("traceconv report range-statistic", 'Store.report("range-statistic")')
        raise IncomparableError(
            [f"{printable(str(label), 60)} has no tasks of a device"], f"; {advice} has the host times of each"
        )
    unit, steps, left_out, windows = _windows(connection, run_id, first_step, last_step, warmup)
    if on_host:
        devices = [("host", None)]
    _create_keys(connection, run_id, tasks, on_host)
    texts = connection.execute(_KEY_TEXTS.format(run=f"{run_id:d}")).fetchall()
    order = {row[0]: place for place, row in enumerate(connection.execute(
        "SELECT key FROM compare_key GROUP BY key ORDER BY min(first_ns), key").fetchall())}  # fmt: skip
    ops: list[Op] = [Op(None, "(other ops)", None, "", (), None, 1)] * len(order)
    shared = len(texts) > len(order)
    for key, kind, name, op_type, scope, path, shapes, task_count in texts:
        if not (shared and key == MAX_OPS - 1):
            names = tuple(path.split(SEPARATOR)) if path else ()
            ops[order[key]] = Op(kind, name, op_type, scope or "", names, _plain_shapes(shapes), task_count)
    placed = np.array([order[key] for key in sorted(order)], np.int64)
    samples = min(steps, MAX_SAMPLES)
    lanes = _lanes(windows, windows[:, 3] * samples // steps)
    count, op_ns, busy_ns, idle_ns = _sums(_pieces(connection, tasks, on_host), lanes, placed, len(devices), samples)
    if on_host:
        first = _pieces(connection, f"{tasks} AND t.is_first", on_host)
        count, *_ = _sums(first, lanes, placed, len(devices), samples)
        idle_ns[:] = 0
    span_ns, window_count = np.zeros((2, samples), np.int64)
    np.add.at(span_ns, windows[:, 3] * samples // steps, windows[:, 2] - windows[:, 1])
    np.add.at(window_count, windows[:, 3] * samples // steps, 1)
    used = np.flatnonzero((count > 0) | op_ns.any(axis=1))
    return StepTimes(
        unit=unit, on_host=on_host, devices=tuple(devices), model_name=_model_name(connection, run_id), steps=steps,
        left_out=left_out, windows=window_count, span_ns=span_ns, busy_ns=busy_ns,
        ops=tuple(ops[place] for place in used.tolist()), count=count[used], op_ns=op_ns[used],
        idle_ns=idle_ns[used],
    )  # fmt: skip


def _model_name(connection: duckdb.DuckDBPyConnection, run_id: int) -> str | None:
    name: str | None = connection.execute("SELECT model_name FROM run WHERE run_id = ?", [run_id]).fetchall()[0][0]
    return name


def _windows(
    connection: duckdb.DuckDBPyConnection, run_id: int, first: int | None, last: int | None, warmup: int | None
) -> tuple[str, int, int, Int64]:
    """Return the unit, the number of steps, how many were left out, and the windows: device, start, end, step index."""
    bounds = ["NULL" if bound is None else f"{bound:d}" for bound in (first, last)]
    found = connection.execute(_STEPS.format(run=f"{run_id:d}", first=bounds[0], last=bounds[1])).fetchall()
    if not found:
        if first is not None or last is not None:
            raise UsageError(f"run {run_id} has no steps in this range; omit {option('--steps')}")
        whole = connection.execute(
            "SELECT device_index, s, e, 0, TRY(e - s) FROM compare_device, "
            "(SELECT min(start_ns) AS s, max(end_ns) AS e FROM compare_device) ORDER BY device_index"
        ).fetchall()
        if not whole[0][4]:
            raise IncomparableError([f"the tasks of run {run_id} have no duration, or span more than 64 bits of ns"])
        return "run", 1, 0, np.array([row[:4] for row in whole], np.int64)
    by_device: dict[int, list[tuple[int, int]]] = {}
    for device, start, end in found:
        by_device.setdefault(device, []).append((start, end))
    steps = max(map(len, by_device.values()))
    left_out = warmup if warmup is not None else int(steps >= _STEPS_WITH_WARMUP and first is None)
    kept = [
        (device, start, end, place)
        for device, windows in by_device.items()
        for place, (start, end) in enumerate(windows[left_out:])
    ]
    if not kept:
        raise UsageError(f"run {run_id} has {steps} steps: {option('--warmup')} {left_out} leaves none")
    return "step", steps - left_out, left_out, np.array(kept, np.int64)


def _create_keys(connection: duckdb.DuckDBPyConnection, run_id: int, tasks: str, on_host: bool) -> None:
    """Create the table of distinct ops. Only tasks of other programs than models have operators that launched them."""
    run = f"{run_id:d}"
    by_operator = connection.execute(
        "SELECT EXISTS (FROM \"range\" WHERE run_id = $1 AND kind = 'host_op') "
        "AND NOT EXISTS (FROM op WHERE run_id = $1 AND model_id IS NOT NULL)",
        [run_id],
    ).fetchall()[0][0]
    operator = "NULL::VARCHAR AS path, NULL::VARCHAR AS scope, NULL::VARCHAR AS shapes, 1 AS task_count"
    if on_host:
        operator = operator.replace("NULL::VARCHAR AS shapes", "t.shapes")
    elif by_operator:
        connection.execute(_LAUNCHES.format(run=run))
        connection.execute(_OPERATORS.format(run=run))
        operator = "l.path, l.scope, l.shapes, max(l.task_count) AS task_count"
        tasks = tasks.replace("task AS t", f"task AS t {_WITH_OPERATOR}", 1)
    connection.execute(_KEYS.format(name=_NAME, operator=operator, tasks=tasks, most=MAX_OPS))


def _pieces(
    connection: duckdb.DuckDBPyConnection, tasks: str, on_host: bool
) -> Iterator[tuple[Int64, Int64, Int64, Int64]]:
    """Yield device, key, start and end of the tasks, by device and start."""
    by_operator = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE temporary AND table_name = 'compare_launch'"
    ).fetchall()[0][0]
    table = "compare_host_task AS t" if on_host else "task AS t"
    joined = f"{table} JOIN compare_device AS d ON d.device_id IS NOT DISTINCT FROM t.device_id "
    match = f"k.op_id IS NOT DISTINCT FROM t.op_id AND k.name IS NOT DISTINCT FROM {_NAME} "
    match += "AND k.kind IS NOT DISTINCT FROM t.kind"
    if on_host:
        match += " AND k.shapes IS NOT DISTINCT FROM t.shapes"
    elif by_operator:
        joined += _WITH_OPERATOR
        match += "".join(f" AND k.{one} IS NOT DISTINCT FROM l.{one}" for one in ("path", "scope", "shapes"))
    joined += f"JOIN compare_key AS k ON {match}"
    sql = _PIECES.format(tasks=tasks.replace(table, joined, 1))
    reader = connection.sql(sql).to_arrow_reader(_BATCH_ROWS)
    for batch in reader:
        device, key, start, end = (batch.column(i).to_numpy(zero_copy_only=False) for i in range(4))
        yield device, key, start, end


def _sums(
    pieces: Iterator[tuple[Int64, Int64, Int64, Int64]],
    lanes: Sequence[_Lane],
    placed: Int64,
    devices: int,
    samples: int,
) -> tuple[Int64, Int64, Int64, Int64]:
    """Return [op] started tasks, [op, sample] durations inside the windows, [sample] busy time, and [op, sample] idle
    times inside the windows that ended with a task of the op.

    placed  [key] index of the op
    """
    count = np.zeros(len(placed), np.int64)
    op_ns, idle_ns = np.zeros((2, len(placed), samples), np.int64)
    busy_ns = np.zeros(samples, np.int64)
    # Where the tasks seen so far end, by device: what comes after it is busy time that isn't counted yet.
    reached = np.full(devices, np.iinfo(np.int64).min, np.int64)
    total = sum(lane.total for lane in lanes)
    of_device: dict[int, list[_Lane]] = {}
    for lane in lanes:
        of_device.setdefault(lane.device, []).append(lane)
    for device, key, start, end in pieces:
        op = placed[key]
        found_devices, firsts = np.unique(device, return_index=True)
        for one, first, stop in zip(found_devices.tolist(), firsts, np.append(firsts[1:], len(device)), strict=True):
            starts, ends, of = start[first:stop], end[first:stop], op[first:stop]
            before = np.maximum.accumulate(np.concatenate([reached[one : one + 1], ends]))
            reached[one] = before[-1]
            free = np.maximum(starts, before[:-1])
            for lane in of_device.get(one, ()):
                np.add.at(count, of[lane.started(starts)], 1)
                found, sample, ns = lane.inside(starts, ends)
                np.add.at(op_ns, (of[found], sample), ns)
                total += float(ns.astype(np.float64).sum())
                _, sample, ns = lane.inside(free, ends)
                np.add.at(busy_ns, sample, ns)
                found, sample, ns = lane.inside(before[:-1], free)
                np.add.at(idle_ns, (of[found], sample), ns)
    if total > _LARGEST_SUM:
        raise IncomparableError(["the durations add up to more than 64 bits of ns"])
    return count, op_ns, busy_ns, idle_ns


class _Lane:
    """Windows of one device that don't overlap, by start."""

    def __init__(self, windows: Int64, samples: Int64) -> None:
        self.device = int(windows[0, 0])
        self._starts = np.ascontiguousarray(windows[:, 1])
        self._ends = np.ascontiguousarray(windows[:, 2])
        self._samples = samples
        self.total = float((self._ends - self._starts).astype(np.float64).sum())

    def started(self, starts: Int64) -> Int64:
        """Return which of these times are inside a window."""
        place = np.searchsorted(self._starts, starts, "right") - 1
        return np.flatnonzero((place >= 0) & (starts < self._ends[place]))

    def inside(self, starts: Int64, ends: Int64) -> tuple[Int64, Int64, Int64]:
        """Return the parts of intervals that are inside a window: index of the interval, sample, duration in ns."""
        first = np.searchsorted(self._ends, starts, "right")
        count = np.where(ends > starts, np.maximum(np.searchsorted(self._starts, ends, "left") - first, 0), 0)
        rows = np.repeat(np.arange(len(starts)), count)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        window = first[rows] + nth
        ns = np.minimum(ends[rows], self._ends[window]) - np.maximum(starts[rows], self._starts[window])
        return rows, self._samples[window], ns


def _lanes(windows: Int64, samples: Int64) -> list[_Lane]:
    """Divide windows, which are by device and start, into groups of one device without overlaps."""
    open_until: dict[tuple[int, int], int] = {}
    groups: dict[tuple[int, int], list[int]] = {}
    for row, (device, start, end, _) in enumerate(windows.tolist()):
        lane = 0
        while open_until.get((device, lane), start) > start:
            lane += 1
        open_until[device, lane] = end
        groups.setdefault((device, lane), []).append(row)
    return [_Lane(windows[rows], samples[rows]) for rows in groups.values()]


def _plain_shapes(text: str | None) -> str | None:
    """Return shapes as op.input_shapes has them; Kineto writes lists: [[64, 3], []] → 64,3;"""
    if text is None or not text.startswith("["):
        return text
    inner = text.replace(" ", "").removeprefix("[").removesuffix("]")
    return inner.replace("],[", ";").replace("[", "").replace("]", "").rstrip(";") or None


def share(values: Sequence[int], parts: int) -> list[int]:
    """Divide integers by `parts` so that the rounded quotients add up to the rounded quotient of the sum.

    Each is off by less than 1: the largest remainders are rounded up.
    """
    floors = [value // parts for value in values]
    missing = (2 * sum(values) + parts) // (2 * parts) - sum(floors)
    largest = sorted(range(len(values)), key=lambda i: -(values[i] % parts))
    for i in largest[:missing]:
        floors[i] += 1
    return floors
