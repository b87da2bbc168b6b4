"""Rows of NVTX_EVENTS → ranges, marks, and the names of domains and categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from traceconv.events.trace import Label, NamedTrack
from traceconv.formats.common.columns import json_objects
from traceconv.formats.nsys.database import Database, Row
from traceconv.formats.nsys.names import Names
from traceconv.formats.nsys.tables import NVTX

CATEGORY, MARK, THREAD, PUSH_POP, START_END, DOMAIN, END_DOMAIN = 33, 34, 39, 59, 60, 75, 76
_TORCH_PUSH_POP, _TORCH_START_END = 70, 71
#: Rows that name something and are not events.
NAMING = (CATEGORY, DOMAIN, END_DOMAIN, THREAD)
_FIRST = ("start", "end", "eventType", "globalTid", "text", "textId", "domainId", "category")


@dataclass(frozen=True, slots=True)
class Events:
    """Events of a table, as columns of one length."""

    phases: Sequence[str]
    names: Sequence[str]
    pids: Sequence[Label]
    tids: Sequence[Label | NamedTrack]
    starts: Sequence[Any]
    ends: Sequence[Any]
    args: pa.Array


class NvtxRanges:
    """Converts rows of the table to events. `columns`: those to read."""

    def __init__(self, db: Database, names: Names) -> None:
        self._names = names
        self._others = [name for name in db.columns(NVTX) if name not in _FIRST]
        self.columns = (*_FIRST, *self._others)
        self._domains: dict[tuple[int, Any], str] = {}
        self._categories: dict[tuple[int, Any, Any], str] = {}
        for rows in db.scan(NVTX, _FIRST):  # damage is reported when the events are read
            for row in rows:
                if row[2] == DOMAIN:
                    self._domains[self._process(row), row[6]] = self._text(row)
                elif row[2] == CATEGORY:
                    self._categories[self._process(row), row[6], row[7]] = self._text(row)

    def _process(self, row: Row) -> int:
        return self._names.process_index(row[3])

    def _text(self, row: Row) -> str:
        return row[4] if isinstance(row[4], str) else self._names.text(row[5]) or ""

    def events(self, rows: Sequence[Row]) -> Events:
        """The events of some rows; rows that only name a domain, a category or a thread are not events."""
        events: list[tuple[Any, ...]] = []
        args = []
        json_text = self._others.index("jsonTextId") if "jsonTextId" in self._others else None
        for row in rows:
            kind = row[2]
            if kind in NAMING:
                continue
            pid, tid = self._names.thread(row[3])
            domain = self._domains.get((self._process(row), row[6]))
            track: Label | NamedTrack = tid
            if kind in (START_END, _TORCH_START_END):
                # They may cross each other, and end on another thread.
                track = NamedTrack("async", domain or "NVTX ranges")
            is_range = kind in (PUSH_POP, START_END, _TORCH_PUSH_POP, _TORCH_START_END) or (kind is None and row[1])
            phase = "i" if not is_range else "B" if row[1] is None else "X"
            events.append((phase, self._text(row), pid, track, row[0], row[1] if is_range else None))
            category = self._categories.get((self._process(row), row[6], row[7]), row[7])
            others = list(row[len(_FIRST) :])
            if json_text is not None:
                others[json_text] = self._names.text(others[json_text])
            args.append((kind, row[6], domain, category, *others))
        keys = ("eventType", "domainId", "domain", "category", *self._others)
        found = json_objects(keys, list(zip(*args, strict=True)) or [()] * len(keys), len(args))
        phases, names, pids, tids, starts, ends = list(zip(*events, strict=True)) or [()] * 6
        return Events(phases, names, pids, tids, starts, ends, found)
