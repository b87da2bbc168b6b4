"""A choice of steps, or of a window of time, as users write them: `3-5`; `1.5ms`, or absolute nanoseconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import duckdb

from traceconv.base.errors import UsageError, option, printable
from traceconv.reports.run_choice import run_origins
from traceconv.reports.units import moment


class _Time(NamedTuple):
    """A time as written, in ns, and whether it is relative to the start of the run."""

    text: str
    time_ns: int
    relative: bool

    def absolute_ns(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> int:
        if not self.relative:
            return self.time_ns
        shown = printable(self.text)
        if len(run_ids) != 1:
            raise UsageError(f"{shown} is relative to the start of a run; select one run, or pass ns")
        origins = run_origins(connection, run_ids)
        if run_ids[0] not in origins:
            raise UsageError(f"{shown}: the start of run {run_ids[0]} is unknown; pass ns")
        return self.time_ns + origins[run_ids[0]]


@dataclass(frozen=True, slots=True)
class Window:
    """Steps from `first_step` to `last_step` (step.step_id), and times from `start` until before `end`; None: all."""

    first_step: int | None = None
    last_step: int | None = None
    start: _Time | None = None
    end: _Time | None = None

    @property
    def has_steps(self) -> bool:
        """Whether it selects steps."""
        return (self.first_step, self.last_step) != (None, None)

    @property
    def has_times(self) -> bool:
        """Whether it has a start or an end."""
        return (self.start, self.end) != (None, None)

    def require_steps_or_times(self) -> None:
        """Raise UsageError if it has both."""
        if self.has_steps and self.has_times:
            limits = option("--from", "from_ns"), option("--to", "to_ns")
            raise UsageError(f"select {option('--steps')}, or a window with {' and '.join(limits)}")

    def times(self, connection: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the start and the end in absolute ns.

        Raises UsageError for an empty window, and for a relative time with several runs or without a known start.
        """
        start_ns = None if self.start is None else self.start.absolute_ns(connection, run_ids)
        end_ns = None if self.end is None else self.end.absolute_ns(connection, run_ids)
        if self.start and self.end and (start_ns or 0) >= (end_ns or 0):
            shown = printable(self.start.text), printable(self.end.text)
            raise UsageError(f"the time window is empty: {shown[0]} is not before {shown[1]}")
        return start_ns, end_ns


def parse_window(steps: int | str | None, start: int | str | None = None, end: int | str | None = None) -> Window:
    """Parse steps such as `3-5`, `3-`, `-5` or `4`, and times. Raises UsageError."""
    times = [None if text is None else _Time(str(text), *moment(str(text))) for text in (start, end)]
    return Window(*_parse_steps(steps), *times)


def _parse_steps(steps: int | str | None) -> tuple[int | None, int | None]:
    if steps is None:
        return None, None
    match = re.fullmatch(r"\s*([0-9]{0,18})\s*(-?)\s*([0-9]{0,18})\s*", str(steps))
    if not match or not (match[1] or match[3]) or not (match[2] or (match[1] and not match[3])):
        raise UsageError(f"steps needs a range such as 3-5, 3- or -5, not '{printable(str(steps), 60)}'")
    last = match[3] if match[2] else match[1]
    if match[1] and last and int(match[1]) > int(last):
        raise UsageError(f"steps {match[1]}-{last}: the first step is after the last")
    return int(match[1]) if match[1] else None, int(last) if last else None
