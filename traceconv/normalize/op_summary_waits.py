"""Waits between the rows of op_summary on one device, whose tasks arrive approximately in the order of their start.

As in msprof, the wait of a row is its start minus the end of the previous row by start, on any stream, but not
negative. Tasks are logged when they end, so one may begin before rows that were already returned. It is inserted among
the last of these, and waits that change are kept in `changed`; `late`: a task arrived too late for that.
"""

from __future__ import annotations

import numpy as np

from traceconv.base.int64 import Int64, Mask, differences
from traceconv.schema.dtypes import gather, join

#: Rows that are recomputed when a task arrives late.
_KEPT = 4096
_DTYPE = np.dtype(
    [("start_ns", "<i8"), ("id", "<i8"), ("end_ns", "<i8"), ("wait_ns", "<i8"), ("endless", "?"), ("unknown", "?")],
    align=True,
)


class OpSummaryWaits:
    """Takes the rows of one device, batch by batch. `changed`: ID → wait, None: unknown."""

    def __init__(self) -> None:
        #: The last rows by start. Once rows were dropped, the row before the first one is unknown.
        self._kept = np.zeros(0, _DTYPE)
        self._dropped = False
        self.changed: dict[int, int | None] = {}
        self.late = False

    def take(self, ids: Int64, start_ns: Int64, end_ns: Int64, endless: Mask) -> tuple[Int64, Mask]:
        """Return each row's wait, and whether it is unknown: after a row without an end."""
        if self.late or not len(ids):
            return np.zeros(len(ids), np.int64), np.ones(len(ids), np.bool_)
        fresh = np.zeros(len(ids), _DTYPE)
        fresh["id"], fresh["start_ns"], fresh["end_ns"], fresh["endless"] = ids, start_ns, end_ns, endless
        # Of the rows that begin before all of these, only the last matters.
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
        for place in np.flatnonzero(differs).tolist():  # few: those around a late task
            self.changed[int(rows["id"][place])] = None if unknown[place] else int(wait[place])
        rows["wait_ns"], rows["unknown"] = wait, unknown
        back = np.empty(len(order), np.intp)
        back[order] = np.arange(len(order))
        mine = back[len(old) :]
        rows = join([self._kept[:head], rows[-_KEPT:]])
        self._dropped |= head + len(order) > _KEPT
        self._kept = rows[-_KEPT:].copy()
        return wait[mine], unknown[mine]
