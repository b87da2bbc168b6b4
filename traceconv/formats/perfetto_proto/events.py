"""One track event, with all its fields → rows. C handles the common ones (native/track_events.c), with the same result.

An event is decoded with the state of its sequence at that packet, and may change that state.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

from msgspec import Raw

from traceconv.events.trace import Label, NamedTrack, ReusedId
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Annotations, Member, double, object_of, quoted
from traceconv.formats.perfetto_proto.clocks import MONOTONIC, clock_of
from traceconv.formats.perfetto_proto.gpu import TRACK_EVENT_APIS
from traceconv.formats.perfetto_proto.legacy import Legacy, parse_legacy
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.rows import LAUNCH, PH, WAIT, Rows
from traceconv.formats.perfetto_proto.sequences import Sequence, location
from traceconv.formats.perfetto_proto.state import TraceState
from traceconv.formats.perfetto_proto.tracks import THREAD_INSTRUCTIONS, THREAD_TIME, Place
from traceconv.formats.perfetto_proto.typed_fields import EVENT, TypedFields
from traceconv.wire.protobuf import WireError, signed

_COUNTER, _STATE = 4, 5
#: Fields with flow IDs, in the order of the output, and their step: 3 continues a flow, 4 ends it and frees the ID.
_FLOW_STEPS = {pb.FLOWS: 3, pb.FLOWS_OLD: 3, pb.FLOW_ENDS: 4, pb.FLOW_ENDS_OLD: 4}
#: Fields of 64 bits each.
_FIXED = (pb.FLOWS, pb.FLOW_ENDS)
#: Groups of fields that few events have.
_TIMES = frozenset((pb.DELTA_US, pb.ABSOLUTE_US))
_OF_THREAD = frozenset((pb.THREAD_DELTA_US, pb.THREAD_ABSOLUTE_US, pb.INSTRUCTIONS_DELTA, pb.INSTRUCTIONS))
_FLOWS = frozenset(_FLOW_STEPS)
_EXTRA = frozenset((pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.EXTRA_DOUBLE_VALUES))
_DESCRIBED = frozenset((pb.LOCATION_IID, pb.LOCATION, pb.TASK_EXECUTION, pb.LOG_MESSAGE, pb.CORRELATION_ID,
                        pb.CORRELATION_TEXT, pb.CORRELATION_IID))  # fmt: skip
#: Lists of varints.
_PACKED = (pb.CATEGORY_IIDS, pb.EXTRA_TRACKS, pb.EXTRA_VALUES, pb.EXTRA_DOUBLE_TRACKS, pb.FLOWS_OLD,
           pb.FLOW_ENDS_OLD)  # fmt: skip
#: Phases of legacy asynchronous events except ends, and those of events with steps.
_ASYNC_STARTS, _STEPPED = frozenset("bnSTp"), frozenset("STp")
#: Fields that have other effects than args.
_WITH_EFFECTS = _TIMES | _OF_THREAD | _EXTRA | {pb.LEGACY, pb.GPU_CORRELATION, pb.GPU_API, pb.CALLSTACK_IID}
#: Limits of the args that are kept of all sequences, and of the fields that they are made of and their text.
_MOST_KEPT, _LARGEST_KEPT = 1 << 14, 1 << 10
#: Key in args for the typed fields of an event, which are apart from its annotations.
TYPED_KEY = "track_event"


class _More(NamedTuple):
    """What few events have: flow IDs with steps, samples of counters and of the thread's own, the thread's time."""

    flows: list[tuple[list[int], int]]
    samples: list[tuple[Place, int | float]]
    of_thread: list[tuple[int, int]]
    thread_ns: int | None


_NOTHING = _More([], [], [], None)


class _Event(NamedTuple):
    """One event and its place: where its rows go, its sequence, the timestamp of its packet, its args so far.

    by_writer  it is on the thread of its sequence
    """

    rows: Rows
    fields: Message
    sequence: Sequence
    packet_ns: int | None
    track: int
    by_writer: bool
    name: str | None
    members: list[Member]


class TrackEvents:
    """Turns events into rows, one after another."""

    def __init__(self, trace: TraceState) -> None:
        self._trace = trace
        self._counts = trace.losses.counts
        self.annotations = Annotations(trace.texts, trace.losses)
        self.typed_fields = TypedFields(trace.schema, trace.translations, self.annotations, trace.losses)
        of_event = trace.schema.messages[EVENT]
        callstacks = {number for number, one in of_event.items() if one.name.startswith("callstack")}
        self._with_effects = _WITH_EFFECTS | callstacks  # ends name the args of callstacks differently
        #: The fields whose args C makes.
        self.typed_in_c = self.typed_fields.of_events(self._with_effects | _DESCRIBED)
        #: Args that sequences keep.
        self._kept = 0
        #: Tracks with a state that has not ended.
        self._open_states: set[int] = set()

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
        # An event with a type that names track 0 isn't on the thread that wrote it.
        by_writer = not track and not (kind and track is not None)
        if track is None:
            track = sequence.default_track or 0
        name = self._name(event, sequence)
        members = self._annotation_members(event, sequence)
        one = _Event(rows, event, sequence, ns, track, by_writer and not track, name, members)
        if kind == _COUNTER:
            self._counter(one)
        elif kind == _STATE and pb.LEGACY not in event and self._trace.tracks.place(track).is_state:
            self._state(one)
        else:
            self._slice(one, PH.get(kind, f"?{kind}"))

    def args_of(self, sequence: Sequence, data: bytes) -> str | None:
        """Return the args of an event with these annotations and other fields; None if these have other effects.

        The same fields often occur again, so the sequence keeps the result, unless a loss was counted, which must be
        counted for each event, or a reference may be interned later.
        """
        before = self._counts.total(), sequence.misses
        try:
            event = Message(data, 0, len(data))
        except WireError:
            return None
        text = None
        if not event.has_any(self._with_effects):
            members = self._annotation_members(event, sequence)
            typed = self._pointers() + self._typed(event, sequence)
            members += [(TYPED_KEY, object_of(typed))] if typed else []
            text = object_of(members) if members else ""
        is_small = len(data) + len(text or "") <= _LARGEST_KEPT
        if is_small and (self._counts.total(), sequence.misses) == before:
            if self._kept >= _MOST_KEPT:
                for other in self._trace.sequences:
                    other.args.clear()
                self._kept = 0
            self._kept += 1
            sequence.args[data] = text
        return text

    def _annotation_members(self, event: Message, sequence: Sequence) -> list[Member]:
        """The annotations of an event."""
        self.annotations.pointers.clear()
        return [self.annotations.member(event.data, *span, sequence) for span in event.spans(pb.ANNOTATIONS)]

    def writer(self, sequence: Sequence, position: int) -> tuple[Label, Label | NamedTrack]:
        """Process and thread that write a sequence at a position of the trace; the trace's own track if unknown."""
        tracks = self._trace.tracks
        if sequence.pid is None or sequence.tid is None:
            return tracks.place(0)[:2]
        pid = tracks.process_at(sequence.pid, position)
        described = tracks.place(sequence.thread_track) if sequence.thread_track else None
        if described is not None and described.pid == pid and not isinstance(described.tid, NamedTrack):
            number = described.tid.id if isinstance(described.tid, ReusedId) else described.tid
            if isinstance(number, int) and (number ^ sequence.tid) & 0xFFFF_FFFF == 0:
                return described[:2]
        return pid, sequence.tid

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
        rows, event, sequence, packet_ns, track, _, name, members = one
        value: int | float | None = event.signed(pb.COUNTER_VALUE)
        bits = event.number(pb.DOUBLE_VALUE)
        if value is None and bits is not None:
            value = double(bits)
        self._counts["valueless"] += value is None
        ns = self._time(sequence, event, packet_ns)
        place = self._trace.tracks.counter(track)
        _count(rows, place, None if value is None else self._sum(sequence, track, value), ns)
        for other, extra in self._extra_values(event, sequence):
            _count(rows, self._trace.tracks.counter(other), self._sum(sequence, other, extra), ns)
        typed = self._pointers() + self._typed(event, sequence)
        if typed:
            members.append((TYPED_KEY, object_of(typed)))
        if members:
            # A counter has no column for them: a marker gets them.
            category, at = self._category(event, sequence), NamedTrack("async", str(track))
            rows.add("i", place.name or name, category, place.pid, at, ns, object_of(members))

    def _sum(self, sequence: Sequence, track: int, value: int | float) -> int | float:
        """The value of a counter after a sample."""
        place = self._trace.tracks.counter(track)
        value *= place.multiplier
        if place.is_incremental:
            value = sequence.sums[track] = sequence.sums.get(track, 0) + value
        return value

    def _extra_values(self, event: Message, sequence: Sequence) -> list[tuple[int, int | float]]:
        """Samples of other counters in an event: track and value."""
        pairs: list[tuple[int, int | float]] = []
        if not event.has_any(_EXTRA):
            return pairs
        tracks = event.numbers(pb.EXTRA_TRACKS) or sequence.default_extra
        pairs += zip(tracks, map(signed, event.numbers(pb.EXTRA_VALUES)), strict=False)
        tracks = event.numbers(pb.EXTRA_DOUBLE_TRACKS) or sequence.default_extra_double
        pairs += zip(tracks, map(double, event.fixed_numbers(pb.EXTRA_DOUBLE_VALUES)), strict=False)
        return pairs

    # -- states --

    def _state(self, one: _Event) -> None:
        """End the state of a track; a name begins another one."""
        place = self._trace.tracks.use(one.track)
        if one.track in self._open_states:
            ns = self._time(one.sequence, one.fields, one.packet_ns)
            one.rows.add("E", None, None, place.pid, place.tid, ns)
            self._open_states.discard(one.track)
        if one.name is not None:
            self._open_states.add(one.track)
            self._slice(one, "B")

    # -- all others --

    def _slice(self, one: _Event, ph: str) -> None:
        rows, event, sequence, packet_ns, track, by_writer, name, members = one
        category = self._category(event, sequence)
        pid, tid = self.writer(sequence, rows.position) if by_writer else self._trace.tracks.use(track)[:2]
        legacy = self._legacy(event)
        ns = self._time(sequence, event, packet_ns)
        typed = self._pointers()
        if legacy is not None:
            if ph == "?0" and legacy.phase is not None:
                ph = legacy.phase
            if legacy.name_iid and name is None:
                name = sequence.texts["names"].get(legacy.name_iid)
            if legacy.pid:
                pid = self._trace.tracks.process_at(legacy.pid, rows.position)
            tid = legacy.tid or tid
            if ph in _ASYNC_STARTS or legacy.instant_scope in ("g", "p"):
                typed += _writer_of(pid, tid, ph)
            if legacy.instant_scope in ("g", "p"):
                tid = NamedTrack("process", str(pid))
        stages = _stages(event) if pb.GPU_CORRELATION in event else ()
        # An arg of its own, for rules.
        members += [("gpu_api", quoted(api)) for api in map(_gpu_api, event.values(pb.GPU_API))]
        more = self._more(one, typed) if event else _NOTHING
        if ph == "E":
            # An end has a callstack of its own.
            typed = [("end_" + key if key.startswith("callstack") else key, text) for key, text in typed]
        if typed:
            members.append((TYPED_KEY, object_of(typed)))
        args = object_of(members) if members else ""
        place = rows.add(ph, name, category, pid, tid, ns, args, legacy.id if legacy is not None else b"")
        rows.set_time("tts", place, more.thread_ns)
        if legacy is not None:
            _put_legacy(rows, place, ph, legacy)
        for keys, step in more.flows:
            rows.add_flows(place, keys, step)
        for stage, kind in stages:
            rows.link(place, stage, kind, is_end=kind == WAIT)
        for counter, value in more.samples:
            _count(rows, counter, value, ns)
        if not isinstance(tid, NamedTrack):
            for counter_type, number in more.of_thread:
                _count(rows, self._trace.tracks.thread_counter(pid, tid, counter_type), number, ns)

    def _more(self, one: _Event, typed: list[Member]) -> _More:
        """Flows, counter samples and the thread's times, which few events have. `typed` gets the rest."""
        event, sequence = one.fields, one.sequence
        flows: list[tuple[list[int], int]] = []
        if event.has_any(_FLOWS):
            flows += [
                (event.fixed_numbers(number) if number in _FIXED else event.numbers(number), step)
                for number, step in _FLOW_STEPS.items()
            ]
        own: dict[int, int | None] = {THREAD_TIME: None, THREAD_INSTRUCTIONS: None}
        if event.has_any(_OF_THREAD):
            own[THREAD_TIME] = self._thread_time(sequence, event)
            own[THREAD_INSTRUCTIONS] = _instructions(sequence, event)
        of_thread = [(counter_type, value) for counter_type, value in own.items() if value is not None]
        samples: list[tuple[Place, int | float]] = []
        for other, value in self._extra_values(event, sequence):
            place = self._trace.tracks.counter(other)
            total = self._sum(sequence, other, value)
            samples.append((place, total))
            if place.counter_type in own and math.isfinite(total):
                own[place.counter_type] = int(total)
        typed += self._typed(event, sequence) if event else []
        if own[THREAD_INSTRUCTIONS] is not None:
            typed.append(("thread_instruction_count", str(own[THREAD_INSTRUCTIONS])))
        return _More(flows, samples, of_thread, own[THREAD_TIME])

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
        if not event.has_any(_TIMES):
            return ns
        delta, absolute = event.signed(pb.DELTA_US), event.signed(pb.ABSOLUTE_US)
        if delta is not None and sequence.time_ns is not None:
            ns = sequence.time_ns = sequence.time_ns + delta * 1000
        elif absolute is not None:
            ns = absolute * 1000
        else:
            return ns
        offset = self._trace.clocks.offset(clock_of(sequence.clocks.machine, MONOTONIC), ns)
        return ns if offset is None else ns + offset.ns

    def _thread_time(self, sequence: Sequence, event: Message) -> int | None:
        delta, absolute = event.signed(pb.THREAD_DELTA_US), event.signed(pb.THREAD_ABSOLUTE_US)
        if absolute is not None:
            return absolute * 1000
        if delta is None or sequence.thread_time_ns is None:
            return None
        sequence.thread_time_ns += delta * 1000
        return sequence.thread_time_ns

    def _pointers(self) -> list[Member]:
        """The names of the event's annotations that are pointers, which JSON doesn't have."""
        names = self.annotations.pointers
        return [("pointers", f"[{','.join(map(quoted, names))}]")] if names else []

    def _typed(self, event: Message, sequence: Sequence) -> list[Member]:
        """What the event has beyond its columns and annotations, with Perfetto's keys of args."""
        found = self._described(event, sequence) if event.has_any(_DESCRIBED) else []
        found += self.typed_fields.members(event, sequence)
        found += [("callstack", self._callstack(sequence, iid)) for iid in event.values(pb.CALLSTACK_IID)]
        return found + _rest(event)

    def _described(self, event: Message, sequence: Sequence) -> list[Member]:
        """Source locations, tasks, log messages and correlation IDs."""

        def numbered(known: str, iid: int) -> str:
            sequence.misses += iid not in sequence.texts[known]
            return quoted(sequence.texts[known].get(iid, f"text {iid}"))

        found: list[Member] = []
        for iid in event.values(pb.LOCATION_IID):
            found += [("source", self._location(sequence, iid)), ("source_location_iid", str(iid))]
        for place in event.messages(pb.LOCATION):
            members = location(place.text(2), place.text(3), place.number(4), self._trace.texts)
            found.append(("source_location", object_of(members)))
        for task in event.messages(pb.TASK_EXECUTION):
            posted = [("posted_from", self._location(sequence, iid)) for iid in task.values(1)]
            found.append(("task", object_of(posted)))
        for line in event.messages(pb.LOG_MESSAGE):
            message = [("message", numbered("log", iid)) for iid in line.values(2)]
            for iid in line.values(1):
                message += sequence.locations.get(iid, [])
            found.append(("log_message", object_of(message)))
            found += [("log_priority", str(priority)) for priority in line.values(3)]
        found += [("correlation_id", str(value)) for value in event.values(pb.CORRELATION_ID)]
        found += [("correlation_id", quoted(self._trace.texts.text(one))) for one in event.texts(pb.CORRELATION_TEXT)]
        found += [("correlation_id", numbered("correlations", iid)) for iid in event.values(pb.CORRELATION_IID)]
        return found

    def _callstack(self, sequence: Sequence, iid: int) -> str:
        """An interned callstack, in the form of one inside an event."""
        frames = []
        for frame in sequence.callstacks.get(iid, []):
            function, file, line, rel_pc = sequence.frames.get(frame, (0, None, None, None))
            members: list[Member] = []
            for key, listed, text in (("function_name", "functions", function), ("source_file", "source_files", file)):
                if text is not None:
                    members.append((key, self.annotations.interned(sequence.texts[listed], text)))
            members += [("line_number", str(line))] if line is not None else []
            members += [("rel_pc", str(rel_pc))] if rel_pc is not None else []
            frames.append(object_of(members))
        self._counts["unknown text"] += iid not in sequence.callstacks
        return object_of([("frames", f"[{','.join(frames)}]")])

    def _location(self, sequence: Sequence, iid: int) -> str:
        found = sequence.locations.get(iid)
        self._counts["unknown text"] += found is None
        return "null" if found is None else object_of(found)


def _count(rows: Rows, place: Place, value: int | float | None, ns: int | None) -> None:
    """Add a counter sample."""
    text = "null" if value is None else repr(value)
    rows.add("C", place.name, None, place.pid, None, ns, f'{{"value":{text}}}', place.id)


def _instructions(sequence: Sequence, event: Message) -> int | None:
    """The thread's number of instructions at an event."""
    delta, absolute = event.signed(pb.INSTRUCTIONS_DELTA), event.signed(pb.INSTRUCTIONS)
    if absolute is not None:
        return absolute
    if delta is None:
        return None
    sequence.instructions += delta
    return sequence.instructions


def _writer_of(pid: Label, tid: Label | NamedTrack, ph: str) -> list[Member]:
    """The thread that wrote an event that isn't on its track, and the phase if the row doesn't tell it."""
    if isinstance(tid, NamedTrack) or tid is None:
        return []
    found = [("pid", str(pid)), ("tid", str(tid))]
    if ph in _STEPPED:
        found.append(("phase", quoted(ph)))
    return [("legacy_event", object_of(found))]


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


def _stages(event: Message) -> list[tuple[int, int]]:
    """The events of GPUs that a call launched or waited for; malformed ones are counted as typed fields."""
    found: list[tuple[int, int]] = []
    for start, end in event.spans_left(pb.GPU_CORRELATION):
        with suppress(WireError):
            correlation = Message(event.data, start, end)
            for number, kind in ((1, LAUNCH), (2, WAIT)):
                found += [(stage, kind) for stage in correlation.numbers(number)]
    return found


def _gpu_api(number: int) -> str:
    return TRACK_EVENT_APIS[number] if number < len(TRACK_EVENT_APIS) else f"GPU_API_{number}"


def _rest(event: Message) -> list[Member]:
    """Unknown fields, as they are."""
    return [(f"field_{number}", text) for number, text in event.rest(pb.PLAIN)]
