"""Which process launches the tasks of a stream, in a trace of several processes.

Such tasks name their device, not their process. Processes count their IDs from equal numbers, so a call of one process
may have the ID of a task of another one. It may have launched the task if it starts before that, and nothing else
contradicts it. A process owns a stream if, of the tasks that only one process may have launched, nearly all are its.
If these are few, they may be those whose calls are lost. If two streams have such tasks with an ID, one of these calls
is lost. A call whose task is on a stream that its process owns launched nothing on other devices, which may leave one
possible process for a task there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import NamedTuple

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.tracks import map_distinct
from traceconv.schema.dtypes import RecordArray

#: A task with a correlation ID. arg: what it shares with the call that launched it, or NO_ARG. device, stream: its
#: process and track.
TASK_DTYPE = np.dtype([("key", "<u8"), ("start_ns", "<i8"), ("arg", "<i8"), ("device", "<i4"), ("stream", "<u4")])
NO_ARG = -(2**63)


#: Processes, each a bit of a mask; the last one is for all others.
_OTHERS = 62
_ENTRY_DTYPE = np.dtype([("key", "<u8"), ("mask", "<i8"), ("device", "<i4"), ("stream", "<u4")])
_MOST_ROUNDS = 8
#: Fewer keys than this prove nothing.
_FEW = 3


def bit(place: int) -> int:
    """Return the bit of a process in masks."""
    return 1 << min(place, _OTHERS)


class Owners(NamedTuple):
    """Which process owns each stream, as far as that is known. `is_complete`: no process lost all its calls."""

    by_stream: Mapping[int, int]
    is_complete: bool

    def of(self, streams: NDArray[np.uint32], masks: Int64, has_all: Mask) -> Int64:
        """Return the number of the process that launched each task, -1 if unknown.

        has_all  tasks with whose key each process has a call: that of none is lost
        """
        owner = map_distinct(streams, lambda stream: self.by_stream.get(stream, -1))
        is_single = (owner < 0) & has_all & (masks & (masks - 1) == 0) & (masks > 0) & (masks < bit(_OTHERS))
        return np.where(is_single & self.is_complete, np.frexp(masks)[1] - 1, owner)


class StreamOwners:
    """Takes tasks and a mask for each, of the processes with a call that may have launched it."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        #: Keys on more streams than there are processes.
        self._crowded = 0
        self._entries = Spool(_ENTRY_DTYPE)
        self._windows: list[int] = []
        self._mixed: Counter[int] = Counter()

    def take(self, tasks: RecordArray, masks: Int64) -> None:
        """Take rows of TASK_DTYPE: all that have equal keys at once."""
        order = np.lexsort((tasks["stream"], tasks["device"], tasks["key"]))
        tasks, masks = tasks[order], masks[order]
        first = np.flatnonzero(_changes(tasks["key"], tasks["device"], tasks["stream"]))
        entries = np.zeros(len(first), _ENTRY_DTYPE)
        for name in ("key", "device", "stream"):
            entries[name] = tasks[name][first]
        entries["mask"] = np.bitwise_or.reduceat(masks, first)
        differ = entries["mask"] != np.bitwise_and.reduceat(masks, first)
        self._mixed.update(entries["stream"][differ].tolist())
        streams = np.bincount(np.cumsum(_changes(entries["key"])))
        self._crowded += int(np.count_nonzero(streams > self._processes))
        self._windows.append(len(entries))
        self._entries.append(entries)

    def found(self) -> Owners:
        """Return the owners, when all tasks were taken."""
        known: dict[int, int] = {}
        for _ in range(_MOST_ROUNDS):
            total: Counter[int] = Counter()
            launched: Counter[tuple[int, int]] = Counter()
            at = 0
            for count in self._windows:
                streams, single, masks = _single(self._entries.read(at, count), known)
                total.update(streams.tolist())
                launched.update(zip(single.tolist(), masks.tolist(), strict=True))
                at += count
            alone: Counter[int] = Counter()
            for (stream, _), count in launched.items():
                alone[stream] += count
            found = {
                stream: mask.bit_length() - 1
                for (stream, mask), count in launched.items()
                if count >= _FEW and 10 * count > 9 * alone[stream] and 10 * count >= total[stream]
                and 10 * self._mixed[stream] < total[stream] and mask < bit(_OTHERS)
            }  # fmt: skip
            if found.keys() <= known.keys():
                break
            known = {**found, **known}
        return Owners(known, self._crowded < _FEW)

    def close(self) -> None:
        """Free the disk space."""
        self._entries.close()


def _single(entries: RecordArray, known: dict[int, int]) -> tuple[NDArray[np.uint32], NDArray[np.uint32], Int64]:
    """Return the streams of tasks with possible calls; and of those with one, if no other stream has such a task too.

    known  owners of streams: their calls for tasks there launched nothing on other devices
    """
    key, device, stream, mask = (np.ascontiguousarray(entries[name]) for name in ("key", "device", "stream", "mask"))
    if known:
        of_key, of_device = _changes(key), _changes(key, device)
        taken = mask & map_distinct(stream, lambda one: bit(known[one]) if one in known else 0)
        by_key, by_device = (
            np.bitwise_or.reduceat(taken, np.flatnonzero(new))[np.cumsum(new) - 1] for new in (of_key, of_device)
        )
        mask = mask & ~(by_key & ~by_device)
    single = np.flatnonzero((mask != 0) & (mask & (mask - 1) == 0))
    order = single[np.lexsort((mask[single], key[single]))]
    new = _changes(key[order], mask[order])
    alone = order[new & np.append(new[1:], True)]
    return stream[mask != 0], stream[alone], mask[alone]


def _changes(*columns: NDArray[np.generic]) -> Mask:
    """Return which rows differ from the one before."""
    found = np.zeros(len(columns[0]), np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def owners(tasks: Iterable[RecordArray], masks_of: Callable[[RecordArray], Int64], processes: int) -> Owners:
    """Return the owners of the streams of tasks. `masks_of`: returns the masks of some."""
    with closing(ExternalSort(TASK_DTYPE, "key")) as by_key, closing(StreamOwners(processes)) as found:
        for rows in tasks:
            by_key.add(rows)
        for rows in by_key.windows():
            found.take(rows, masks_of(rows))
        return found.found()
