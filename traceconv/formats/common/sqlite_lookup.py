"""Rows of a SQLite table by the values of a column, without an index on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded, coded
from traceconv.formats.common.columns import integer_array
from traceconv.formats.common.sqlite_database import ROWID, Damage, Database
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import same, taken

#: Rows whose smallest and largest keys are noted.
_BLOCK = 512


class Lookup:
    """The rows of a table by keys ≥ 0 of which similar ones are near each other, as writers add them.

    Some numbers per block of rows are kept in memory.
    """

    def __init__(self, db: Database, table: str, key: str, on_damage: Callable[[Damage], None]) -> None:
        self._db, self._table, self._key = db, table, key
        blocks: list[Int64] = []
        for count, columns in db.columns_of(table, (ROWID, key), on_damage) if key in db.columns(table) else ():
            rowids, keys = map(integer_array, columns)
            starts = np.arange(0, count, _BLOCK)
            ends = np.append(starts[1:], count)
            sizes = ends - starts
            least, most = np.minimum.reduceat(keys, starts), np.maximum.reduceat(keys, starts)
            blocks.append(np.array([rowids[starts], rowids[ends - 1], sizes, least, most]))
        self._first, self._last, self._sizes, self._least, self._most = (
            np.concatenate(blocks, axis=1) if blocks else np.zeros((5, 0), np.int64)
        )

    def columns(self, keys: Int64, columns: Sequence[str], most: int) -> tuple[Int64, list[Values]] | None:
        """Return the keys of the rows with these keys, which are in ascending order, and columns, by their rowids.

        There may be other keys among them. None if they can't be read, or if there are more than `most`.
        """
        wanted = np.searchsorted(keys, self._least) < np.searchsorted(keys, self._most, "right")
        if self._sizes[wanted].sum() > most:
            return None
        parts: list[list[Values]] = []
        # Consecutive blocks are read together.
        bounds = np.flatnonzero(np.diff(wanted, prepend=False, append=False)).reshape(-1, 2)
        for start, stop in bounds.tolist():
            place = int(self._first[start]) - 1, int(self._last[stop - 1])
            count = int(self._sizes[start:stop].sum())
            part = self._db.columns_between(self._table, (self._key, *columns), place, count)
            if part is None:
                return None
            parts.append(part)
        found, *values = map(_concatenated, zip(*parts, strict=True)) if parts else [[] for _ in (None, *columns)]
        return integer_array(found), values


def matched(wanted: Int64, keys: Int64, columns: Sequence[Values]) -> list[Values]:
    """Return the values of columns for the keys that are wanted; NULL for others."""
    if not len(keys):
        return [same(None, len(wanted))] * len(columns)
    order = np.argsort(keys, kind="stable")
    rows = order[np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)]
    known = keys[rows] == wanted
    if known.all():
        return [taken(column, rows) for column in columns]
    both = [coded(column) for column in columns]
    return [
        Coded(np.where(known, one.codes[rows], len(one.distinct)).astype(np.int32), [*one.distinct, None])
        for one in both
    ]


def _concatenated(parts: Sequence[Values]) -> Values:
    """The parts of a column as one."""
    if len(parts) == 1:
        return parts[0]
    arrays = [part for part in parts if isinstance(part, pa.Array)]
    if len(arrays) == len(parts):
        return pa.concat_arrays(arrays)
    return list(chain.from_iterable(part.to_pylist() if isinstance(part, pa.Array) else part for part in parts))
