"""Rows of events in the making → one batch, as the normaliser of trace JSON takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Raw

from traceconv.json_events import (
    EventColumns,
    EventFlows,
    Label,
    NamedTrack,
    TraceBatch,
    TrackName,
    binary_column,
)
from traceconv.readers.columns import integers


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
        return len(self.ph) - 1

    def set_time(self, key: str, place: int, ns: int | None) -> None:
        """A time that few events have."""
        if ns is not None:
            self.times.setdefault(key, {})[place] = ns

    def set_label(self, key: str, place: int, text: str | None) -> None:
        """A text that few events have."""
        if text is not None:
            self.labels.setdefault(key, {})[place] = text

    def batch(
        self, first_ordinal: int, byte_offset: int | None, byte_count: int | None, said: tuple[TrackName, ...]
    ) -> TraceBatch:
        """All of it as a batch."""
        count = len(self.ph)
        labels: dict[str, Sequence[Any]] = {
            "ph": self.ph,
            "name": self.name,
            "cat": self.cat,
            "pid": self.pid,
            "tid": self.tid,
            **{key: _sparse(values, count, None) for key, values in self.labels.items()},
        }
        raw: dict[str, pa.Array] = {
            "ts": integers(self.ts),
            **{key: integers(_sparse(values, count, None)) for key, values in self.times.items()},
        }
        if any(self.args):
            raw["args"] = binary_column(self.args)
        if self.ids:
            raw["id"] = binary_column(_sparse(self.ids, count, b""))
        extra = _sparse(self.extra, count, None) if self.extra else None
        return TraceBatch(
            first_ordinal,
            byte_offset,
            byte_count,
            EventColumns(count, labels, raw, extra, self._event_flows()),
            (),
            said,
        )

    def _event_flows(self) -> EventFlows | None:
        if not self.flows:
            return None
        places, ids, steps = zip(*self.flows, strict=True)
        # Ids are unsigned; as keys only their equality counts.
        keys = np.array(ids, np.uint64).view(np.int64)
        return EventFlows(np.array(places, np.int64), keys, np.array(steps, np.int32), None, [str(one) for one in ids])


def _sparse(values: dict[int, Any], count: int, missing: Any) -> list[Any]:
    column = [missing] * count
    for place, value in values.items():
        column[place] = value
    return column
