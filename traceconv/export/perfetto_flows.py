"""Flows of a Perfetto trace: each end is a field of its event.

Readers drop a flow that ends before it starts. Such a flow is written from the earlier event to the later one, its ID
has the bit REVERSED, and the later event, where it really starts, has the annotation REVERSED_NOTE: its ID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST
from traceconv.export import perfetto_records as wire
from traceconv.export.row_lookup import IdPlaces, look_up
from traceconv.export.row_order import order_of
from traceconv.export.timeline import SLICE_TABLES
from traceconv.export.windows import condition, time_windows
from traceconv.formats.perfetto_proto.own_export import REVERSED
from traceconv.wire.protobuf import encode_varint

#: Tables whose rows can be ends of flows, in the order written: their time, and the order of equal times.
_TABLES = {
    **dict.fromkeys(SLICE_TABLES, ("start_ns", "-coalesce(dur_ns, 9223372036854775807)")),
    "marker": ("ts_ns", "0"),
}
#: Flows whose ends are looked up at a time.
_PART_FLOWS = 250_000
_BATCH_ROWS = 1 << 16
#: IDs of events whose flows are read at once.
_KEPT_IDS = 1 << 18
#: A flow of an event: the field's tag, which has two bytes, and the ID.
_FIELD = np.dtype([("tag", "V2"), ("flow", "<i8")])
_TAGS = np.array([wire.tag(number, 1) for number in (wire.FLOWS, wire.FLOW_ENDS)], "V2")


class Flows:
    """The flows of a run with both ends in the trace (`count`); the others are not written (`loose`)."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str], first_id: int = 0) -> None:
        """Create a temporary table of the ends of flows. `sources` are FROM clauses, by table.

        first_id  is added to their IDs; `next_id` is above all of them
        """
        self._connection = connection
        self._first_id = self.next_id = first_id
        self._times = [f"SELECT id, coalesce({at}, 0) FROM {sources[name]}" for name, (at, _) in _TABLES.items()]
        self._ranks = [
            f"SELECT id, {place} AS source, {longest} AS longest, coalesce(depth, 0) AS depth "
            f"FROM (SELECT *{'' if place < len(SLICE_TABLES) else ', 0 AS depth'} FROM {sources[name]})"
            for place, (name, (_, longest)) in enumerate(_TABLES.items())
        ]
        flows = sources["flow"]
        self.count = 0
        self._kept_ids = 0, -1
        self._kept: list[Int64] = []
        connection.execute("CREATE OR REPLACE TEMP TABLE export_flow_id (id BIGINT, flow_id BIGINT, ends BIGINT)")
        for part in time_windows(connection, f"{flows} AS f", "flow_id", _PART_FLOWS):
            self._add(f"SELECT flow_id, src_id, dst_id FROM {flows} AS f WHERE {condition('flow_id', part)}")
        [(count,)] = connection.execute(f"SELECT count(*) FROM {flows}").fetchall()
        self.loose = int(count) - self.count

    def _add(self, query: str) -> None:
        """Add the ends of flows to the table."""
        found = self._connection.sql(f"{query} AND src_id IS NOT NULL AND dst_id IS NOT NULL").to_arrow_table()
        flow, source, target = (column.to_numpy() for column in found.columns)
        is_known, [first] = self._of_ids(self._times, source)
        is_end, [last] = self._of_ids(self._times, target)
        both = np.flatnonzero(is_known & is_end)
        ids = [source[both], target[both]]
        back = first[both] > last[both]
        ties = np.flatnonzero(first[both] == last[both])
        if len(ties):
            one, other = ([*self._of_ids(self._ranks, end[ties])[1], end[ties]] for end in ids)
            back[ties] = _is_later(one, other)
        number = flow[both] + self._first_id
        self.next_id = max(self.next_id, int(number.max(initial=-1)) + 1)
        number += np.where(back, REVERSED, 0)
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

    def _of_ids(self, queries: Sequence[str], ids: Int64) -> tuple[NDArray[np.bool_], list[Int64]]:
        """Return which events are in the trace, and their columns in `queries`, one for each table."""
        return look_up(
            self._connection, lambda condition: " UNION ALL ".join(f"{one} WHERE {condition}" for one in queries), ids
        )

    def of_events(self, ids: Int64) -> EventFlows | None:
        """Return the ends of flows on events, by the event's ID; None if there are none."""
        if not self.count or not len(ids):
            return None
        places = IdPlaces(ids)
        parts: list[list[Int64]] = []
        for id_, *columns in self._between(places.low, places.high):
            event = places.of(id_)
            rows = np.flatnonzero(event >= 0)
            parts.append([column[rows] for column in (event, *columns)])
        if not any(len(part[0]) for part in parts):
            return None
        event, flow, ends = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = order_of([event, ends, flow])
        if order is not None:
            event, flow, ends = event[order], flow[order], ends[order]
        return EventFlows(places, len(ids), event, flow, ends)

    def _between(self, low: int, high: int) -> Iterator[Sequence[Int64]]:
        """Yield the columns of the ends of flows on events with IDs from `low` to `high`.

        IDs of a window are close together, and those of the next ones follow: all are read at once, and kept.
        """
        if high - low >= _KEPT_IDS:
            for batch in self._ends(low, high).to_arrow_reader(_BATCH_ROWS):
                yield [column.to_numpy() for column in batch.columns]
            return
        first, last = self._kept_ids
        if low < first or high > last:
            self._kept_ids = low, min(low + _KEPT_IDS, LARGEST)
            columns = [column.to_numpy() for column in self._ends(*self._kept_ids).to_arrow_table().columns]
            order = order_of(columns[:1])
            self._kept = columns if order is None else [column[order] for column in columns]
        rows = slice(np.searchsorted(self._kept[0], low), np.searchsorted(self._kept[0], high, "right"))
        yield [column[rows] for column in self._kept]

    def _ends(self, low: int, high: int) -> duckdb.DuckDBPyRelation:
        return self._connection.sql(
            f"SELECT id, flow_id, ends FROM export_flow_id WHERE id BETWEEN ({low}) AND ({high})"
        )


class EventFlows:
    """The ends of flows on the events of a window.

    event  the number that `places` gives the event, ascending, below `count`
    flow   the ID of the flow, with REVERSED if it is
    ends   0 on the earlier event of the flow, 1 on the later one
    """

    def __init__(self, places: IdPlaces, count: int, event: Int64, flow: Int64, ends: Int64) -> None:
        self._places = places
        self._flow, self._ends = flow, ends
        self._first = _sums(np.bincount(event, minlength=count))
        back = np.flatnonzero((flow >= REVERSED) & (ends == 1))
        self._reversed = flow[back] - REVERSED
        self._first_reversed = _sums(np.bincount(event[back], minlength=count)) if len(back) else None

    def columns(self, ids: Int64, note: int) -> Iterator[tuple[str, pa.Array]]:
        """Yield columns of fields of the events with these IDs, by name; `note` is the interned REVERSED_NOTE."""
        event = self._places.of(ids)
        rows, offsets = _rows_of(self._first, event)
        if len(rows):
            yield "_flows", _flow_fields(self._flow[rows], self._ends[rows], offsets)
        if self._first_reversed is not None:
            rows, offsets = _rows_of(self._first_reversed, event)
            if len(rows):
                yield "_back", _reversed_fields(self._reversed[rows], offsets, note)


def _sums(counts: Int64) -> Int64:
    """Return the sum of the counts before each place, and that of all."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _rows_of(first: Int64, event: NDArray[np.signedinteger]) -> tuple[Int64, Int64]:
    """Return the rows of events in their order, and the offsets of each event in them. `first`: offsets of all."""
    start = first[event]
    counts = first[event + 1] - start
    offsets = _sums(counts)
    return np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], counts), offsets


def _is_later(one: Sequence[Int64], other: Sequence[Int64]) -> NDArray[np.bool_]:
    """Whether the first event is written after the other. The keys of their order are columns."""
    later: NDArray[np.bool_] = one[0] > other[0]
    ties = np.flatnonzero(one[0] == other[0])
    for key, other_key in zip(one[1:], other[1:], strict=True):
        later[ties] = key[ties] > other_key[ties]
        ties = ties[key[ties] == other_key[ties]]
    return later


def _flow_fields(flow: Int64, ends: Int64, offsets: Int64) -> pa.Array:
    data = np.empty(len(flow), _FIELD)
    data["tag"] = _TAGS[ends]
    data["flow"] = flow
    return _binary(data.tobytes(), offsets * _FIELD.itemsize)


def _reversed_fields(flow: Int64, offsets: Int64, note: int) -> pa.Array:
    inner = wire.number_field(wire.NOTE_NAME, note) + wire.tag(wire.NOTE_INT, 0)
    fields = [
        wire.tag(wire.NOTES, 2) + encode_varint(len(inner) + len(number)) + inner + number
        for number in map(encode_varint, flow.tolist())
    ]
    return _binary(b"".join(fields), _sums(np.array([len(one) for one in fields]))[offsets])


def _binary(data: bytes, ends: Int64) -> pa.Array:
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, offsets, pa.py_buffer(data)])
