"""Names of the slices on critical paths, and their ops: looked up once for each key and ID, as paths are found."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64

#: Names and ops in memory.
_MOST_KNOWN = 1_000_000
_SLICES = """
SELECT id, name
FROM (
  SELECT id, name FROM task WHERE run_id = $run AND id BETWEEN $first AND $last
  UNION ALL
  SELECT id, name FROM api WHERE run_id = $run AND id BETWEEN $first AND $last
  UNION ALL
  SELECT id, name FROM "range" WHERE run_id = $run AND id BETWEEN $first AND $last
)
WHERE id IN (SELECT unnest($ids))
"""
_OPS = """
SELECT op_id, any_value(name), any_value(op_type)
FROM op
WHERE run_id = $run AND op_id IN (SELECT unnest($ids))
GROUP BY op_id
"""


class PathNames:
    """Finds the names of slices by keys, which only slices with the same name share."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
        self._connection, self._run_id = connection, run_id
        self._names: dict[int, str | None] = {}
        self._ops: dict[int, tuple[str | None, str | None]] = {-1: (None, None)}

    def columns(
        self, ids: Int64, keys: NDArray[np.uint64], ops: Int64
    ) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
        """Return the name and the op type of each slice. A task without a name has that of its op.

        ids, ops  -1: none
        """
        known = np.flatnonzero(ids >= 0)
        distinct, at = _coded(keys[known])
        some = np.empty(len(distinct), np.int64)
        some[at] = ids[known]
        names = self._names_of(distinct, some.tolist())
        distinct_ops, op_at = _coded(ops)
        found = self._ops_of(distinct_ops)
        is_named = np.array([name is not None for name in names] + [False])
        places = np.full(len(ids), -1)
        places[known] = at
        places = np.where(is_named[places], places, len(names) + op_at)
        return (
            _texts(places, [*names, *(name for name, _ in found)]),
            _texts(op_at, [op_type for _, op_type in found]),
        )

    def _names_of(self, keys: list[int], ids: list[int]) -> list[str | None]:
        """Return the name of each key; ids: a slice with it."""
        new = {slice_id: key for key, slice_id in zip(keys, ids, strict=True) if key not in self._names}
        if new:
            values = {"run": self._run_id, "ids": list(new), "first": min(new), "last": max(new)}
            rows = self._connection.execute(_SLICES, values).fetchall()
            self._names.update((new[slice_id], name) for slice_id, name in rows)
        found = [self._names.get(key) for key in keys]
        if len(self._names) > _MOST_KNOWN:
            self._names.clear()
        return found

    def _ops_of(self, ids: list[int]) -> list[tuple[str | None, str | None]]:
        """Return the name and the type of each op."""
        new = [one for one in ids if one not in self._ops]
        if new:
            rows = self._connection.execute(_OPS, {"run": self._run_id, "ids": new}).fetchall()
            self._ops.update((op_id, (name, op_type)) for op_id, name, op_type in rows)
        found = [self._ops.get(one, (None, None)) for one in ids]
        if len(self._ops) > _MOST_KNOWN:
            self._ops = {-1: (None, None)}
        return found


def _coded(values: NDArray[np.uint64] | Int64) -> tuple[list[int], Int64]:
    """Return the distinct values, and the place of each value among them."""
    coded = pa.array(values).dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)


def _texts(places: Int64, texts: list[str | None]) -> pa.DictionaryArray:
    """Return a column of texts by their places, some of which are NULL."""
    is_null = np.array([text is None for text in texts])[places]
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32(), mask=is_null), [text or "" for text in texts])
