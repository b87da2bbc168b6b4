"""Arrows of a Perfetto trace: each end is said by the event that it stands on."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.export import perfetto_records as wire

Int64 = NDArray[np.int64]

_DTYPE = np.dtype([("id", "<i8"), ("flow", "<i8"), ("ends", "<i8")])
#: Tables whose rows are events that an arrow may stand on.
_TABLES = ("range", "api", "task", "marker")
NONE = np.zeros(0, _DTYPE)


class Arrows:
    """The arrows of a run of which both ends are in the trace.

    count  how many; `loose`: how many others there are, which are not written
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str]) -> None:
        """Makes a temporary table of the ends of arrows. `sources` are FROM clauses, by table."""
        self._connection = connection
        known = " UNION ALL ".join(f"SELECT id FROM {sources[name]}" for name in _TABLES)
        flows = sources["flow"]
        # One join at a time: several at once would each want memory for all ids.
        loose = "SELECT flow_id FROM {} AS f ANTI JOIN ({}) AS k ON f.{} = k.id"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE export_loose AS {loose.format(flows, known, 'src_id')}")
        connection.execute(f"INSERT INTO export_loose {loose.format(flows, known, 'dst_id')}")
        whole = f"{flows} AS f ANTI JOIN export_loose AS l ON f.flow_id = l.flow_id"
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE export_arrow AS SELECT src_id AS id, f.flow_id, 0 AS ends FROM {whole} "
            f"UNION ALL SELECT dst_id, f.flow_id, 1 FROM {whole}"
        )
        [(ends,)] = connection.execute("SELECT count(*) FROM export_arrow").fetchall()
        [(count,)] = connection.execute(f"SELECT count(*) FROM {flows}").fetchall()
        self.count = int(ends) // 2
        self.loose = int(count) - self.count

    def of_rows(self, source: str, where: str) -> np.ndarray:
        """The ends of arrows on the rows of a window, by their ids."""
        if not self.count:
            return NONE
        # Ids of a window lie near to each other: their bounds spare looking at most arrows.
        [(low, high)] = self._connection.execute(f"SELECT min(id), max(id) FROM {source} AS s WHERE {where}").fetchall()
        if low is None:
            return NONE
        found = self._connection.execute(
            f"SELECT id, flow_id, ends FROM export_arrow WHERE id BETWEEN {low} AND {high} "
            f"AND id IN (SELECT id FROM {source} AS s WHERE {where}) ORDER BY id, ends, flow_id"
        ).fetchnumpy()
        arrows = np.zeros(len(found["id"]), _DTYPE)
        for name, column in zip(_DTYPE.names or (), found.values(), strict=True):
            arrows[name] = column
        return arrows


def arrow_column(arrows: np.ndarray, ids: Int64) -> pa.Array | None:
    """What the events with these ids say of arrows: a binary column; None when nothing."""
    if not len(arrows):
        return None
    first = np.searchsorted(arrows["id"], ids)
    counts = np.searchsorted(arrows["id"], ids, side="right") - first
    total = int(counts.sum())
    if not total:
        return None
    ends = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    of = arrows[np.arange(total) - np.repeat(ends[:-1] - first, counts)]
    data = np.empty((total, 10), np.uint8)
    tags = [np.frombuffer(wire.tag(number, 1), np.uint8) for number in (wire.FLOWS, wire.FLOW_ENDS)]
    data[:, :2] = np.array(tags)[of["ends"]]
    numbers = np.ascontiguousarray(of["flow"])
    data[:, 2:] = numbers.view(np.uint8).reshape(total, 8)
    offsets = pa.py_buffer((ends * 10).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ids), [None, offsets, pa.py_buffer(data.tobytes())])
