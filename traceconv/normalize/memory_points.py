"""Memory in use after each change, its peaks in intervals of time, and the bytes in use at some times.

Sums fit into 64 bits if those of the absolute sizes do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64

#: Times of changes per interval: reports read the blocks of at most two intervals per pool.
INTERVAL_TIMES = 1024


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of the bytes in blocks and segments, in the order of their times."""

    ts_ns: Int64
    used_bytes: Int64
    reserved_bytes: Int64

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Changes:
        return Changes(self.ts_ns[rows], self.used_bytes[rows], self.reserved_bytes[rows])

    def __len__(self) -> int:
        return len(self.ts_ns)

    def then(self, later: Changes) -> Changes:
        """Return these changes and later ones."""
        return Changes(
            np.concatenate((self.ts_ns, later.ts_ns)),
            np.concatenate((self.used_bytes, later.used_bytes)),
            np.concatenate((self.reserved_bytes, later.reserved_bytes)),
        )


_NONE, _ONE = np.zeros(0, np.int64), np.zeros(1, np.int64)
NO_CHANGES, _ZERO = Changes(_NONE, _NONE, _NONE), Changes(_ONE, _ONE, _ONE)


class MemoryInUse:
    """Takes the changes of a device or a pool, batch by batch, each with all changes of its times."""

    def __init__(self) -> None:
        self._used_bytes = self._reserved_bytes = 0
        self._after = NO_CHANGES

    def take(self, changes: Changes) -> Changes:
        """Return the distinct times, and the bytes in use after all changes of each."""
        if not len(changes):
            return changes
        used = self._used_bytes + changes.used_bytes.cumsum()
        reserved = self._reserved_bytes + changes.reserved_bytes.cumsum()
        self._used_bytes, self._reserved_bytes = int(used[-1]), int(reserved[-1])
        last = np.append(np.diff(changes.ts_ns) != 0, True)
        after = Changes(changes.ts_ns[last], used[last], reserved[last])
        self._after = self._after.then(after)
        return after

    def intervals(self) -> dict[str, pa.Array]:
        """Return the columns of the complete intervals so far; each is returned once."""
        complete = len(self._after) // INTERVAL_TIMES * INTERVAL_TIMES
        done, self._after = self._after[:complete], self._after[complete:]
        return _columns(done, INTERVAL_TIMES)

    def rest(self) -> dict[str, pa.Array]:
        """Return the columns of the last interval, of fewer times."""
        done, self._after = self._after, NO_CHANGES
        return _columns(done, max(1, len(done)))


class MemoryAtTasks:
    """Takes the tasks of a device, batch by batch in the order of their times, and returns the bytes in use at each."""

    def __init__(self) -> None:
        #: The last change so far.
        self._after = NO_CHANGES
        self._used_bytes: int | None = None

    def take(self, after: Changes, ids: Int64, at_ns: Int64) -> tuple[NDArray[np.intp], dict[str, pa.Array]]:
        """Return the places of the tasks in their order, by time and ID, and their columns.

        after  the bytes in use after each time with a change, since the last batch
        """
        order = np.lexsort((ids, at_ns))
        at_ns = at_ns[order]
        after = self._after.then(after)
        self._after = after[-1:]
        found = np.searchsorted(after.ts_ns, at_ns, "right") - 1
        unknown = found < 0
        at = (after if len(after) else _ZERO)[found]
        columns = {
            "at_ns": pa.array(at_ns),
            "used_bytes": pa.array(at.used_bytes, mask=unknown),
            "reserved_bytes": pa.array(at.reserved_bytes, mask=unknown),
        }
        if len(order):
            before, no_before = np.roll(at.used_bytes, 1), np.roll(unknown, 1)
            before[0], no_before[0] = self._used_bytes or 0, self._used_bytes is None
            columns["used_change_bytes"] = pa.array(at.used_bytes - before, mask=unknown | no_before)
            self._used_bytes = None if unknown[-1] else int(at.used_bytes[-1])
        return order, columns


def _columns(after: Changes, count: int) -> dict[str, pa.Array]:
    """Return the columns of intervals of `count` times each."""
    ts, used, reserved = (part.reshape(-1, count) for part in (after.ts_ns, after.used_bytes, after.reserved_bytes))
    rows, used_at, reserved_at = np.arange(len(ts)), used.argmax(axis=1), reserved.argmax(axis=1)
    found = {
        "start_ns": ts[:, 0], "end_ns": ts[:, -1], "used_bytes": used[:, -1], "reserved_bytes": reserved[:, -1],
        "peak_used_bytes": used[rows, used_at], "peak_used_ns": ts[rows, used_at],
        "reserved_at_peak_bytes": reserved[rows, used_at],
        "peak_reserved_bytes": reserved[rows, reserved_at], "peak_reserved_ns": ts[rows, reserved_at],
    }  # fmt: skip
    return {name: pa.array(column) for name, column in found.items()}
