"""Flows of a Perfetto trace: each end is a field of its event.

Readers drop a flow that ends before it starts. Such a flow is written from the earlier event to the later one, its ID
has the bit REVERSED, and the later event, where it really starts, has the annotation REVERSED_NOTE: its ID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.export import perfetto_records as wire
from traceconv.export.row_lookup import IdPlaces, look_up
from traceconv.export.row_order import order_of
from traceconv.export.timeline import SLICE_TABLES
from traceconv.formats.perfetto_proto.own_export import REVERSED
from traceconv.wire.protobuf import encode_varint

Int64 = NDArray[np.int64]

#: ends: 0 the earlier event of a flow, 1 the later one.
_DTYPE = np.dtype([("id", "<i8"), ("flow", "<i8"), ("ends", "<i8")])
#: Tables whose rows can be ends of flows, in the order written: their time, and the order of equal times.
_TABLES = {
    **dict.fromkeys(SLICE_TABLES, ("start_ns", "-coalesce(dur_ns, 9223372036854775807)")),
    "marker": ("ts_ns", "0"),
}
#: Flows whose ends are looked up at a time.
_PART_FLOWS = 250_000
_BATCH_ROWS = 1 << 16
NO_FLOWS = np.zeros(0, _DTYPE)


class Flows:
    """The flows of a run with both ends in the trace (`count`); the others are not written (`loose`)."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str]) -> None:
        """Create a temporary table of the ends of flows. `sources` are FROM clauses, by table."""
        self._connection = connection
        self._events = [
            f"SELECT id, coalesce({at}, 0) AS at_ns, {place} AS source, {longest} AS longest, "
            "coalesce(depth, 0) AS depth "
            f"FROM (SELECT *{'' if place < len(SLICE_TABLES) else ', 0 AS depth'} FROM {sources[name]})"
            for place, (name, (at, longest)) in enumerate(_TABLES.items())
        ]
        flows = sources["flow"]
        self.count = 0
        connection.execute("CREATE OR REPLACE TEMP TABLE export_flow_id (id BIGINT, flow_id BIGINT, ends BIGINT)")
        for part in self._parts(flows):
            self._add(f"SELECT flow_id, src_id, dst_id FROM {flows} AS f WHERE {part}")
        [(count,)] = connection.execute(f"SELECT count(*) FROM {flows}").fetchall()
        self.loose = int(count) - self.count

    def _parts(self, flows: str) -> list[str]:
        """Return conditions that divide the flows into parts that fit into memory."""
        found = self._connection.execute(
            f"SELECT flow_id FROM (SELECT flow_id, row_number() OVER (ORDER BY flow_id) AS place FROM {flows} AS f) "
            f"WHERE place % {_PART_FLOWS} = 0 ORDER BY flow_id"
        ).fetchall()
        bounds = [int(flow_id) for (flow_id,) in found]
        if not bounds:
            return ["true"]
        between = [f"flow_id > {first} AND flow_id <= {last}" for first, last in pairwise(bounds)]
        return [f"flow_id <= {bounds[0]}", *between, f"flow_id > {bounds[-1]}"]

    def _add(self, query: str) -> None:
        """Add the ends of flows to the table."""
        found = self._connection.sql(f"{query} AND src_id IS NOT NULL AND dst_id IS NOT NULL").to_arrow_table()
        flow, source, target = (column.to_numpy() for column in found.columns)
        is_known, first = self._places(source)
        is_end, last = self._places(target)
        both = np.flatnonzero(is_known & is_end)
        ids = [source[both], target[both]]
        back = _is_later([*(column[both] for column in first), ids[0]], [*(column[both] for column in last), ids[1]])
        number = flow[both] + np.where(back, REVERSED, 0)
        ends = pa.table(
            {
                "id": np.concatenate(ids),
                "flow_id": np.tile(number, 2),
                "ends": np.concatenate([back, ~back]).view(np.int8),
            }
        )
        self._connection.register("export_ends", ends)
        self._connection.execute("INSERT INTO export_flow_id FROM export_ends")
        self._connection.unregister("export_ends")
        self.count += len(both)

    def _places(self, ids: Int64) -> tuple[NDArray[np.bool_], list[Int64]]:
        """Return which events are in the trace, and what their order depends on."""
        return look_up(
            self._connection,
            lambda condition: " UNION ALL ".join(f"{one} WHERE {condition}" for one in self._events),
            ids,
        )

    def of_events(self, ids: Int64) -> np.ndarray:
        """Return the ends of flows on events, by the event's ID."""
        if not self.count or not len(ids):
            return NO_FLOWS
        # IDs of a window are close together, so their bounds exclude most flows, and usually all that are not wanted.
        places = IdPlaces(ids)
        query = f"SELECT id, flow_id, ends FROM export_flow_id WHERE {places.between}"
        parts = [np.zeros((3, 0), np.int64)]
        for batch in self._connection.sql(query).to_arrow_reader(_BATCH_ROWS):
            rows = np.array([column.to_numpy() for column in batch.columns])
            parts.append(rows[:, places.of(rows[0]) >= 0])
        id_, flow, ends = np.concatenate(parts, axis=1)
        flow_ends = np.zeros(len(id_), _DTYPE)
        order = order_of([id_, ends, flow])
        for name, column in zip(_DTYPE.names or (), (id_, flow, ends), strict=True):
            flow_ends[name] = column if order is None else column[order]
        return flow_ends


def _is_later(one: Sequence[Int64], other: Sequence[Int64]) -> NDArray[np.bool_]:
    """Whether the first event is written after the other. The keys of their order are columns."""
    later: NDArray[np.bool_] = one[0] > other[0]
    ties = np.flatnonzero(one[0] == other[0])
    for key, other_key in zip(one[1:], other[1:], strict=True):
        later[ties] = key[ties] > other_key[ties]
        ties = ties[key[ties] == other_key[ties]]
    return later


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
