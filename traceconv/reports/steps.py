"""The steps of a run as times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from traceconv.base.errors import UsageError, option
from traceconv.reports.window import Window

_STEPS = """
SELECT s.step_id, s.device_id, coalesce(s.start_ns, s.fp_start_ns) AS start_ns, greatest(s.end_ns, t.end_ns) AS end_ns
FROM step AS s
LEFT JOIN (
  SELECT step_id, device_id, max(TRY(start_ns + dur_ns)) AS end_ns
  FROM task
  WHERE run_id = $run AND step_id IS NOT NULL
  GROUP BY ALL
) AS t ON t.step_id = s.step_id AND (t.device_id = s.device_id OR s.device_id IS NULL)
WHERE s.run_id = $run AND s.end_ns > coalesce(s.start_ns, s.fp_start_ns)
  AND ($device IS NULL OR s.device_id = $device)
QUALIFY row_number() OVER (PARTITION BY s.step_id, s.device_id ORDER BY t.end_ns DESC) = 1
ORDER BY start_ns, s.step_id, s.device_id
"""


class StepTime(NamedTuple):
    """A step on a device until the end of its last task."""

    step_id: int
    device_id: int | None
    start_ns: int
    end_ns: int


def chosen_steps(
    connection: duckdb.DuckDBPyConnection, run_id: int, window: Window, *, device: int | None = None
) -> list[StepTime]:
    """Return the steps of a run that a window selects, in order; none if it selects all and the run has none.

    Raises UsageError if the run doesn't have them.
    """
    found = connection.execute(_STEPS, {"run": run_id, "device": device}).fetchall()
    steps = [StepTime(*row) for row in found]
    chosen = [
        step
        for step in steps
        if (window.first_step is None or step.step_id >= window.first_step)
        and (window.last_step is None or step.step_id <= window.last_step)
    ]
    if window.has_steps and not steps:
        raise UsageError(f"the run has no steps; omit {option('--steps')}")
    if steps and not chosen:
        first, last = (f(step.step_id for step in steps) for f in (min, max))
        raise UsageError(f"the run has steps {first} to {last}; {option('--steps')} selects none")
    return chosen


def times_of(
    connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int], window: Window
) -> tuple[int | None, int | None]:
    """Return the time of a window: from the start of the first of its steps to the end of the last one and of its tasks
    on all devices, or as its times say.

    Raises UsageError as `chosen_steps` and `Window.times` do, and for steps of several runs.
    """
    window.require_steps_or_times()
    if not window.has_steps:
        return window.times(connection, run_ids)
    if len(run_ids) != 1:
        raise UsageError("each run has its steps at other times; select one run")
    chosen = chosen_steps(connection, run_ids[0], window)
    return min(step.start_ns for step in chosen), max(step.end_ns for step in chosen)
