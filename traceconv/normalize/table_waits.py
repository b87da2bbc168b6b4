"""Waits between the rows of op_summary on one device, while its tasks come about in the order of their start.

The wait of a row is its start minus the end of the row before it by start, on any stream, not below 0: as msprof has
it. Tasks come as they end, so that one may begin before rows that were handed out already. It is put among the last of
these, and what that changes is kept in `changed`; `late` says that one came later than that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceconv.base.int64 import differences
from traceconv.schema.dtypes import gather, join

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Rows that are looked at again when one comes late.
_KEPT = 4096
_DTYPE = np.dtype(
    [("start_ns", "<i8"), ("id", "<i8"), ("end_ns", "<i8"), ("wait_ns", "<i8"), ("endless", "?"), ("unknown", "?")],
    align=True,
)


class TableWaits:
    """Takes the rows of one device, batch by batch. `changed`: id → wait, None where it is not known."""

    def __init__(self) -> None:
        #: The last rows by start. Of the first one the row before is not known any more, once rows were dropped.
        self._kept = np.zeros(0, _DTYPE)
        self._dropped = False
        self.changed: dict[int, int | None] = {}
        self.late = False

    def take(self, ids: Int64, start_ns: Int64, end_ns: Int64, endless: Mask) -> tuple[Int64, Mask]:
        """(wait, not known) of each row; not known after a row without an end."""
        if self.late or not len(ids):
            return np.zeros(len(ids), np.int64), np.ones(len(ids), np.bool_)
        fresh = np.zeros(len(ids), _DTYPE)
        fresh["id"], fresh["start_ns"], fresh["end_ns"], fresh["endless"] = ids, start_ns, end_ns, endless
        # Of the rows that begin before all of these only the last matters.
        head = max(0, int(np.searchsorted(self._kept["start_ns"], start_ns.min())) - 1)
        old = self._kept[head:]
        rows = join([old, fresh])
        order = np.lexsort((rows["id"], rows["start_ns"]))
        rows = gather(rows, order)
        wait, unknown = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        unknown[1:] = rows["endless"][:-1]
        found, beyond = differences(rows["start_ns"][1:], rows["end_ns"][:-1])
        unknown[1:] |= beyond
        wait[1:] = np.where(unknown[1:], 0, np.maximum(found, 0))
        if head or self._dropped:
            self.late = bool(order[0] != 0)
            wait[0], unknown[0] = rows["wait_ns"][0], rows["unknown"][0]
        differs = (order < len(old)) & ((rows["wait_ns"] != wait) | (rows["unknown"] != unknown))
        for place in np.flatnonzero(differs).tolist():  # few: those around a task that came late
            self.changed[int(rows["id"][place])] = None if unknown[place] else int(wait[place])
        rows["wait_ns"], rows["unknown"] = wait, unknown
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        mine = back[len(old) :]
        rows = join([self._kept[:head], rows[-_KEPT:]])
        self._dropped |= head + len(order) > _KEPT
        self._kept = rows[-_KEPT:].copy()
        return wait[mine], unknown[mine]
