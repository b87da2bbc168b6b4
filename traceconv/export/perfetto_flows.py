"""Flows of a Perfetto trace: each end is a field of its event.

Readers drop a flow that ends before it starts. Such a flow is written from the earlier event to the later one, its ID
has the bit REVERSED, and the later event, where it really starts, has the annotation REVERSED_NOTE: its ID.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.export import perfetto_records as wire
from traceconv.formats.perfetto_proto.own_export import REVERSED
from traceconv.wire.protobuf import encode_varint

Int64 = NDArray[np.int64]

#: ends: 0 the earlier event of a flow, 1 the later one.
_DTYPE = np.dtype([("id", "<i8"), ("flow", "<i8"), ("ends", "<i8")])
#: Tables whose rows can be ends of flows, in the order written: their time, and the order of equal times.
_TABLES = {
    **dict.fromkeys(("range", "api", "task"), ("start_ns", "-coalesce(dur_ns, 9223372036854775807)", "depth")),
    "marker": ("ts_ns", "0", "0"),
}
#: Ends between the IDs of a window that are fetched, for each of its rows.
_MOST_EXTRA = 4
#: Flows whose ends are joined at a time.
_PART_FLOWS = 250_000
NO_FLOWS = np.zeros(0, _DTYPE)


class Flows:
    """The flows of a run with both ends in the trace (`count`); the others are not written (`loose`)."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str]) -> None:
        """Create a temporary table of the ends of flows. `sources` are FROM clauses, by table."""
        self._connection = connection
        flows = sources["flow"]
        known = " UNION ALL ".join(
            f"SELECT id, {{'at': {at}, 'source': {place}, 'longest': {longest}, 'depth': {depth}, 'id': id}} AS place "
            f"FROM {sources[name]}"
            for place, (name, (at, longest, depth)) in enumerate(_TABLES.items())
        )
        connection.execute("CREATE OR REPLACE TEMP TABLE export_flow_id (id BIGINT, flow_id BIGINT, ends INTEGER)")
        # One thread, and some flows at a time: a join needs memory for all IDs, and more for each thread.
        connection.execute("SET threads = 1")
        try:
            for part in self._parts(flows):
                self._join(f"(SELECT flow_id, src_id, dst_id FROM {flows} AS f WHERE {part})", known)
        finally:
            connection.execute("RESET threads")
        [(ends,)] = connection.execute("SELECT count(*) FROM export_flow_id").fetchall()
        [(count,)] = connection.execute(f"SELECT count(*) FROM {flows}").fetchall()
        self.count = int(ends) // 2
        self.loose = int(count) - self.count

    def _parts(self, flows: str) -> list[str]:
        """Return conditions that divide the flows into parts that are joined one after the other."""
        found = self._connection.execute(
            f"SELECT flow_id FROM (SELECT flow_id, row_number() OVER (ORDER BY flow_id) AS place FROM {flows} AS f) "
            f"WHERE place % {_PART_FLOWS} = 0 ORDER BY flow_id"
        ).fetchall()
        bounds = [int(flow_id) for (flow_id,) in found]
        if not bounds:
            return ["true"]
        between = [f"flow_id > {first} AND flow_id <= {last}" for first, last in pairwise(bounds)]
        return [f"flow_id <= {bounds[0]}", *between, f"flow_id > {bounds[-1]}"]

    def _join(self, flows: str, known: str) -> None:
        """Add the ends of flows to the table. `known` has the place of each event by ID."""
        # DuckDB before 1.5 can't store structs with unnamed fields.
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE export_end AS SELECT * FROM ({known}) "
            f"WHERE id IN (SELECT src_id FROM {flows} UNION ALL SELECT dst_id FROM {flows})"
        )
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE export_start AS SELECT f.flow_id, f.src_id, f.dst_id, e.place "
            f"FROM {flows} AS f JOIN export_end AS e ON e.id = f.src_id"
        )
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE export_joined AS "
            "SELECT s.flow_id, s.src_id, s.dst_id, s.place > e.place AS back "
            "FROM export_start AS s JOIN export_end AS e ON e.id = s.dst_id"
        )
        number = f"flow_id + CASE WHEN back THEN {REVERSED} ELSE 0 END AS flow_id"
        self._connection.execute(
            f"INSERT INTO export_flow_id SELECT src_id AS id, {number}, back::INTEGER AS ends FROM export_joined "
            f"UNION ALL SELECT dst_id, {number}, (NOT back)::INTEGER FROM export_joined"
        )

    def of_rows(self, source: str, where: str) -> np.ndarray:
        """Return the ends of flows on the rows of a window, by row ID."""
        if not self.count:
            return NO_FLOWS
        # IDs of a window are close together, so their bounds exclude most flows, and usually all that are not wanted.
        [(low, high, rows)] = self._connection.execute(
            f"SELECT min(id), max(id), count(*) FROM {source} AS s WHERE {where}"
        ).fetchall()
        if low is None:
            return NO_FLOWS
        between = f"id BETWEEN {low} AND {high}"
        [(count,)] = self._connection.execute(f"SELECT count(*) FROM export_flow_id WHERE {between}").fetchall()
        if count > _MOST_EXTRA * rows:
            between += f" AND id IN (SELECT id FROM {source} AS s WHERE {where})"
        found = self._connection.execute(
            f"SELECT id, flow_id, ends FROM export_flow_id WHERE {between} ORDER BY id, ends, flow_id"
        ).fetchnumpy()
        flow_ends = np.zeros(len(found["id"]), _DTYPE)
        for name, column in zip(_DTYPE.names or (), found.values(), strict=True):
            flow_ends[name] = column
        return flow_ends


def flow_column(flow_ends: np.ndarray, ids: Int64) -> pa.Array | None:
    """Return the flow fields of the events with these IDs as a binary column; None if there are none."""
    found = _of_events(flow_ends, ids)
    if found is None:
        return None
    of, ends = found
    data = np.empty((len(of), 10), np.uint8)
    tags = [np.frombuffer(wire.tag(number, 1), np.uint8) for number in (wire.FLOWS, wire.FLOW_ENDS)]
    data[:, :2] = np.array(tags)[of["ends"]]
    data[:, 2:] = np.ascontiguousarray(of["flow"]).view(np.uint8).reshape(len(of), 8)
    return _binary(data, ends)


def reversed_column(flow_ends: np.ndarray, ids: Int64, note: int) -> pa.Array | None:
    """Return the annotations of the events where reversed flows start; None if there are none."""
    back = (flow_ends["flow"] >= REVERSED) & (flow_ends["ends"] == 1)
    found = _of_events(flow_ends[back], ids) if back.any() else None
    if found is None:
        return None
    of, ends = found
    inner = wire.number_field(wire.NOTE_NAME, note) + wire.tag(wire.NOTE_INT, 0)
    fields = [
        wire.tag(wire.NOTES, 2) + encode_varint(len(inner) + len(number)) + inner + number
        for number in map(encode_varint, (of["flow"] - REVERSED).tolist())
    ]
    sizes = np.zeros(len(fields) + 1, np.int64)
    np.cumsum([len(one) for one in fields], out=sizes[1:])
    offsets = pa.py_buffer(sizes[ends].astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(b"".join(fields))])


def _of_events(flow_ends: np.ndarray, ids: Int64) -> tuple[np.ndarray, Int64] | None:
    """Return the flows of the events with these IDs in event order, and their offsets; None if there are none."""
    if not len(flow_ends):
        return None
    first = np.searchsorted(flow_ends["id"], ids)
    counts = np.searchsorted(flow_ends["id"], ids, side="right") - first
    total = int(counts.sum())
    if not total:
        return None
    ends = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return flow_ends[np.arange(total) - np.repeat(ends[:-1] - first, counts)], ends


def _binary(rows: NDArray[np.uint8], ends: Int64) -> pa.Array:
    offsets = pa.py_buffer((ends * rows.shape[1]).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(rows.tobytes())])
