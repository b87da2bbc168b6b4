"""Collects the rows of events in a batch for the normalizer of trace JSON."""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Raw

from traceconv.base.arrays import NDArray
from traceconv.base.errors import InputError
from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded, EventColumns, EventFlows, Extras, Label, NamedTrack, TraceBatch, TrackName

PH = {1: "B", 2: "E", 3: "i", 4: "C"}
#: Limit of the characters of interned texts in all args of a window.
MAX_SHARED = 256 << 20
#: A byte of the trace may become \u0000 and a comma.
_LARGEST_ESCAPE = 8
_LABELS = ("ph", "name", "cat", "pid", "tid", "id")
#: Row and Flow of native/track_events.c. A row's args end at `args_end`, and begin at that of the row before.
_ROW = np.dtype([("ts", "<i8"), ("args_end", "<i8"), ("packet", "<i4"), *((name, "<i4") for name in _LABELS),
                 ("timed", "<i4")])  # fmt: skip
_FLOW = np.dtype([("place", "<i8"), ("key", "<u8"), ("step", "<i8")])
#: A flow of GPU work; `kind`: its category.
_LINK = np.dtype([("place", "<i8"), ("number", "<u8"), ("step", "<i4"), ("kind", "<i4")])
_PACK_ROW = struct.Struct("<qq8i").pack
#: An odd number, by which a multiplication of 64 bits is a permutation.
_SPREAD = 0x9E37_79B9_7F4A_7C15
#: Time of native/track_events.c.
_TIME = np.dtype([("place", "<i8"), ("ns", "<i8")])
_PACK_FLOW = struct.Struct("<qQq").pack
_PACK_LINK = struct.Struct("<qQii").pack
#: Categories of flows by kind: from a call to what it launched, and between stages that waited for each other.
LAUNCH, WAIT = 1, 2
LINKS = [None, "gpu_launch", "gpu_wait"]
_PACK_TIME = struct.Struct("<qq").pack


class Coder:
    """Numbers distinct values in the order of their first use."""

    def __init__(self, values: Iterable[Hashable]) -> None:
        self.distinct: list[Any] = []
        self.known: dict[Hashable, int] = {}
        for value in values:
            self.code(value)

    def code(self, value: Hashable) -> int:
        """Return the number of a value."""
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = len(self.distinct)
            self.distinct.append(value)
        return found


class TrackCodes(dict[int, tuple[int, ...]]):
    """Codes of a track's labels, found on first use."""

    def __init__(self, find: Callable[[int], tuple[int, ...]]) -> None:
        self._find = find

    def __missing__(self, track: int) -> tuple[int, ...]:
        found = self[track] = self._find(track)
        return found


@dataclass(slots=True)
class Rows:
    """Columns that all events have are in `rows`; values that few have are kept by row.

    rows, args, flows, times  appended to by `native.track_events` too
    most_args                 limit of the bytes of all args
    """

    most_args: int
    rows: bytearray = field(default_factory=bytearray)
    args: bytearray = field(default_factory=bytearray)
    flows: bytearray = field(default_factory=bytearray)
    links: bytearray = field(default_factory=bytearray)
    #: Values of the labels by code; code 0 is none, except for ph.
    ph: Coder = field(default_factory=lambda: Coder(PH.values()))
    name: Coder = field(default_factory=lambda: Coder([None]))
    cat: Coder = field(default_factory=lambda: Coder([None]))
    pid: Coder = field(default_factory=lambda: Coder([None]))
    tid: Coder = field(default_factory=lambda: Coder([None]))
    id: Coder = field(default_factory=lambda: Coder([b""]))
    #: field of a number in ns → its values, by place
    times: dict[str, bytearray] = field(default_factory=lambda: {key: bytearray() for key in ("dur", "tts", "tdur")})
    #: field of a text (s, bp, scope) → place → text
    labels: dict[str, dict[int, str]] = field(default_factory=dict)
    extra: dict[int, dict[str, Raw]] = field(default_factory=dict)
    #: The packet of the events being added, in the window and in the trace.
    packet: int = 0
    position: int = 0

    def __len__(self) -> int:
        return len(self.rows) // _ROW.itemsize

    def has_track(self, tid: NamedTrack) -> bool:
        """Return whether any row is on a track."""
        code = self.tid.known.get(tid)
        return code is not None and bool((np.frombuffer(self.rows, _ROW)["tid"] == code).any())

    def first_named(self, tracks: Container[NamedTrack]) -> Iterator[tuple[NamedTrack, int, int, str]]:
        """Yield time, packet and name of the first event with a name of each of these tracks."""
        asked = [code for code, tid in enumerate(self.tid.distinct) if isinstance(tid, NamedTrack) and tid in tracks]
        rows = np.frombuffer(self.rows, _ROW)
        if asked and len(rows):
            own = rows[np.isin(rows["tid"], asked) & (rows["name"] > 0)]
            own = own[np.lexsort((own["packet"], own["ts"]))]
            for place in np.unique(own["tid"], return_index=True)[1].tolist():
                row = own[place]
                yield self.tid.distinct[row["tid"]], int(row["ts"]), int(row["packet"]), self.name.distinct[row["name"]]

    @staticmethod
    def most_args_of(window_bytes: int) -> int:
        """Limit for a window: an interned text is in the file once, but may be in the args of every event."""
        return min(MAX_SHARED + _LARGEST_ESCAPE * window_bytes, (1 << 31) - 1)

    def add(
        self,
        ph: str,
        name: str | None,
        cat: str | None,
        pid: Label,
        tid: Label | NamedTrack,
        ts: int | None,
        args: str = "",
        id: bytes = b"",
    ) -> int:
        """Add an event and return its place. Raises InputError if all args are too large."""
        place = len(self)
        self.args += args.encode()
        if len(self.args) > self.most_args:
            raise InputError(f"interned texts that expand to more than {MAX_SHARED >> 20} MiB in a MiB of packets")
        codes = (self.ph.code(ph), self.name.code(name), self.cat.code(cat), self.pid.code(pid), self.tid.code(tid))
        timed = ts is not None and -(1 << 63) <= ts < 1 << 63
        self.rows += _PACK_ROW(
            ts if ts is not None and timed else 0, len(self.args), self.packet, *codes, self.id.code(id), timed
        )
        return place

    def add_flows(self, place: int, keys: Sequence[int], step: int) -> None:
        """Add flows of an event. `step`: 3 continues, 4 ends."""
        for key in keys:
            self.flows += _PACK_FLOW(place, key, step)

    def link(self, place: int, number: int, kind: int, *, is_end: bool) -> None:
        """Begin or end the flow of a kind with a number: one begin may have several ends."""
        self.links += _PACK_LINK(place, number, 2 if is_end else 0, kind)

    def set_time(self, key: str, place: int, ns: int | None) -> None:
        """Set a time that few events have; one that does not fit 64 bits is unknown."""
        if ns is not None and -(1 << 63) <= ns < 1 << 63:
            self.times[key] += _PACK_TIME(place, ns)

    def set_label(self, key: str, place: int, text: str | None) -> None:
        """Set a text that few events have."""
        if text is not None:
            self.labels.setdefault(key, {})[place] = text

    def batch(
        self, first_ordinal: int, byte_offset: int | None, byte_count: int | None, names: tuple[TrackName, ...]
    ) -> TraceBatch:
        """Return all rows in the order of their packets."""
        rows = np.frombuffer(self.rows, _ROW)
        count = len(rows)
        packets = rows["packet"]
        # Numbers of 16 bits are sorted in one pass.
        short = count > 0 and int(packets.max()) < 1 << 16
        order = np.argsort(packets.astype(np.uint16) if short else packets, kind="stable")
        place = np.empty(count, np.int64)
        place[order] = np.arange(count)
        labels: dict[str, Sequence[Any]] = {
            label: Coded(rows[label][order], getattr(self, label).distinct) for label in _LABELS if label != "id"
        }
        raw = {"ts": pa.array(rows["ts"][order], mask=rows["timed"][order] == 0)}
        for key, texts in self.labels.items():
            labels[key] = _sparse(texts, place)
        for key, times in self.times.items():
            if times:
                of_rows = np.frombuffer(times, _TIME)
                ns, unknown = np.zeros(count, np.int64), np.ones(count, np.bool_)
                ns[place[of_rows["place"]]] = of_rows["ns"]
                unknown[place[of_rows["place"]]] = False
                raw[key] = pa.array(ns, mask=unknown)
        if self.args:
            ends = np.append(0, rows["args_end"]).astype(np.int32)
            parts = [None, pa.py_buffer(ends), pa.py_buffer(bytes(self.args))]
            raw["args"] = pa.Array.from_buffers(pa.binary(), count, parts, null_count=0).take(pa.array(order))
        if len(self.id.distinct) > 1:
            raw["id"] = pa.array(self.id.distinct, pa.binary()).take(pa.array(rows["id"][order]))
        extra = Extras.of_events(_sparse(self.extra, place)) if self.extra else None
        flows = self._flows(place)
        columns = EventColumns(count, labels, raw, extra, flows, merges_in_depth=True, pairs_neighbors=False)
        return TraceBatch(first_ordinal, byte_offset, byte_count, columns, (), names)

    def _flows(self, place: Int64) -> EventFlows | None:
        flows: NDArray[Any] = np.frombuffer(self.flows, _FLOW)
        links: NDArray[Any] = np.frombuffer(self.links, _LINK)
        if not len(flows) + len(links):
            return None
        places = np.concatenate([place[flows["place"]], place[links["place"]]])
        rising = np.argsort(places, kind="stable")
        numbers = np.concatenate([flows["key"], links["number"]])[rising]
        steps = np.concatenate([flows["step"], links["step"]])[rising].astype(np.int32)
        kinds = np.concatenate([np.zeros(len(flows), np.int32), links["kind"]])[rising]
        # IDs are unsigned, but only their equality matters; those of links must differ from those of other kinds.
        keys = np.where(
            kinds > 0, (numbers ^ np.uint64(_SPREAD)) * np.uint64(_SPREAD) + kinds.astype(np.uint64), numbers
        )
        category = Coded(kinds, LINKS) if len(links) else None
        return EventFlows(places[rising], keys.view(np.int64), steps, category, list(map(str, numbers.tolist())))


def _sparse(values: dict[int, Any], place: Int64) -> list[Any]:
    column: list[Any] = [None] * len(place)
    for at, value in values.items():
        column[place[at]] = value
    return column
