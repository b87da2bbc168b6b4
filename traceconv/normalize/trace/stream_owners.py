"""Which process launches the tasks of a stream, in a trace of several processes.

Such tasks name their device, not their process. Processes count their correlation IDs from equal numbers, so a call of
one process may have the ID of a task whose own call, of another process, was lost. A process owns a stream if, of the
stream's IDs that calls of only one process have, nearly all are its own: tasks with them are on no other device, and
nothing contradicts that the call launched them. If these are few, they may be those of lost calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import NamedTuple

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.schema.dtypes import RecordArray

#: A task with a correlation ID. arg: what it shares with the call that launched it, or NO_ARG. device, stream: its
#: process and track.
TASK_DTYPE = np.dtype([("key", "<u8"), ("start_ns", "<i8"), ("arg", "<i8"), ("device", "<i4"), ("stream", "<u4")])
NO_ARG = -(2**63)


class Calls(NamedTuple):
    """The calls with some IDs. `processes`: how many have one; `place`: the number of one of them."""

    processes: Int64
    place: Int64
    start_ns: Int64
    arg: Int64

    def launched(self, tasks: RecordArray) -> Mask:
        """Return which tasks the calls may have launched: the only ones with these IDs, unless something disagrees."""
        agrees = (tasks["arg"] == self.arg) | (tasks["arg"] == NO_ARG) | (self.arg == NO_ARG)
        found: Mask = (self.processes == 1) & agrees & (self.start_ns <= tasks["start_ns"])
        return found


def owners(tasks: Iterable[RecordArray], calls_of: Callable[[NDArray[np.uint64]], Calls]) -> dict[int, int]:
    """Return the number of the process that owns each stream, as far as that is known."""
    shared: Counter[int] = Counter()
    single: Counter[int] = Counter()
    launched: Counter[tuple[int, int]] = Counter()
    with closing(ExternalSort(TASK_DTYPE, "key")) as by_key:
        for rows in tasks:
            by_key.add(rows)
        for rows in by_key.windows():
            rows = rows[np.lexsort((rows["stream"], rows["device"], rows["key"]))]
            calls = calls_of(rows["key"])
            key, device, stream = rows["key"], rows["device"], rows["stream"]
            new_key = np.append(True, key[1:] != key[:-1])
            new_device = new_key | np.append(True, device[1:] != device[:-1])
            first = np.flatnonzero(new_device | np.append(True, stream[1:] != stream[:-1]))
            number = np.cumsum(new_key) - 1
            is_alone = np.bincount(number, new_device)[number[first]] == 1
            good = np.logical_and.reduceat(calls.launched(rows), first) & is_alone
            stream, count, place = stream[first], calls.processes[first], calls.place[first]
            shared.update(stream[count > 1].tolist())
            single.update(stream[count == 1].tolist())
            launched.update(zip(stream[good].tolist(), place[good].tolist(), strict=True))
    return {
        stream: process
        for (stream, process), count in launched.items()
        if count > 2 and 10 * count > 9 * single[stream] and 10 * count >= single[stream] + shared[stream]
    }
