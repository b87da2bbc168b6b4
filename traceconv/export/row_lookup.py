"""Rows of a query by their IDs. IDs are positions in a source, so those of a part of a run are close together."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64

#: IDs are found by their distance from the first if these are at most as many for each ID that is looked up.
_MOST_PLACES = 16
_BATCH_ROWS = 1 << 16


class IdPlaces:
    """Numbers some IDs."""

    def __init__(self, ids: Int64) -> None:
        #: The lowest and the highest ID.
        self.low, self.high = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
        #: SQL condition that no other ID below the lowest or above the highest meets.
        self.between = f"id BETWEEN {self.low} AND {self.high}"
        self._sorted = self._numbers = None
        if self.high - self.low < _MOST_PLACES * len(ids):
            self._numbers = np.full(self.high - self.low + 1, -1, np.int32)
            self._numbers[ids - self.low] = np.arange(len(ids), dtype=np.int32)
        else:
            self._sorted = np.unique(ids)

    def of(self, ids: Int64) -> NDArray[np.signedinteger]:
        """Return the numbers of IDs that meet `between`, below the number of all IDs; -1 for others."""
        if self._numbers is not None:
            found: NDArray[np.signedinteger] = self._numbers[ids - self.low]
            return found
        assert self._sorted is not None
        places = np.searchsorted(self._sorted, ids)
        return np.where(self._sorted[np.minimum(places, len(self._sorted) - 1)] == ids, places, -1)


class Rows:
    """The rows of a query with some IDs.

    `select` returns the SELECT of `id` and other integers that are not NULL, for a condition on `id`.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, select: Callable[[str], str], ids: Int64) -> None:
        self._places = IdPlaces(ids)
        reader = connection.sql(select(self._places.between)).to_arrow_reader(_BATCH_ROWS)
        self._known = np.zeros(len(ids), np.bool_)
        self._columns = [np.zeros(len(ids), np.int64) for _ in reader.schema.names[1:]]
        for batch in reader:
            numbers = self._places.of(batch.column(0).to_numpy())
            rows = np.flatnonzero(numbers >= 0)
            numbers = numbers[rows]
            self._known[numbers] = True
            for column, values in zip(self._columns, batch.columns[1:], strict=True):
                column[numbers] = values.to_numpy()[rows]

    def of(self, ids: Int64) -> tuple[NDArray[np.bool_], list[Int64]]:
        """Return which of the IDs, or some of them, have a row, and the columns of their rows, 0 for the others."""
        numbers = self._places.of(ids)
        return self._known[numbers], [column[numbers] for column in self._columns]


def look_up(
    connection: duckdb.DuckDBPyConnection, select: Callable[[str], str], ids: Int64
) -> tuple[NDArray[np.bool_], list[Int64]]:
    """Return which IDs have a row, and the columns of their rows, as `Rows` does."""
    return Rows(connection, select, ids).of(ids)
