"""The marks of steps in a device's log. A step is a run, or several runs of one group."""

from __future__ import annotations

from dataclasses import dataclass

from traceconv.runtime.compiled import MODEL_ID
from traceconv.runtime.device import Device
from traceconv.runtime.event_log import CaptureIds, EventLog


@dataclass(slots=True)
class _Step:
    """An unfinished step of several runs: its marks so far, in ticks."""

    group: int
    step_id: int
    marks: dict[str, int]


class StepMarks:
    """Numbers the steps of one device, and logs their marks."""

    def __init__(self, log: EventLog, device: Device, ids: CaptureIds) -> None:
        self._log, self._device, self._ids = log, device, ids
        self._open: _Step | None = None
        self._iterations = 0

    def step_id(self, group: int | None) -> int:
        """Return the number of the step of a run; None: the run is a step of its own."""
        if self._open is not None and self._open.group != group:
            self.end()
        if group is None:
            return next(self._ids.steps)
        if self._open is None:
            self._open = _Step(group, next(self._ids.steps), {})
        return self._open.step_id

    def put(self, step_id: int, marks: dict[str, int]) -> None:
        """Log the marks (ticks) of a run that is a step, or add them to those of the step that it is part of."""
        step = self._open
        if step is None or step.step_id != step_id:
            self._iterations += 1
            self._write(step_id, marks)
            return
        for mark, ticks in marks.items():
            known = step.marks.setdefault(mark, ticks)
            step.marks[mark] = min(known, ticks) if mark in ("start", "fp_start") else max(known, ticks)

    def end(self) -> None:
        """Log the open step of several runs, if there is one."""
        step, self._open = self._open, None
        if step is not None and step.marks:
            self._iterations += 1
            self._write(step.step_id, step.marks)

    def _write(self, step_id: int, marks: dict[str, int]) -> None:
        device = self._device
        for mark in ("start", "fp_start", "bp_end", "end", "get_next_start", "get_next_end"):
            if mark in marks:
                reading = device.clock.reading(marks[mark])
                self._log.step_mark(device.device_id, reading, step_id, MODEL_ID, self._iterations, mark)
