"""Calls by process and correlation ID, and which of them launched a task.

Each process counts its own IDs, so a trace that was merged from several has equal ones. A task in a process with calls
was launched by one of these. Other tasks are in the process of a device: they were launched by the only call with their
ID, if its process is known to launch on this stream (stream_owners). If several calls of a process have the ID, one
after the other, it is found once all rows are stored (find_repeated_launches); of calls inside each other, the
outermost is used. Some sources make IDs unique: all that have one are then known.

A task without an ID, or with one that no call has, was launched by the call from which its only launch flow leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import parse_int64
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.trace.complete_nesting import NO_PARENT
from traceconv.normalize.trace.stream_owners import NO_ARG, TASK_DTYPE, Calls, owners
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.normalize.tracks import map_distinct
from traceconv.schema.dtypes import RecordArray

#: Of a call; -1 if unknown, and call_ns is _REPEATED if other calls have the ID.
_VALUES = ("start_ns", "step_id", "api_id", "call_ns")
_REPEATED = -2


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
        #: Track of a stream → place of the process that launches on it.
        self._owners: dict[int, int] | None = None
        self.unclear = 0

    def add(self, correlation: Int64, tracks: NDArray[np.int32], *values: Int64) -> None:
        """Add calls with their IDs and tracks, and the values to store for each."""
        for process, rows in self._by_process(tracks):
            calls = self._calls.setdefault(process, SpillIndex(_VALUES, settle=_settle))
            calls.add(correlation[rows].astype(np.uint64), *(value[rows] for value in values))

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
        keys = tasks.correlation.astype(np.uint64)
        if self.share_ids:
            found, is_clear, values = self._of_several(tasks, keys)
        else:
            count, _, values = self._in_all(keys, np.full(len(keys), -1))
            found, is_clear = count > 0, np.ones(len(keys), np.bool_)
        found &= tasks.known
        unclear = found & (~is_clear | (values["call_ns"] == _REPEATED))
        found &= ~unclear
        self.unclear += int(np.count_nonzero(unclear))
        self._find_by_flow(tasks.ids, found, unclear, values)
        return found, values

    def _of_several(self, tasks: TaskBatch, keys: NDArray[np.uint64]) -> tuple[Mask, Mask, dict[str, Int64]]:
        """Return which IDs calls have, whether one of these certainly launched the task, and its values."""
        own, asks, rows = self._of_streams(tasks)
        count, place, values = self._in_all(keys, own)
        is_clear = (place == own) & (own >= 0)
        if len(asks):
            if self._owners is None:
                self._owners = owners((self._of_streams(batch)[2] for batch in self._read_tasks()), self._calls_of)
            known = self._owners
            owner = map_distinct(rows["stream"], lambda stream: known.get(stream, -1))
            is_clear[asks] = self._calls_of(rows["key"]).launched(rows) & (owner == place[asks])
        return count > 0, is_clear, values

    def _of_streams(self, tasks: TaskBatch) -> tuple[Int64, NDArray[np.intp], RecordArray]:
        """Return the place of each task's process, -1 if that has no calls or is a device. Return the places of tasks
        with an ID for which it is -1, and their rows of TASK_DTYPE.
        """
        own, device = np.full(len(tasks.ids), -1), np.zeros(len(tasks.ids), np.int32)
        places = {process: place for place, process in enumerate(self._calls)}
        for process, rows in self._by_process(tasks.tracks):
            if process is not None:
                device[rows] = process
                number = parse_int64(self._tracks.pid_of(process))
                own[rows] = np.where(tasks.device_id[rows] == number, -1, places.get(process, -1))
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

    def _calls_of(self, keys: NDArray[np.uint64]) -> Calls:
        count, place, values = self._in_all(keys, np.full(len(keys), -1))
        count[values["call_ns"] == _REPEATED] = 0
        if self._call_args is None:
            self._call_args = SpillIndex(("arg",))
            for ids, args in self._read_call_args():
                self._call_args.add(ids.astype(np.uint64), args)
        has_arg, found = self._call_args.look_up(values["api_id"].astype(np.uint64))
        return Calls(count, place, values["start_ns"], np.where(has_arg, found["arg"], NO_ARG))

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
        for index in (*self._calls.values(), self._sources, self._calls_by_id, self._call_args):
            if index is not None:
                index.close()


def _only(rows: RecordArray) -> RecordArray:
    """Drop the sources of tasks to which several flows lead."""
    rows["src_id"] = NO_PARENT
    return rows


def _settle(rows: RecordArray) -> RecordArray:
    """Put the outermost call of each ID first, and mark it if others are not inside of it."""
    rows = rows[np.lexsort((-rows["call_ns"], rows["start_ns"], rows["key"]))]
    starts = np.flatnonzero(np.concatenate([[True], rows["key"][1:] != rows["key"][:-1]]))
    first = rows[np.repeat(starts, np.diff([*starts, len(rows)]))]
    ends_later = rows["start_ns"] - first["start_ns"] > first["call_ns"] - np.maximum(rows["call_ns"], 0)
    repeated = np.logical_or.reduceat(ends_later & (first["call_ns"] >= 0), starts)
    rows["call_ns"][starts[repeated]] = _REPEATED
    return rows
