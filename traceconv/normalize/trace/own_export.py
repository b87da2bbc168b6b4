"""Our own Chrome traces → the rows that they were made of: the same tables, the same values.

`otherData` of such a file says what it is, and has the rows of the small tables; the names of threads say which table
and track their events are of; args have every column that has no place elsewhere in an event. Ids are given anew, as
places in this file, and what refers to them follows. See docs/how-to/export-a-timeline.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET
from numpy.typing import NDArray

from traceconv.base.diagnostics import Accounts
from traceconv.events.trace import TraceBatch
from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.sort.spill_index import SpillIndex
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.own_columns import (
    DECODERS,
    FORM,
    HEADER_TABLES,
    LANES,
    MEMBERS,
    NUMBER,
    REFERENCES,
    ROW_TABLES,
    SLICES,
    THREAD,
    TIMELESS,
    TIMELESS_ROW,
    NotAsWritten,
    arrays,
    decoded,
    in_order,
    ints,
    lane_schema,
    typed_rows,
    whole,
)
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.normalize.trace.times import exact_ns
from traceconv.schema.arrow import arrow_schema

Int64: TypeAlias = "NDArray[np.int64]"
Places: TypeAlias = "NDArray[np.intp]"


class _Header(msgspec.Struct):
    writer: str
    base_ns: int | str
    form: int
    run: list[dict[str, Any]]
    device: list[dict[str, Any]]
    process: list[dict[str, Any]]
    track: list[dict[str, Any]]


_HEADER = msgspec.json.Decoder(_Header)


def header_of(keys: Mapping[str, bytes]) -> _Header | None:
    """What `otherData` of an export of ours says; None when the file is another's, or in a form that is not known."""
    try:
        header = _HEADER.decode(keys.get("otherData", b""))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    ours = header.writer.startswith("traceconv ") and header.form == FORM and len(header.run) == 1
    return header if ours else None


@dataclass(slots=True)
class _Thread:
    """What the events of a thread are rows of; `owner`: their track, or the device for step and memory."""

    table: str
    owner: int | None


@dataclass(slots=True)
class _Flows:
    """Flows whose finish may still come: it stands right behind the start."""

    args: list[Any] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    src_ns: list[int] = field(default_factory=list)
    dst_ns: list[int | None] = field(default_factory=list)


class OwnExport:
    """Takes the batches of such a file, then gives the rows of its tables."""

    def __init__(self, header: _Header, accounts: Accounts, source_id: int, id_bits: int) -> None:
        self._header = header
        self._accounts = accounts
        self._first_id = source_id << id_bits
        self._base_ns = whole(header.base_ns)
        self._run = header.run[0]
        self._small = {name: typed_rows(name, getattr(header, name)) for name in HEADER_TABLES}
        self._lanes = {name: SpilledRows(lane_schema(name)) for name in LANES}
        self._ids = SpillIndex(("id",))
        self._threads: dict[tuple[object, object], _Thread] = {}
        self._flows = _Flows()

    def run_columns(self) -> dict[str, object]:
        """The row of the run that was exported."""
        names, rows = self._small["run"]
        return dict(zip(names, rows[0], strict=True))

    def precompute_times(self, batch: TraceBatch) -> None:
        """Do nothing: times are parsed in `take`."""

    def take(self, batch: TraceBatch) -> None:
        """Takes the next events. Raises NotAsWritten."""
        try:
            self._take(batch)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
            raise NotAsWritten(str(error)) from error

    def _take(self, batch: TraceBatch) -> None:
        columns = batch.columns
        ids = self._first_id + np.arange(batch.first_ordinal, batch.first_ordinal + columns.count, dtype=np.int64)
        groups: dict[tuple[str, str], list[int]] = {}
        events = _Events(columns, ids, self._base_ns)
        ph, pids, tids = events.label("ph"), events.label("pid"), events.label("tid")
        for place in [place for place, one in enumerate(ph) if one == "M"]:
            self._metadata(events, place)
        for place, one in enumerate(ph):
            if one == "M":
                continue
            if one in ("s", "f"):  # the thread of those that lie on no other is named behind them
                continue
            thread = self._threads.get((pids[place], tids[place]))
            if thread is None or one not in ("X", "B", "i", "C"):
                raise NotAsWritten("an event of another writer")
            groups.setdefault((thread.table, one), []).append(place)
        for (name, one), places in groups.items():
            self._rows(name, one, events, np.array(places))
        self._count("M", sum(one == "M" for one in ph), "used")
        starts = [(place, one) for place, one in enumerate(ph) if one in ("s", "f")]
        if starts:
            self._flow_events(events, starts)

    def _count(self, ph: str, count: int, becomes: str) -> None:
        if count:
            account = self._accounts[phases.account_of(ph)]
            account.records += count
            setattr(account, becomes, getattr(account, becomes) + count)

    def _metadata(self, events: _Events, place: int) -> None:
        name = events.label("name")[place]
        if name == "thread_name":
            args = decoded(THREAD, events.args([place]))[0]
            owner = args.device_id if args.table in ("step", "memory") else args.track_id
            key = (events.label("pid")[place], events.label("tid")[place])
            self._threads[key] = _Thread(args.table, owner)
        elif name in ROW_TABLES:
            rows = decoded(DECODERS[name], events.args([place]))
            self._lanes[name].append(arrays(name, rows, {}))
        elif name == TIMELESS:
            rows = decoded(TIMELESS_ROW, events.args([place]))
            ids = pa.array(events.ids[[place]])
            self._note_ids(rows, ids)
            self._lanes[TIMELESS].append(arrays(TIMELESS, rows, {"id": ids}))

    def _note_ids(self, rows: Sequence[Any], ids: pa.Array) -> None:
        """Which ids of this file rows have that had others."""
        old = ints([one.id for one in rows], pa.int64())
        if old.null_count:
            raise NotAsWritten("a row without an id")
        self._ids.add(old.to_numpy().view(np.uint64), ids.to_numpy())

    def _rows(self, name: str, ph: str, events: _Events, places: Places) -> None:
        """The rows of the events of one kind on threads of one table."""
        if name in SLICES and ph in ("X", "B"):
            self._slices(name, events, places)
        elif ph == "i" and (name in SLICES or name == "marker"):
            self._markers(events, places)
        elif name == "counter" and ph == "C":
            self._counters(events, places)
        elif name == "memory" and ph == "C":
            self._count(ph, len(places), "used")  # sums, made of the blocks
            return
        elif name == "memory" and ph == "i":
            self._memory(events, places)
            return
        elif name == "step" and ph in ("X", "B", "i"):
            args = decoded(DECODERS["step"], events.args(places))
            self._lanes["step"].append(arrays("step", args, {"device_id": self._owners(events, places)}))
        else:
            raise NotAsWritten(f"{ph} events on a thread of {name}")
        self._count(ph, len(places), "rows")

    def _owners(self, events: _Events, places: Places) -> pa.Array:
        pids, tids = events.label("pid"), events.label("tid")
        return pa.array([self._threads[pids[place], tids[place]].owner for place in places.tolist()], pa.int64())

    def _titled(self, name: str, events: _Events, places: Places, args: Sequence[Any]) -> dict[str, pa.Array]:
        """The columns that slices and markers have in common."""
        ids = pa.array(events.ids[places])
        self._note_ids(args, ids)
        names, cats = events.label("name"), events.label("cat")
        listed = places.tolist()
        titles = [names[place] if one.name is UNSET else None for place, one in zip(listed, args, strict=True)]
        categories = [cats[place] if one.category is UNSET else None for place, one in zip(listed, args, strict=True)]
        return {
            "id": ids,
            "track_id": self._owners(events, places),
            "name": pa.array(titles, pa.string()),
            "category": pa.array(categories, pa.string()),
        }

    def _slices(self, name: str, events: _Events, places: Places) -> None:
        args = decoded(DECODERS[name], events.args(places))
        columns = self._titled(name, events, places, args)
        columns["start_ns"] = pa.array(events.times(places))
        columns["dur_ns"] = events.lengths(places)
        self._lanes[name].append(arrays(name, args, columns))

    def _markers(self, events: _Events, places: Places) -> None:
        args = decoded(DECODERS["marker"], events.args(places))
        columns = self._titled("marker", events, places, args)
        columns["ts_ns"] = pa.array(events.times(places))
        self._lanes["marker"].append(arrays("marker", args, columns))

    def _memory(self, events: _Events, places: Places) -> None:
        names = events.label("name")
        free = np.array([names[place] == "free" for place in places.tolist()], np.bool_)
        self._count("i", int(free.sum()), "paired")
        places = places[~free]
        if not len(places):
            return
        held = np.array([names[place] == "held" for place in places.tolist()], np.bool_)
        args = decoded(DECODERS["memory"], events.args(places))
        columns = {
            "device_id": self._owners(events, places),
            "alloc_ns": pa.array(events.times(places), mask=held),
        }
        self._lanes["memory"].append(arrays("memory", args, columns))
        self._count("i", len(places), "rows")

    def _counters(self, events: _Events, places: Places) -> None:
        series: list[str | None] = []
        values: list[float | None] = []
        wholes: list[int | None] = []
        for place, text in zip(places.tolist(), events.args(places), strict=True):
            members = MEMBERS.decode(text)
            if len(members) != 1:
                raise NotAsWritten("a counter with several values")
            [(key, raw)] = members.items()
            extra = (events.columns.extra or {place: None})[place] or {}
            number = NUMBER.decode(raw)
            whole = number if isinstance(number, int) else None
            beside = NUMBER.decode(extra["value"]) if "value" in extra else number
            series.append(key if key != "value" or "series" in extra else None)
            try:
                values.append(None if beside is None else float(beside))
            except (ValueError, OverflowError):
                raise NotAsWritten("a counter's value that is no number") from None
            wholes.append(whole)
        self._lanes["counter"].append(
            in_order(
                "counter",
                {
                    "track_id": self._owners(events, places),
                    "series": pa.array(series, pa.string()),
                    "ts_ns": pa.array(events.times(places)),
                    "value": pa.array(values, pa.float64()),
                    "value_int": pa.array(wholes, pa.int64()),
                },
            )
        )

    def _flow_events(self, events: _Events, found: Sequence[tuple[int, str]]) -> None:
        flows = self._flows
        starts = [place for place, ph in found if ph == "s"]
        args = iter(decoded(DECODERS["flow"], events.args(starts)))
        times = events.times(np.array([place for place, _ in found])).tolist()
        keys = events.columns.raw["id"].take(pa.array([place for place, _ in found])).to_pylist()
        matched = 0
        for (_, ph), ns, key in zip(found, times, keys, strict=True):
            if ph == "s":
                flows.args.append(next(args))
                flows.keys.append(key)
                flows.src_ns.append(ns)
                flows.dst_ns.append(None)
            elif flows.keys and flows.keys[-1] == key and flows.dst_ns[-1] is None:
                flows.dst_ns[-1] = ns
                matched += 1
        self._count("s", len(starts), "rows")
        self._count("f", matched, "paired")
        # The start of these was lost with the text that it stood in.
        self._count("f", len(found) - len(starts) - matched, "used")
        self._put_flows(keep=1)

    def _put_flows(self, keep: int) -> None:
        flows, count = self._flows, len(self._flows.args) - keep
        if count <= 0:
            return
        args = flows.args[:count]
        nameless = np.array([one.src_ns is None for one in args], np.bool_)
        ends = zip(args, flows.src_ns[:count], flows.dst_ns[:count], strict=True)
        # The start of an arrow that leads back in time stands where it ends.
        turned = [(finish, start) if one.reversed else (start, finish) for one, start, finish in ends]
        columns = {
            "src_ns": pa.array([start for start, _ in turned], pa.int64(), mask=nameless),
            "dst_ns": pa.array([finish for _, finish in turned], pa.int64()),
        }
        self._lanes["flow"].append(arrays("flow", args, columns))
        self._flows = _Flows(flows.args[count:], flows.keys[count:], flows.src_ns[count:], flows.dst_ns[count:])

    def end(self) -> None:
        """No more events come."""
        self._put_flows(keep=0)
        for lane in self._lanes.values():
            lane.end()

    def tables(self) -> Iterator[tuple[str, Iterator[pa.RecordBatch]]]:
        """All tables with their batches; each must be read to its end before the next is asked for."""
        for name in LANES:
            yield name, self._batches(name)
        for name in HEADER_TABLES[1:]:
            names, rows = self._small[name]
            yield name, iter([rows_from_tuples(name, names, rows)])

    def _batches(self, name: str) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(name)
        for _, batch in self._lanes[name].batches():
            arrays = []
            for one in batch.schema.names:
                array = batch.column(one)
                if one in REFERENCES:
                    array = self._followed(array)
                arrays.append(array.dictionary_encode() if pa.types.is_dictionary(schema.field(one).type) else array)
            fields = [schema.field(one) for one in batch.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _followed(self, references: pa.Array) -> pa.Array:
        """References by the ids of this file; NULL where the row is not in it."""
        null = references.is_null().to_numpy(zero_copy_only=False)
        found, values = self._ids.look_up(references.fill_null(0).to_numpy().view(np.uint64))
        return pa.array(values["id"], mask=null | ~found)

    def close(self) -> None:
        """Frees the disk space."""
        for lane in self._lanes.values():
            lane.close()
        self._ids.close()


class _Events:
    """The columns of a batch, with times as they were before the export."""

    def __init__(self, columns: Any, ids: Int64, base_ns: int) -> None:
        self.columns = columns
        self.ids = ids
        self._base_ns = base_ns
        self._labels: dict[str, list[Any]] = {}

    def label(self, field: str) -> list[Any]:
        """The values of a label field."""
        found = self._labels.get(field)
        if found is None:
            found = self._labels[field] = self.columns.label(field)[:]
        return found

    def args(self, places: Sequence[int] | Places) -> list[bytes]:
        """The texts of the args of some events."""
        raw = self.columns.raw.get("args")
        if raw is None or not len(places):
            return [b""] * len(places)
        texts: list[bytes] = raw.take(pa.array(places, pa.int64())).to_pylist()
        return texts

    def times(self, places: Places) -> Int64:
        """When some events were."""
        raw = self.columns.raw.get("ts")
        found = exact_ns(raw.take(pa.array(places))) if raw is not None else None
        if found is None or not found.valid.all() or found.rounded:
            raise NotAsWritten("an event without a time, or a finer one than nanoseconds")
        bounds = (int(found.ns.min()) + self._base_ns, int(found.ns.max()) + self._base_ns)
        if not all(-(2**63) <= bound < 2**63 for bound in bounds):
            raise NotAsWritten("a time that 64 bits don't hold")
        times: Int64 = found.ns + np.int64(self._base_ns)
        return times

    def lengths(self, places: Places) -> pa.Array:
        """How long some events took; null where that is not said."""
        raw = self.columns.raw.get("dur")
        if raw is None:
            return pa.nulls(len(places), pa.int64())
        found = exact_ns(raw.take(pa.array(places)))
        if not (found.valid | found.absent).all() or found.rounded:
            raise NotAsWritten("a duration that is no number of nanoseconds")
        return pa.array(found.ns, mask=~found.valid)
