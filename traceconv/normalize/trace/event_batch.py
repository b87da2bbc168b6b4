"""One batch of events on its way through the first pass: its columns as numbers, its books, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv.base.diagnostics import Code, ImportLog
from traceconv.events.trace import Coded, Extras, TraceBatch, coded
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.args import Beside, args_column, members_of, with_beside
from traceconv.normalize.trace.binary import as_text, taken, whole_numbers
from traceconv.normalize.trace.distinct import distinct_pairs
from traceconv.normalize.trace.metadata import id2_parts
from traceconv.normalize.trace.times import Times, exact_ns

if TYPE_CHECKING:
    from traceconv.normalize.trace.first_pass import FirstPass

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]

#: Scopes of an instant.
SCOPES = {"g": "global", "p": "process", "t": "thread"}
#: Phases that a row shows by its table and columns; those of others are kept in args.
_SHOWN_PHASES = frozenset("XBEbeFCiIRn")
#: Kinds of events beside which ids and scopes are used up; elsewhere they are kept in args.
_HAS_ID = np.zeros(phases.MISSING + 1, np.bool_)
_HAS_ID[[phases.COUNTER, phases.FLOW, phases.ASYNC_BEGIN, phases.ASYNC_END, phases.ASYNC_INSTANT]] = True


class EventBatch:
    """The events of a batch, and what is known of each; `kind` becomes UNKNOWN for those that are done with."""

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
        self.pids = columns.label("pid")
        self.tids = columns.label("tid")
        self.extra = columns.extra
        self._times: dict[str, Times] = {}
        self._foreseen = first.foreseen(batch)
        first.note_categories(self.categories.distinct)
        self.ts = self.times("ts")
        #: Of complete events; zeros where there are none.
        self.durations = _no_times(self.count)
        self.track = np.zeros(self.count, np.int64)
        #: Keys that go into an event's args: place → key → JSON text.
        self.beside: dict[int, dict[str, bytes]] = {}
        self._accounts = [first.accounts[phases.account_of(ph)] for ph in self.ph.distinct]
        for account, count in zip(self._accounts, self.ph.counts(), strict=True):
            account.records += count
            account.rows += count

    def places(self, *kinds: int) -> Places:
        """The events of these kinds."""
        mask = self.kind == kinds[0]
        for kind in kinds[1:]:
            mask |= self.kind == kind
        return np.flatnonzero(mask)

    def raw(self, field: str, places: Places) -> pa.Array | None:
        """The text of a field of some events, in any order; None when no event has it."""
        raw = self.batch.columns.raw.get(field)
        if raw is None or (len(places) == self.count and bool(np.all(places[1:] > places[:-1]))):
            return raw
        return taken(raw, places)

    def times(self, field: str) -> Times:
        """The times of a field of all events; read, and what is odd in them said, once."""
        found = self._times.get(field)
        if found is None:
            found = self._foreseen.get(field)
            if found is None:
                raw = self.batch.columns.raw.get(field)
                found = _no_times(self.count) if raw is None else exact_ns(raw, self.first.time_places)
            self._times[field] = found
            if found.rounded:
                self.say(Code.FINE_TIME, f"{field} finer than a nanosecond", None, found.rounded)
        return found

    # -- books --

    def rebook(self, places: Places, to: str) -> None:
        """Moves events from rows to `paired`, `used` or `lost`."""
        counts = np.bincount(self.ph.codes[places], minlength=len(self._accounts)).tolist()
        for account, count in zip(self._accounts, counts, strict=True):
            account.rows -= count
            setattr(account, to, getattr(account, to) + count)

    def say(self, code: Code, message: str, place: int | None, count: int = 1) -> None:
        """Notes something about an event, with the bytes where it stands."""
        offset, size = self.batch.place(place) if place is not None else (self.batch.byte_offset, None)
        self.first.log.add(code, message, source_id=1, byte_offset=offset, byte_count=size, event_count=count)

    def say_each(self, code: Code, message: str, places: Sequence[int]) -> None:
        """The same for several: the first ones singly."""
        for place in places[: ImportLog.LIMIT]:
            self.say(code, message, place)
        if len(places) > ImportLog.LIMIT:
            self.say(code, message, None, len(places) - ImportLog.LIMIT)

    def lose(self, where: Mask, code: Code, message: str) -> None:
        """Books events as lost."""
        places = np.flatnonzero(where)
        if len(places):
            self.rebook(places, "lost")
            self.say_each(code, message, places.tolist())
            self.kind[where] = phases.UNKNOWN

    def drop_unusable(self) -> None:
        """Events without a ph that is known, and without a time where one is needed."""
        if self.kind.max(initial=0) >= phases.UNKNOWN:
            unknown = self.kind == phases.UNKNOWN
            if (self.kind == phases.MISSING).any():
                self._pass_over_empty()
            self.lose(self.kind == phases.MISSING, Code.NO_PHASE, "an event without ph")
            self.lose(unknown, Code.UNKNOWN_PHASE, "an event with a ph that is not known")
        timeless = ~self.ts.valid & (self.kind < phases.UNKNOWN) & (self.kind != phases.METADATA)
        if timeless.any():
            absent = timeless & self.ts.absent
            self.lose(absent, Code.NO_TIME, "an event without ts")
            self.lose(timeless & ~absent, Code.NO_TIME, "an event whose ts can't be read")
        self.first.note_times(self.ts.ns[self.ts.valid & (self.kind < phases.UNKNOWN) & (self.kind != phases.METADATA)])

    def _pass_over_empty(self) -> None:
        """Events without any key: some writers, such as JAX's, end the list of events with one."""
        empty = self.kind == phases.MISSING
        for field in self.batch.columns.labels:
            values = self.batch.columns.label(field)
            empty &= np.array([value is None for value in values.distinct], np.bool_)[values.codes]
        for texts in self.batch.columns.raw.values():
            empty &= pc.equal(pc.fill_null(pc.binary_length(texts), 0), 0).to_numpy(zero_copy_only=False)
        if self.extra is not None:
            empty &= ~self.extra.has_any()
        self.rebook(np.flatnonzero(empty), "used")
        self.kind[empty] = phases.UNKNOWN

    # -- columns --

    def thread_tracks(self, places: Places) -> Int64:
        """The tracks of the threads of some events."""
        pairs, inverse = distinct_pairs(self.pids, self.tids, places)
        tracks = np.array([self.first.thread(pid, tid) for pid, tid in pairs], np.int64)
        return tracks[inverse]

    def args_of(self, places: Places) -> pa.Array:
        """The args column of some events."""
        return with_beside(args_column(self.raw("args", places), len(places)), self._beside_of(places))

    def _beside_of(self, places: Places) -> list[Beside]:
        """What stands beside the args of these events, and no column holds."""
        found: list[Beside] = []
        if self.extra is not None:
            found.append(self._extras_of(self.extra, places))
        kinds = self.kind[places]
        ids = self.raw("id", places)
        if ids is not None:
            said = pc.binary_length(ids).to_numpy(zero_copy_only=False) > 0
            rows = np.flatnonzero(said & ~_HAS_ID[kinds])
            found.append(Beside(rows, pc.binary_join_element_wise('"id":', as_text(taken(ids, rows)), "")))
        found.append(self._phases_of(places))
        times = self.raw("ts", places)
        if times is not None and pa.types.is_binary(times.type):
            # Metadata has no time: what stands there is only kept.
            rows = np.flatnonzero((kinds == phases.METADATA) & ~self.ts.absent[places])
            found.append(Beside(rows, pc.binary_join_element_wise('"ts":', as_text(taken(times, rows)), "")))
        for field in ("bp", "s", "scope"):
            if field not in self.batch.columns.labels:
                continue
            values = self.batch.columns.label(field)
            codes = values.codes[places]
            said = np.array([value is not None for value in values.distinct], np.bool_)[codes]
            if field == "s":
                known = np.array([value in SCOPES for value in values.distinct], np.bool_)[codes]
                said &= ~(known & (kinds == phases.INSTANT))
            else:
                said &= ~_HAS_ID[kinds]
            rows = np.flatnonzero(said)
            texts = [f'"{field}":{json_text(value).decode()}' if value is not None else "" for value in values.distinct]
            found.append(Beside(rows, pa.array(texts, pa.string()).take(pa.array(codes[rows]))))
        if self.beside:
            row_of = self._row_of(places)
            own = {int(row_of[place]): keys for place, keys in self.beside.items() if row_of[place] >= 0}
            found.append(members_of(sorted(own), [own[row] for row in sorted(own)]))
        return [one for one in found if len(one.rows)]

    def _phases_of(self, places: Places) -> Beside:
        """The ph of those whose row does not show it."""
        texts = [
            "" if not isinstance(ph, str) or ph[:1] in _SHOWN_PHASES else f'"ph":{json_text(ph).decode()}'
            for ph in self.ph.distinct
        ]
        codes = self.ph.codes[places]
        rows = np.flatnonzero(np.array([bool(text) for text in texts], np.bool_)[codes])
        return Beside(rows, pa.array(texts, pa.string()).take(pa.array(codes[rows])))

    def _row_of(self, places: Places) -> Places:
        """Of each event its row among `places`; -1 for those that are not there."""
        row_of = np.full(self.count, -1, np.intp)
        row_of[places] = np.arange(len(places))
        return row_of

    def _extras_of(self, extra: Extras, places: Places) -> Beside:
        row = self._row_of(places)[extra.events]
        own = np.flatnonzero(row >= 0)
        own = own[np.argsort(row[own], kind="stable")]
        leads = pa.array([f"{json.dumps(key)}:" for key in extra.keys], pa.string())
        texts = as_text(taken(extra.texts, own))
        members = pc.binary_join_element_wise(leads.take(pa.array(extra.codes[own])), texts, "")
        rows, firsts = np.unique(row[own], return_index=True)
        ends = pa.array(np.append(firsts, len(own)).astype(np.int32))
        return Beside(rows, pc.binary_join(pa.ListArray.from_arrays(ends, members), ","))

    def id_texts(self, places: Places) -> Coded:
        """Of each event its id as text, and what it is unique in: `global`, `local`, or `` when that is not said."""
        plain = self.plain_ids(places)
        id2 = {} if self.extra is None else self.extra.of("id2")
        if not id2:
            found = plain.dictionary_encode()
            return Coded(found.indices.to_numpy(), [(text, "") for text in found.dictionary.to_pylist()])
        texts = zip(plain.to_pylist(), places.tolist(), strict=True)
        return coded([id2_parts(id2[place]) if not text and place in id2 else (text, "") for text, place in texts])

    def plain_ids(self, places: Places) -> pa.Array:
        """Of each event its `id` as text, without quotes; empty where there is none."""
        raw = self.raw("id", places)
        if raw is None:
            return pa.array([""] * len(places), pa.string())
        texts = as_text(raw)
        if whole_numbers(raw) is None and pc.any(pc.or_(pc.starts_with(texts, '"'), pc.equal(texts, "null"))).as_py():
            quoted = pc.and_(pc.starts_with(texts, '"'), pc.ends_with(texts, '"'))
            quoted = pc.and_(quoted, pc.greater(pc.binary_length(texts), 1))
            unquoted_texts = pc.if_else(quoted, pc.utf8_slice_codeunits(texts, 1, -1), texts)
            spelled = pc.match_substring(unquoted_texts, "\\").to_numpy(zero_copy_only=False)
            if spelled.any():
                plain = unquoted_texts.to_pylist()
                for row in np.flatnonzero(spelled).tolist():
                    plain[row] = unquoted(raw[row].as_py())
                unquoted_texts = pa.array(plain, pa.string())
            texts = pc.if_else(pc.equal(texts, "null"), "", unquoted_texts)
        return texts


def _no_times(count: int) -> Times:
    return Times(np.zeros(count, np.int64), np.zeros(count, np.bool_), np.ones(count, np.bool_), 0)


def json_text(value: str) -> bytes:
    """A text as JSON."""
    return json.dumps(value).encode()


def unquoted(value: bytes) -> str:
    """JSON text of a value as text, without quotes and escapes."""
    text = value.decode("utf-8", "replace")
    if len(text) < 2 or not text[0] == text[-1] == '"':
        return text
    if "\\" not in text:
        return text[1:-1]
    return str(json.loads(text)).encode("utf-8", "replace").decode()
