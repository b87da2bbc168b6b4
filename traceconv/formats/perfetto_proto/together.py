"""Plain events of a stretch of packets → columns of codes: what their numbers say is looked up once for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from traceconv.events.trace import Label, NamedTrack
from traceconv.formats.perfetto_proto.annotations import Notes, quoted
from traceconv.formats.perfetto_proto.codes import Change, Coder, Int32, decoded, distinct, resolve
from traceconv.formats.perfetto_proto.plain import ABSENT, COUNTER, PlainEvents
from traceconv.formats.perfetto_proto.plain_rows import PlainRows
from traceconv.formats.perfetto_proto.sequences import Sequence as PacketSequence
from traceconv.formats.perfetto_proto.sequences import Texts
from traceconv.formats.perfetto_proto.single import NOWHERE, PH
from traceconv.formats.perfetto_proto.tracks import Descriptors
from traceconv.wire.protobuf import Int64, Mask


class Together:
    """Takes the plain events of some packets, stretch by stretch; then gives their rows."""

    def __init__(
        self, events: PlainEvents, first: int, last: int, tracks: Descriptors, texts: Texts, notes: Notes
    ) -> None:
        """`first`, `last`: the packets that are looked at."""
        self._events = events
        self._first = first
        self._tracks = tracks
        self._texts = texts
        self._notes = notes
        count = last - first
        #: Of each packet, by its place: its event, −1 when it has no plain one.
        self._event = np.full(count, -1, np.int64)
        self._ts = np.zeros(count, np.int64)
        self._timed = np.zeros(count, np.bool_)
        self.values = {field: Coder([None]) for field in ("name", "cat", "pid", "tid")}
        self.values["ph"], self.values["id"] = Coder(PH.values()), Coder([b""])
        self._codes = {field: np.zeros(count, np.int32) for field in ("name", "cat", "pid", "tid", "id")}

    def take(
        self,
        sequence: PacketSequence,
        events: Int64,
        packets: Int64,
        ts: Int64,
        timed: Mask,
        changes: Mapping[str, Sequence[Change]],
    ) -> None:
        """Plain events of one sequence, whose state is the same for all but for `changes` of numbered texts."""
        at = packets - self._first
        self._event[at], self._ts[at], self._timed[at] = events, ts, timed
        is_counter = self._events.type[events] == COUNTER
        self._place(sequence, events, at, is_counter)
        if is_counter.any():
            slices = np.flatnonzero(~is_counter)
            events, packets, at = events[slices], packets[slices], at[slices]
        for field, listed, iids in (
            ("name", "names", self._events.name_iid[events]),
            ("cat", "categories", self._events.category_iid[events]),
        ):
            of = np.flatnonzero(iids)
            if len(of):
                found, texts = resolve(sequence.texts[listed], changes.get(listed, ()), iids[of], packets[of])
                codes = self.values[field].used(found, texts)
                self._notes.unknown += int((codes == 0).sum())
                self._codes[field][at[of]] = codes
        notes = self._events.notes
        which = notes.of_events(events)
        if len(which):
            sizes = notes.bounds[events + 1] - notes.bounds[events]
            self._notes.unknown += notes.look_up(which, np.repeat(packets, sizes), sequence.texts, changes)

    def _place(self, sequence: PacketSequence, events: Int64, at: Int64, is_counter: Mask) -> None:
        """The tracks of the events: processes, threads, names and ids of counters."""
        codes, uuids = distinct(self._events.track[events])
        default = sequence.default_track or 0
        uuids = [default if uuid == ABSENT else uuid for uuid in uuids]
        here: tuple[Label, Label | NamedTrack] = NOWHERE
        if sequence.tid is not None:
            here = sequence.pid, sequence.tid
        pids, tids = self.values["pid"], self.values["tid"]
        for counters in (False, True):
            of = np.flatnonzero(is_counter == counters)
            if not len(of):
                continue
            found: dict[str, Int32] = {field: np.zeros(len(uuids), np.int32) for field in ("pid", "tid", "name", "id")}
            for code in np.flatnonzero(np.bincount(codes[of], minlength=len(uuids))).tolist():
                if counters:
                    place = self._tracks.counter(uuids[code])
                    found["pid"][code] = pids.code(place.pid)
                    found["name"][code] = self.values["name"].code(place.name)
                    key = place.tid.key if isinstance(place.tid, NamedTrack) else ""
                    found["id"][code] = self.values["id"].code(quoted(key).encode() if key else b"")
                    continue
                pid, tid = here
                if uuids[code]:
                    pid, tid = self._tracks.place(uuids[code])[:2]
                found["pid"][code], found["tid"][code] = pids.code(pid), tids.code(tid)
            for field in ("pid", "name", "id") if counters else ("pid", "tid"):
                self._codes[field][at[of]] = found[field][codes[of]]

    def rows(self, data: bytes) -> PlainRows:
        """The rows of all events that were taken."""
        where = np.flatnonzero(self._event >= 0)
        events = self._event[where]
        plain = self._events
        codes = {field: column[where] for field, column in self._codes.items()}
        slices = plain.type[events] != COUNTER
        for field, iids, ats, sizes in (
            ("name", plain.name_iid, plain.name_at, plain.name_size),
            ("cat", plain.category_iid, plain.category_at, plain.category_size),
        ):
            of = np.flatnonzero(slices & (iids[events] == 0) & (ats[events] >= 0))
            if len(of):
                found, texts = decoded(data, ats[events[of]], sizes[events[of]], self._texts)
                said: list[str | None] = [*texts] if field == "name" else [text or None for text in texts]
                codes[field][of] = self.values[field].used(found, said)
        codes["ph"] = plain.type[events].astype(np.int32) - 1
        chosen = np.zeros(len(plain.type), np.bool_)
        chosen[events] = True
        of_event, keys, steps = plain.arrows(chosen)
        flows = np.searchsorted(events, of_event), keys, steps
        args = self._args(events, slices, data)
        return PlainRows(where + self._first, codes, self.values, self._ts[where], self._timed[where], args, flows)

    def _args(self, events: Int64, slices: Mask, data: bytes) -> pa.Array | None:
        notes = self._events.notes
        has_notes = bool((notes.bounds[events + 1] > notes.bounds[events]).any())
        if slices.all():
            return notes.args(events, data, self._texts) if has_notes else None
        counters = np.flatnonzero(~slices)
        parts = [self._events.counter_args(events[counters])]
        order = np.zeros(len(events), np.int64)
        order[counters] = np.arange(len(counters))
        of = np.flatnonzero(slices)
        if has_notes:
            parts.append(notes.args(events[of], data, self._texts))
            order[of] = len(counters) + np.arange(len(of))
        else:
            parts.append(pa.array([b""], pa.binary()))
            order[of] = len(counters)
        return pa.concat_arrays(parts).take(pa.array(order))
