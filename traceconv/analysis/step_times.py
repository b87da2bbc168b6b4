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

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np

from traceconv.analysis.window_sums import Pieces, sums_of
from traceconv.base.errors import IncomparableError, UsageError, option, printable
from traceconv.base.int64 import Int64
from traceconv.reports.window import Window

#: Windows are grouped into at most this many samples of consecutive steps.
MAX_SAMPLES = 512
#: Ops beyond the ones with the most time are one op.
MAX_OPS = 10_000
#: Separates the names of a path.
SEPARATOR = "\x1f"
_BATCH_ROWS = 1 << 17
#: Steps left out of a run with at least this many, if the user doesn't say how many.
_STEPS_WITH_WARMUP = 3
#: Names of tasks without an op end with numbers that differ between executions.
_NAME = (
    "CASE WHEN t.op_id IS NULL THEN CASE WHEN right(t.name, 1) BETWEEN '0' AND '9' "
    "THEN regexp_replace(t.name, '(_[0-9]+)+$', '') ELSE t.name END END"
)
#: What ran: tasks, with the operators that launched them, if these are known.
_TASK_WORK = """
CREATE TEMP VIEW compare_work AS
SELECT t.device_id, t.op_id, t.kind, {name} AS name, {operator}, coalesce(t.submit_ns, t.start_ns) AS first_ns,
       t.start_ns, t.dur_ns, true AS is_first
FROM {task} AS t {joins}
WHERE t.run_id = {run} AND t.kind IS DISTINCT FROM 'sync' AND t.start_ns IS NOT NULL
  AND TRY(t.start_ns + t.dur_ns) IS NOT NULL{device}
"""
#: Tasks of sources without starts, one after another, as of one device: nothing is known of idle times and overlap.
_UNTIMED = (
    "(SELECT * REPLACE (min(device_id) OVER () AS device_id, coalesce(sum(dur_ns) OVER (ORDER BY id ROWS BETWEEN "
    "UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS start_ns) FROM task AS t WHERE run_id = {run}{device})"
)
_NO_OPERATOR = "NULL::VARCHAR AS path, NULL::VARCHAR AS scope, NULL::VARCHAR AS shapes, 1::BIGINT AS task_count"
_OPERATOR = "l.path, l.scope, l.shapes, l.task_count"
_OPERATOR_JOINS = (
    "LEFT JOIN compare_launch AS c ON c.id = t.id LEFT JOIN compare_operator AS l ON l.range_id = c.range_id"
)
#: Self times of ranges, as pieces. Steps, and the range that is the recording, are not work. Names of Python's built-in
#: methods have addresses, which differ between runs.
_HOST_WORK = """
CREATE TEMP TABLE compare_host AS
WITH work AS (
  SELECT r.id, r.parent_id, r.kind, regexp_replace(r.name, ' at 0x[0-9a-f]+', '') AS name, NULL::BIGINT AS op_id,
         r.start_ns, r.start_ns + r.dur_ns AS end_ns, TRY(r.args ->> '$."Input Dims"') AS shapes,
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
SELECT NULL::BIGINT AS device_id, t.op_id, t.kind, {name} AS name, NULL::VARCHAR AS path, NULL::VARCHAR AS scope,
       t.shapes, 1::BIGINT AS task_count, coalesce(p.begin_ns, p.until_ns) AS first_ns,
       coalesce(p.begin_ns, p.until_ns) AS start_ns, p.until_ns - coalesce(p.begin_ns, p.until_ns) AS dur_ns, p.is_first
FROM piece AS p
JOIN work AS t ON t.id = p.id
WHERE NOT t.is_step AND (p.is_first OR p.begin_ns < p.until_ns);
CREATE TEMP VIEW compare_work AS FROM compare_host
"""
_DEVICES = """
CREATE TEMP TABLE compare_device AS
SELECT row_number() OVER (ORDER BY device_id) - 1 AS device_index, *
FROM (
  SELECT device_id, min(start_ns) AS start_ns, max(start_ns + dur_ns) AS end_ns
  FROM compare_work
  GROUP BY device_id
)
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
#: What is one op, and distinguishes it from others.
_IDENTITY = ("op_id", "kind", "name", "path", "scope", "shapes")
_KEYS = f"""
CREATE TEMP TABLE compare_key AS
SELECT least(row_number() OVER (ORDER BY total_ns DESC, first_ns, op_id, name, path, scope, shapes), {{most}}) - 1
         AS key, *
FROM (
  SELECT {", ".join(_IDENTITY)}, max(task_count) AS task_count, sum(dur_ns) AS total_ns, min(first_ns) AS first_ns
  FROM compare_work
  GROUP BY {", ".join(_IDENTITY)}
)
"""  # noqa: S608 - our names
_KEY_TEXTS = """
SELECT k.key, k.kind, coalesce(o.name, k.name), o.op_type, coalesce(k.scope, o.scope_path), k.path,
       coalesce(k.shapes, o.input_shapes), coalesce(k.task_count, 1)
FROM compare_key AS k
LEFT JOIN op AS o ON o.run_id = {run} AND o.op_id = k.op_id
ORDER BY k.key, k.first_ns
"""
_PIECES = f"""
SELECT d.device_index::BIGINT, k.key::BIGINT, w.start_ns, w.start_ns + w.dur_ns, w.is_first
FROM compare_work AS w
JOIN compare_device AS d ON d.device_id IS NOT DISTINCT FROM w.device_id
JOIN compare_key AS k ON {" AND ".join(f"k.{one} IS NOT DISTINCT FROM w.{one}" for one in _IDENTITY)}
ORDER BY d.device_index, w.start_ns
"""  # noqa: S608 - our names


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
    window: Window,
    *,
    device: int | None = None,
    warmup: int | None = None,
) -> StepTimes:
    """Measure the steps of a run, or those that `window` selects.

    warmup  leading steps of each device to leave out; None: 1 if there are 3 or more, and `window` has no first one

    Raises UsageError for an unknown device or if no step is left, IncomparableError for a run without tasks
    and without ops of a framework.
    """
    try:
        on_host = _create_work(connection, run_id, device)
        devices = _devices(connection, run_id, device)
        unit, left_out, windows = _windows(connection, run_id, window, warmup)
        connection.execute(_KEYS.format(most=MAX_OPS))
        ops, placed = _ops(connection, run_id)
        steps = int(windows[:, 3].max()) + 1
        samples = min(steps, MAX_SAMPLES)
        sample_of = windows[:, 3] * samples // steps
        pieces = _pieces(connection, placed)
        count, op_ns, busy_ns, idle_ns = sums_of(pieces, windows, sample_of, len(ops), len(devices), samples)
    finally:
        connection.execute("DROP VIEW IF EXISTS temp.compare_work")
        for name in ("host", "device", "operator", "launch", "key"):
            connection.execute(f"DROP TABLE IF EXISTS temp.compare_{name}")
    if on_host:
        devices, idle_ns[:] = (("host", None),), 0
    span_ns, window_count = np.zeros((2, samples), np.int64)
    np.add.at(span_ns, sample_of, windows[:, 2] - windows[:, 1])
    np.add.at(window_count, sample_of, 1)
    used = np.flatnonzero((count > 0) | op_ns.any(axis=1))
    return StepTimes(
        unit=unit, on_host=on_host, devices=devices, model_name=_of_run(connection, run_id, "model_name"), steps=steps,
        left_out=left_out, windows=window_count, span_ns=span_ns, busy_ns=busy_ns,
        ops=tuple(ops[place] for place in used.tolist()), count=count[used], op_ns=op_ns[used], idle_ns=idle_ns[used],
    )  # fmt: skip


def _of_run(connection: duckdb.DuckDBPyConnection, run_id: int, column: str) -> str | None:
    sql = f"SELECT {column} FROM run WHERE run_id = ?"  # noqa: S608 - our name
    value: str | None = connection.execute(sql, [run_id]).fetchall()[0][0]
    return value


def _create_work(connection: duckdb.DuckDBPyConnection, run_id: int, device: int | None) -> bool:
    """Create the view of what ran; return whether it has ranges of the host, in a run of a framework without tasks."""
    run = f"{run_id:d}"
    [(has_tasks, has_starts, has_operators, has_models)] = connection.execute(
        "SELECT EXISTS (FROM task WHERE run_id = $1), EXISTS (FROM task WHERE run_id = $1 AND start_ns IS NOT NULL), "
        "EXISTS (FROM \"range\" WHERE run_id = $1 AND kind = 'host_op'), "
        "EXISTS (FROM op WHERE run_id = $1 AND model_id IS NOT NULL)",
        [run_id],
    ).fetchall()
    if device is None and has_operators and not has_tasks:
        connection.execute(_HOST_WORK.format(run=run, name=_NAME))
        return True
    # Only tasks of other programs than models have operators that launched them.
    by_operator = has_operators and not has_models
    if by_operator:
        connection.execute(_LAUNCHES.format(run=run))
        connection.execute(_OPERATORS.format(run=run))
    operator, joins = (_OPERATOR, _OPERATOR_JOINS) if by_operator else (_NO_OPERATOR, "")
    on_device = "" if device is None else f" AND t.device_id = {device:d}"
    task = "task"
    if not has_starts:
        task, on_device = _UNTIMED.format(run=run, device=on_device), ""
    connection.execute(
        _TASK_WORK.format(task=task, name=_NAME, operator=operator, joins=joins, run=run, device=on_device)
    )
    return False


def _devices(
    connection: duckdb.DuckDBPyConnection, run_id: int, device: int | None
) -> tuple[tuple[str | None, str | None], ...]:
    """Create the table of the devices with work; return the kind and name of each."""
    connection.execute(_DEVICES)
    devices = connection.execute(
        "SELECT d.kind, d.name FROM compare_device AS c LEFT JOIN device AS d ON d.run_id = ? "
        "AND d.device_id = c.device_id ORDER BY c.device_index",
        [run_id],
    ).fetchall()
    if not devices:
        tasks = connection.execute("SELECT 1 FROM task WHERE run_id = ? LIMIT 1", [run_id]).fetchall()
        if device is not None and tasks:
            raise UsageError(f"run {run_id} has no tasks of {option('--device')} {device}")
        label = printable(str(_of_run(connection, run_id, "label")), 60)
        advice = option("traceconv report range-statistic", 'Store.report("range-statistic")')
        raise IncomparableError([f"{label} has no tasks of a device"], f"; {advice} has the host times of each")
    return tuple(devices)


def _ops(connection: duckdb.DuckDBPyConnection, run_id: int) -> tuple[list[Op], Int64]:
    """Return the ops in the order of their first launch, and the place of each key among them."""
    texts = connection.execute(_KEY_TEXTS.format(run=f"{run_id:d}")).fetchall()
    keys = connection.execute("SELECT key FROM compare_key GROUP BY key ORDER BY min(first_ns), key").fetchall()
    placed = np.empty(len(keys), np.int64)
    placed[[key for (key,) in keys]] = np.arange(len(keys))
    ops = [Op(None, "(other ops)", None, "", (), None, 1)] * len(keys)
    shared = len(texts) > len(keys)
    for key, kind, name, op_type, scope, path, shapes, task_count in texts:
        if not (shared and key == MAX_OPS - 1):
            names = tuple(path.split(SEPARATOR)) if path else ()
            ops[placed[key]] = Op(kind, name, op_type, scope or "", names, _plain_shapes(shapes), task_count)
    return ops, placed


def _windows(
    connection: duckdb.DuckDBPyConnection, run_id: int, window: Window, warmup: int | None
) -> tuple[str, int, Int64]:
    """Return the unit, how many steps were left out, and the windows: device, start, end, index of the step."""
    first, last = window.first_step, window.last_step
    bounds = ["NULL" if bound is None else f"{bound:d}" for bound in (first, last)]
    found = connection.execute(_STEPS.format(run=f"{run_id:d}", first=bounds[0], last=bounds[1])).fetchall()
    if not found:
        if first is not None or last is not None:
            sql = "SELECT min(step_id), max(step_id) FROM step WHERE run_id = ?"
            ((lowest, highest),) = connection.execute(sql, [run_id]).fetchall()
            has = "no steps" if lowest is None else f"steps {lowest} to {highest}"
            raise UsageError(f"run {run_id} has {has}; {option('--steps')} selects none")
        whole = connection.execute(
            "SELECT device_index, s, e, 0, TRY(e - s) FROM compare_device, "
            "(SELECT min(start_ns) AS s, max(end_ns) AS e FROM compare_device) ORDER BY device_index"
        ).fetchall()
        if not whole[0][4]:
            raise IncomparableError([f"the tasks of run {run_id} have no duration, or span more than 64 bits of ns"])
        return "run", 0, np.array([row[:4] for row in whole], np.int64)
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
    return "step", left_out, np.array(kept, np.int64)


def _pieces(connection: duckdb.DuckDBPyConnection, placed: Int64) -> Iterator[Pieces]:
    for batch in connection.sql(_PIECES).to_arrow_reader(_BATCH_ROWS):
        device, key, start, end, is_first = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        yield device, placed[key], start, end, is_first


def _plain_shapes(text: str | None) -> str | None:
    """Return shapes as op.input_shapes has them; Kineto writes lists: [[64, 3], []] → 64,3;"""
    if text is None or not text.startswith("["):
        return text
    inner = text.replace(" ", "").removeprefix("[").removesuffix("]")
    return inner.replace("],[", ";").replace("[", "").replace("]", "").rstrip(";") or None
