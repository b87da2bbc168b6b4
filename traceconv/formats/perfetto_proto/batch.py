"""Rows of events in the making → one batch, as the normaliser of trace JSON takes them."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Raw

from traceconv.events.trace import (
    Coded,
    EventColumns,
    EventFlows,
    Extras,
    Label,
    NamedTrack,
    TraceBatch,
    TrackName,
    binary_column,
)
from traceconv.formats.common.columns import integers
from traceconv.formats.perfetto_proto.plain_rows import PlainRows
from traceconv.wire.protobuf import Int64


@dataclass(slots=True)
class Rows:
    """Columns that all events have are lists; what few have is kept by their place."""

    ph: list[str] = field(default_factory=list)
    name: list[str | None] = field(default_factory=list)
    cat: list[str | None] = field(default_factory=list)
    pid: list[Label] = field(default_factory=list)
    tid: list[Label | NamedTrack] = field(default_factory=list)
    ts: list[int | None] = field(default_factory=list)
    args: list[bytes] = field(default_factory=list)
    #: field of a number in ns (dur, tts, tdur) → place → value
    times: dict[str, dict[int, int]] = field(default_factory=dict)
    #: field of a text (s, bp, scope) → place → text
    labels: dict[str, dict[int, str]] = field(default_factory=dict)
    ids: dict[int, bytes] = field(default_factory=dict)
    extra: dict[int, dict[str, Raw]] = field(default_factory=dict)
    #: place, id, step (3: goes on, 4: ends)
    flows: list[tuple[int, int, int]] = field(default_factory=list)
    #: The packet that is being told, and that of each row.
    packet: int = 0
    packets: list[int] = field(default_factory=list)

    def add(
        self,
        ph: str,
        name: str | None,
        cat: str | None,
        pid: Label,
        tid: Label | NamedTrack,
        ts: int | None,
        args: bytes,
    ) -> int:
        """One more event; gives its place."""
        self.ph.append(ph)
        self.name.append(name)
        self.cat.append(cat)
        self.pid.append(pid)
        self.tid.append(tid)
        self.ts.append(ts)
        self.args.append(args)
        self.packets.append(self.packet)
        return len(self.ph) - 1

    def set_time(self, key: str, place: int, ns: int | None) -> None:
        """A time that few events have."""
        if ns is not None:
            self.times.setdefault(key, {})[place] = ns

    def set_label(self, key: str, place: int, text: str | None) -> None:
        """A text that few events have."""
        if text is not None:
            self.labels.setdefault(key, {})[place] = text


def make_batch(
    plain: PlainRows,
    rows: Rows,
    first_ordinal: int,
    byte_offset: int | None,
    byte_count: int | None,
    said: tuple[TrackName, ...],
) -> TraceBatch:
    """The rows of plain events and of all others, in the order of their packets, as a batch."""
    count = len(plain.packets) + len(rows.ph)
    order: Int64 | None = None
    if rows.ph:
        order = np.argsort(np.concatenate([plain.packets, np.array(rows.packets, np.int64)]), kind="stable")
    codes = dict(plain.codes)
    raw: dict[str, pa.Array] = {}
    ts = pa.array(plain.ts, mask=None if plain.timed.all() else ~plain.timed)
    args = plain.args
    if order is not None:
        for field, values in (
            ("ph", rows.ph),
            ("name", rows.name),
            ("cat", rows.cat),
            ("pid", rows.pid),
            ("tid", rows.tid),
            ("id", _sparse(rows.ids, len(rows.ph), b"")),
        ):
            codes[field] = np.concatenate([codes[field], plain.values[field].codes(values)])[order]
        ts = pa.concat_arrays([ts, integers(rows.ts)]).take(pa.array(order))
        if args is not None or any(rows.args):
            own = args if args is not None else binary_column([b""] * len(plain.packets))
            args = pa.concat_arrays([own, binary_column(rows.args)]).take(pa.array(order))
    raw["ts"] = ts
    labels: dict[str, SequenceOf[Any]] = {
        field: Coded(codes[field], plain.values[field].distinct) for field in ("ph", "name", "cat", "pid", "tid")
    }
    # Of the rows that say more: where they come to stand.
    place = np.zeros(count, np.int64)
    if order is not None:
        place[order] = np.arange(count)
    place = place[len(plain.packets) :]
    for key, texts in rows.labels.items():
        labels[key] = _sparse(_moved(texts, place), count, None)
    for key, times in rows.times.items():
        raw[key] = integers(_sparse(_moved(times, place), count, None))
    if args is not None:
        raw["args"] = args
    ids = plain.values["id"].distinct
    if len(ids) > 1:
        raw["id"] = pa.array(ids, pa.binary()).take(pa.array(codes["id"]))
    extra = Extras.made_of(_sparse(_moved(rows.extra, place), count, None)) if rows.extra else None
    return TraceBatch(
        first_ordinal,
        byte_offset,
        byte_count,
        EventColumns(count, labels, raw, extra, _flows(plain, rows, order)),
        (),
        said,
    )


def _flows(plain: PlainRows, rows: Rows, order: Int64 | None) -> EventFlows | None:
    places, keys, steps = plain.flows
    if rows.flows:
        own, ids, own_steps = zip(*rows.flows, strict=True)
        places = np.append(places, np.array(own, np.int64) + len(plain.packets))
        # Ids are unsigned; as keys only their equality counts.
        keys = np.append(keys, np.array(ids, np.uint64))
        steps = np.append(steps, np.array(own_steps, np.int32))
    if not len(places):
        return None
    if order is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        places = place[places]
        rising = np.argsort(places, kind="stable")
        places, keys, steps = places[rising], keys[rising], steps[rising]
    return EventFlows(places, keys.view(np.int64), steps, None, list(map(str, keys.tolist())))


def _moved(values: dict[int, Any], place: Int64) -> dict[int, Any]:
    return {int(place[at]): value for at, value in values.items()}


def _sparse(values: dict[int, Any], count: int, missing: Any) -> list[Any]:
    column = [missing] * count
    for place, value in values.items():
        column[place] = value
    return column
