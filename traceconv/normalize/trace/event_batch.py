"""One batch of events in the first pass: its columns as numbers, its accounting, and its log entries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Extras, TraceBatch
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.args import Members, args_column, members_of, with_members
from traceconv.normalize.trace.binary import as_text, offsets_of
from traceconv.normalize.trace.distinct import Places, distinct_rows
from traceconv.normalize.trace.ids import UNIQUE_IN, Ids
from traceconv.normalize.trace.metadata import id2_parts
from traceconv.normalize.trace.times import Times, exact_ns

if TYPE_CHECKING:
    from traceconv.normalize.trace.exact_times import ExactTimes
    from traceconv.normalize.trace.first_pass import FirstPass

#: Scopes of an instant event.
SCOPES = {"g": "global", "p": "process", "t": "thread"}
#: Phases that a row shows by its table and columns; others are kept in args.
_SHOWN_PHASES = frozenset("XBEbeFCiIRn")
#: Kinds of events whose rows show ids and scopes; those of other events are kept in args.
_HAS_ID = np.zeros(phases.MISSING + 1, np.bool_)
_HAS_ID[[phases.COUNTER, phases.FLOW, phases.ASYNC_BEGIN, phases.ASYNC_END, phases.ASYNC_INSTANT]] = True


class EventBatch:
    """The events of a batch. `kind` becomes UNKNOWN for events that are done."""

    def __init__(self, first: FirstPass, batch: TraceBatch) -> None:
        self.first = first
        self.batch = batch
        columns = batch.columns
        self.count = columns.count
        self.ids = first.first_id + np.arange(batch.first_ordinal, batch.first_ordinal + self.count, dtype=np.int64)
        self.ph = columns.label("ph")
        self.kind = np.array([first.kinds[ph] for ph in self.ph.distinct], np.int8)[self.ph.codes]
        self.names = columns.label("name")
        self.categories = columns.label("cat")
        if not first.instants.isdisjoint(self.categories.distinct):
            instant = np.array([category in first.instants for category in self.categories.distinct], np.bool_)
            self.kind[instant[self.categories.codes] & (self.kind == phases.COMPLETE)] = phases.INSTANT
        sides = [first.sides.get(category, 0) for category in self.categories.distinct]
        #: Of events on the host's or a device's side of their pid and tid; None if there are none.
        self.sides = np.array(sides, np.int8)[self.categories.codes] if any(sides) else None
        self.pids = columns.label("pid")
        self.tids = columns.label("tid")
        self.extra = columns.extra
        self._times: dict[str, Times] = {}
        self._precomputed = first.precomputed(batch)
        if first.exact_times is not None:
            self._replace_times(first.exact_times)
        self.ts = self.times("ts")
        #: Durations of complete events; zeros for others.
        self.durations = _no_times(self.count)
        self.track = np.zeros(self.count, np.int64)
        #: Members to add to an event's args: place → key → JSON text.
        self.own_members: dict[int, dict[str, bytes]] = {}
        self._accounts = [first.accounts[phases.account_of(ph)] for ph in self.ph.distinct]
        for account, count in zip(self._accounts, self.ph.counts(), strict=True):
            account.add(rows=count)

    def places(self, *kinds: int) -> Places:
        """Return the places of the events of these kinds."""
        mask = self.kind == kinds[0]
        for kind in kinds[1:]:
            mask |= self.kind == kind
        return np.flatnonzero(mask)

    def raw(self, field: str, places: Places) -> pa.Array | None:
        """Return the text of a field of some events, in any order; None if no event has the field."""
        raw = self.batch.columns.raw.get(field)
        if raw is None or (len(places) == self.count and bool(np.all(places[1:] > places[:-1]))):
            return raw
        return raw.take(pa.array(places))

    def times(self, field: str) -> Times:
        """Return the times in a field of all events. They are parsed, and rounding is logged, once."""
        found = self._times.get(field)
        if found is None:
            found = self._precomputed.get(field)
            if found is None:
                raw = self.batch.columns.raw.get(field)
                found = _no_times(self.count) if raw is None else exact_ns(raw, self.first.time_places)
            self._times[field] = found
            if found.rounded:
                self.report(Code.FINE_TIME, f"{field} finer than a nanosecond", None, found.rounded)
        return found

    def _replace_times(self, exact: ExactTimes) -> None:
        """Take the times of complete events from their args."""
        ts, dur = self.times("ts"), self.times("dur")
        args = args_column(self.batch.columns.raw.get("args"), self.count)
        starts, lengths = exact.of(args, ts, dur)
        self._times |= {"ts": ts._replace(ns=starts), "dur": dur._replace(ns=lengths)}

    # -- accounting --

    def rebook(self, places: Places, to: str) -> None:
        """Move events from `rows` to another count of their accounts."""
        counts = np.bincount(self.ph.codes[places], minlength=len(self._accounts)).tolist()
        for account, count in zip(self._accounts, counts, strict=True):
            account.rows -= count
            setattr(account, to, getattr(account, to) + count)

    def report(self, code: Code, message: str, place: int | None, count: int = 1) -> None:
        """Log something about one event (with its bytes) or, without a place, about several."""
        offset, size = self.batch.place(place) if place is not None else (self.batch.byte_offset, None)
        self.first.log.add(code, message, source_id=1, byte_offset=offset, byte_count=size, event_count=count)

    def report_each(self, code: Code, message: str, places: Sequence[int]) -> None:
        """Log something about several events, the first ones individually."""
        for place in places[: ImportLog.LIMIT]:
            self.report(code, message, place)
        if len(places) > ImportLog.LIMIT:
            self.report(code, message, None, len(places) - ImportLog.LIMIT)

    def lose(self, where: Mask, code: Code, message: str) -> None:
        """Count and log events as lost."""
        places = np.flatnonzero(where)
        if len(places):
            self.rebook(places, "lost")
            self.report_each(code, message, places.tolist())
            self.kind[where] = phases.UNKNOWN

    def drop_unusable(self) -> None:
        """Drop and report events without a known ph, and events that need a timestamp but have none."""
        if self.kind.max(initial=0) >= phases.UNKNOWN:
            unknown = self.kind == phases.UNKNOWN
            if (self.kind == phases.MISSING).any():
                self._skip_empty()
            self.lose(self.kind == phases.MISSING, Code.NO_PHASE, "event without ph")
            self.lose(unknown, Code.UNKNOWN_PHASE, "event with an unknown ph")
        long = np.array([isinstance(ph, str) and len(ph) > 1 for ph in self.ph.distinct], np.bool_)
        if long.any():
            places = np.flatnonzero(long[self.ph.codes] & (self.kind < phases.UNKNOWN))
            self.report_each(Code.LONG_PHASE, "event with a ph of several letters: read by the first", places.tolist())
        timed = (self.kind < phases.UNKNOWN) & (self.kind != phases.METADATA)
        self.lose(timed & self.ts.absent, Code.NO_TIME, "event without ts")
        self.lose(timed & ~self.ts.valid & ~self.ts.absent, Code.NO_TIME, "event with an invalid ts")
        self.first.note_times(self.ts.ns[timed & self.ts.valid])

    def _skip_empty(self) -> None:
        """Skip events without any key: some writers, such as JAX, end the list of events with one."""
        empty = (self.kind == phases.MISSING) & without_keys(self.batch)
        self.rebook(np.flatnonzero(empty), "used")
        self.kind[empty] = phases.UNKNOWN

    # -- columns --

    def thread_tracks(self, places: Places, side: int | None = None) -> Int64:
        """Return the thread tracks of some events. `side`: of their pids and tids; None: that of each event."""
        pids, tids = self.pids.take(places), self.tids.take(places)
        if side is not None or self.sides is None:
            sides = np.full(len(places), side or 0, np.int8)
        else:
            sides = self.sides[places]
        firsts, number = distinct_rows(pids.codes, tids.codes, sides)
        thread_of = self.first.tracks.thread_of
        found = [thread_of(pids[row], tids[row], int(sides[row])) for row in firsts.tolist()]
        return np.array(found, np.int64)[number]

    def args_of(self, places: Places) -> pa.Array:
        """Return the args column of some events."""
        return with_members(args_column(self.raw("args", places), len(places)), self._members(places))

    def _members(self, places: Places) -> list[Members]:
        """Return the content of these events outside of args that has no column."""
        kinds = self.kind[places]
        no_id = ~_HAS_ID[kinds]
        # Metadata has no time: a timestamp is only kept.
        kept_time = (kinds == phases.METADATA) & ~self.ts.absent[places]
        scopes = self.batch.columns.label("s")
        shown_scope = scopes.take(places).mask(lambda scope: scope in SCOPES)
        found = [
            None if self.extra is None else self._extra_members(self.extra, places),
            self._raw_members("id", places, no_id),
            self._label_members("ph", places, np.ones(len(places), np.bool_), _shown_phase),
            self._raw_members("ts", places, kept_time),
            self._label_members("bp", places, no_id),
            self._label_members("s", places, ~(shown_scope & (kinds == phases.INSTANT))),
            self._label_members("scope", places, no_id),
        ]
        if self.own_members:
            row_of = self._row_of(places)
            own = {int(row_of[place]): keys for place, keys in self.own_members.items() if row_of[place] >= 0}
            found.append(members_of(sorted(own), [own[row] for row in sorted(own)]))
        return [one for one in found if one is not None and len(one.rows)]

    def _raw_members(self, field: str, places: Places, where: Mask) -> Members | None:
        """Return a field's text in the rows `where` it is to be kept."""
        raw = self.raw(field, places) if where.any() else None
        if raw is None or not pa.types.is_binary(raw.type):
            return None
        rows = np.flatnonzero(where & (np.diff(offsets_of(raw)) > 0))
        if not len(rows):
            return None
        return Members(rows, pc.binary_join_element_wise(f'"{field}":', as_text(raw.take(pa.array(rows))), ""))

    def _label_members(
        self, field: str, places: Places, where: Mask, shown: Callable[[Any], bool] = lambda value: value is None
    ) -> Members | None:
        """Return a label's values in the rows `where` they are to be kept; not those that are `shown`."""
        if field not in self.batch.columns.labels:
            return None
        values = self.batch.columns.label(field)
        texts = ["" if shown(value) else f'"{field}":{json.dumps(value)}' for value in values.distinct]
        if not any(texts):
            return None
        codes = values.codes[places]
        rows = np.flatnonzero(where & np.array([bool(text) for text in texts], np.bool_)[codes])
        if not len(rows):
            return None
        return Members(rows, pa.array(texts, pa.string()).take(pa.array(codes[rows])))

    def _row_of(self, places: Places) -> Places:
        """Return the row of each event among `places`, -1 for events that are not there."""
        row_of = np.full(self.count, -1, np.intp)
        row_of[places] = np.arange(len(places))
        return row_of

    def _extra_members(self, extra: Extras, places: Places) -> Members:
        row = self._row_of(places)[extra.events]
        own = np.flatnonzero(row >= 0)
        own = own[np.argsort(row[own], kind="stable")]
        leads = pa.array([f"{json.dumps(key)}:" for key in extra.keys], pa.string())
        texts = as_text(extra.texts.take(pa.array(own)))
        members = pc.binary_join_element_wise(leads.take(pa.array(extra.codes[own])), texts, "")
        if np.all(np.diff(row[own]) > 0):  # one of each event
            return Members(row[own], members)
        rows, firsts = np.unique(row[own], return_index=True)
        ends = pa.array(np.append(firsts, len(own)).astype(np.int32))
        return Members(rows, pc.binary_join(pa.ListArray.from_arrays(ends, members), ","))

    def ids_of(self, places: Places) -> Ids:
        """Return the IDs of some events."""
        plain = self.plain_ids(places).dictionary_encode()
        codes, texts = plain.indices.to_numpy().astype(np.int32), plain.dictionary
        unique_in = np.zeros(len(codes), np.int8)
        if self.extra is None or "id2" not in self.extra.keys:
            return Ids(codes, texts, unique_in)
        events, own_texts = self.extra.column("id2")
        row_of = self._row_of(places)[events]
        own = np.flatnonzero((row_of >= 0) & (codes[row_of] == texts.index("").as_py()))
        id2 = own_texts.take(pa.array(own)).dictionary_encode()
        parts = [id2_parts(text) for text in id2.dictionary.to_pylist()]
        number = {text: code for code, text in enumerate(texts.to_pylist())}
        numbers = np.array([number.setdefault(text, len(number)) for text, _ in parts], np.int32)
        scopes = np.array([UNIQUE_IN.index(scope) for _, scope in parts], np.int8)
        rows, which = row_of[own], id2.indices.to_numpy()
        codes[rows], unique_in[rows] = numbers[which], scopes[which]
        return Ids(codes, pa.array(list(number), pa.string()), unique_in)

    def plain_ids(self, places: Places) -> pa.Array:
        """Return each event's `id` as text without quotes, empty for none."""
        raw = self.raw("id", places)
        if raw is None:
            return pa.array([""] * len(places), pa.string())
        texts = as_text(raw)
        if pc.any(pc.or_(pc.starts_with(texts, '"'), pc.equal(texts, "null"))).as_py():
            quoted = pc.and_(pc.starts_with(texts, '"'), pc.ends_with(texts, '"'))
            quoted = pc.and_(quoted, pc.greater(pc.binary_length(texts), 1))
            plain = pc.if_else(quoted, pc.utf8_slice_codeunits(texts, 1, -1), texts)
            escaped = pc.match_substring(plain, "\\")
            if pc.any(escaped).as_py():
                decoded = [unquoted(text) for text in raw.filter(escaped).to_pylist()]
                plain = pc.replace_with_mask(plain, escaped, pa.array(decoded, pa.string()))
            texts = pc.if_else(pc.equal(texts, "null"), "", plain)
        return texts


def without_keys(batch: TraceBatch) -> Mask:
    """Return which events have no key at all."""
    columns = batch.columns
    empty = np.ones(columns.count, np.bool_)
    for field in columns.labels:
        values = columns.label(field)
        empty &= values.mask(lambda value: value is None)
    for texts in columns.raw.values():
        empty &= pc.equal(pc.fill_null(pc.binary_length(texts), 0), 0).to_numpy(zero_copy_only=False)
    if columns.extra is not None:
        empty &= ~columns.extra.has_any()
    return empty


def _no_times(count: int) -> Times:
    return Times(np.zeros(count, np.int64), np.zeros(count, np.bool_), np.ones(count, np.bool_), 0)


def _shown_phase(ph: object) -> bool:
    return not isinstance(ph, str) or ph[:1] in _SHOWN_PHASES


def unquoted(value: bytes) -> str:
    """Return the JSON text of a value without quotes and escapes."""
    text = value.decode("utf-8", "replace")
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return text
    if "\\" not in text:
        return text[1:-1]
    return str(json.loads(text)).encode("utf-8", "replace").decode()
