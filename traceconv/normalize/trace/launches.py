"""Calls by process and correlation ID, and which of them launched a task.

Each process counts its own IDs, so a trace that was merged from several has equal ones. A task in a process with calls
was launched by one of these. Other tasks are in the process of a device: they were launched by a call of the process
with the same label (TraceTracks.by_label), or else of the one that is known to launch on this stream (stream_owners).
If several calls of a process have the ID, one after the other, tasks may show which is whose (_in_turn); of calls
inside each other, the outermost is used. Some sources make IDs unique: all that have one are then known.

A task without an ID, or with one that no call has, was launched by the call from which its only launch flow leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import parse_int64
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.trace.complete_nesting import NO_PARENT
from traceconv.normalize.trace.stream_owners import NO_ARG, TASK_DTYPE, Owners, bit, owners
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.schema.dtypes import RecordArray

#: Of a call; -1 if unknown, and call_ns is _REPEATED if other calls have the ID.
_VALUES = ("start_ns", "step_id", "api_id", "call_ns")
_REPEATED = -2
#: Calls, and tasks, whose api_id is their own ID.
_REPEATED_DTYPE = np.dtype(
    [("key", "<u8"), ("process", "<i4"), ("is_task", "<i4"), *((name, "<i8") for name in _VALUES)]
)


class TaskBatch(NamedTuple):
    """Some tasks.

    known      those with a correlation ID
    device_id  -1 if unknown
    read_args  returns what they share with the calls that launched them, NO_ARG if unknown
    """

    ids: Int64
    tracks: NDArray[np.int32]
    start_ns: Int64
    correlation: Int64
    known: Mask
    device_id: Int64
    read_args: Callable[[], Int64]


class Launches:
    """Takes calls, then finds those of tasks. `unclear`: tasks with the ID of calls that may belong to others."""

    def __init__(
        self,
        tracks: TraceTracks,
        calls: Callable[[], Iterator[tuple[Int64, ...]]],
        call_args: Callable[[], Iterator[tuple[Int64, Int64]]],
        tasks: Callable[[], Iterator[TaskBatch]],
    ) -> None:
        """These read rows again: `calls` the _VALUES of all rows of `api`, `call_args` their IDs and what they share
        with their tasks, `tasks` all tasks.
        """
        self._tracks = tracks
        self._read_calls, self._read_call_args, self._read_tasks = calls, call_args, tasks
        self._calls: dict[int | None, SpillIndex] = {}
        #: Task → call, by launch flows.
        self._sources = SpillIndex(("src_id",), settle=_only)
        self._calls_by_id: SpillIndex | None = None
        self._call_args: SpillIndex | None = None
        #: Calls with an ID that their process uses several times.
        self._repeated = ExternalSort(_REPEATED_DTYPE, "key")
        self._repeats: SpillIndex | None = None
        self._owners: Owners | None = None
        self.unclear = 0

    def add(self, correlation: Int64, tracks: NDArray[np.int32], *values: Int64) -> None:
        """Add calls with their IDs and tracks, and the values to store for each."""
        for process, rows in self._by_process(tracks):
            calls = self._calls.get(process)
            if calls is None:
                settle = partial(self._settle, len(self._calls))
                calls = self._calls[process] = SpillIndex(_VALUES, settle=settle)
            calls.add(correlation[rows].astype(np.uint64), *(value[rows] for value in values))

    def _settle(self, process: int, rows: RecordArray) -> RecordArray:
        """Put the outermost call of each ID first. If others are not inside of it, mark it, and keep all for later."""
        rows = rows[np.lexsort((-rows["call_ns"], rows["start_ns"], rows["key"]))]
        starts = np.flatnonzero(np.concatenate([[True], rows["key"][1:] != rows["key"][:-1]]))
        counts = np.diff([*starts, len(rows)])
        first = rows[np.repeat(starts, counts)]
        ends_later = rows["start_ns"] - first["start_ns"] > first["call_ns"] - np.maximum(rows["call_ns"], 0)
        repeated = np.logical_or.reduceat(ends_later & (first["call_ns"] >= 0), starts)
        own = rows[np.repeat(repeated, counts)]
        kept = np.zeros(len(own), _REPEATED_DTYPE)
        for name in ("key", *_VALUES):
            kept[name] = own[name]
        kept["process"] = process
        self._repeated.add(kept)
        rows["call_ns"][starts[repeated]] = _REPEATED
        return rows

    def add_flows(self, flows: pa.RecordBatch) -> None:
        """Add rows of `flow`, once all calls were added."""
        kind = flows.column("kind")
        is_launch = kind.indices.to_numpy() == kind.dictionary.index("launch").as_py()
        source, task = (flows.column(name).fill_null(NO_PARENT).to_numpy() for name in ("src_id", "dst_id"))
        rows = np.flatnonzero(is_launch & (task != NO_PARENT))
        self._sources.add(task[rows].astype(np.uint64), source[rows])

    def sort(self) -> None:
        """Prepare to look up, when all calls were added."""
        for calls in self._calls.values():
            calls.sort()

    @property
    def is_empty(self) -> bool:
        """Whether no call has an ID."""
        return not self._calls

    @cached_property
    def share_ids(self) -> bool:
        """Whether IDs of processes are in the same range, so that a call may have the ID of a lost one."""
        bounds = sorted(calls.bounds() for calls in self._calls.values())
        return any(low <= last for (_, last), (low, _) in pairwise(bounds))

    def look_up(self, tasks: TaskBatch) -> tuple[Mask, dict[str, Int64]]:
        """Return for which tasks the launch is known, and its values."""
        is_used, place, values = self._call_of(tasks)
        repeated = np.flatnonzero((place >= 0) & (values["call_ns"] == _REPEATED))
        if len(repeated):
            if self._repeats is None:
                self._repeats = self._calls_in_turn()
            hit, found_values = self._repeats.look_up(tasks.ids[repeated].astype(np.uint64))
            place[repeated[~hit]] = -1
            for name in _VALUES:
                values[name][repeated] = found_values[name]
        found = place >= 0
        unclear = is_used & ~found
        self.unclear += int(np.count_nonzero(unclear))
        self._find_by_flow(tasks.ids, found, unclear, values)
        return found, values

    def _call_of(self, tasks: TaskBatch) -> tuple[Mask, Int64, dict[str, Int64]]:
        """Return which tasks have the ID of a call, the place of the process that launched it, and its first such call.

        The place is -1 if unknown.
        """
        own, asks = np.full(len(tasks.ids), -1), None
        if self.share_ids:
            own, asks, rows = self._of_streams(tasks)
            if len(asks):
                if self._owners is None:
                    others = (self._of_streams(batch)[2] for batch in self._read_tasks())
                    self._owners = owners(others, lambda tasks: self._possible(tasks)[0], len(self._calls))
                own[asks] = self._owners.of(rows["stream"], *self._possible(rows))
        count, place, values = self._in_all(tasks.correlation.astype(np.uint64), own)
        is_used = tasks.known & (count > 0)
        if asks is not None:
            place[place != own] = -1
            is_refuted = ~self._agree(rows, {name: column[asks] for name, column in values.items()})
            place[asks[is_refuted]] = -1
        place[~is_used] = -1
        return is_used, place, values

    def _of_streams(self, tasks: TaskBatch) -> tuple[Int64, NDArray[np.intp], RecordArray]:
        """Return the place of each task's process, -1 if that has no calls or is a device. Return the places of tasks
        with an ID for which it is -1, and their rows of TASK_DTYPE.
        """
        own, device = np.full(len(tasks.ids), -1), np.zeros(len(tasks.ids), np.int32)
        places = {process: place for place, process in enumerate(self._calls)}
        same_label = self._tracks.by_label(self._calls)
        for process, rows in self._by_process(tasks.tracks):
            if process is not None:
                device[rows] = process
                number = parse_int64(self._tracks.pid_of(process))
                place = places.get(process, places.get(same_label(process), -1))
                own[rows] = np.where(tasks.device_id[rows] == number, -1, place)
        asks = np.flatnonzero(tasks.known & (own < 0))
        found = np.empty(len(asks), TASK_DTYPE)
        if len(asks):
            found["key"], found["start_ns"] = tasks.correlation[asks].astype(np.uint64), tasks.start_ns[asks]
            found["arg"], found["device"] = tasks.read_args()[asks], device[asks]
            found["stream"] = tasks.tracks[asks]
        return own, asks, found

    def _in_all(self, keys: NDArray[np.uint64], own: Int64) -> tuple[Int64, Int64, dict[str, Int64]]:
        """Return how many processes have a call with each ID, the place of one (`own`, if it has), and its values."""
        if len(self._calls) == 1:
            [(hit, values)] = (calls.look_up(keys) for calls in self._calls.values())
            return hit.astype(np.int64), hit - 1, values
        count, place = np.zeros(len(keys), np.int64), np.full(len(keys), -1)
        values = {name: np.zeros(len(keys), np.int64) for name in _VALUES}
        for number, calls in enumerate(self._calls.values()):
            hit, found = calls.look_up(keys)
            count += hit
            take = hit & ((place < 0) | (own == number))
            place[take] = number
            for name in _VALUES:
                values[name][take] = found[name][take]
        return count, place, values

    def _possible(self, tasks: RecordArray) -> tuple[Int64, Mask]:
        """Return masks of the processes that may have launched each task, and whether all have a call with its ID."""
        masks, has_all = np.zeros(len(tasks), np.int64), np.ones(len(tasks), np.bool_)
        for place, calls in enumerate(self._calls.values()):
            hit, values = calls.look_up(tasks["key"])
            masks[hit & self._agree(tasks, values)] |= bit(place)
            has_all &= hit
        return masks, has_all

    def _agree(self, tasks: RecordArray, calls: dict[str, Int64]) -> Mask:
        """Return which calls start before their tasks, and have no other arg. A call may have a repeated ID."""
        if self._call_args is None:
            self._call_args = SpillIndex(("arg",))
            for ids, args in self._read_call_args():
                known = args != NO_ARG
                self._call_args.add(ids[known].astype(np.uint64), args[known])
        has_arg, found = self._call_args.look_up(calls["api_id"].astype(np.uint64))
        agrees: Mask = ~has_arg | (tasks["arg"] == NO_ARG) | (tasks["arg"] == found["arg"])
        agrees |= calls["call_ns"] == _REPEATED
        return agrees & (calls["start_ns"] <= tasks["start_ns"])

    def _calls_in_turn(self) -> SpillIndex:
        """Return the launches of tasks whose ID several calls of a process have, by task."""
        for tasks in self._read_tasks():
            _, place, values = self._call_of(tasks)
            own = np.flatnonzero((place >= 0) & (values["call_ns"] == _REPEATED))
            rows = np.zeros(len(own), _REPEATED_DTYPE)
            rows["key"], rows["process"], rows["is_task"] = tasks.correlation[own].astype(np.uint64), place[own], 1
            rows["start_ns"], rows["api_id"] = tasks.start_ns[own], tasks.ids[own]
            self._repeated.add(rows)
        found = SpillIndex(_VALUES)
        for rows in self._repeated.windows():
            tasks_of, calls = _in_turn(rows)
            found.add(tasks_of.astype(np.uint64), *(np.ascontiguousarray(calls[name]) for name in _VALUES))
        return found

    def _find_by_flow(self, tasks: Int64, found: Mask, unclear: Mask, values: dict[str, Int64]) -> None:
        """Find launches that are neither known nor unclear."""
        rows = np.flatnonzero(~(found | unclear))
        is_end, source = self._sources.look_up(tasks[rows].astype(np.uint64))
        is_end &= source["src_id"] != NO_PARENT
        if not is_end.any():
            return
        if self._calls_by_id is None:  # reading calls again takes less time than an index for every trace
            self._calls_by_id = SpillIndex(_VALUES)
            for calls in self._read_calls():
                self._calls_by_id.add(calls[_VALUES.index("api_id")].astype(np.uint64), *calls)
        is_call, launched = self._calls_by_id.look_up(source["src_id"][is_end].astype(np.uint64))
        rows = rows[is_end][is_call]
        found[rows] = True
        for name in _VALUES:
            values[name][rows] = launched[name][is_call]

    def _by_process(self, tracks: NDArray[np.int32]) -> list[tuple[int | None, NDArray[np.intp]]]:
        distinct, codes = np.unique(tracks, return_inverse=True)
        processes = [self._tracks.process_id_of(track) for track in distinct.tolist()]
        numbers = {process: place for place, process in enumerate(dict.fromkeys(processes))}
        if len(numbers) == 1:
            return [(processes[0], np.arange(len(tracks)))]
        number = np.array([numbers[process] for process in processes], np.int64)[codes]
        return [(process, np.flatnonzero(number == place)) for process, place in numbers.items()]

    def close(self) -> None:
        """Free the disk space."""
        for index in (
            *self._calls.values(),
            self._sources,
            self._repeated,
            self._repeats,
            self._calls_by_id,
            self._call_args,
        ):
            if index is not None:
                index.close()
        # They refer to what has this object, so both would stay in memory until the next garbage collection.
        del self._read_calls, self._read_call_args, self._read_tasks


def _only(rows: RecordArray) -> RecordArray:
    """Drop the sources of tasks to which several flows lead."""
    rows["src_id"] = NO_PARENT
    return rows


def _in_turn(rows: RecordArray) -> tuple[Int64, RecordArray]:
    """Return tasks, and the call that launched each, from rows of _REPEATED_DTYPE, with all that have equal IDs.

    A task belongs to the last call before it, if tasks with the ID follow each of these calls before the next one.
    Calls inside another one with the ID, or overlapping it, belong to that.
    """
    names = ("api_id", "call_ns", "is_task", "start_ns", "process", "key")
    rows = rows[np.lexsort([-rows[name] if name == "call_ns" else rows[name] for name in names])]
    is_task, count = rows["is_task"] == 1, len(rows)
    first = np.ones(count, np.bool_)
    first[1:] = (rows["key"][1:] != rows["key"][:-1]) | (rows["process"][1:] != rows["process"][:-1])
    group = np.cumsum(first) - 1
    dur_ns = np.minimum(np.maximum(rows["call_ns"], 0), np.iinfo(np.int64).max - np.maximum(rows["start_ns"], 0))
    end_ns = np.where(is_task, np.iinfo(np.int64).min, rows["start_ns"] + dur_ns)
    # The last end before each row, by its rank.
    order = np.argsort(end_ns)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    last_end = end_ns[order][np.maximum.accumulate(rank + group * count) - group * count]
    is_launch = ~is_task & (first | np.append(True, rows["start_ns"][1:] >= last_end[:-1]))
    launch = np.cumsum(is_launch) - 1
    unused = is_launch & (np.bincount(launch[is_task & (launch >= 0)], minlength=count)[launch] == 0)
    is_clear = np.bincount(group, unused | (first & is_task))[group] == 0
    tasks = np.flatnonzero(is_task & is_clear)
    return rows["api_id"][tasks], rows[np.flatnonzero(is_launch)[launch[tasks]]]
