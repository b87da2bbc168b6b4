"""Which operations of devices each call launched."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from traceconv.base.int64 import Int64
from traceconv.formats.common.columns import integer_array
from traceconv.formats.common.sqlite_database import Damage, Database

#: Links in memory; their table has no index.
_MOST_LINKS = 1 << 23


class Links:
    """The pairs of calls and operations of a database. A call may have launched several, as those of a graph.

    is_complete  whether all of them are in memory
    """

    def __init__(self, db: Database, report: Callable[[Damage], None]) -> None:
        parts, count = [], 0
        self.is_complete = True
        for size, columns in db.columns_of("rocpd_api_ops", ("api_id", "op_id"), report):
            count += size
            if count > _MOST_LINKS:
                self.is_complete = False
                break
            pairs = np.stack([integer_array(column) for column in columns])
            parts.append(pairs[:, (pairs >= 0).all(axis=0)])
        calls, operations = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.int64)
        order = np.argsort(operations, kind="stable")
        self._operations, self._calls = operations[order], calls[order]
        self._by_call = np.sort(calls)

    def calls_of(self, operations: Int64) -> tuple[Int64, Int64]:
        """Return the calls that launched operations: the place of each one's operation, and its ID."""
        first = np.searchsorted(self._operations, operations)
        counts = np.searchsorted(self._operations, operations, "right") - first
        places = np.repeat(np.arange(len(operations)), counts)
        at = np.arange(len(places)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        return places, self._calls[at]

    def counts(self, calls: Int64) -> Int64:
        """Return how many operations calls launched."""
        first = np.searchsorted(self._by_call, calls)
        return (np.searchsorted(self._by_call, calls, "right") - first).astype(np.int64)
