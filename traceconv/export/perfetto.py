"""A run as a Perfetto trace in protobuf, for Perfetto's viewer and trace processor.

Slices are begin and end events on tracks, with their columns as debug annotations; texts are interned. The records of a
batch are encoded in bulk as a matrix of bytes, so memory doesn't grow with the run. Timestamps are the store's. Packets
that viewers skip have the other rows, so that ingest restores the run.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv._version import __version__
from traceconv.base.errors import StoreError
from traceconv.export import perfetto_records as wire
from traceconv.export.chrome_events import row_objects, table_sources
from traceconv.export.json_sql import json_text
from traceconv.export.output import CountedFile, open_output
from traceconv.export.perfetto_flows import NO_FLOWS, Flows, flow_column, reversed_column
from traceconv.export.perfetto_texts import Texts
from traceconv.export.perfetto_tracks import make_plan
from traceconv.export.records import Template, filled
from traceconv.export.registry import Written
from traceconv.export.row_order import rows_of_window, slice_order
from traceconv.export.timeline import SLICE_TABLES, exporting, find_lanes, row_sources
from traceconv.export.windows import condition, time_windows
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.own_export import HEADER, ROWS, SHIFT, TABLE
from traceconv.normalize.trace.own_columns import (
    DRAWN,
    FORM,
    NO_CATEGORY,
    OP_MEMBERS,
    REVERSED_NOTE,
    SHOWN_CATEGORY,
    TIMELESS,
)
from traceconv.schema import table

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BATCH_ROWS = 16_384
#: Text columns have 31-bit offsets.
_BATCH_BYTES = 256 << 20
_MEMORY_LIMIT = "100MB"
_ROWS_LEVEL = 1
#: Columns that are not annotations: they are elsewhere in the event, or follow from its track.
_PLACED = frozenset(("run_id", "track_id", "lane", "name", "category", "start_ns", "ts_ns", "args"))
#: Annotations of the op that a task or a call belongs to.
_SHOWN_OPS = {"task": OP_MEMBERS, "api": OP_MEMBERS[:1]}


def export_perfetto(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    output: Path | None,
    *,
    device: int | None = None,
    args: bool = True,
) -> Written:
    """Write a run as a Perfetto trace to `output` (None: standard output; compressed if it ends in .gz).

    `device` omits rows of other devices. Without `args` slices only have a name and a category, and the run can't be
    ingested from the file. The connection's memory limit is set, and it gets temporary tables. Raises OutputError if
    the file can't be written, StoreError if the store can't be read, InputError if the run has tasks without a start
    and is no static profile.
    """
    with exporting(connection, run_id, _MEMORY_LIMIT):
        sources = row_sources(connection, run_id, device)
        # Viewers would show markers without a time all at the same time.
        timeless = f"(SELECT * FROM {sources['marker']} WHERE ts_ns IS NULL)"
        sources["marker"] = f"(SELECT * FROM {sources['marker']} WHERE ts_ns IS NOT NULL)"
        sources["step"] = f"(SELECT *, coalesce(start_ns, fp_start_ns) AS at_ns FROM {sources['step']})"
        find_lanes(connection, sources)
        with open_output(output) as file:
            return _Export(connection, run_id, sources, timeless, CountedFile(file), args, device is not None).write()


@dataclass
class _Export:
    """One export: the file, the interned texts, the tracks and the flows.

    timeless  markers without a time
    filtered  whether a device was selected
    """

    connection: duckdb.DuckDBPyConnection
    run_id: int
    sources: Mapping[str, str]
    timeless: str
    file: CountedFile
    with_args: bool
    filtered: bool

    def __post_init__(self) -> None:
        self.rows: dict[str, int] = {}
        #: Counter events written.
        self.samples = 0
        self.texts = Texts(self.file)
        self.plan = make_plan(self.connection, self.run_id, self.sources)
        self.flows = Flows(self.connection, self.sources)
        self.shift_ns = _shift_ns(self.connection, self.sources)
        self._ops = _ops(self.connection, self.run_id) if self.with_args else {}

    def write(self) -> Written:
        self.file.write(wire.packet(flags=1))
        self._metadata()
        if self.with_args:
            self._put_own(HEADER, self._header())
        self._clock()
        for descriptor in self.plan.descriptors:
            self.file.write(wire.packet(wire.bytes_field(wire.DESCRIPTOR, descriptor)))
        self.rows["flow"] = self.flows.count
        for name in SLICE_TABLES:
            self._check(name)
            self.rows[name] = sum(self._slices(name))
        self.rows["step"] = self._steps()
        self.rows["marker"] = sum(self._markers())
        self.rows["counter"] = self._counters()
        if self.with_args:
            self._tables()
        [(timeless,)] = self.connection.execute(f"SELECT count(*) FROM {self.timeless}").fetchall()
        omitted = {
            "instants of markers without a time": int(timeless),
            "arrows with an end outside the trace": self.flows.loose,
        }
        return Written(self.rows, self.file.size_bytes, omitted)

    def _check(self, name: str) -> None:
        """Raise StoreError if there are slices without a time or a track."""
        source = self.sources[name]
        [(bad,)] = self.connection.execute(f"SELECT count(*) FROM {source} WHERE start_ns IS NULL").fetchall()
        tracks = f"SELECT DISTINCT track_id FROM {source}"
        known = f"SELECT track_id FROM track WHERE run_id = {self.run_id}"
        bad += len(self.connection.execute(f"SELECT * FROM ({tracks}) EXCEPT {known}").fetchall())
        if bad:
            what = f"table {name} has rows without a time or a track"
            raise StoreError(f"{what}; the store is damaged, ingest its sources again")

    def _metadata(self) -> None:
        """Write the writer and the shift of timestamps."""
        writer = wire.bytes_field(1, b"traceconv-writer") + wire.bytes_field(2, f"traceconv {__version__}".encode())
        shift = wire.bytes_field(1, SHIFT.encode()) + wire.number_field(4, self.shift_ns)
        self.file.write(
            wire.packet(wire.bytes_field(wire.BUNDLE, wire.bytes_field(2, writer) + wire.bytes_field(2, shift)))
        )

    # -- what only traceconv reads --

    def _header(self) -> bytes:
        about = {"writer": f"traceconv {__version__}", "base_ns": "0", "form": FORM, **self.plan.header()}
        return json_text(about).encode()

    def _put_own(self, number: int, text: bytes, table_name: str = "") -> None:
        name = wire.bytes_field(TABLE, table_name.encode()) if table_name else b""
        own = wire.packet(wire.bytes_field(pb.OWN, name + wire.bytes_field(number, text)))
        self.file.write(wire.packet(wire.bytes_field(pb.PACKED, zlib.compress(own, _ROWS_LEVEL))))

    def _tables(self) -> None:
        """Write the rows of tables that viewers don't show, or show in another form."""
        sources = table_sources(self.run_id, self.sources, filtered=self.filtered)
        sources |= {name: self.sources[name] for name in ("counter", "memory", "flow")}
        sources |= {"step": f"(SELECT * FROM {self.sources['step']} WHERE at_ns IS NULL)", TIMELESS: self.timeless}
        for name, source in sources.items():
            row = Template().literal(",{")
            query = row_objects(self.connection, row, name, source)
            row.literal("}")
            # A marker has an ID, which is that of its event.
            most = 1 if name == TIMELESS else _BATCH_ROWS
            for batch in _pieces(self.connection, query):
                for at in range(0, batch.num_rows, most):
                    self._put_own(ROWS, b"[" + filled(row, batch.slice(at, most))[1:] + b"]", name)
        self._put_own(ROWS, f"[{self.samples}]".encode(), DRAWN)

    def _clock(self) -> None:
        """Write a clock snapshot if the offset to the wall clock is known."""
        [(start_ns, known)] = self.connection.execute(
            "SELECT start_ns, epoch_known FROM run WHERE run_id = ?", [self.run_id]
        ).fetchall()
        if known and start_ns is not None and start_ns > 0:
            readings = [
                wire.bytes_field(1, wire.number_field(1, clock) + wire.number_field(2, ns))
                for clock, ns in ((6, start_ns + self.shift_ns), (1, start_ns))
            ]
            self.file.write(wire.packet(wire.bytes_field(wire.SNAPSHOT, b"".join(readings))))

    # -- slices --

    def _slices(self, name: str) -> Iterator[int]:
        source = self.sources[name]
        placed = {"run_id", "id", "track_id", "name", "category", "start_ns", "dur_ns", "depth"}
        listed = [f"s.{column.name}" for column in table(name).columns if column.name not in placed]
        shown = SHOWN_CATEGORY.get(name)
        if shown:
            no_category = f"CASE WHEN s.category IS NULL AND s.{shown} IS NOT NULL THEN true END"
            listed.append(f"{no_category} AS {NO_CATEGORY}")
        category = f"coalesce(s.category, s.{shown})" if shown else "s.category"
        moved = self.connection.execute("SELECT 1 FROM export_lane WHERE source = ? LIMIT 1", [name]).fetchall()
        lane = "coalesce(l.lane, 0)::INTEGER" if moved else "0::INTEGER"
        joins = f"LEFT JOIN export_lane AS l ON l.source = '{name}' AND l.id = s.id" if moved else ""
        chosen = f"s.id, s.track_id, {lane} AS lane, s.name, {category} AS category, s.start_ns, s.dur_ns, s.depth"
        query = f"SELECT {', '.join([chosen, *(listed if self.with_args else [])])} FROM {source} AS s {joins}"
        rows = rows_of_window(self.connection, source)
        for window in time_windows(self.connection, source, "start_ns", rows):
            where = condition("s.start_ns", window)
            flow_ends = self.flows.of_rows(source, where)
            for batch in _in_order(self.connection, f"{query} WHERE {where}"):
                column = dict(zip(batch.schema.names, batch.columns, strict=True))
                tracks = self.plan.slices(name, column["track_id"].to_numpy(), column["lane"].to_numpy())
                self._slice_batch(name, column, self._notes(column), tracks, flow_ends)
                yield batch.num_rows

    def _slice_batch(
        self,
        name: str,
        column: Mapping[str, pa.Array],
        notes: Mapping[str, pa.Array],
        tracks: Int64,
        flow_ends: np.ndarray,
    ) -> None:
        """Write slices of tables, and steps: a begin and, if the duration is known, an end each."""
        self.texts.begin()
        count = len(tracks)
        starts = column["start_ns"].to_numpy() + self.shift_ns
        durations = column["dur_ns"]
        finished = None if not durations.null_count else durations.is_valid().to_numpy(zero_copy_only=False)
        ends = starts + durations.fill_null(0).to_numpy()
        event = wire.Parts(count)
        event.put(wire.number_field(wire.TYPE, wire.BEGIN))
        event.number(wire.TRACK, tracks)
        event.number(wire.NAME, *self.texts.numbers("names", column["name"]))
        self._put_category(event, column["category"])
        self._put_notes(event, notes)
        if notes and name in _SHOWN_OPS:
            self._put_ops(event, column["op_id"], _SHOWN_OPS[name])
        closing = wire.Parts(count)
        closing.put(wire.number_field(wire.TYPE, wire.END))
        closing.number(wire.TRACK, tracks)
        self._write(starts, event, column, flow_ends, wire.packets(ends, closing, None, finished))

    def _notes(self, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """Return the columns that become annotations."""
        return {name: column for name, column in columns.items() if self.with_args and name not in _PLACED}

    def _put_category(self, event: wire.Parts, column: pa.Array) -> None:
        if column.null_count < len(column):
            event.number(wire.CATEGORY, *self.texts.numbers("categories", column))

    def _put_notes(self, event: wire.Parts, columns: Mapping[str, pa.Array]) -> None:
        """Add columns as debug annotations, except NULLs."""
        for name, column in columns.items():
            if column.null_count == len(column):
                continue
            note = self.texts.number("notes", name)
            where = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
            if pa.types.is_boolean(column.type):
                values = column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
                event.note(note, wire.NOTE_BOOL, values, where)
            elif pa.types.is_integer(column.type):
                event.note(note, wire.NOTE_INT, column.cast(pa.int64()).fill_null(0).to_numpy(), where)
            else:
                numbers, where = self.texts.numbers("values", column)
                event.note(note, wire.NOTE_TEXT, numbers, where)

    def _put_ops(self, event: wire.Parts, op_id: pa.Array, shown: Sequence[str]) -> None:
        """Add the ops that tasks and calls belong to; each op is looked up once per batch."""
        if op_id.null_count == len(op_id):
            return
        coded = op_id.dictionary_encode()
        ops = [self._ops.get(number) for number in coded.dictionary.to_pylist()]
        codes = coded.indices.fill_null(len(ops)).to_numpy()
        for at, name in enumerate(shown):
            words = [None if op is None else op[at] for op in ops]
            numbers = np.array([0 if word is None else self.texts.number("values", word) for word in words] + [0])
            found = numbers[codes]
            where = found != 0
            if where.any():
                event.note(self.texts.number("notes", name), wire.NOTE_TEXT, found, None if where.all() else where)

    def _write(
        self,
        times: Int64,
        event: wire.Parts,
        column: Mapping[str, pa.Array],
        flow_ends: np.ndarray,
        closing: wire.Parts | None,
    ) -> None:
        """Write the events with their fields of variable length: the source's args, and flows."""
        tail: list[pa.Array] = []
        args = column.get("args")
        if args is not None and args.null_count < len(args):
            args = args.cast(pa.binary())
            where = args.is_valid().to_numpy(zero_copy_only=False) if args.null_count else None
            texts = wire.sizes_of(args)
            inner = wire.number_field(wire.NOTE_NAME, self.texts.number("notes", "args"))
            width = wire.width_of(texts)
            json_tag = wire.tag(wire.NOTE_JSON, 2)
            size = len(inner) + len(json_tag) + width + texts
            event.put(wire.tag(wire.NOTES, 2), where)
            event.varint(size, 0, where)
            event.put(inner + json_tag, where)
            event.varint(texts, width, where)
            tail.append(pc.fill_null(args, b""))
        if "id" in column and len(flow_ends):
            ids = column["id"].to_numpy()
            back = reversed_column(flow_ends, ids, self.texts.number("notes", REVERSED_NOTE))
            tail += [one for one in (flow_column(flow_ends, ids), back) if one is not None]
        extra = sum((wire.sizes_of(one) for one in tail), np.zeros(event.count, np.int64)) if tail else None
        opening = wire.packets(times, event, extra)
        self.texts.flush()
        if tail:
            self.file.write(
                wire.write_rows([opening.binary(), *tail, *([closing.binary()] if closing is not None else [])])
            )
            return
        if closing is not None:
            opening.blocks += closing.blocks
        self.file.write(wire.write_rows([opening.binary()]))

    # -- steps, markers, counters --

    def _steps(self) -> int:
        """Write steps as slices on a track of their device."""
        names = [column.name for column in table("step").columns if column.name != "run_id"]
        query = (
            "SELECT coalesce(l.lane, 0)::INTEGER AS lane, 'Iteration ' || iteration AS name, 'step' AS category, "
            "at_ns AS start_ns, CASE WHEN end_ns >= at_ns THEN end_ns - at_ns END AS dur_ns, "
            f"{', '.join(f's.{name} AS step_{name}' for name in names)} FROM {self.sources['step']} AS s "
            "LEFT JOIN export_lane AS l ON l.source = 'step' AND l.id = s.step_id "
            "WHERE at_ns IS NOT NULL ORDER BY s.device_id, at_ns, end_ns DESC NULLS FIRST, step_id"
        )
        written = 0
        for batch in _pieces(self.connection, query):
            column = dict(zip(batch.schema.names, batch.columns, strict=True))
            tracks = self.plan.steps(column["step_device_id"].to_pylist(), column["lane"].to_pylist())
            notes = {name: column[f"step_{name}"] for name in names if name != "device_id"} if self.with_args else {}
            self._slice_batch("step", column, notes, tracks, NO_FLOWS)
            written += batch.num_rows
        return written

    def _markers(self) -> Iterator[int]:
        """Write markers as instants."""
        source = self.sources["marker"]
        args = ", args" if self.with_args else ""
        query = f"SELECT id, track_id, name, category, ts_ns, scope{args} FROM {source} AS s"
        flow_ends = self.flows.of_rows(source, "true")
        for batch in _pieces(self.connection, query):
            self.texts.begin()
            column = dict(zip(batch.schema.names, batch.columns, strict=True))
            event = wire.Parts(batch.num_rows)
            event.put(wire.number_field(wire.TYPE, wire.INSTANT))
            event.number(wire.TRACK, self.plan.slices("marker", column["track_id"].to_numpy()))
            if column["name"].null_count < batch.num_rows:
                event.number(wire.NAME, *self.texts.numbers("names", column["name"]))
            self._put_category(event, column["category"])
            self._put_notes(event, self._notes(column))
            self._write(column["ts_ns"].to_numpy() + self.shift_ns, event, column, flow_ends, None)
            yield batch.num_rows

    def _counters(self) -> int:
        """Write counter samples: integers exactly, others as doubles."""
        written = 0
        query = (
            "SELECT track_id, series, ts_ns, value, value_int FROM "
            f"{self.sources['counter']} WHERE value IS NOT NULL OR value_int IS NOT NULL"
        )
        for batch in _pieces(self.connection, query):
            track_id, series, times, value, integer = batch.columns
            tracks = self.plan.counters(track_id.to_numpy(), series)
            self._values(times.to_numpy(), tracks, value, integer)
            written += batch.num_rows
        for tracks, times, used in self.plan.memory(self.connection, self.sources["memory"]):
            self._values(times, tracks, None, pa.array(used))
        for tracks, times, values in self.plan.load(self.connection):
            unknown = pa.nulls(len(values), pa.int64())
            is_whole = pa.types.is_integer(values.type)
            self._values(times, tracks, None if is_whole else values, values if is_whole else unknown)
        return written

    def _values(self, times: Int64, tracks: Int64, value: pa.Array | None, integer: pa.Array) -> None:
        count = len(times)
        self.samples += count
        event = wire.Parts(count)
        event.put(wire.number_field(wire.TYPE, wire.COUNTER))
        event.number(wire.TRACK, tracks)
        is_integer = integer.is_valid().to_numpy(zero_copy_only=False)
        event.number(wire.VALUE, integer.fill_null(0).to_numpy(), is_integer)
        if value is not None and not is_integer.all():
            event.put(wire.tag(wire.DOUBLE_VALUE, 1), ~is_integer)
            bits = np.ascontiguousarray(value.fill_null(0.0).to_numpy()).view(np.uint8).reshape(count, 8)
            event.matrix(bits, ~is_integer)
        self.texts.flush()
        self.file.write(wire.write_rows([wire.packets(times + self.shift_ns, event).binary()]))


def _shift_ns(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str]) -> int:
    """Return what is added to all times so that none is negative; viewers drop those."""
    times = {"step": "at_ns", "counter": "ts_ns", "marker": "ts_ns", "memory": "least(alloc_ns, free_ns)"}
    firsts = [
        f"SELECT min({times.get(name, 'start_ns')}) AS ns FROM {sources[name]}" for name in (*SLICE_TABLES, *times)
    ]
    [(first,)] = connection.execute(f"SELECT min(ns) FROM ({' UNION ALL '.join(firsts)})").fetchall()
    return max(0, -(first or 0))


def _ops(connection: duckdb.DuckDBPyConnection, run_id: int) -> dict[int, tuple[str | None, ...]]:
    """Return the columns of each op, in the order of OP_MEMBERS; `op_name` is the column `name`."""
    columns = ", ".join(f"{column.replace('op_name', 'name')}::VARCHAR" for column in OP_MEMBERS)
    rows = connection.execute(f"SELECT op_id, {columns} FROM op WHERE run_id = ?", [run_id]).fetchall()
    return {row[0]: row[1:] for row in rows}


def _pieces(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in non-empty batches of limited size in bytes."""
    for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
        yield from _small(batch)


def _small(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    waiting = [batch] if batch.num_rows else []
    while waiting:
        piece = waiting.pop()
        if piece.num_rows > 1 and piece.nbytes > _BATCH_BYTES:
            half = piece.num_rows // 2
            waiting += [piece.slice(half), piece.slice(0, half)]
        else:
            yield piece


def _in_order(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """Yield the slices of a window in such batches, by start, outermost first."""
    found = connection.sql(query).to_arrow_table(_BATCH_ROWS)
    order = slice_order(*(found.column(name) for name in ("start_ns", "dur_ns", "depth", "id")))
    if order is None:
        for batch in found.to_batches():
            yield from _small(batch)
        return
    # Taking from several chunks would join them each time; texts of more than 2 GB are in several.
    joined = found.combine_chunks()
    del found
    for at in range(0, len(order), _BATCH_ROWS):
        for batch in joined.take(pa.array(order[at : at + _BATCH_ROWS])).to_batches():
            yield from _small(batch)
