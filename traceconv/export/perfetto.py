"""A run as a Perfetto trace in protobuf, for Perfetto's viewer and trace processor.

Slices are begin and end events on tracks, with their columns as debug annotations; texts are interned. Packets are
templates filled from the columns of a time window, so memory doesn't grow with the run. Timestamps are the store's.
Packets that viewers skip have the other rows, so that ingest restores the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from traceconv._version import __version__
from traceconv.base.errors import StoreError
from traceconv.base.int64 import Int64
from traceconv.export import perfetto_records as wire
from traceconv.export.chrome_events import table_sources
from traceconv.export.excerpt import Excerpt, find_excerpt
from traceconv.export.json_sql import json_text
from traceconv.export.one_clock import PlacedRun, on_one_clock
from traceconv.export.output import CountedFile, open_output
from traceconv.export.perfetto_columns import columns_packet, packed
from traceconv.export.perfetto_flows import EventFlows, Flows
from traceconv.export.perfetto_texts import Texts
from traceconv.export.perfetto_tracks import TrackPlan
from traceconv.export.record_file import RecordFile, in_turn, record_file
from traceconv.export.record_kinds import Kind
from traceconv.export.registry import Written
from traceconv.export.row_arrays import used_columns
from traceconv.export.row_order import Places, rows_of_window, slice_order, small_batches, time_ordered
from traceconv.export.sorted_runs import another, copied_tables
from traceconv.export.templates import Template
from traceconv.export.timeline import SLICE_TABLES, exporting, find_lanes, has_no_timeline, row_sources, with_path_flows
from traceconv.export.windows import WINDOW_ROWS
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.own_export import HEADER, ROWS, SHIFT, TABLE
from traceconv.normalize.trace.own_columns import (
    DRAWN,
    NO_CATEGORY,
    OP_MEMBERS,
    PACKET_FORM,
    REVERSED_NOTE,
    SHOWN_CATEGORY,
    TIMELESS,
)
from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier

#: Columns of a template, by name.
Columns: TypeAlias = "dict[str, pa.Array | Int64]"

_BATCH_ROWS = 16_384
#: Text columns have 31-bit offsets.
_BATCH_BYTES = 64 << 20
_MEMORY_BYTES = 100_000_000
_LEVEL = 1
#: Columns that are not annotations: they are elsewhere in the event, or follow from its track.
_PLACED = frozenset(("run_id", "track_id", "lane", "name", "category", "start_ns", "ts_ns", "args"))
#: Annotations of the op that a task or a call belongs to.
_SHOWN_OPS = {"task": OP_MEMBERS, "api": OP_MEMBERS[:1]}


def export_perfetto(
    connection: duckdb.DuckDBPyConnection,
    run_ids: int | Sequence[int],
    output: Path | None,
    *,
    device: int | None = None,
    args: bool = True,
    critical_path: bool = False,
    **part: str | None,
) -> Written:
    """Write a run as a Perfetto trace, or several on one clock, which ingest can't tell apart.

    Arguments, effects on the connection and errors are those of `export_chrome`.
    """
    runs = [run_ids] if isinstance(run_ids, int) else run_ids
    places: list[PlacedRun | None] = [None]
    notes: list[str] = []
    if len(runs) > 1:
        left_out = [run_id for run_id in runs if has_no_timeline(connection, run_id)]
        places[:], notes = on_one_clock(connection, [run_id for run_id in runs if run_id not in left_out] or runs)
        notes += [f"run {run_id} has no timeline: its tasks have no start times" for run_id in left_out]
    written: Counter[str] = Counter()
    omitted: Counter[str] = Counter()
    first_track, first_flow = 1, 0
    placed = [place.run_id if place else runs[0] for place in places]
    excerpts = {run_id: find_excerpt(connection, run_id, **part) for run_id in placed}
    shown: list[Excerpt] = []
    with open_output(output) as file:
        counted = CountedFile(file)
        for place, run_id in zip(places, placed, strict=True):
            with exporting(connection, run_id, _MEMORY_BYTES, ordered=True):
                whole, excerpt = row_sources(connection, run_id, device), excerpts[run_id]
                sources = excerpt.of(whole)
                # Viewers would show markers without a time all at the same time.
                timeless = f"(SELECT * FROM {sources['marker']} WHERE ts_ns IS NULL)"
                sources["marker"] = f"(SELECT * FROM {sources['marker']} WHERE ts_ns IS NOT NULL)"
                sources["step"] = f"(SELECT *, coalesce(start_ns, fp_start_ns) AS at_ns FROM {sources['step']})"
                flows = with_path_flows(connection, run_id, sources["flow"]) if critical_path else sources["flow"]
                with record_file(counted) as records:
                    found = records.call(partial(Flows, another(connection), {**sources, "flow": flows}, first_flow))
                    find_lanes(connection, run_id, sources)
                    title = f"{place.title} · " if place else ""
                    loads = excerpt.counted(whole)
                    plan = TrackPlan(connection, run_id, sources, loads, excerpt.end_ns, title, first_track)
                    filtered = device is not None or excerpt != Excerpt()
                    export = _Export(connection, run_id, sources, timeless, plan, found, records, args, filtered, place)
                    export.write()
            shown.append(excerpt.moved(export.shift_ns))
            written.update(export.rows)
            omitted.update(export.omitted)
            first_track, first_flow = plan.next_id, found.result().next_id
        _show_first(counted, shown)
    return Written(written, counted.size_bytes, omitted, notes=tuple(notes))


@dataclass
class _Export:
    """One export: the file, the interned texts, the tracks and the flows.

    timeless  markers without a time
    flows     those that viewers show, found meanwhile; those of `sources` are the rows
    filtered  whether a device or an excerpt was selected
    place     the place of the run among others; None if it is the only one, which ingest restores from the file

    The file's thread makes the events, so that texts are interned in the order written.
    """

    connection: duckdb.DuckDBPyConnection
    run_id: int
    sources: Mapping[str, str]
    timeless: str
    plan: TrackPlan
    flows: Future[Flows]
    file: RecordFile
    with_args: bool
    filtered: bool
    place: PlacedRun | None

    def __post_init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.omitted: dict[str, int] = {}
        #: Counter events written.
        self.samples = 0
        self.texts = Texts(self.file.at_once)
        shown = {**self.sources, "memory": self.plan.counted_memory}
        self.shift_ns = self.place.offset_ns if self.place else _shift_ns(self.connection, shown)
        self._restorable = self.with_args and self.place is None
        self._ops = _ops(self.connection, self.run_id) if self.with_args else {}

    def write(self) -> None:
        """Write the trace; set `rows` and `omitted`."""
        self.file.write(wire.packet(flags=1))
        self._metadata()
        if self._restorable:
            about = {"writer": f"traceconv {__version__}", "base_ns": "0", "form": PACKET_FORM, **self.plan.header()}
            self.file.write(_own_packet(HEADER, json_text(about).encode()))
        self._clock()
        for descriptor in self.plan.descriptors:
            self.file.write(wire.packet(wire.bytes_field(wire.DESCRIPTOR, descriptor)))
        for name in SLICE_TABLES:
            self._check(name)
            self.rows[name] = sum(self._slices(name))
        self.rows["step"] = self._steps()
        self.rows["marker"] = self._markers()
        self.rows["flow"] = self.flows.result().count
        # The first are quickly read and slowly written, the others the other way round.
        in_turn(self._stored(another(self.connection)), self._computed())
        if self._restorable:
            self.file.write_later(lambda: _own_packet(ROWS, f"[{self.samples}]".encode(), DRAWN))
        # Metadata events describe tracks at no time.
        instants = f"FROM {self.timeless} WHERE category IS DISTINCT FROM '__metadata'"
        [(timeless,)] = self.connection.execute(f"SELECT count(*) {instants}").fetchall()
        starts = f"SELECT count(*) - count(at_ns) FROM {self.sources['step']}"
        [(without_start,)] = self.connection.execute(starts).fetchall()
        self.omitted = {
            "steps without a start": int(without_start),
            "instants of markers without a time": int(timeless),
            "arrows with an end outside the trace": self.flows.result().loose,
        }

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
        values = [writer, shift] if self.place is None else [writer]
        bundle = b"".join(wire.bytes_field(2, value) for value in values)
        self.file.write(wire.packet(wire.bytes_field(wire.BUNDLE, bundle)))

    # -- what only traceconv reads --

    def _tables(self, connection: duckdb.DuckDBPyConnection) -> Iterator[int]:
        """Write the rows of tables that viewers don't show, or show in another form; yield their numbers."""
        sources = table_sources(self.run_id, self.sources, filtered=self.filtered)
        sources |= {name: self.sources[name] for name in ("memory", "flow")}
        if self.filtered:  # as in a Chrome trace, flows whose ends are all in the trace
            ends = " UNION ALL ".join(f"SELECT id FROM {self.sources[name]}" for name in (*SLICE_TABLES, "marker"))
            ids = f"({ends} UNION ALL SELECT id FROM {self.timeless})"
            known = " AND ".join(f"({end} IS NULL OR {end} IN {ids})" for end in ("src_id", "dst_id"))
            sources["flow"] = f"(SELECT * FROM {sources['flow']} WHERE {known})"
        sources |= {"step": f"(SELECT * FROM {self.sources['step']} WHERE at_ns IS NULL)", TIMELESS: self.timeless}
        for name, source in sources.items():
            columns = map(quote_identifier, used_columns(connection, name, source))
            query = f"SELECT {', '.join(columns)} FROM {source}"
            for batch in _batches(connection, query, 1 if name == TIMELESS else _BATCH_ROWS):
                self.file.write_later(partial(columns_packet, name, batch), batch.nbytes)
                yield batch.num_rows

    def _clock(self) -> None:
        """Write a clock snapshot if the offset to the wall clock is known."""
        [(start_ns, known)] = self.connection.execute(
            "SELECT start_ns, epoch_known FROM run WHERE run_id = ?", [self.run_id]
        ).fetchall()
        if known and start_ns is not None and start_ns > 0:
            shown_ns = start_ns + self.shift_ns
            readings = [
                wire.bytes_field(1, wire.number_field(1, clock) + wire.number_field(2, ns))
                for clock, ns in ((6, shown_ns), (1, start_ns if self.place is None else shown_ns))
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
        rows = rows_of_window(self.connection, source) if self.with_args else WINDOW_ROWS
        flow_ends: EventFlows | None = None

        def order_of_slices(found: pa.Table) -> Places | None:
            nonlocal flow_ends
            flow_ends = self.flows.result().of_events(found.column("id").to_numpy())
            return slice_order(*(found.column(name) for name in ("start_ns", "dur_ns", "depth", "id")))

        for batch, order in time_ordered(
            self.connection, source, "start_ns", lambda where: f"{query} WHERE {where}", order_of_slices, rows,
            copied_tables(self.connection, ("export_lane",)),
        ):  # fmt: skip
            self.file.later(partial(self._put_slices, name, batch, flow_ends, order), batch.nbytes)
            yield batch.num_rows

    def _put_slices(self, name: str, batch: pa.RecordBatch, flow_ends: EventFlows | None, order: Places | None) -> None:
        column = dict(zip(batch.schema.names, batch.columns, strict=True))
        tracks = self.plan.slices(name, column["track_id"].to_numpy(), column["lane"].to_numpy())
        self._put_batch(name, column, self._notes(column), tracks, flow_ends, order)

    def _put_batch(
        self,
        name: str,
        column: Mapping[str, pa.Array],
        notes: Mapping[str, pa.Array],
        tracks: Int64,
        flow_ends: EventFlows | None = None,
        order: Places | None = None,
    ) -> None:
        """Write slices of tables, and steps: a begin and, if the duration is known, an end each."""
        self.texts.begin()
        starts = column["start_ns"].to_numpy() + self.shift_ns
        durations = column["dur_ns"]
        ends = starts + durations.fill_null(0).to_numpy()
        finished = None if not durations.null_count else durations.is_null().to_numpy(zero_copy_only=False)
        found: Columns = {"_ts": starts, "_end": pa.array(ends, mask=finished), "_track": tracks}
        event = Template().literal(wire.number_field(wire.TYPE, wire.BEGIN))
        self._put_titles(event, column, found)
        self._put_notes(event, notes, found)
        if notes and name in _SHOWN_OPS:
            self._put_ops(event, column["op_id"], _SHOWN_OPS[name], found)
        self._put_args(event, column, found)
        self._put_flows(event, column, flow_ends, found)
        closing = Template().literal(wire.number_field(wire.TYPE, wire.END))
        closing.put(Kind.VARINT, "_track", wire.tag(wire.TRACK, 0))
        packets = wire.packet_of("_ts", event).unless_null("_end", wire.packet_of("_end", closing))
        self._write(packets, found, order)

    def _write(self, packets: Template, columns: Mapping[str, pa.Array | Int64], order: Places | None = None) -> None:
        """Write the packets of events after the texts that they refer to."""
        self.texts.flush()
        self.file.at_once.rows(
            packets, pa.RecordBatch.from_arrays(list(map(pa.array, columns.values())), list(columns)), order
        )

    def _notes(self, columns: Mapping[str, pa.Array]) -> Mapping[str, pa.Array]:
        """Return the columns that become annotations."""
        return {name: column for name, column in columns.items() if self.with_args and name not in _PLACED}

    def _put_titles(self, event: Template, column: Mapping[str, pa.Array], found: Columns) -> None:
        """Add the track, the name and the category."""
        event.put(Kind.VARINT, "_track", wire.tag(wire.TRACK, 0))
        for name, kind, number in (("name", "names", wire.NAME), ("category", "categories", wire.CATEGORY)):
            found[f"_{name}"] = self.texts.numbers(kind, column[name])
            event.put(Kind.VARINT, f"_{name}", wire.tag(number, 0))

    def _put_notes(self, event: Template, columns: Mapping[str, pa.Array], found: Columns) -> None:
        """Add columns as debug annotations, except NULLs."""
        for name, column in columns.items():
            if column.null_count == len(column):
                continue
            form = wire.NOTE_INT if pa.types.is_integer(column.type) else wire.NOTE_TEXT
            form = wire.NOTE_BOOL if pa.types.is_boolean(column.type) else form
            found[name] = column if form != wire.NOTE_TEXT else self.texts.numbers("values", column)
            wire.note(event, self.texts.number("notes", name), form, name)

    def _put_ops(self, event: Template, op_id: pa.Array, shown: Sequence[str], found: Columns) -> None:
        """Add the ops that tasks and calls belong to; each op is looked up once per batch."""
        if op_id.null_count == len(op_id):
            return
        coded = op_id.dictionary_encode()
        known = self.texts.of_ops.setdefault(len(shown), {})
        ops = [
            known.get(number) or self._intern_op(number, known, len(shown)) for number in coded.dictionary.to_pylist()
        ]
        for at, name in enumerate(shown):
            numbers = pa.array([op[at] for op in ops], pa.int64())
            if numbers.null_count == len(numbers):
                continue
            found[f"_{name}"] = numbers.take(coded.indices)
            wire.note(event, self.texts.number("notes", name), wire.NOTE_TEXT, f"_{name}")

    def _intern_op(self, op_id: int, known: dict[int, tuple[int | None, ...]], count: int) -> tuple[int | None, ...]:
        """Return the IDs of the first `count` texts of an op, and add them to `known`."""
        texts = self._ops.get(op_id, (None,) * count)[:count]
        known[op_id] = tuple(None if text is None else self.texts.number("values", text) for text in texts)
        return known[op_id]

    def _put_args(self, event: Template, column: Mapping[str, pa.Array], found: Columns) -> None:
        """Add the source's args."""
        args = column.get("args")
        if args is not None and args.null_count < len(args):
            inner = wire.number_field(wire.NOTE_NAME, self.texts.number("notes", "args")) + wire.tag(wire.NOTE_JSON, 2)
            found["args"] = args
            event.put(Kind.NOTE_BYTES, "args", wire.tag(wire.NOTES, 2), inner)

    def _put_flows(
        self, event: Template, column: Mapping[str, pa.Array], flow_ends: EventFlows | None, found: Columns
    ) -> None:
        """Add the flows that start or end at the events."""
        if flow_ends is None:
            return
        for name, fields in flow_ends.columns(column["id"].to_numpy(), self.texts.number("notes", REVERSED_NOTE)):
            found[name] = fields
            event.put(Kind.RAW, name)

    # -- steps, markers, counters --

    def _steps(self) -> int:
        """Write steps as slices on a track of their device."""
        names = [column.name for column in table("step").columns if column.name != "run_id"]
        query = (
            "SELECT coalesce(l.lane, 0)::INTEGER AS lane, 'Iteration ' || iteration AS name, 'step' AS category, "
            "at_ns AS start_ns, CASE WHEN end_ns >= at_ns THEN TRY(end_ns - at_ns) END AS dur_ns, "
            f"{', '.join(f's.{name} AS step_{name}' for name in names)} FROM {self.sources['step']} AS s "
            "LEFT JOIN export_lane AS l ON l.source = 'step' AND l.id = s.step_id "
            "AND l.track_id IS NOT DISTINCT FROM s.device_id "
            "WHERE at_ns IS NOT NULL ORDER BY s.device_id, at_ns, end_ns DESC NULLS FIRST, step_id"
        )
        written = 0
        for batch in _batches(self.connection, query):
            self.file.later(partial(self._put_steps, batch, names), batch.nbytes)
            written += batch.num_rows
        return written

    def _put_steps(self, batch: pa.RecordBatch, names: Sequence[str]) -> None:
        column = dict(zip(batch.schema.names, batch.columns, strict=True))
        tracks = self.plan.steps(column["step_device_id"].to_pylist(), column["lane"].to_pylist())
        notes = {name: column[f"step_{name}"] for name in names if name != "device_id"} if self.with_args else {}
        self._put_batch("step", column, notes, tracks)

    def _markers(self) -> int:
        """Write markers as instants."""
        source = self.sources["marker"]
        args = ", args" if self.with_args else ""
        query = f"SELECT id, track_id, name, category, ts_ns, scope{args} FROM {source} AS s"
        ids = self.connection.sql(f"SELECT id FROM {source}").to_arrow_table().column(0)
        flow_ends = self.flows.result().of_events(ids.to_numpy())
        written = 0
        for batch in _batches(self.connection, query):
            self.file.later(partial(self._put_markers, batch, flow_ends), batch.nbytes)
            written += batch.num_rows
        return written

    def _put_markers(self, batch: pa.RecordBatch, flow_ends: EventFlows | None) -> None:
        self.texts.begin()
        column = dict(zip(batch.schema.names, batch.columns, strict=True))
        tracks = self.plan.slices("marker", column["track_id"].to_numpy())
        found: Columns = {"_ts": column["ts_ns"].to_numpy() + self.shift_ns, "_track": tracks}
        event = Template().literal(wire.number_field(wire.TYPE, wire.INSTANT))
        self._put_titles(event, column, found)
        self._put_notes(event, self._notes(column), found)
        self._put_args(event, column, found)
        self._put_flows(event, column, flow_ends, found)
        self._write(wire.packet_of("_ts", event), found)

    def _stored(self, connection: duckdb.DuckDBPyConnection) -> Iterator[int]:
        """Write counter samples, integers exactly, others as doubles, and tables; yield the numbers of their rows."""
        self.rows["counter"] = 0
        query = f"SELECT track_id, series, ts_ns, value, value_int FROM {self.sources['counter']}"
        for batch in _batches(connection, query):
            self.file.later(partial(self._put_counters, batch), batch.nbytes)
            yield batch.num_rows
        if self._restorable:
            yield from self._tables(connection)

    def _computed(self) -> Iterator[int]:
        """Write the counters of memory and load; yield the numbers of their samples."""
        for tracks, times, used in self.plan.memory(self.connection):
            yield self._later(times, tracks, None, pa.array(used))
        for tracks, times, values in self.plan.load(self.connection):
            is_whole = pa.types.is_integer(values.type)
            numbers = (None, values) if is_whole else (values, pa.nulls(len(values), pa.int64()))
            yield self._later(times, tracks, *numbers)

    def _later(self, times: Int64, tracks: Int64, value: pa.Array | None, integer: pa.Array) -> int:
        self.file.later(partial(self._put_values, times, tracks, value, integer), 3 * times.nbytes)
        return len(times)

    def _put_counters(self, batch: pa.RecordBatch) -> None:
        if self._restorable:
            self.file.at_once.write(columns_packet("counter", batch))
        if batch.column("value").null_count and batch.column("value_int").null_count:
            batch = batch.filter(pc.or_(*(batch.column(name).is_valid() for name in ("value", "value_int"))))
        self.rows["counter"] += batch.num_rows
        track_id, series, times, value, integer = batch.columns
        self._put_values(times.to_numpy(), self.plan.counters(track_id.to_numpy(), series), value, integer)

    def _put_values(self, times: Int64, tracks: Int64, value: pa.Array | None, integer: pa.Array) -> None:
        self.samples += len(times)
        found: Columns = {"_ts": times + self.shift_ns, "_track": tracks, "_integer": integer}
        event = Template().literal(wire.number_field(wire.TYPE, wire.COUNTER))
        event.put(Kind.VARINT, "_track", wire.tag(wire.TRACK, 0)).put(Kind.VARINT, "_integer", wire.tag(wire.VALUE, 0))
        if value is not None and integer.null_count:
            found["_value"] = value.fill_null(0.0)
            double = Template().put(Kind.FIXED64, "_value", wire.tag(wire.DOUBLE_VALUE, 1))
            event.when_null("_integer", double)
        self._write(wire.packet_of("_ts", event), found)


def _own_packet(number: int, text: bytes, table_name: str = "") -> bytes:
    """Return a packet with what only traceconv reads, compressed."""
    name = wire.bytes_field(TABLE, table_name.encode()) if table_name else b""
    return packed(wire.packet(wire.bytes_field(pb.OWN, name + wire.bytes_field(number, text))), _LEVEL)


def _show_first(file: CountedFile, shown: Sequence[Excerpt]) -> None:
    """Write when recording began and ended, as viewers show this time first: all of the excerpts of the runs."""
    starts, ends = ([ns for ns in times if ns is not None] for times in zip(*shown, strict=True))
    for event, ns in ((wire.ALL_STARTED, min(starts, default=-1)), (wire.DISABLED, max(ends, default=-1))):
        if ns >= 0:
            service = wire.bytes_field(wire.SERVICE, wire.number_field(event, 1))
            file.write(wire.packet(wire.number_field(wire.TIMESTAMP, ns), service))


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


def _batches(
    connection: duckdb.DuckDBPyConnection, query: str, most_rows: int = _BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    return small_batches(connection, query, most_rows, _BATCH_BYTES)
