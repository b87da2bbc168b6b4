"""What the fields of an XSpace other than events say: names of planes, lines, kinds of events, and statistics.

In the file, they may follow the events that need them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.errors import InputError
from traceconv.base.int64 import Int64
from traceconv.events.trace import TrackName
from traceconv.formats.xplane import field_numbers as pb
from traceconv.formats.xplane.framing import LINE, PLANE, SPACE, Run, Value
from traceconv.formats.xplane.stats import (
    LONG_NAME,
    StatNames,
    Stats,
    Texts,
    column,
    decoded,
    joined,
    members,
    read_stats,
    spans,
)
from traceconv.wire.protobuf import signed, walk

#: Fields that are read here even if they are large.
WANTED = frozenset(
    (
        *((SPACE, number) for number in (pb.ERRORS, pb.WARNINGS, pb.HOSTNAMES)),
        *((PLANE, number) for number in (pb.PLANE_NAME, pb.EVENT_METADATA, pb.STAT_METADATA, pb.PLANE_STATS)),
        *((LINE, number) for number in (pb.LINE_NAME, pb.DISPLAY_NAME)),
    )
)
#: Limits of all planes: bytes of names and of statistics of kinds of events, planes, and lines.
MAX_TEXT_BYTES = 256 << 20
_MOST_PLANES = 1 << 14
MAX_LINES = 1 << 20
#: Larger statistics of planes and kinds of events, such as programs, are not read.
_MAX_STAT_BYTES = 64 << 10
#: Statistics of kinds in a batch for events that have one of them themselves.
_MOST_REPLACED = 1 << 22
#: Planes that are parts of one process, as JAX joins them; and the numbers of processes in JAX's trace JSON.
HOST = "/host:CPU"
_HOST_PARTS = frozenset((HOST, "/host:CUPTI", "/host:ROCTRACER", "/host:python-tracer", "/host:TPU-runtime"))
#: The line of a plane whose events are samples of counters.
COUNTERS = "_counters_"
_DEVICES = ("/device:GPU:", "/device:TPU:")
_HOST_PID, _FIRST_DEVICE, _FIRST_OTHER = 701, 1, 501


@dataclass(slots=True)
class Line:
    """A line of a plane."""

    plane: int
    id: int = 0
    name: str = ""
    start_ns: int = 0
    shown_id: int = 0
    shown_name: str = ""
    has_events: bool = False

    @property
    def tid(self) -> int:
        return self.shown_id or self.id


@dataclass(slots=True)
class Plane:
    """A plane. `stats`: those of kinds of events, each with the ID of its kind; `own_stats`: those of the plane."""

    id: int = 0
    name: str = ""
    pid: int = 0
    event_names: dict[int, str] = field(default_factory=dict)
    shown_names: dict[int, str] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: list[tuple[int, bytes]] = field(default_factory=list)
    own_stats: list[bytes] = field(default_factory=list)


class Kinds:
    """The kinds of events of a plane.

    names       their names, by ID
    stat_names  names of statistics, by ID
    stats       statistics that all events of a kind have, by the place of the kind in `names`
    firsts      of each kind: the place of its first statistic, and one more for the end
    members     of each kind: its statistics as the members of a JSON object
    sizes       of each kind: bytes of its members
    """

    def __init__(self, plane: Plane) -> None:
        long_names = {one: plane.event_names[one] for one, shown in plane.shown_names.items() if shown}
        self.names = Texts({**plane.event_names, **{one: plane.shown_names[one] for one in long_names}}, None)
        self.stat_names = StatNames(plane.stat_names)
        owners, _ = self.names.places(np.array([owner for owner, _ in plane.stats], np.int64))
        own = _all_stats([data for _, data in plane.stats], owners, self.stat_names)
        owners, _ = self.names.places(np.array(sorted(long_names), np.int64))
        keys = np.full(len(owners), self.stat_names.key(LONG_NAME))
        texts = [json.dumps(long_names[one], ensure_ascii=False) for one in sorted(long_names)]
        self.stats = joined(Stats(owners, keys, pa.array(texts, pa.string())), own, self.stat_names)
        count = len(self.names.texts)
        self.firsts = np.searchsorted(self.stats.owners, np.arange(count + 1))
        self.members = members(self.stats, self.stat_names, count)
        self.sizes = pc.binary_length(self.members).to_numpy().astype(np.int64)
        self.lost = {"unknown": own.unknown, "damaged": own.damaged, "not UTF-8": own.strange}

    def members_for(self, kinds: Int64, own: Stats) -> pa.Array:
        """Return the members for events of these kinds, without those that the events' own statistics replace."""
        found = self.members.take(pa.array(kinds))
        width = len(self.stat_names.texts)
        is_replacing = np.isin(kinds[own.owners] * width + own.keys, self.stats.owners * width + self.stats.keys)
        if not is_replacing.any():
            return found
        rows, replaced = np.unique(own.owners[is_replacing], return_inverse=True)
        stats = self._repeated(kinds[rows])
        kept = ~np.isin(stats.owners * width + stats.keys, replaced * width + own.keys[is_replacing])
        left = Stats(stats.owners[kept], stats.keys[kept], stats.texts.filter(pa.array(kept)))
        is_other = np.zeros(len(kinds), np.bool_)
        is_other[rows] = True
        return pc.replace_with_mask(found, pa.array(is_other), members(left, self.stat_names, len(rows)))

    def values(self, kinds: Int64, name: str) -> Stats:
        """Return the statistics with this name that events of these kinds have from their kinds."""
        places = np.full(len(self.names.texts), -1)
        own = np.flatnonzero(self.stats.keys == self.stat_names.key(name))
        places[self.stats.owners[own]] = own
        rows = np.flatnonzero(places[kinds] >= 0)
        places = places[kinds[rows]]
        return Stats(rows, self.stats.keys[places], self.stats.texts.take(pa.array(places)))

    def _repeated(self, kinds: Int64) -> Stats:
        """Return the statistics of these kinds for events that have them, one after the other."""
        firsts = self.firsts[kinds]
        sizes = self.firsts[kinds + 1] - firsts
        if sizes.sum() > _MOST_REPLACED:
            raise InputError(f"events that replace one of more than {_MOST_REPLACED:,} statistics of their kinds")
        owners = np.repeat(np.arange(len(kinds)), sizes)
        places = np.arange(len(owners)) + np.repeat(firsts - np.cumsum(sizes) + sizes, sizes)
        return Stats(owners, self.stats.keys[places], self.stats.texts.take(pa.array(places)))


class Space:
    """The planes and lines of a space, by their numbers in the file; texts of the space, by field; counts of losses."""

    def __init__(self) -> None:
        self.planes: dict[int, Plane] = {}
        self.lines: dict[int, Line] = {}
        self.texts: dict[int, list[str]] = {}
        self.losses: Counter[str] = Counter()
        self._text_bytes = 0

    def take(self, one: Run | Value) -> None:
        """Take the next fields."""
        if one.level == SPACE:
            if isinstance(one, Run) and (SPACE, one.number) in WANTED:
                self.texts.setdefault(one.number, []).extend(filter(None, self._texts(one.data, one.bounds)))
            return
        plane = self._plane(one.plane)
        if plane is None:
            return
        if one.level == LINE:
            self._take_line(one)
        elif isinstance(one, Value):
            if one.number == pb.PLANE_ID:
                plane.id = signed(one.value)
        elif one.number == pb.PLANE_NAME:
            plane.name = self._texts(one.data, one.bounds)[-1]
        elif one.number == pb.PLANE_STATS:
            plane.own_stats += (data for _, data in self._small(one.data, one.bounds, np.zeros(len(one.bounds), int)))
        elif one.number in (pb.EVENT_METADATA, pb.STAT_METADATA):
            self._take_metadata(plane, one)

    def _plane(self, number: int) -> Plane | None:
        if number not in self.planes and len(self.planes) < _MOST_PLANES:
            self.planes[number] = Plane()
        return self.planes.get(number)

    def _take_line(self, one: Run | Value) -> None:
        line = self.lines.get(one.line)
        if line is None:
            if len(self.lines) >= MAX_LINES:
                return
            line = self.lines[one.line] = Line(one.plane)
        if isinstance(one, Value):
            if one.number == pb.LINE_ID:
                line.id = signed(one.value)
            elif one.number == pb.DISPLAY_ID:
                line.shown_id = signed(one.value)
            elif one.number == pb.LINE_START:
                line.start_ns = signed(one.value)
        elif one.number == pb.EVENTS:
            line.has_events = True
        elif one.number == pb.LINE_NAME:
            line.name = self._texts(one.data, one.bounds)[-1]
        elif one.number == pb.DISPLAY_NAME:
            line.shown_name = self._texts(one.data, one.bounds)[-1]

    def _take_metadata(self, plane: Plane, run: Run) -> None:
        entries = walk(run.data, run.bounds)
        ids = column(entries, pb.KEY, len(run.bounds))
        bounds, of = spans(entries, pb.ENTRY)
        ids = ids[of]
        found = walk(run.data, bounds)
        self.losses["metadata"] += int(np.count_nonzero(~entries.sound) + np.count_nonzero(~found.sound))
        is_event = run.number == pb.EVENT_METADATA
        names = plane.event_names if is_event else plane.stat_names
        for one in ids[found.sound].tolist():
            names.setdefault(one, "")
        for number, by_id in ((pb.NAME, names), (pb.SHOWN_NAME, plane.shown_names)):
            if is_event or number == pb.NAME:
                bounds, of = spans(found, number)
                by_id.update(zip(ids[of].tolist(), self._texts(run.data, bounds), strict=True))
        if is_event:
            bounds, of = spans(found, pb.METADATA_STATS)
            plane.stats += self._small(run.data, bounds, ids[of])

    def _texts(self, data: bytes, bounds: Int64) -> list[str]:
        """Return texts; empty ones beyond the limit."""
        texts = []
        for start, end in bounds.tolist():
            self._text_bytes += end - start
            if self._text_bytes > MAX_TEXT_BYTES:
                self.losses["text limit"] += 1
                texts.append("")
                continue
            text, is_utf8 = decoded(data[start:end])
            self.losses["not UTF-8"] += not is_utf8
            texts.append(text)
        return texts

    def _small(self, data: bytes, bounds: Int64, owners: Int64) -> Iterator[tuple[int, bytes]]:
        """Yield statistics that are not too large, with their owners."""
        for owner, (start, end) in zip(owners.tolist(), bounds.tolist(), strict=True):
            if end - start > _MAX_STAT_BYTES:
                self.losses["large"] += 1
            elif self._text_bytes + end - start > MAX_TEXT_BYTES:
                self.losses["text limit"] += 1
            else:
                self._text_bytes += end - start
                yield owner, data[start:end]

    # -- after all fields --

    def number_processes(self) -> None:
        """Number the processes of planes with events, as JAX's trace JSON does."""
        with_events = {line.plane for line in self.lines.values() if line.has_events}
        pids = dict.fromkeys(_HOST_PARTS, _HOST_PID)
        used, others = {_HOST_PID}, 0
        for number in sorted(with_events):
            plane = self.planes[number]
            pid = pids.get(plane.name)
            if pid is None and plane.name.startswith(_DEVICES) and 0 <= plane.id < _FIRST_OTHER - _FIRST_DEVICE:
                pid = _FIRST_DEVICE + plane.id
            while pid is None or (plane.name not in pids and pid in used):
                pid, others = _FIRST_OTHER + others, others + 1
            pids[plane.name] = plane.pid = pid
            used.add(pid)

    def track_names(self) -> list[TrackName]:
        """Name the processes and threads that have events."""
        processes: dict[int, TrackName] = {}
        threads: dict[tuple[int, int], TrackName] = {}
        for number, line in sorted(self.lines.items()):
            if not line.has_events:
                continue
            plane = self.planes[line.plane]
            name = HOST if plane.pid == _HOST_PID else plane.name
            processes[plane.pid] = TrackName(plane.pid, None, name or None, plane.pid)
            threads[plane.pid, line.tid] = TrackName(plane.pid, line.tid, line.shown_name or line.name or None, number)
        return [*processes.values(), *threads.values()]

    def plane_stats(self) -> dict[str, dict[str, object]]:
        """Return the statistics of planes: name → key → value."""
        found: dict[str, dict[str, object]] = {}
        for plane in self.planes.values():
            if plane.own_stats:
                names = StatNames(plane.stat_names)
                own = _all_stats(plane.own_stats, np.zeros(len(plane.own_stats), np.int64), names)
                stats = members(joined(own, own, names), names, 1)[0].as_py()
                found[plane.name] = json.loads(f"{{{stats}}}")
        return found


def _all_stats(parts: list[bytes], owners: Int64, names: StatNames) -> Stats:
    ends = np.cumsum(np.array([0, *map(len, parts)], np.int64))
    order = np.argsort(owners, kind="stable")
    bounds = np.stack([ends[:-1], ends[1:]], axis=1)[order]
    return read_stats(b"".join(parts), bounds, owners[order], names)
