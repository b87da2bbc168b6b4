"""Steps from the slices that mark them, and the step of a timestamp.

A range of a program (ProfilerStep#3) is a step of its process and contains what the process launched. A vendor's
slices, such as msprof's Iteration 3, FP_BP Time 3 and Iteration Refresh 3, are of a device and a model: together they
define one step, which contains what runs on the device. A timestamp in steps of several processes or models has none.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.events.trace import binary_column
from traceconv.normalize.rows import Nullable, rows_from_tuples
from traceconv.normalize.trace.times import exact_ns

#: Times of a step that a slice may define, and the names of the slice's start and end in rules.
TIME_COLUMNS = ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns", "get_next_start_ns", "get_next_end_ns")
SLICE_START, SLICE_END = "@start", "@end"
NO_STEP = -(2**63)


class Mark(NamedTuple):
    """A slice that defines times of a step.

    times  the times that a vendor's slice defines (see `Rule.times`); empty for a range of the program
    order  the order in which marks are used
    """

    number: int
    start_ns: int
    end_ns: int
    track_id: int
    process_id: int | None
    model_id: int | None
    order: tuple[int, int]
    times: Mapping[str, Sequence[str]]
    args: str | None


class StepSpan(NamedTuple):
    """When a step runs. `owner`: the process or device, and the model; a timestamp in steps of several has none."""

    step_id: int
    low_ns: int
    high_ns: int
    owner: tuple[int | None, int | None]


@dataclass(slots=True)
class _Step:
    number: int
    process_id: int | None
    model_id: int | None
    source: str
    times: dict[str, int] = field(default_factory=dict)
    tracks: set[int] = field(default_factory=set)
    low_ns: int = 2**63 - 1
    high_ns: int = -(2**63)
    step_id: int = 0

    @property
    def span(self) -> StepSpan:
        return StepSpan(self.step_id, self.low_ns, self.high_ns, (self.process_id, self.model_id))


class Steps:
    """All steps of a trace."""

    def __init__(self, marks: Sequence[Mark] = (), time_places: int = 3) -> None:
        """`time_places`: the unit of times in args, as decimal places above the nanosecond."""
        found: dict[tuple[object, ...], _Step] = {}
        latest: dict[tuple[int, int | None], _Step] = {}
        ranges = [mark for mark in marks if not mark.times]
        for mark in sorted(ranges, key=lambda one: (one.start_ns, -one.end_ns, one.order)):
            # A process may mark a step on several of its tracks: the first one is used. It may use a number again.
            step = latest.get((mark.number, mark.process_id))
            if step is None or (mark.track_id in step.tracks and mark.start_ns >= step.high_ns):
                step = _Step(mark.number, mark.process_id, None, "annotation", tracks={mark.track_id})
                step.times = {"start_ns": mark.start_ns, "end_ns": mark.end_ns}
                step.low_ns, step.high_ns = mark.start_ns, mark.end_ns
                found[mark.number, mark.process_id, mark.order] = latest[mark.number, mark.process_id] = step
        for mark in sorted((one for one in marks if one.times), key=lambda one: one.order):
            key = (mark.number, mark.process_id, mark.model_id)
            step = found.setdefault(key, _Step(mark.number, mark.process_id, mark.model_id, "slice"))
            for column, ns in _times_of(mark, time_places).items():
                step.times.setdefault(column, ns)
            step.tracks.add(mark.track_id)
            step.low_ns, step.high_ns = min(step.low_ns, mark.start_ns), max(step.high_ns, mark.end_ns)
        self._steps = sorted(found.values(), key=lambda step: (step.low_ns, step.high_ns, step.number))
        unique = len({step.number for step in self._steps}) == len(self._steps)
        for place, step in enumerate(self._steps, 1):
            step.step_id = step.number if unique else place
        of_devices = [step for step in self._steps if step.source == "slice"]
        of_programs = [step for step in self._steps if step.source == "annotation"]
        self._of_program = _by_process(of_programs)
        programs = list(self._of_program.values())
        self._any_program = programs[0] if len(programs) == 1 else _over_time(of_programs)
        self._of_process = _by_process(of_devices)
        models: dict[int, set[tuple[int | None, int | None]]] = {}
        for step in of_devices:
            for track in step.tracks:
                models.setdefault(track, set()).add((step.process_id, step.model_id))
        self._of_track = {
            track: _over_time([step for step in of_devices if (step.process_id, step.model_id) in own])
            for track, own in models.items()
        }

    def __len__(self) -> int:
        return len(self._steps)

    def at(
        self, tracks: NDArray[np.int32], ns: Int64, process_of: Callable[[int], int | None], *, tasks: bool
    ) -> tuple[Nullable, NDArray[np.bool_]]:
        """Return the step of each timestamp on a track, and whether it is a device's."""
        steps = self._any_program.at(ns)
        of_device = np.zeros(len(ns), np.bool_)
        if not self._of_process and len(self._of_program) <= 1:
            return steps, of_device
        values, null = steps.values.astype(np.int64), steps.mask.copy()
        only = next(iter(self._of_process.values())) if tasks and len(self._of_process) == 1 else None
        for track in np.unique(tracks).tolist():
            process = process_of(track)
            device_steps = self._of_track.get(track) or self._of_process.get(process) or only
            current = device_steps or self._of_program.get(process)
            if current is not None:
                rows = np.flatnonzero(tracks == track)
                found = current.at(ns[rows])
                values[rows], null[rows], of_device[rows] = found.values, found.mask, device_steps is not None
        return Nullable(values, null), of_device

    def rows(self, ran: Mapping[int, Sequence[int]]) -> pa.RecordBatch:
        """Return the rows of table step: a step on each device that ran part of it.

        If several processes have steps, one without tasks is on the devices of its process.
        """
        of_process: dict[int | None, set[int]] = {}
        for step in self._steps:
            of_process.setdefault(step.process_id, set()).update(ran.get(step.step_id, ()))
        names = ("step_id", "device_id", "model_id", "iteration", "step_source", *TIME_COLUMNS)
        rows: list[tuple[object, ...]] = []
        for step in self._steps:
            found = ran.get(step.step_id) or (of_process[step.process_id] if len(of_process) > 1 else ())
            devices: Sequence[int | None] = sorted(found) or [None]
            times = [step.times.get(name) for name in TIME_COLUMNS]
            rows += [(step.step_id, device, step.model_id, step.number, step.source, *times) for device in devices]
        return rows_from_tuples("step", names, rows)


class StepsOverTime:
    """The current step over time: the last one started of those that have not ended.

    from_ns   when it changes, in ascending order; the first value precedes all timestamps
    step_ids  the current step from then on; NO_STEP: none
    """

    def __init__(self, steps: Sequence[StepSpan]) -> None:
        changes = sorted(
            (ns, starts, place)
            for place, step in enumerate(steps)
            if step.low_ns < step.high_ns
            for ns, starts in ((step.low_ns, True), (step.high_ns, False))
        )
        running: list[tuple[int, int]] = []  # −start, −place; a step that ended is removed when it comes first
        owners: Counter[tuple[int | None, int | None]] = Counter()  # running steps by process and model
        points, ids = [], []
        for ns, of_time in groupby(changes, itemgetter(0)):
            for _, starts, place in of_time:
                owner = steps[place].owner
                owners[owner] += 1 if starts else -1
                if not owners[owner]:
                    del owners[owner]
                if starts:
                    heapq.heappush(running, (-steps[place].low_ns, -place))
            while running and steps[-running[0][1]].high_ns <= ns:
                heapq.heappop(running)
            points.append(ns)
            ids.append(steps[-running[0][1]].step_id if len(owners) == 1 else NO_STEP)
        self.from_ns = np.array([NO_STEP, *points], np.int64)
        self.step_ids = np.array([NO_STEP, *ids], np.int64)

    def at(self, ns: Int64) -> Nullable:
        """Return the step of each timestamp."""
        ids = self.step_ids[np.searchsorted(self.from_ns, ns, side="right") - 1]
        return Nullable(np.where(ids == NO_STEP, 0, ids), ids == NO_STEP)


def _over_time(steps: Sequence[_Step]) -> StepsOverTime:
    return StepsOverTime([step.span for step in steps])


def _by_process(steps: Sequence[_Step]) -> dict[int | None, StepsOverTime]:
    return {
        process: _over_time([step for step in steps if step.process_id == process])
        for process in {step.process_id for step in steps}
    }


def _times_of(mark: Mark, time_places: int) -> dict[str, int]:
    """Return the times that a vendor's slice defines. Times in its args must be inside of the slice."""
    try:
        args = json.loads(mark.args or "{}", parse_float=Decimal)
    except (ValueError, RecursionError):
        args = {}
    args = args if isinstance(args, dict) else {}
    found: dict[str, int] = {}
    for column, words in mark.times.items():
        for word in reversed(words):
            ns = _time_of(mark, word, args, time_places)
            if ns is not None:
                found[column] = ns
    return found


def _time_of(mark: Mark, word: str, args: Mapping[str, object], time_places: int) -> int | None:
    if word in (SLICE_START, SLICE_END):
        return mark.start_ns if word == SLICE_START else mark.end_ns
    value = args.get(word)
    if not isinstance(value, (str, int, Decimal)) or isinstance(value, bool):
        return None
    text = binary_column([str(value).strip().encode("utf-8", "replace")])
    for places in (time_places, 0):  # some versions wrote nanoseconds
        times = exact_ns(text, places)
        if times.valid[0] and mark.start_ns <= times.ns[0] <= mark.end_ns:
            return int(times.ns[0])
    return None
