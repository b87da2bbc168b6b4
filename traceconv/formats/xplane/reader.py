"""A profile of JAX, XLA or TensorFlow in protobuf (XSpace) → batches of events.

The file is read twice, since the names of events, and when a line begins, may follow the events that need them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.errors import InputError, printable
from traceconv.base.int64 import Int64, Mask, differences, sums
from traceconv.events.trace import TOO_LONG, Coded, EventColumns, TraceBatch
from traceconv.formats.common.file_reader import SOURCE_ID, FileReader
from traceconv.formats.common.files import STDIN
from traceconv.formats.format import ReadRequest
from traceconv.formats.xplane import field_numbers as pb
from traceconv.formats.xplane.framing import LINE, Run, SpaceFramer, Value
from traceconv.formats.xplane.planes import COUNTERS, MAX_LINES, MAX_TEXT_BYTES, WANTED, Kinds, Space
from traceconv.formats.xplane.stats import (
    KIND_ID,
    NO_STATS,
    StatNames,
    Stats,
    column,
    joined,
    members,
    objects,
    read_stats,
    spans,
)
from traceconv.wire.protobuf import VARINT, FieldTable, walk

EVENTS = frozenset(((LINE, pb.EVENTS),))
#: Bytes of the statistics of kinds that are repeated for the events of a batch, and for those of a chunk of the file.
_MOST_REPEATED, _MOST_EXPANDED = 64 << 20, 1 << 30
_PS_PER_NS = 1000
_GPU = re.compile(r"/device:GPU:([0-9]{1,9})")
#: Not a valid time.
_NO_TIME = -(2**63)


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a plane in one piece of the file.

    bounds  of each in `data`
    lines   the line of each
    """

    plane: int
    data: bytes
    byte_offset: int
    bounds: Int64
    lines: Int64


def events_of(parts: Iterator[Run | Value]) -> Iterator[Events]:
    """Join the events of lines that are in one chunk of the file."""
    runs: list[Run] = []
    for one in parts:
        if not isinstance(one, Run) or (one.level, one.number) not in EVENTS:
            continue
        if runs and (runs[-1].data is not one.data or runs[-1].plane != one.plane):
            yield _joined(runs)
            runs = []
        runs.append(one)
    if runs:
        yield _joined(runs)


def _joined(runs: list[Run]) -> Events:
    lines = np.repeat([run.line for run in runs], [len(run.bounds) for run in runs])
    bounds = np.concatenate([run.bounds for run in runs])
    return Events(runs[0].plane, runs[0].data, runs[0].byte_offset, bounds, lines)


class XplaneReader(FileReader):
    """Reads one file. Its other attributes are complete once `batches` is exhausted."""

    keeps_all = True  # XLA's profiler limits only the JSON that it makes of this

    def __init__(self, request: ReadRequest) -> None:
        if request.path == STDIN:
            raise InputError("an XSpace in protobuf can't be read from standard input; specify its path")
        super().__init__(request, is_text=False)
        self._space = Space()
        self._kinds: tuple[int, Kinds] | None = None
        self._counts: Counter[str] = Counter()
        self._line_numbers = np.zeros(0, np.int64)

    def batches(self) -> Iterator[TraceBatch]:
        """Yield all events, in the order of the file. Raises InputError if the file can't be read."""
        self._describe()
        framer = SpaceFramer(self._source.chunks(), self._limits.event_bytes, EVENTS, self._lose)
        for events in events_of(framer.fields()):
            yield from self._batches(events)
        self._report()

    def _describe(self) -> None:
        """Read everything but the events. Damage is reported when they are read."""
        space = self._space
        chunks = self._second_pass().chunks()
        for one in SpaceFramer(chunks, self._limits.event_bytes, WANTED, lambda *loss: None).fields():
            space.take(one)
        space.number_processes()
        self._line_numbers = np.array(list(space.lines), np.int64)
        self.found_events = bool(space.planes)
        self._track_names += space.track_names()
        hosts = space.texts.get(pb.HOSTNAMES, [])
        if len(hosts) == 1:
            self.keys["hostname"] = json.dumps(hosts[0]).encode()
        planes = space.plane_stats()
        devices = [
            {"id": int(name[1]), "name": stats["gpu_device_name"]}
            for plane, stats in planes.items()
            if (name := _GPU.fullmatch(plane)) and "gpu_device_name" in stats
        ]
        if devices:
            self.keys["xplane_devices"] = json.dumps(devices).encode()
        errors, warnings = (space.texts.get(kind, []) for kind in (pb.ERRORS, pb.WARNINGS))
        for level, texts in (("error", errors), ("warning", warnings)):
            for text in texts:
                self._log.add(Code.PROFILER_WARNING, f"{level} of the profiler: {printable(text)}", source_id=SOURCE_ID)
        about = {"hostnames": hosts, "errors": errors, "warnings": warnings, "planes": planes}
        self.keys["xplane"] = json.dumps(about).encode()

    def _lose(self, code: Code, message: str, offset: int, size: int) -> None:
        self._accounts["damaged parts"].add(lost=1)
        self._log.add(code, message, source_id=SOURCE_ID, byte_offset=offset, byte_count=size, event_count=1)

    def _kinds_of(self, plane: int) -> Kinds:
        if self._kinds is None or self._kinds[0] != plane:
            kinds = Kinds(self._space.planes[plane])
            self._counts.update(kinds.lost)
            self._kinds = plane, kinds
        return self._kinds[1]

    def _batches(self, events: Events) -> Iterator[TraceBatch]:
        events, found = self._kept(events)
        count = len(events.bounds)
        kinds = self._kinds_of(events.plane) if count else None
        if kinds is None:
            return
        ids = column(found, pb.METADATA_ID, count)
        kind, is_known = kinds.names.places(ids)
        times = self._times(events, found)
        bounds, owners = spans(found, pb.STATS)
        stats = read_stats(events.data, bounds, owners, kinds.stat_names)
        unknown = np.flatnonzero(~is_known)
        self._counts.update(
            {"unknown": stats.unknown + len(unknown), "damaged": stats.damaged, "not UTF-8": stats.strange}
        )
        if len(unknown):
            key = np.full(len(unknown), kinds.stat_names.key(KIND_ID))
            of_unknown = Stats(unknown, key, pa.array(ids[unknown]).cast(pa.string()))
            stats = joined(of_unknown, stats, kinds.stat_names)
        repeated = np.cumsum(kinds.sizes[kind])
        if repeated[-1] > _MOST_EXPANDED:
            limit = f"{_MOST_EXPANDED >> 20} MiB in a MiB of events"
            raise InputError(f"statistics of kinds of events that expand to more than {limit}")
        ends = np.flatnonzero(np.diff(repeated // _MOST_REPEATED, append=_MOST_EXPANDED)) + 1
        for first, last in zip([0, *ends.tolist()], ends.tolist(), strict=False):
            columns = self._columns(events, kinds, kind, times, stats, slice(first, last))
            start, stop = int(events.bounds[first, 0]), int(events.bounds[last - 1, 1])
            yield self._next_batch(columns, events.byte_offset + start, stop - start)

    def _kept(self, events: Events) -> tuple[Events, FieldTable]:
        """Return the events that are sound, and their fields."""
        found = walk(events.data, events.bounds)
        has_line = np.isin(events.lines, self._line_numbers)
        self._counts["too many lines"] += int(np.count_nonzero(~has_line))
        kept = found.sound & has_line
        if kept.all():
            return events, found
        for start, stop in events.bounds[~found.sound].tolist():
            self._lose(Code.DAMAGED_EVENT, "a malformed event", events.byte_offset + start, stop - start)
        events = replace(events, bounds=events.bounds[kept], lines=events.lines[kept])
        return events, walk(events.data, events.bounds)

    def _times(self, events: Events, found: FieldTable) -> tuple[pa.Array, pa.Array]:
        """Return starts and durations in ns. Both ends of an event are rounded, half to even: slices stay nested."""
        count = len(events.bounds)
        numbers, line = np.unique(events.lines, return_inverse=True)
        base = np.array([self._space.lines[number].start_ns for number in numbers.tolist()], np.int64)[line]
        offset, offset_ps = np.divmod(column(found, pb.OFFSET, count), _PS_PER_NS)
        dur, dur_ps = np.divmod(column(found, pb.DURATION, count), _PS_PER_NS)
        carry, end_ps = np.divmod(offset_ps + dur_ps, _PS_PER_NS)
        self._counts["fine"] += int(np.count_nonzero(offset_ps | dur_ps))
        start, is_beyond = _rounded(base, offset, offset_ps)
        end, ends_beyond = _rounded(base, offset + dur + carry, end_ps)
        length, is_longer = differences(end, start)
        # The sum of several occurrences has no start.
        own = np.isin(found.number, (pb.OFFSET, pb.OCCURRENCES)) & (found.kind == VARINT)
        is_sum = np.zeros(count, np.bool_)
        is_sum[found.row[own]] = found.number[own] == pb.OCCURRENCES
        ts = pa.array(np.where(is_beyond, _NO_TIME, start), mask=is_sum)
        return ts, pa.array(np.where(is_beyond | ends_beyond | is_longer, TOO_LONG, length))

    def _columns(
        self, events: Events, kinds: Kinds, kind: Int64, times: tuple[pa.Array, pa.Array], stats: Stats, part: slice
    ) -> EventColumns:
        count = part.stop - part.start
        kind = kind[part]
        own = slice(*np.searchsorted(stats.owners, (part.start, part.stop)).tolist())
        stats = Stats(stats.owners[own] - part.start, stats.keys[own], stats.texts[own])
        stats = joined(NO_STATS, stats, kinds.stat_names)  # the last of each name
        lines = pa.array(events.lines[part]).dictionary_encode()
        tids = [self._space.lines[number].tid for number in lines.dictionary.to_pylist()]
        phases = ["C" if self._space.lines[number].name == COUNTERS else "X" for number in lines.dictionary.to_pylist()]
        names = pa.array(kind).dictionary_encode()
        texts = [kinds.names.texts[place] for place in names.dictionary.to_pylist()]
        name = Coded(names.indices.to_numpy(), texts)
        for steps in (kinds.values(kind, "step_name"), stats):
            name = _named_by_steps(name, steps, kinds.stat_names)
        none = np.zeros(count, np.int32)
        labels = {
            "ph": Coded(lines.indices.to_numpy(), phases),
            "name": name,
            "pid": Coded(none, [self._space.planes[events.plane].pid]),
            "tid": Coded(lines.indices.to_numpy(), tids),
        }
        raw = {"ts": times[0][part], "dur": times[1][part]}
        if len(stats.owners) or kinds.sizes[kind].any():
            raw["args"] = objects(kinds.members_for(kind, stats), members(stats, kinds.stat_names, count))
        return EventColumns(count, labels, raw, None)

    def _report(self) -> None:
        counts = self._counts + self._space.losses
        for name, (code, message) in _LOSSES.items():
            self._log.count(code, message, counts[name], SOURCE_ID)
        if counts["too many lines"]:
            self._accounts["events of too many lines"].add(lost=counts["too many lines"])


_LOSSES = {
    "unknown": (Code.MISSING_TEXT, "events and statistics whose names are missing"),
    "damaged": (Code.DAMAGED_TEXT, "malformed statistics"),
    "metadata": (Code.DAMAGED_TEXT, "malformed names of events and statistics"),
    "not UTF-8": (Code.BAD_BYTES, "texts that are not UTF-8"),
    "text limit": (Code.TOO_MUCH_TEXT, f"more than {MAX_TEXT_BYTES >> 20} MiB of names"),
    "too many lines": (Code.TOO_LARGE, f"events of more than {MAX_LINES:,} lines"),
    "fine": (Code.FINE_TIME, "times finer than a nanosecond"),
    "large": (Code.NOT_READ, "large statistics, such as programs in HLO: not read"),
}


def _rounded(base_ns: Int64, ns: Int64, ps: Int64) -> tuple[Int64, Mask]:
    """Return base + ns, rounded by ps half to even, and where it is not a valid time."""
    floor, is_beyond = sums(base_ns, ns)
    is_up = (ps > _PS_PER_NS // 2) | ((ps == _PS_PER_NS // 2) & (floor & 1 == 1))
    total, is_beyond_too = sums(floor, is_up.astype(np.int64))
    return total, is_beyond | is_beyond_too


def _named_by_steps(names: Coded, stats: Stats, stat_names: StatNames) -> Coded:
    """Replace the name of each event that is a step of a device by the name of the step."""
    own = np.flatnonzero(stats.keys == stat_names.key("step_name"))
    if not len(own):
        return names
    steps = stats.texts.take(pa.array(own)).dictionary_encode()
    codes = names.codes.copy()
    codes[stats.owners[own]] = steps.indices.to_numpy() + len(names.distinct)
    return Coded(codes, [*names.distinct, *(str(json.loads(text)) for text in steps.dictionary.to_pylist())])
