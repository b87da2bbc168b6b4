"""Calls by process and correlation ID, and which of them launched a task.

Each process counts its own IDs, so a trace that was merged from several has equal ones. A device's tasks do not
identify the process that launched them: of several processes with an ID, the task's own process is used. If that has
no call with this ID, the launch is unknown. If several calls of a process have the ID, one after the other, it is found
once all rows are stored (find_repeated_launches); of calls inside each other, the outermost is used.

A task without an ID, or with one that no call has, was launched by the call from which its only launch flow leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.trace.complete_nesting import NO_PARENT
from traceconv.schema.dtypes import RecordArray

#: Of a call; -1 if unknown, and call_ns is _REPEATED if other calls have the ID.
_VALUES = ("start_ns", "step_id", "api_id", "call_ns")
_REPEATED = -2


class Launches:
    """Takes calls, then finds those of tasks. `unclear`: tasks with the ID of several calls or processes."""

    def __init__(
        self, process_of: Callable[[int], int | None], calls: Callable[[], Iterator[tuple[Int64, ...]]]
    ) -> None:
        """`process_of`: returns the process of a track. `calls`: yields the _VALUES of all rows of `api`."""
        self._process_of = process_of
        self._read_calls = calls
        self._calls: dict[int | None, SpillIndex] = {}
        #: Task → call, by launch flows.
        self._sources = SpillIndex(("src_id",), settle=_only)
        self._calls_by_id: SpillIndex | None = None
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

    def look_up(
        self, tasks: Int64, correlation: Int64, known: Mask, tracks: NDArray[np.int32]
    ) -> tuple[Mask, dict[str, Int64]]:
        """Return for which tasks the launch is known, and its values. `known`: tasks with a correlation ID."""
        found, unclear, values = self._by_correlation(correlation, known, tracks)
        self.unclear += int(np.count_nonzero(unclear))
        self._find_by_flow(tasks, found, unclear, values)
        return found, values

    def _by_correlation(
        self, correlation: Int64, known: Mask, tracks: NDArray[np.int32]
    ) -> tuple[Mask, Mask, dict[str, Int64]]:
        """Return for which tasks the launch is known and unclear, and its values."""
        found = np.zeros(len(correlation), np.bool_)
        values = {name: np.zeros(len(correlation), np.int64) for name in _VALUES}
        keys = correlation.astype(np.uint64)
        if len(self._calls) <= 1:
            for calls in self._calls.values():
                found, values = calls.look_up(keys)
            unclear = known & found & (values["call_ns"] == _REPEATED)
            return found & known & ~unclear, unclear, values
        own = np.full(len(keys), -1, np.int64)
        places = {process: place for place, process in enumerate(self._calls) if process is not None}
        for process, rows in self._by_process(tracks):
            own[rows] = places.get(process, -1) if process is not None else -1
        count, is_own = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        for place, calls in enumerate(self._calls.values()):
            hit, own_values = calls.look_up(keys)
            take = hit & ~is_own
            for name in _VALUES:
                values[name][take] = own_values[name][take]
            count += hit
            is_own |= hit & (own == place)
        unclear = known & (((count > 1) & ~is_own) | ((count > 0) & (values["call_ns"] == _REPEATED)))
        return known & (count > 0) & ~unclear, unclear, values

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
        processes = [self._process_of(track) for track in distinct.tolist()]
        numbers = {process: place for place, process in enumerate(dict.fromkeys(processes))}
        if len(numbers) == 1:
            return [(processes[0], np.arange(len(tracks)))]
        number = np.array([numbers[process] for process in processes], np.int64)[codes]
        return [(process, np.flatnonzero(number == place)) for process, place in numbers.items()]

    def close(self) -> None:
        """Free the disk space."""
        for index in (*self._calls.values(), self._sources, self._calls_by_id):
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
