"""First pass over the events of a trace: times exact, tracks known, rows put aside, spans handed to be nested."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import Raw
from numpy.typing import NDArray

from traceconv.diagnostics import Accounts, Code, ImportLog
from traceconv.json_events import EventFlows, TraceBatch
from traceconv.normalize.complete_nesting import BEFORE_NEXT, MOMENT, PAIR, SLICE, SPAN_DTYPE
from traceconv.normalize.external_sort import ExternalSort
from traceconv.normalize.trace_json import phases
from traceconv.normalize.trace_json.args import arg_keys, args_column, with_beside
from traceconv.normalize.trace_json.begin_end import POINT_DTYPE
from traceconv.normalize.trace_json.counters import counter_rows
from traceconv.normalize.trace_json.lanes import Lane
from traceconv.normalize.trace_json.metadata import read_metadata
from traceconv.normalize.trace_json.times import Times, exact_ns
from traceconv.normalize.trace_json.tracks import TraceTracks

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

SLICE_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("track_id", pa.int32()),
        ("name", pa.string()),
        ("category", pa.string()),
        ("start_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("thread_start_ns", pa.int64()),
        ("thread_dur_ns", pa.int64()),
        ("args", pa.string()),
    ]
)
END_SCHEMA = pa.schema([("id", pa.int64()), ("thread_end_ns", pa.int64()), ("args", pa.string())])
MARKER_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("track_id", pa.int64()),
        ("ts_ns", pa.int64()),
        ("scope", pa.string()),
        ("category", pa.string()),
        ("name", pa.string()),
        ("args", pa.string()),
    ]
)
#: step: 0 start, 1 step, 2 end. bound: the slice that it stands on; −1: the one that encloses it.
FLOW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.int64()),
        ("ts_ns", pa.int64()),
        ("step", pa.int32()),
        ("bound", pa.int64()),
        ("category", pa.string()),
        ("name", pa.string()),
        ("external_id", pa.string()),
    ]
)
_FlowRow: TypeAlias = "tuple[int, int, int, int, int, str | None, str | None, str]"
_SCOPES = {"g": "global", "p": "process", "t": "thread"}
_FLOW_STEPS = {"s": 0, "t": 1, "f": 2}
#: Events beside which these keys are used up; elsewhere they are kept in args.
_ID_KINDS = frozenset((phases.COUNTER, phases.FLOW, phases.ASYNC_BEGIN, phases.ASYNC_END, phases.ASYNC_INSTANT))


class FirstPass:
    """Takes batches; then its lanes and sorters have all that the second pass needs."""

    def __init__(self, log: ImportLog, accounts: Accounts, source_id: int, id_bits: int) -> None:
        self.log = log
        self.accounts = accounts
        self._first_id = source_id << id_bits
        self.tracks = TraceTracks()
        self.slices = Lane(SLICE_SCHEMA)
        self.ends = Lane(END_SCHEMA)
        self.markers = Lane(MARKER_SCHEMA)
        self.counters = Lane(_counter_schema())
        self.flows = Lane(FLOW_SCHEMA)
        self.spans = ExternalSort(SPAN_DTYPE, "start_ns")
        self.points = ExternalSort(POINT_DTYPE, "ts_ns")
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.categories: set[str] = set()
        #: Per ph, the flow events that are markers too.
        self.flow_markers: dict[str, int] = {}
        #: Keys in the args of the first events.
        self.arg_keys: set[str] = set()
        self._kinds = phases.Kinds()
        self._threads: dict[tuple[object, object], int] = {}
        self._asyncs: dict[tuple[object, ...], int] = {}

    def close(self) -> None:
        """Frees the disk space."""
        for lane in (self.slices, self.ends, self.markers, self.counters, self.flows):
            lane.close()
        self.spans.close()
        self.points.close()

    def take(self, batch: TraceBatch) -> None:
        """Takes the next events."""
        if batch.first_ordinal == 0:
            self.arg_keys = arg_keys(batch.columns.raw.get("args"))
        for track in batch.names:
            self.tracks.describe(track)
        one = _Batch(self, batch)
        one.drop_unusable()
        one.metadata()
        one.threads()
        one.asyncs()
        one.counters()
        one.flows()
        one.put_aside()

    def end(self) -> None:
        """No more events come."""
        for lane in (self.slices, self.ends, self.markers, self.counters, self.flows):
            lane.end()

    def note_times(self, *times: Int64) -> None:
        """Widens the run's bounds to hold `times`."""
        for ns in times:
            if len(ns):
                low, high = int(ns.min()), int(ns.max())
                self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
                self.last_ns = high if self.last_ns is None else max(self.last_ns, high)

    def thread(self, pid: object, tid: object) -> int:
        """The track of a thread, quickly."""
        key = (pid, tid)
        found = self._threads.get(key)
        if found is None:
            found = self._threads[key] = self.tracks.thread_of(pid, tid)  # type: ignore[arg-type] # as decoded
        return found

    def async_track(self, pid: object, category: object, id_text: str, scope: object, name: object) -> int:
        """The track of an asynchronous sequence, quickly."""
        key = (pid, category, id_text, scope)
        found = self._asyncs.get(key)
        if found is None:
            found = self.tracks.async_of(pid, category, id_text, scope, name)  # type: ignore[arg-type] # as decoded
            self._asyncs[key] = found
        return found


def _counter_schema() -> pa.Schema:
    return pa.schema(
        [
            ("id", pa.int64()),
            ("track_id", pa.int64()),
            ("series", pa.string()),
            ("ts_ns", pa.int64()),
            ("value", pa.float64()),
            ("value_int", pa.int64()),
        ]
    )


class _Batch:
    """One batch on its way through the first pass."""

    def __init__(self, owner: FirstPass, batch: TraceBatch) -> None:
        self.owner = owner
        self.batch = batch
        columns = batch.columns
        self.count = columns.count
        self.ids = owner._first_id + np.arange(batch.first_ordinal, batch.first_ordinal + self.count, dtype=np.int64)
        self.ph = columns.label("ph")
        self.kind = np.fromiter(map(owner._kinds.__getitem__, self.ph), np.int8, self.count)
        self.names = columns.label("name")
        self.categories = columns.label("cat")
        self.pids = columns.label("pid")
        self.tids = columns.label("tid")
        self.extra = columns.extra
        owner.categories.update(category for category in set(self.categories) if category is not None)
        self.ts = self._times("ts")
        self.beside: dict[int, dict[str, bytes]] = {}
        self._flow_rows: list[_FlowRow] = []
        self.book()

    def _times(self, field: str) -> Times:
        raw = self.batch.columns.raw.get(field)
        if raw is None:
            none = np.zeros(self.count, np.bool_)
            return Times(np.zeros(self.count, np.int64), none, ~none, 0)
        times = exact_ns(raw)
        if times.rounded:
            self.say(Code.FINE_TIME, f"{field} finer than a nanosecond", None, times.rounded)
        return times

    def book(self) -> None:
        """Counts the events by their ph; so far, each one is a row."""
        distinct = set(self.ph)
        for ph in distinct:
            account = self.owner.accounts[phases.account_of(ph)]
            count = self.count if len(distinct) == 1 else self.ph.count(ph)
            account.records += count
            account.rows += count

    def rebook(self, places: Sequence[int], to: str) -> None:
        """Moves events from rows to `merged`, `consumed` or `lost`."""
        for place in places:
            account = self.owner.accounts[phases.account_of(self.ph[place])]
            account.rows -= 1
            setattr(account, to, getattr(account, to) + 1)

    def say(self, code: Code, message: str, place: int | None, count: int = 1) -> None:
        """Notes something about an event, with the bytes where it stands."""
        offset, size = self.batch.place(place) if place is not None else (self.batch.byte_offset, None)
        self.owner.log.add(code, message, source_id=1, byte_offset=offset, byte_count=size, event_count=count)

    def say_each(self, code: Code, message: str, places: Sequence[int]) -> None:
        """The same for several: the first ones singly."""
        for place in places[: ImportLog.LIMIT]:
            self.say(code, message, place)
        if len(places) > ImportLog.LIMIT:
            self.say(code, message, None, len(places) - ImportLog.LIMIT)

    def lose(self, where: Mask, code: Code, message: str) -> None:
        """Books events as lost."""
        places = np.flatnonzero(where).tolist()
        if places:
            self.rebook(places, "lost")
            self.say_each(code, message, places)
            self.kind[where] = phases.UNKNOWN

    def drop_unusable(self) -> None:
        """Events without a ph that is known, and without a time where one is needed."""
        if self.kind.max(initial=0) >= phases.UNKNOWN:
            self.lose(self.kind == phases.MISSING, Code.NO_PHASE, "an event without ph")
            unknown = np.array(
                [kind == phases.UNKNOWN and ph is not None for kind, ph in zip(self.kind, self.ph, strict=True)]
            )
            self.lose(
                unknown & (self.kind == phases.UNKNOWN) & self._not_lost(),
                Code.UNKNOWN_PHASE,
                "an event with a ph that is not known",
            )
        timeless = ~self.ts.valid & (self.kind < phases.UNKNOWN) & (self.kind != phases.METADATA)
        if timeless.any():
            absent = timeless & self.ts.absent
            self.lose(absent, Code.NO_TIME, "an event without ts")
            self.lose(timeless & ~absent, Code.NO_TIME, "an event whose ts can't be read")
        self.owner.note_times(self.ts.ns[self.ts.valid & (self.kind < phases.METADATA)])

    def _not_lost(self) -> Mask:
        return np.array([isinstance(ph, str) and bool(ph) for ph in self.ph], np.bool_)

    def metadata(self) -> None:
        """Names and places of processes and threads; all else that metadata says becomes markers."""
        places = np.flatnonzero(self.kind == phases.METADATA).tolist()
        if not places:
            return
        used = [place for place in places if self._is_used(place)]
        self.rebook(used, "consumed")
        self.kind[used] = phases.UNKNOWN
        rest = self.kind == phases.METADATA
        self.put_markers(rest)

    def _is_used(self, place: int) -> bool:
        raw = self.batch.columns.raw.get("args")
        args = raw[place].as_py() if raw is not None else b""
        return read_metadata(self.owner.tracks, self.names[place], self.pids[place], self.tids[place], args)

    def take_labels(self, values: Sequence[Any], places: Places) -> pa.Array:
        """A text column of some events."""
        return pa.array([values[place] for place in places.tolist()], pa.string())

    def thread_tracks(self, places: Places) -> Int64:
        """The tracks of the threads of some events."""
        thread = self.owner.thread
        found = [thread(self.pids[place], self.tids[place]) for place in places.tolist()]
        return np.array(found, np.int64)

    def beside_of(self, places: Places) -> dict[int, dict[str, bytes]]:
        """What stands beside the args of these events and no column holds: row among `places` → key → value."""
        found: dict[int, dict[str, bytes]] = {}
        columns = self.batch.columns
        listed = places.tolist()
        if self.extra is not None:
            for row, place in enumerate(listed):
                extra = self.extra[place]
                if extra:
                    found.setdefault(row, {}).update({key: bytes(value) for key, value in extra.items()})
        raw_id = columns.raw.get("id")
        if raw_id is not None:
            for row, value in enumerate(raw_id.take(pa.array(places)).to_pylist()):
                if value and self.kind[listed[row]] not in _ID_KINDS:
                    found.setdefault(row, {})["id"] = value
        for field in ("bp", "s", "scope"):
            values = columns.labels.get(field)
            if values is None:
                continue
            for row, place in enumerate(listed):
                value = values[place]
                if value is not None and not self._is_column(field, place, value):
                    found.setdefault(row, {})[field] = _json_text(value)
        for row, place in enumerate(listed):
            if place in self.beside:
                found.setdefault(row, {}).update(self.beside[place])
        return found

    def _is_column(self, field: str, place: int, value: str) -> bool:
        kind = self.kind[place]
        if field == "s":
            return kind == phases.INSTANT and value in _SCOPES
        return kind in _ID_KINDS

    def args_of(self, places: Places) -> pa.Array:
        """The args column of some events."""
        raw = self.batch.columns.raw.get("args")
        if raw is not None:
            raw = raw if len(places) == self.count else raw.take(pa.array(places))
        return with_beside(args_column(raw, len(places)), self.beside_of(places))

    # -- threads: complete events, begins and ends, instants --

    def threads(self) -> None:
        """Complete events and adjacent pairs become spans; other begins and ends are matched later, in time order."""
        at = np.flatnonzero((self.kind <= phases.END) & (self.kind >= phases.COMPLETE))
        self.track = np.zeros(self.count, np.int64)
        self.track[at] = self.thread_tracks(at)
        self.dur = self._times("dur")
        complete = np.flatnonzero(self.kind == phases.COMPLETE)
        if len(complete):
            self._complete(complete)
        ends = np.flatnonzero(self.kind == phases.END)
        if len(ends):
            self._ends(ends)
        begins = np.flatnonzero(self.kind == phases.BEGIN)
        if len(begins) or len(ends):
            self._points(begins, ends)
        instants = (self.kind == phases.INSTANT) | (self.kind == phases.OTHER)
        self.put_markers(instants)

    def _complete(self, at: Places) -> None:
        dur, valid = self.dur.ns, self.dur.valid.copy()
        bad = at[~valid[at] & ~self.dur.absent[at]].tolist()
        self.say_each(Code.BAD_DURATION, "a duration that is no number", bad)
        absent = at[self.dur.absent[at]].tolist()
        self.say_each(Code.NO_DURATION, "a complete event without dur", absent)
        negative = at[valid[at] & (dur[at] < 0)].tolist()
        if negative:
            self.say_each(Code.BACKWARD, "a duration below 0", negative)
            valid[negative] = False
        for place in (*absent, *bad):
            # Else the row could not be told from a begin without end.
            self.beside.setdefault(place, {})["ph"] = b'"X"'
        raw = self.batch.columns.raw.get("dur")
        for place in (*bad, *negative):
            value = raw[place].as_py() if raw is not None else b"null"
            self.beside.setdefault(place, {})["dur"] = value if isinstance(value, bytes) else str(value).encode()
        self.dur_valid = valid
        spans = np.zeros(len(at), SPAN_DTYPE)
        spans["start_ns"], spans["dur_ns"] = self.ts.ns[at], np.where(valid[at], dur[at], 0)
        spans["id"], spans["link"], spans["track"], spans["kind"] = self.ids[at], -1, self.track[at], SLICE
        self.owner.spans.add(spans)
        self.owner.note_times(spans["start_ns"] + spans["dur_ns"])

    def _name_hashes(self, places: Places) -> Int64:
        return np.array([_name_hash(self.names[place]) for place in places.tolist()], np.int64)

    def _points(self, begins: Places, ends: Places) -> None:
        points = np.zeros(len(begins) + len(ends), POINT_DTYPE)
        at = np.concatenate([begins, ends])
        points["ts_ns"], points["id"], points["track"] = self.ts.ns[at], self.ids[at], self.track[at]
        points["name"] = self._name_hashes(at)
        points["end"][len(begins) :] = [ord(self.ph[place][0]) for place in ends.tolist()]
        order = np.argsort(at, kind="stable")
        points, at = points[order], at[order]
        # A begin and the end right behind it in the source, of one track and name, are a pair, whatever else is there.
        one, two = points[:-1], points[1:]
        pair = (one["end"] == 0) & (two["end"] != 0) & (at[1:] == at[:-1] + 1) & (one["track"] == two["track"])
        pair &= ((one["name"] == two["name"]) | (two["name"] == 0)) & (two["ts_ns"] >= one["ts_ns"])
        first = np.flatnonzero(pair)
        spans = np.zeros(len(first), SPAN_DTYPE)
        spans["start_ns"], spans["dur_ns"] = one["ts_ns"][first], two["ts_ns"][first] - one["ts_ns"][first]
        spans["id"], spans["link"] = one["id"][first], two["id"][first]
        spans["track"], spans["kind"] = one["track"][first], PAIR
        self.owner.spans.add(spans)
        self.merged_ends(at[1:][first].tolist())
        alone = np.ones(len(points), np.bool_)
        alone[first] = alone[first + 1] = False
        self.owner.points.add(points[alone])

    def merged_ends(self, places: Sequence[int]) -> None:
        """Books ends that went into the row of their begin."""
        self.rebook(places, "merged")

    def _ends(self, at: Places) -> None:
        """What ends say is put aside for the rows of their begins."""
        tts = self._times("tts")
        args = self.args_of(at)
        said = args.is_valid().to_numpy(zero_copy_only=False) | tts.valid[at]
        if said.any():
            keep = np.flatnonzero(said)
            self.owner.ends.append(
                (
                    pa.array(self.ids[at[keep]]),
                    pa.array(tts.ns[at[keep]], mask=~tts.valid[at[keep]]),
                    args.take(pa.array(keep)),
                )
            )

    def put_markers(self, where: Mask) -> None:
        """Moments on threads (metadata that no column holds too)."""
        at = np.flatnonzero(where)
        if not len(at):
            return
        self._markers(at, self.thread_tracks(at))

    def _markers(self, at: Places, track: Int64) -> None:
        scopes = self.batch.columns.label("s")
        self.owner.markers.append(
            (
                pa.array(self.ids[at]),
                pa.array(track),
                pa.array(self.ts.ns[at], mask=~self.ts.valid[at]),
                pa.array([_SCOPES.get(scopes[place]) for place in at.tolist()], pa.string()),
                self.take_labels(
                    [
                        c if c is not None or self.kind[i] != phases.METADATA else "__metadata"
                        for i, c in enumerate(self.categories)
                    ],
                    at,
                ),
                self.take_labels(self.names, at),
                self.args_of(at),
            )
        )

    # -- asynchronous sequences, counters, flows --

    def asyncs(self) -> None:
        """Asynchronous begins and ends are matched like those of threads, each on the track of its id."""
        at = np.flatnonzero((self.kind >= phases.ASYNC_BEGIN) & (self.kind <= phases.ASYNC_INSTANT))
        if not len(at):
            return
        ids = self.id_texts(at)
        for row, place in enumerate(at.tolist()):
            pid, id_text, scope = self.pids[place], ids[row][0], self.batch.columns.label("scope")[place]
            if ids[row][1] == "global":
                pid = None
            self.track[place] = self.owner.async_track(pid, self.categories[place], id_text, scope, self.names[place])
        ends = at[self.kind[at] == phases.ASYNC_END]
        begins = at[self.kind[at] == phases.ASYNC_BEGIN]
        if len(ends):
            self._ends(ends)
        if len(begins) or len(ends):
            self._points(begins, ends)
        instants = at[self.kind[at] == phases.ASYNC_INSTANT]
        if len(instants):
            self._markers(instants, self.track[instants])

    def id_texts(self, places: Places) -> list[tuple[str, str]]:
        """Of each event its id as text, and what it is unique in: `global`, `local`, or `` when that is not said."""
        raw = self._raw_of("id", places)
        plain = raw.to_pylist() if raw is not None else [b""] * len(places)
        if self.extra is None:
            return [(_unquoted(value) if value and value != b"null" else "", "") for value in plain]
        return [_id_text(value, self.extra[place]) for value, place in zip(plain, places.tolist(), strict=True)]

    def counters(self) -> None:
        """Counters: each number in args is a series."""
        at = np.flatnonzero(self.kind == phases.COUNTER)
        if not len(at):
            return
        raw = self.batch.columns.raw.get("args")
        args = raw.take(pa.array(at)).to_pylist() if raw is not None else [b""] * len(at)
        ids = self.id_texts(at)
        tracks = np.array(
            [
                self.owner.tracks.counter_of(self.pids[place], self.names[place], ids[row][0] or None)
                for row, place in enumerate(at.tolist())
            ],
            np.int64,
        )
        rows, bad, empty = counter_rows(args)
        event = np.array([row for row, *_ in rows], np.intp)
        for row in bad:
            self.say(Code.BAD_NUMBER, "a counter's value that is no number", int(at[row]))
        if empty:
            self.rebook([int(at[row]) for row in empty], "consumed")
        if not len(event):
            return
        self.owner.counters.append(
            (
                pa.array(self.ids[at[event]]),
                pa.array(tracks[event]),
                pa.array([series for _, series, _, _ in rows], pa.string()),
                pa.array(self.ts.ns[at[event]]),
                pa.array([value for _, _, value, _ in rows], pa.float64()),
                pa.array([exact for _, _, _, exact in rows], pa.int64()),
            )
        )

    def flows(self) -> None:
        """Ends of flows: events of their own (s, t, f), and slices that name one (bind_id)."""
        events = np.flatnonzero(self.kind == phases.FLOW)
        bound = self._binding_slices()
        named = self.batch.columns.flows
        if named is not None and (len(events) or bound):
            bound += self._named_flow_rows(named)
        elif named is not None:
            self._named_flows(named)
        if not len(events) and not bound:
            return
        if len(events):
            self._flow_events(events, in_order=not bound)
        if bound:
            rows = sorted(bound + self._flow_rows, key=lambda row: row[0])
            columns = zip(zip(*rows, strict=True), FLOW_SCHEMA, strict=True)
            self.owner.flows.append([pa.array(column, field.type) for column, field in columns])

    def _named_flows(self, flows: EventFlows) -> None:
        """Ends of arrows that are bound to the events which name them; not those of events that were lost."""
        kept = np.flatnonzero(self.kind[flows.places] < phases.UNKNOWN)
        places = flows.places[kept]
        texts = flows.texts if len(kept) == len(flows.places) else [flows.texts[row] for row in kept.tolist()]
        self.owner.flows.append(
            [
                pa.array(self.ids[places]),
                pa.array(flows.keys[kept]),
                pa.array(self.ts.ns[places]),
                pa.array(flows.steps[kept]),
                pa.array(self.ids[places]),
                pa.array([flows.category] * len(places), pa.string()),
                pa.nulls(len(places), pa.string()),
                pa.array(texts, pa.string()),
            ]
        )

    def _named_flow_rows(self, flows: EventFlows) -> list[_FlowRow]:
        """The same as rows, to be sorted in among others."""
        rows = zip(flows.places.tolist(), flows.keys.tolist(), flows.steps.tolist(), flows.texts, strict=True)
        return [
            (int(self.ids[place]), key, int(self.ts.ns[place]), step, int(self.ids[place]), flows.category, None, text)
            for place, key, step, text in rows
            if self.kind[place] < phases.UNKNOWN
        ]

    def _flow_events(self, events: Places, in_order: bool) -> None:
        """Flow events: moments to be bound, and rows put aside (`in_order`: at once; else in `_flow_rows`)."""
        listed = events.tolist()
        id_texts = [id_text for id_text, _ in self.id_texts(events)]
        tracks = self.thread_tracks(events)
        steps = np.array([_FLOW_STEPS[self.ph[place][0]] for place in listed], np.int32)
        bp, scope = self.batch.columns.label("bp"), self.batch.columns.label("scope")
        moments = np.zeros(len(events), SPAN_DTYPE)
        moments["start_ns"], moments["id"], moments["track"] = self.ts.ns[events], self.ids[events], tracks
        loose = np.array([bp[place] != "e" for place in listed], np.bool_)
        moments["kind"] = np.where((steps == 2) & loose, BEFORE_NEXT, MOMENT)
        self.owner.spans.add(moments)
        categories = [self.categories[place] for place in listed]
        names = [self.names[place] for place in listed]
        scopes = [scope[place] for place in listed]
        keys = list(map(hash, zip(categories, names, id_texts, scopes, strict=True)))
        if in_order:
            self.owner.flows.append(
                [
                    pa.array(self.ids[events]),
                    pa.array(keys, pa.int64()),
                    pa.array(self.ts.ns[events]),
                    pa.array(steps),
                    pa.array(np.full(len(events), -1, np.int64)),
                    pa.array(categories, pa.string()),
                    pa.array(names, pa.string()),
                    pa.array(id_texts, pa.string()),
                ]
            )
        else:
            ids, ns = self.ids[events].tolist(), self.ts.ns[events].tolist()
            bound = [-1] * len(events)
            self._flow_rows = list(zip(ids, keys, ns, steps.tolist(), bound, categories, names, id_texts, strict=True))
        self._flow_markers(events, tracks)

    def _flow_markers(self, events: Places, tracks: Int64) -> None:
        """What an arrow has no column for is kept in a marker where its end stands."""
        args = args_column(self._raw_of("args", events), len(events))
        said = args.is_valid().to_numpy(zero_copy_only=False)
        if self.extra is not None:
            said |= np.array([bool(self.extra[place]) for place in events.tolist()], np.bool_)
        if not said.any():
            return
        for place in events[said].tolist():
            self.beside.setdefault(place, {})["ph"] = _json_text(self.ph[place])
        self._markers(events[said], tracks[said])
        for place in events[said].tolist():
            ph = self.ph[place][0]
            self.owner.flow_markers[ph] = self.owner.flow_markers.get(ph, 0) + 1

    def _raw_of(self, field: str, places: Places) -> pa.Array | None:
        raw = self.batch.columns.raw.get(field)
        return None if raw is None else raw.take(pa.array(places))

    def _binding_slices(self) -> list[_FlowRow]:
        if self.extra is None:
            return []
        rows: list[_FlowRow] = []
        for place, extra in enumerate(self.extra):
            if not extra or "bind_id" not in extra or self.kind[place] not in (phases.COMPLETE, phases.BEGIN):
                continue
            flow_in, flow_out = (bytes(extra.get(key, b"false")) in _TRUE for key in ("flow_in", "flow_out"))
            if not flow_in and not flow_out:
                continue
            id_text = _unquoted(bytes(extra["bind_id"]))
            step = 1 if flow_in and flow_out else 2 if flow_in else 0
            id_ = int(self.ids[place])
            category = self.categories[place]
            rows.append(
                (id_, hash((category, "bind_id", id_text)), int(self.ts.ns[place]), step, id_, category, None, id_text)
            )
        return rows

    # -- rows --

    def put_aside(self) -> None:
        """The rows of all slices of the batch, in the order of the source."""
        starts = (self.kind == phases.COMPLETE) | (self.kind == phases.BEGIN) | (self.kind == phases.ASYNC_BEGIN)
        at = np.flatnonzero(starts)
        if not len(at):
            return
        unnamed = [place for place in at.tolist() if self.names[place] is None]
        if unnamed:
            self.say(Code.NO_NAME, "events without a name", unnamed[0], len(unnamed))
        complete = self.kind[at] == phases.COMPLETE
        tts, tdur = self._times("tts"), self._times("tdur")
        dur_valid = complete & self.dur_valid[at] if complete.any() else complete
        everything = len(at) == self.count
        take = self._all_labels if everything else partial(self.take_labels, places=at)
        self.owner.slices.append(
            (
                pa.array(self.ids[at]),
                pa.array(self.track[at].astype(np.int32)),
                take(self.names),
                take(self.categories),
                pa.array(self.ts.ns[at]),
                pa.array(self.dur.ns[at], mask=~dur_valid),
                pa.array(tts.ns[at], mask=~tts.valid[at]),
                pa.array(tdur.ns[at], mask=~tdur.valid[at]),
                self.args_of(at),
            )
        )

    def _all_labels(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, pa.string())


_TRUE = (b"true", b"1", b'"true"', b'"1"')


def _json_text(value: str) -> bytes:
    import json

    return json.dumps(value).encode()


def _name_hash(name: str | None) -> int:
    return 0 if name is None else hash(name) or 1


def _unquoted(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _id_text(plain: bytes, extra: dict[str, Raw] | None) -> tuple[str, str]:
    if plain and plain != b"null":
        return _unquoted(plain), ""
    if extra and "id2" in extra:
        from traceconv.normalize.trace_json.metadata import id2_parts

        return id2_parts(bytes(extra["id2"]))
    return "", ""
