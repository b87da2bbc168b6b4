"""Steps from the slices that mark them, and the step of a timestamp.

A range of a program (ProfilerStep#3) is a step of its process and contains what the process launched. A vendor's
slices, such as msprof's Iteration 3, FP_BP Time 3 and Iteration Refresh 3, are of a device and a model: together they
define one step, which contains what runs on the device. A timestamp in steps of several processes or models has none.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.rows import Nullable, row_batch
from traceconv.normalize.trace.distinct import distinct_rows
from traceconv.schema.dtypes import RecordArray

#: Times of a step that a slice may define.
TIME_COLUMNS = ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns", "get_next_start_ns", "get_next_end_ns")
#: Replaces what is unknown in arrays of steps and of what marks them.
NO_STEP = -(2**63)
_OWNER = [("process_id", "i8"), ("model_id", "i8")]
#: When a step runs. A timestamp in steps of several owners has none.
SPAN = np.dtype([("step_id", "i8"), ("low_ns", "i8"), ("high_ns", "i8"), *_OWNER])
#: A range of a program that may be a step. Those of one start and end are used in the order of `rule` and `row`.
RANGE = np.dtype([("number", "i8"), *SPAN.descr[1:], *[(name, "i8") for name in ("track_id", "rule", "row")]])
_TIMES = [(name, "i8") for name in TIME_COLUMNS]
#: A vendor's slice, with the times of a step that it defines.
MARK = np.dtype([*RANGE.descr, *_TIMES])
_STEP = np.dtype([*SPAN.descr, ("number", "i8"), ("of_device", "?")])
_NO_RANGES, _NO_MARKS = np.zeros(0, RANGE), np.zeros(0, MARK)


class Steps:
    """All steps of a trace."""

    def __init__(self, ranges: RecordArray = _NO_RANGES, marks: RecordArray = _NO_MARKS) -> None:
        """`ranges`: those of programs (RANGE). `marks`: the slices of vendors (MARK)."""
        of_programs = _steps_of_programs(ranges)
        marks = marks[np.lexsort((marks["row"], marks["rule"]))]
        of_devices, times = _steps_of_devices(marks)
        steps, times = np.concatenate([of_programs, of_devices]), np.concatenate([_times_of(of_programs), times])
        order = np.lexsort((steps["number"], steps["high_ns"], steps["low_ns"]))
        steps, self._times = steps[order], times[order]
        unique = len(np.unique(steps["number"])) == len(steps)
        steps["step_id"] = steps["number"] if unique else np.arange(1, len(steps) + 1)
        self._steps = steps
        of_programs, of_devices = steps[~steps["of_device"]], steps[steps["of_device"]]
        self._of_program = _by_process(of_programs)
        programs = list(self._of_program.values())
        self._any_program = programs[0] if len(programs) == 1 else StepsOverTime(of_programs)
        self._of_process = _by_process(of_devices)
        self._of_track = _by_track(of_devices, marks)

    def __len__(self) -> int:
        return len(self._steps)

    @staticmethod
    @cache  # most traces have none, and all of this takes as long as it does for many
    def none() -> Steps:
        """Return no steps."""
        return Steps()

    def at(
        self, tracks: NDArray[np.int32], ns: Int64, process_of: Callable[[int], int | None], *, tasks: bool
    ) -> tuple[Nullable, Mask]:
        """Return the step of each timestamp on a track, and whether it is a device's."""
        steps = self._any_program.at(ns)
        of_device = np.zeros(len(ns), np.bool_)
        if not self._of_process and len(self._of_program) <= 1:
            return steps, of_device
        values, null = steps.values.astype(np.int64), steps.mask.copy()
        only = next(iter(self._of_process.values())) if tasks and len(self._of_process) == 1 else None
        for track in np.unique(tracks).tolist():
            process = none_as_no_step(process_of(track))
            device_steps = self._of_track.get(track) or self._of_process.get(process) or only
            current = device_steps or self._of_program.get(process)
            if current is not None:
                rows = np.flatnonzero(tracks == track)
                found = current.at(ns[rows])
                values[rows], null[rows], of_device[rows] = found.values, found.mask, device_steps is not None
        return Nullable(values, null), of_device

    def rows(self, ran: Int64) -> pa.RecordBatch:
        """Return the rows of table step: a step on each device that ran part of it.

        If several processes have steps, one without tasks is on the devices of its process.

        ran  distinct pairs of step and device, sorted
        """
        steps = self._steps
        process = distinct_rows(steps["process_id"])[1]
        if np.any(process):
            ran = _with_devices_of_processes(ran, steps["step_id"], process)
        row, devices = on_devices(steps["step_id"], ran)
        source = pa.array(steps["of_device"][row].astype(np.int32))
        return row_batch(
            "step",
            {
                "step_id": steps["step_id"][row],
                "device_id": devices,
                "model_id": _nullable(steps["model_id"][row]),
                "iteration": steps["number"][row],
                "step_source": pa.DictionaryArray.from_arrays(source, ["annotation", "slice"]),
                **{name: _nullable(self._times[name][row]) for name in TIME_COLUMNS},
            },
        )


class StepsOverTime:
    """The current step over time: the last one started of those that have not ended.

    from_ns   when it changes, in ascending order; the first value precedes all timestamps
    step_ids  the current step from then on; NO_STEP: none
    """

    def __init__(self, steps: RecordArray) -> None:
        """`steps`: when each runs (SPAN; other fields are ignored)."""
        steps = steps[steps["low_ns"] < steps["high_ns"]]
        steps = steps[np.argsort(steps["low_ns"], kind="stable")]
        if np.all(steps["low_ns"][1:] >= steps["high_ns"][:-1]):
            points = np.stack([steps["low_ns"], steps["high_ns"]], axis=1).ravel()
            ids = np.stack([steps["step_id"], np.full(len(steps), NO_STEP)], axis=1).ravel()
        else:
            points, ids = _changes(steps)
        points, ids = np.insert(points, 0, NO_STEP), np.insert(ids, 0, NO_STEP)
        last = np.append(points[1:] != points[:-1], True)
        self.from_ns, self.step_ids = points[last], ids[last]

    def at(self, ns: Int64) -> Nullable:
        """Return the step of each timestamp."""
        ids = self.step_ids[np.searchsorted(self.from_ns, ns, side="right") - 1]
        return Nullable(np.where(ids == NO_STEP, 0, ids), ids == NO_STEP)


def on_devices(step_ids: Int64, ran: Int64) -> tuple[Int64, Nullable]:
    """Return the rows of steps on the devices that ran them: the place of the step, and the device, NULL if none did.

    ran  distinct pairs of step and device, sorted
    """
    first, count = _runs(ran[:, 0], step_ids)
    devices = np.append(ran[:, 1], NO_STEP)
    first[count == 0] = len(ran)
    count = np.maximum(count, 1)
    return np.repeat(np.arange(len(step_ids)), count), _nullable(devices[_places(first, count)])


def _nullable(values: Int64) -> Nullable:
    null = values == NO_STEP
    return Nullable(np.where(null, 0, values), null)


def none_as_no_step(number: int | None) -> int:
    """Return the number of a process or model as arrays of steps have it."""
    return NO_STEP if number is None else number


def _steps_of_programs(ranges: RecordArray) -> RecordArray:
    """Return the ranges that are steps.

    A process may mark a step on several of its tracks: the first one is used. It may use a number again.
    """
    ranges = ranges[np.lexsort((ranges["row"], ranges["rule"], -ranges["high_ns"], ranges["low_ns"]))]
    firsts, same = distinct_rows(ranges["number"], ranges["process_id"])
    used = np.flatnonzero(ranges["track_id"] == ranges["track_id"][firsts][same])
    used = used[np.argsort(same[used], kind="stable")]
    low, high, same = ranges["low_ns"][used], ranges["high_ns"][used], same[used]
    again = (same[1:] == same[:-1]) & (low[1:] < high[:-1])
    kept = np.ones(len(used), np.bool_)
    latest, end = -1, 0
    for place in np.flatnonzero(np.isin(same, same[1:][again])).tolist():
        if same[place] == latest and low[place] < end:
            kept[place] = False
        else:
            latest, end = int(same[place]), int(high[place])
    return _steps(ranges[np.sort(used[kept])])


def _steps_of_devices(marks: RecordArray) -> tuple[RecordArray, RecordArray]:
    """Return the steps that slices define together, and their times."""
    firsts, step = distinct_rows(marks["number"], marks["process_id"], marks["model_id"])
    found = _steps(marks[firsts])
    found["of_device"] = True
    np.minimum.at(found["low_ns"], step, marks["low_ns"])
    np.maximum.at(found["high_ns"], step, marks["high_ns"])
    times = np.full(len(found), NO_STEP, _TIMES)
    for name in TIME_COLUMNS:
        known = np.flatnonzero(marks[name] != NO_STEP)
        defined, first = np.unique(step[known], return_index=True)
        times[name][defined] = marks[name][known[first]]
    return found, times


def _steps(marks: RecordArray) -> RecordArray:
    found = np.zeros(len(marks), _STEP)
    for name in ("number", "low_ns", "high_ns", "process_id", "model_id"):
        found[name] = marks[name]
    return found


def _times_of(ranges: RecordArray) -> RecordArray:
    """Return the times of steps that are ranges of a program."""
    times = np.full(len(ranges), NO_STEP, _TIMES)
    times["start_ns"], times["end_ns"] = ranges["low_ns"], ranges["high_ns"]
    return times


def _by_process(steps: RecordArray) -> dict[int, StepsOverTime]:
    steps = steps[np.argsort(steps["process_id"], kind="stable")]
    parts = np.split(steps, np.flatnonzero(np.diff(steps["process_id"])) + 1) if len(steps) else []
    return {int(part["process_id"][0]): StepsOverTime(part) for part in parts}


def _by_track(steps: RecordArray, marks: RecordArray) -> dict[int, StepsOverTime]:
    """Return the steps of the processes and models that have slices on each track."""
    owner = distinct_rows(*(np.concatenate([marks[name], steps[name]]) for name, _ in _OWNER))[1]
    of_marks, of_steps = owner[: len(marks)], owner[len(marks) :]
    owners: dict[int, list[int]] = {}
    for row in distinct_rows(marks["track_id"], of_marks)[0].tolist():
        owners.setdefault(int(marks["track_id"][row]), []).append(int(of_marks[row]))
    return {track: StepsOverTime(steps[np.isin(of_steps, own)]) for track, own in owners.items()}


def _changes(steps: RecordArray) -> tuple[Int64, Int64]:
    """Return when the current step changes, and the step from then on. The steps overlap, and are in order."""
    owners = distinct_rows(steps["process_id"], steps["model_id"])[1].tolist()
    ids, ends = steps["step_id"].tolist(), steps["high_ns"].tolist()
    times = np.concatenate([steps["high_ns"], steps["low_ns"]])
    order = np.argsort(times, kind="stable")  # ends come before starts
    running: list[int] = []  # −place, so that the last one is first; a step that ended is removed when it comes first
    of_owner: Counter[int] = Counter()  # running steps
    found = np.full(len(times), NO_STEP)
    for at, (place, ns) in enumerate(zip(order.tolist(), times[order].tolist(), strict=True)):
        step = place - len(steps)
        owner = owners[step]  # also of an end: from the end of the list
        of_owner[owner] += 1 if step >= 0 else -1
        if not of_owner[owner]:
            del of_owner[owner]
        if step >= 0:
            heapq.heappush(running, -step)
        while running and ends[-running[0]] <= ns:
            heapq.heappop(running)
        if running and len(of_owner) == 1:
            found[at] = ids[-running[0]]
    return times[order], found


def _with_devices_of_processes(ran: Int64, step_ids: Int64, process: NDArray[np.intp]) -> Int64:
    """Return the pairs with those of steps that no device ran: with all devices that ran steps of their process."""
    by_id = np.argsort(step_ids)
    of_ran = process[by_id[np.searchsorted(step_ids, ran[:, 0], sorter=by_id)]]
    of_process = np.unique(np.stack([of_ran, ran[:, 1]], axis=1), axis=0)
    others = np.flatnonzero(~np.isin(step_ids, ran[:, 0]))
    first, count = _runs(of_process[:, 0], process[others])
    more = np.stack([np.repeat(step_ids[others], count), of_process[_places(first, count), 1]], axis=1)
    pairs = np.concatenate([ran, more])
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def _runs(ordered: Int64, keys: Int64) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first place of each key among sorted ones, and how often it occurs."""
    first = np.searchsorted(ordered, keys)
    return first, np.searchsorted(ordered, keys, side="right") - first


def _places(first: NDArray[np.intp], count: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the places of runs, one after another."""
    return np.arange(count.sum()) + np.repeat(first - np.cumsum(count) + count, count)
