"""Our own Chrome and Perfetto exports → the exported rows.

A header (`otherData` of a Chrome trace) identifies such a file, and contains the rows of the small tables. Names of
threads specify the table and track of their events; args contain every column that is nowhere else in an event. Rows
that viewers don't show are in metadata events (`M`), each with many rows. Rows get new IDs, their ordinals in this
file, and references follow. See docs/how-to/export-a-timeline.md.

In a Perfetto trace the header lists the threads, and rows of all tables without IDs are in metadata events: the
counters and flows that viewers show are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET, Raw

from traceconv.base.diagnostics import Accounts
from traceconv.base.int64 import Int64, sums
from traceconv.events.trace import EventColumns, NamedTrack, TraceBatch
from traceconv.normalize.rows import ColumnData, row_batch
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.trace import own_columns as own
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.distinct import Places
from traceconv.normalize.trace.own_columns import NotAsWritten, arrays, decoded, plain_schema
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.normalize.trace.times import Times, exact_ns

#: Phases of the events that are rows of a table.
_PHASES = {
    **dict.fromkeys(own.SLICES, "XB"),
    "task": "XBC",
    "marker": "i",
    "counter": "C",
    "memory": "iC",
    "step": "XBi",
}


class _Header(msgspec.Struct):
    writer: str
    base_ns: int | str
    form: int
    run: list[Raw]
    device: list[Raw]
    process: list[Raw]
    track: list[Raw]
    #: Only in Perfetto traces.
    thread: list[own.PacketThread] | None = None


_HEADER = msgspec.json.Decoder(_Header)


def header_of(keys: Mapping[str, bytes]) -> _Header | None:
    """Return the `otherData` of our own export; None if the file is another's, or in an unknown form."""
    try:
        header = _HEADER.decode(keys.get("otherData", b""))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    ours = header.writer.startswith("traceconv ") and header.form in own.FORMS and len(header.run) == 1
    return header if ours else None


def is_ours(keys: Mapping[str, bytes]) -> bool:
    """Return whether traceconv wrote a trace, in any form: also without args, or with several runs."""
    for key, name in (("otherData", "writer"), ("chrome", "traceconv-writer")):
        try:
            writer = msgspec.json.decode(keys.get(key, b"{}"), type=dict[str, Any]).get(name)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(writer, str) and writer.startswith("traceconv "):
            return True
    return False


class OwnExport:
    """Takes the batches of such a file, then returns the rows of its tables. Raises NotAsWritten."""

    def __init__(self, header: _Header, accounts: Accounts, source_id: int, id_bits: int) -> None:
        self._accounts = accounts
        self._first_id = source_id << id_bits
        self._base_ns = own.integer(header.base_ns)
        self._small = {
            name: dict(zip(plain_schema(name).names, arrays(name, rows, {}), strict=True))
            for name in own.HEADER_TABLES
            for rows in [decoded(own.decoders(in_packets=False)[name], getattr(header, name))]
        }
        self._rows = {name: SpilledRows(plain_schema(name)) for name in own.EVENT_TABLES}
        self._ids = SpillIndex(("id",))
        #: pid and tid → table, and track or (for step and memory) device.
        self._threads: dict[tuple[object, object], tuple[str, int | None]] = {}
        self._in_packets = header.thread is not None
        self._decoders = own.decoders(in_packets=self._in_packets)
        for thread in header.thread or ():
            for tid in (thread.tid, NamedTrack("async", str(thread.tid))):
                self._threads[thread.pid, tid] = thread.table, thread.owner
        #: Counter events in a Perfetto trace, and how many were exported.
        self._samples_seen = 0
        self._samples_drawn: int | None = None
        #: Args, key, start and finish of flows. The finish comes right after the start, maybe in the next batch.
        self._flows: list[tuple[Any, bytes, int, int | None]] = []

    def run_columns(self) -> dict[str, object]:
        """Return the row of the run that was exported."""
        return {name: column[0].as_py() for name, column in self._small["run"].items()}

    def precompute_times(self, batch: TraceBatch) -> None:
        """Do nothing: times are parsed in `take`."""

    def take(self, batch: TraceBatch) -> None:
        """Take the next events."""
        columns = batch.columns
        ids = self._first_id + np.arange(batch.first_ordinal, batch.first_ordinal + columns.count, dtype=np.int64)
        events = _Events(columns, ids, self._base_ns)
        ph, pids, tids = (columns.label(field)[:] for field in ("ph", "pid", "tid"))
        for place in (place for place, one in enumerate(ph) if one == "M"):
            self._metadata(events, place)
        groups: dict[tuple[str, str], list[int]] = {}
        for place, one in enumerate(ph):
            if one in ("s", "f"):  # their thread may be named later
                groups.setdefault(("flow", ""), []).append(place)
            elif one != "M":
                table = self._threads.get((pids[place], tids[place]), ("", None))[0]
                groups.setdefault((table, str(one)), []).append(place)
        try:
            for (table, one), places in groups.items():
                if table == "flow":
                    self._take_flows(events, np.array(places))
                elif self._in_packets and (one == "C" or (one == "E" and table)):
                    self._samples_seen += len(places) if one == "C" else 0
                    self._count(one, len(places), "used" if one == "C" else "paired")
                else:
                    self._take_rows(table, one, events, np.array(places))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise NotAsWritten(str(error)) from error
        self._count("M", ph.count("M"), "used")

    def _count(self, ph: str, count: int, becomes: str) -> None:
        if count:
            self._accounts[phases.account_of(ph)].add(**{becomes: count})

    def _metadata(self, events: _Events, place: int) -> None:
        at = np.array([place])
        name = events.label("name")[place]
        if name == "thread_name" and not self._in_packets:
            args = decoded(own.THREAD, events.args(at))[0]
            self._threads[events.label("pid")[place], events.label("tid")[place]] = args.table, args.owner
        elif name in (own.PACKET_TABLES if self._in_packets else (*own.ROW_TABLES, own.TIMELESS)):
            self._metadata_rows(str(name), events.args(at)[0], events.ids[at])
        elif name == own.DRAWN and self._in_packets:
            [self._samples_drawn] = own.decoded_list(own.DRAWN_COUNTERS, events.args(at)[0])
        elif self._in_packets:
            raise NotAsWritten("rows of an unknown table")

    def _metadata_rows(self, name: str, text: bytes, ids: Int64) -> None:
        """Take the rows in a metadata event."""
        count, values = own.rows_of(name, text)
        outside = {}
        if name == own.TIMELESS:
            if count != 1:
                raise NotAsWritten("an event with several markers")
            self._note_ids(values.get("id", [None]), ids)
            outside = {"id": pa.array(ids)}
        self._rows[name].append(own.row_arrays(name, count, values, outside))

    def _note_ids(self, exported: Sequence[Any], ids: Int64) -> None:
        """Map the exported IDs of rows to their new ones."""
        old = own.ints(list(exported), pa.int64())
        if old.null_count:
            raise NotAsWritten("a row without an id")
        self._ids.add(old.to_numpy().view(np.uint64), ids)

    def _take_rows(self, table: str, ph: str, events: _Events, places: Places) -> None:
        """Take the events of one phase on threads of one table."""
        name = "marker" if ph == "i" and table in own.SLICES else table
        if ph not in _PHASES.get(name, ()):
            raise NotAsWritten(f"{ph} events on a thread of {table or 'another writer'}")
        if name == "task" and ph == "C":
            self._count(ph, len(places), "used")  # samples are computed from the tasks
            return
        if name == "memory":
            # Counter samples are sums over the blocks; a free is part of its block's row.
            free = np.array([ph == "C" or title == "free" for title in events.label("name").take(places)], np.bool_)
            self._count(ph, int(free.sum()), "used" if ph == "C" else "paired")
            places = places[~free]
        if not len(places):
            return
        if name == "counter":
            self._rows[name].append(self._samples(events, places))
        else:
            args = decoded(self._decoders[name], events.args(places))
            self._rows[name].append(arrays(name, args, self._outside(name, args, events, places)))
        self._count(ph, len(places), "rows")

    def _owners(self, events: _Events, places: Places) -> pa.Array:
        threads = zip(events.label("pid").take(places), events.label("tid").take(places), strict=True)
        return pa.array([self._threads[thread][1] for thread in threads], pa.int64())

    def _outside(self, name: str, args: Sequence[Any], events: _Events, places: Places) -> dict[str, pa.Array]:
        """Return the columns that are not in args."""
        owners = self._owners(events, places)
        titles = events.label("name").take(places)
        if name == "step":
            return {"device_id": owners}
        if name == "memory":
            times = pa.array(events.times(places), mask=np.array([title == "held" for title in titles], np.bool_))
            return {"device_id": owners, "alloc_ns": times}
        self._note_ids([one.id for one in args], events.ids[places])
        texts = {
            "name": [title if one.name is UNSET else None for title, one in zip(titles, args, strict=True)],
            "category": [
                category if one.category is UNSET and not getattr(one, own.NO_CATEGORY, False) else None
                for category, one in zip(events.label("cat").take(places), args, strict=True)
            ],
        }
        columns = {column: pa.array(values, pa.string()) for column, values in texts.items()}
        columns |= {"id": pa.array(events.ids[places]), "track_id": owners}
        times = pa.array(events.times(places))
        if name == "marker":
            return {**columns, "ts_ns": times}
        if self._in_packets:
            return {**columns, "start_ns": times}
        durations = events.exact("dur", places)
        return {**columns, "start_ns": times, "dur_ns": pa.array(durations.ns, mask=~durations.valid)}

    def _samples(self, events: _Events, places: Places) -> list[pa.Array]:
        """Return the columns of counter samples, each of one value."""
        samples: list[tuple[str | None, float | None, int | None]] = []
        extra = events.columns.extra
        exact_values, named = ({} if extra is None else extra.of(key) for key in ("value", "series"))
        for place, text in zip(places.tolist(), events.args(places), strict=True):
            members = own.MEMBERS.decode(text)
            if len(members) != 1:
                raise NotAsWritten("a counter with several values")
            [(key, raw)] = members.items()
            number = own.NUMBER.decode(raw)
            exact = own.NUMBER.decode(exact_values[place]) if place in exact_values else number
            try:
                value = None if exact is None else float(exact)
            except ValueError:
                raise NotAsWritten("a counter value that is not a number") from None
            series = key if key != "value" or place in named else None
            samples.append((series, value, number if isinstance(number, int) else None))
        series_names, values, integers = zip(*samples, strict=True)
        columns = {
            "track_id": self._owners(events, places),
            "series": pa.array(series_names, pa.string()),
            "ts_ns": pa.array(events.times(places)),
            "value": pa.array(values, pa.float64()),
            "value_int": pa.array(integers, pa.int64()),
        }
        return [columns[column] for column in plain_schema("counter").names]

    def _take_flows(self, events: _Events, places: Places) -> None:
        ph = events.label("ph").take(places)[:]
        args = iter(decoded(own.decoders(in_packets=False)["flow"], events.args(places[[one == "s" for one in ph]])))
        keys = events.columns.raw["id"].take(pa.array(places)).to_pylist()
        paired = shown = 0
        for one, key, ns in zip(ph, keys, events.times(places).tolist(), strict=True):
            if one == "s":
                row = next(args)
                if row.kind == own.PATH_FLOW:
                    shown += 1
                else:
                    self._flows.append((row, key, ns, None))
            elif self._flows and self._flows[-1][1] == key and self._flows[-1][3] is None:
                self._flows[-1] = (*self._flows[-1][:3], ns)
                paired += 1
        self._count("s", ph.count("s") - shown, "rows")
        self._count("s", shown, "used")
        self._count("f", paired, "paired")
        # The starts of these were lost with the text that contained them, or they show a critical path.
        self._count("f", ph.count("f") - paired, "used")
        self._spill_flows(keep=1)

    def _spill_flows(self, keep: int) -> None:
        cut = max(0, len(self._flows) - keep)
        flows, self._flows = self._flows[:cut], self._flows[cut:]
        # A flow that leads back in time is exported with its ends exchanged.
        ends = [(finish, start) if args.reversed else (start, finish) for args, _, start, finish in flows]
        no_start = np.array([args.src_ns is None for args, *_ in flows], np.bool_)
        columns = {
            "src_ns": pa.array([start for start, _ in ends], pa.int64(), mask=no_start),
            "dst_ns": pa.array([finish for _, finish in ends], pa.int64()),
        }
        self._rows["flow"].append(arrays("flow", [args for args, *_ in flows], columns))

    def end(self) -> None:
        """Finish writing what was spilled. Raises NotAsWritten if counters were added."""
        if self._samples_drawn is not None and self._samples_seen > self._samples_drawn:
            raise NotAsWritten("more counters than were exported")
        self._spill_flows(keep=0)
        for rows in self._rows.values():
            rows.end()

    def tables(self) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """Yield all tables with their batches. Read each table to its end before asking for the next."""
        for name in own.EVENT_TABLES:
            yield name, self._batches(name)
        for name in own.HEADER_TABLES[1:]:
            yield name, iter([row_batch(name, self._small[name])])

    def _batches(self, name: str) -> Iterator[pa.RecordBatch]:
        for _, batch in self._rows[name].batches():
            columns: dict[str, ColumnData] = dict(zip(batch.schema.names, batch.columns, strict=True))
            for column in own.references(name) & columns.keys():
                columns[column] = self._new_ids(batch.column(column))
            found = row_batch(name, columns)
            yield found.filter(found.column("id").is_valid()) if name in own.TASK_TABLES else found

    def _new_ids(self, references: pa.Array) -> pa.Array:
        """Return references as IDs of this file; NULL if it does not contain the row."""
        null = references.is_null().to_numpy(zero_copy_only=False)
        found, values = self._ids.look_up(references.fill_null(0).to_numpy().view(np.uint64))
        return pa.array(values["id"], mask=null | ~found)

    def close(self) -> None:
        """Free the disk space."""
        for rows in self._rows.values():
            rows.close()
        self._ids.close()


class _Events:
    """The columns of a batch, with times as they were before the export."""

    def __init__(self, columns: EventColumns, ids: Int64, base_ns: int) -> None:
        self.columns = columns
        self.ids = ids
        self._base_ns = base_ns
        self.label = cache(columns.label)

    def args(self, places: Places) -> list[bytes]:
        """Return the text of the args of some events."""
        raw = self.columns.raw.get("args")
        texts: list[bytes] = [b""] * len(places) if raw is None else raw.take(pa.array(places)).to_pylist()
        return texts

    def times(self, places: Places) -> Int64:
        """Return the timestamps of some events."""
        found = self.exact("ts", places)
        total, beyond = sums(found.ns, np.int64(self._base_ns))
        if found.absent.any() or beyond.any():
            raise NotAsWritten("an event without a timestamp of 64 bits")
        return total

    def exact(self, field: str, places: Places) -> Times:
        """Return the times in a field of some events."""
        raw = self.columns.raw.get(field)
        found = exact_ns(pa.array([b""] * len(places), pa.binary()) if raw is None else raw.take(pa.array(places)))
        if not (found.valid | found.absent).all() or found.rounded:
            raise NotAsWritten(f"{field} is not a number of nanoseconds")
        return found
