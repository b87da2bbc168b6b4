"""One track event, with all its fields → rows. C handles the common ones (native/track_events.c), with the same result.

An event is decoded with the state of its sequence at that packet, and may change that state.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

from msgspec import Raw

from traceconv.events.trace import Label, NamedTrack
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Annotations, Member, double, object_of, quoted
from traceconv.formats.perfetto_proto.clocks import MONOTONIC
from traceconv.formats.perfetto_proto.legacy import Legacy, parse_legacy
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.rows import PH, Rows
from traceconv.formats.perfetto_proto.sequences import Sequence, location
from traceconv.formats.perfetto_proto.state import TraceState
from traceconv.formats.perfetto_proto.tracks import THREAD_INSTRUCTIONS, THREAD_TIME
from traceconv.wire.protobuf import WireError, signed

_END, _COUNTER = 2, 4
#: Fields with flow IDs, in the order of the output, and their step: 3 continues a flow, 4 ends it and frees the ID.
_FLOW_STEPS = {pb.FLOWS: 3, pb.FLOWS_OLD: 3, pb.FLOW_ENDS: 4, pb.FLOW_ENDS_OLD: 4}
#: Fields of 64 bits each.
_FIXED = (pb.FLOWS, pb.FLOW_ENDS)
#: Lists of varints.
_PACKED = (pb.CATEGORY_IIDS, pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.FLOWS_OLD,
           pb.FLOW_ENDS_OLD)  # fmt: skip
NOWHERE = (None, NamedTrack("async", "0"))
#: Flow IDs with their step; counter samples: track and value.
_Flows = list[tuple[list[int], int]]
_Samples = list[tuple[int, "int | float"]]


class _Event(NamedTuple):
    """One event and its place: where its rows go, its sequence, the timestamp of its packet, its args so far."""

    rows: Rows
    fields: Message
    sequence: Sequence
    packet_ns: int | None
    track: int
    name: str | None
    members: list[Member]


class TrackEvents:
    """Turns events into rows, one after another."""

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._counts = trace.losses.counts
        self.annotations = Annotations(trace.texts, trace.losses)

    def take(self, rows: Rows, data: bytes, start: int, end: int, sequence: Sequence, ns: int | None) -> None:
        """Add the rows of one event. `ns`: the timestamp of its packet."""
        losses = self._counts
        try:
            event = Message(data, start, end, _PACKED)
        except WireError:
            losses["damaged"] += 1
            return
        if sequence.is_doubtful:
            losses["doubtful"] += 1
        if ns is None and pb.DELTA_US not in event and pb.ABSOLUTE_US not in event:
            losses["timeless"] += 1
            return
        kind, track = event.number(pb.TYPE) or 0, event.number(pb.TRACK_UUID)
        if track is None:
            track = sequence.default_track or 0
        name = self._name(event, sequence)
        members = [self.annotations.member(data, *span, sequence) for span in event.spans(pb.ANNOTATIONS)]
        one = _Event(rows, event, sequence, ns, track, name, members)
        if kind == _COUNTER:
            self._counter(one)
        else:
            self._slice(one, PH.get(kind, f"?{kind}"))

    def place(self, sequence: Sequence, track: int) -> tuple[Label, Label | NamedTrack]:
        """Process and thread of an event on a track, or on none (0)."""
        if track:
            return self._trace.tracks.place(track)[:2]
        return (sequence.pid, sequence.tid) if sequence.tid is not None else NOWHERE

    def _name(self, event: Message, sequence: Sequence) -> str | None:
        iid, inline = event.number(pb.NAME_IID), event.texts(pb.NAME)
        if not iid:
            return self._trace.texts.text(inline[-1]) if inline else None
        name = sequence.texts["names"].get(iid)
        self._counts["unknown text"] += name is None
        return name

    def _category(self, event: Message, sequence: Sequence) -> str | None:
        iids, texts = event.numbers(pb.CATEGORY_IIDS), event.texts(pb.CATEGORIES)
        if iids == [0]:
            iids = []
        if not texts and not iids:
            return None
        words = [sequence.texts["categories"].get(iid) for iid in iids]
        self._counts["unknown text"] += words.count(None)
        if len(words) == 1 and not texts:
            return words[0]
        return ",".join([word for word in words if word is not None] + [*map(self._trace.texts.text, texts)]) or None

    # -- counters --

    def _counter(self, one: _Event) -> None:
        rows, event, sequence, packet_ns, track, name, members = one
        value: int | float | None = event.signed(pb.COUNTER_VALUE)
        bits = event.number(pb.DOUBLE_VALUE)
        if value is None and bits is not None:
            value = double(bits)
        self._counts["valueless"] += value is None
        ns = self._time(sequence, event, packet_ns)
        self._count(rows, sequence, track, value, ns)
        for other, extra in self._extra_values(event, sequence):
            self._count(rows, sequence, other, extra, ns)
        members += _rest(event)
        if members:
            # A counter has no column for them: a marker gets them.
            place = self._trace.tracks.counter(track)
            category, at = self._category(event, sequence), NamedTrack("async", str(track))
            rows.add("i", place.name or name, category, place.pid, at, ns, object_of(members))

    def _count(self, rows: Rows, sequence: Sequence, track: int, value: int | float | None, ns: int | None) -> None:
        """Add a counter sample."""
        place = self._trace.tracks.counter(track)
        text = "null" if value is None else repr(self._sum(sequence, track, value))
        rows.add("C", place.name, None, place.pid, None, ns, f'{{"value":{text}}}', place.id)

    def _sum(self, sequence: Sequence, track: int, value: int | float) -> int | float:
        """The value of a counter after a sample."""
        place = self._trace.tracks.counter(track)
        value *= place.multiplier
        if place.is_incremental:
            value = sequence.sums[track] = sequence.sums.get(track, 0) + value
        return value

    def _extra_values(self, event: Message, sequence: Sequence) -> _Samples:
        """Samples of other counters in an event: track and value."""
        tracks = event.numbers(pb.EXTRA_TRACKS) or sequence.default_extra
        pairs: _Samples = []
        pairs += zip(tracks, map(signed, event.numbers(pb.EXTRA_VALUES)), strict=False)
        tracks = event.numbers(pb.EXTRA_DOUBLE_TRACKS) or sequence.default_extra_double
        pairs += zip(tracks, map(double, event.fixed_numbers(pb.EXTRA_DOUBLE_VALUES)), strict=False)
        return pairs

    # -- all others --

    def _slice(self, one: _Event, ph: str) -> None:
        rows, event, sequence, packet_ns, track, name, members = one
        category = self._category(event, sequence)
        pid, tid = self.place(sequence, track)
        legacy = self._legacy(event)
        ns = self._time(sequence, event, packet_ns)
        thread_ns = self._thread_time(sequence, event)
        if legacy is not None:
            if ph == "?0" and legacy.phase is not None:
                ph = legacy.phase
            if legacy.name_iid and name is None:
                name = sequence.texts["names"].get(legacy.name_iid)
            pid, tid = legacy.pid or pid, legacy.tid or tid
        flows: _Flows = []
        samples: _Samples = []
        if event:
            flows, samples, thread_ns = self._more(one, ph, thread_ns)
        args = object_of(members) if members else ""
        place = rows.add(ph, name, category, pid, tid, ns, args, legacy.id if legacy is not None else b"")
        rows.set_time("tts", place, thread_ns)
        if legacy is not None:
            _put_legacy(rows, place, ph, legacy)
        for keys, step in flows:
            rows.add_flows(place, keys, step)
        for other, value in samples:
            self._count(rows, sequence, other, value, ns)

    def _more(self, one: _Event, ph: str, thread_ns: int | None) -> tuple[_Flows, _Samples, int | None]:
        """Flows, counter samples and the thread's time, which few events have. `members` gets the rest."""
        event, sequence, members = one.fields, one.sequence, one.members
        flows = []
        if ph != "E":  # an end has no row for a flow to bind to: its args keep them
            for number, step in _FLOW_STEPS.items():
                flows.append((event.fixed_numbers(number) if number in _FIXED else event.numbers(number), step))
        samples = []
        for other, value in self._extra_values(event, sequence):
            kind = self._trace.tracks.counter(other).counter_type
            if kind == THREAD_TIME and math.isfinite(value):
                thread_ns = int(self._sum(sequence, other, value))
            elif kind == THREAD_INSTRUCTIONS:
                members.append(("thread_instruction_count", repr(self._sum(sequence, other, value))))
            else:
                samples.append((other, value))
        members += self._other_members(event, sequence) + _rest(event)
        return flows, samples, thread_ns

    def _legacy(self, event: Message) -> Legacy | None:
        if pb.LEGACY not in event:
            return None
        for span in event.spans(pb.LEGACY)[-1:]:
            with suppress(WireError):
                return parse_legacy(event.data, *span, self._trace.texts)
        self._counts["state"] += 1
        return None

    def _time(self, sequence: Sequence, event: Message, ns: int | None) -> int | None:
        """The timestamp of an event, which legacy ones have in microseconds of the monotonic clock."""
        delta, absolute = event.signed(pb.DELTA_US), event.signed(pb.ABSOLUTE_US)
        if delta is not None and sequence.time_ns is not None:
            ns = sequence.time_ns = sequence.time_ns + delta * 1000
        elif absolute is not None:
            ns = absolute * 1000
        else:
            return ns
        offset = self._trace.clocks.offset(MONOTONIC, ns)
        return ns if offset is None else ns + offset.ns

    def _thread_time(self, sequence: Sequence, event: Message) -> int | None:
        delta, absolute = event.signed(pb.THREAD_DELTA_US), event.signed(pb.THREAD_ABSOLUTE_US)
        if absolute is not None:
            return absolute * 1000
        if delta is None or sequence.thread_time_ns is None:
            return None
        sequence.thread_time_ns += delta * 1000
        return sequence.thread_time_ns

    def _other_members(self, event: Message, sequence: Sequence) -> list[Member]:
        """Source, task, log line and correlation, which have no column."""

        def numbered(known: str, iid: int) -> str:
            return quoted(sequence.texts[known].get(iid, f"text {iid}"))

        members = [("source", self._location(sequence, iid)) for iid in event.values(pb.LOCATION_IID)]
        for place in event.messages(pb.LOCATION):
            members.append(("source", location(place.text(2), place.text(3), place.number(4), self._trace.texts)))
        for task in event.messages(pb.TASK_EXECUTION):
            members += [("posted_from", self._location(sequence, iid)) for iid in task.values(1)]
        for line in event.messages(pb.LOG_MESSAGE):
            members += [("log_source", self._location(sequence, iid)) for iid in line.values(1)]
            members += [("log_message", numbered("log", iid)) for iid in line.values(2)]
            members += [("log_priority", str(priority)) for priority in line.values(3)]
        members += [("correlation_id", str(value)) for value in event.values(pb.CORRELATION_ID)]
        members += [("correlation_id", quoted(self._trace.texts.text(one))) for one in event.texts(pb.CORRELATION_TEXT)]
        members += [("correlation_id", numbered("correlations", iid)) for iid in event.values(pb.CORRELATION_IID)]
        for value in event.values(pb.INSTRUCTIONS):
            members.append(("thread_instruction_count", str(signed(value))))
        for value in event.values(pb.INSTRUCTIONS_DELTA):
            sequence.instructions += signed(value)
            members.append(("thread_instruction_count", str(sequence.instructions)))
        return members

    def _location(self, sequence: Sequence, iid: int) -> str:
        found = sequence.locations.get(iid)
        self._counts["unknown text"] += found is None
        return "null" if found is None else found


def _put_legacy(rows: Rows, place: int, ph: str, legacy: Legacy) -> None:
    rows.set_time("dur", place, legacy.dur_ns)
    rows.set_time("tdur", place, legacy.thread_dur_ns)
    rows.set_label("scope", place, legacy.scope)
    rows.set_label("s", place, legacy.instant_scope)
    if legacy.binds_enclosing and ph in ("s", "t", "f"):
        rows.set_label("bp", place, "e")
    if legacy.instructions is not None:
        legacy.extra["thread_instruction_delta"] = Raw(str(legacy.instructions).encode())
    if legacy.extra:
        rows.extra[place] = legacy.extra


def _rest(event: Message) -> list[Member]:
    """Unknown fields, as they are."""
    return [(f"field_{number}", text) for number, text in event.rest(pb.PLAIN)]
