"""Rows of NVTX_EVENTS → ranges, marks, and the names of domains and categories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.int64 import Mask
from traceconv.events.trace import Coded, NamedTrack, coded, combined
from traceconv.formats.common.columns import json_objects
from traceconv.formats.common.sqlite_database import Database
from traceconv.formats.common.sqlite_pages import Values
from traceconv.formats.common.sqlite_reader import Events, renamed, taken
from traceconv.formats.nsys.names import Names
from traceconv.formats.nsys.payloads import Payloads
from traceconv.formats.nsys.tables import NVTX

CATEGORY, MARK, THREAD, PUSH_POP, START_END, DOMAIN, END_DOMAIN = 33, 34, 39, 59, 60, 75, 76
_TORCH_PUSH_POP, _TORCH_START_END = 70, 71
_RANGES = (PUSH_POP, START_END, _TORCH_PUSH_POP, _TORCH_START_END)
#: Rows that name something and are not events.
NAMING = (CATEGORY, DOMAIN, END_DOMAIN, THREAD)
_PAYLOAD = "binaryData"
_FIRST = ("start", "end", "eventType", "globalTid", "text", "textId", "domainId", "category")


class NvtxRanges:
    """Converts rows of the table to events. `columns`: those to read."""

    def __init__(self, db: Database, names: Names) -> None:
        self._names = names
        self._others = [name for name in db.columns(NVTX) if name not in _FIRST]
        self.columns = (*_FIRST, *self._others)
        self._payloads = Payloads(names) if _PAYLOAD in self._others else None
        self._domains: dict[tuple[int, Any], str] = {}
        self._categories: dict[tuple[int, Any, Any], str] = {}
        for _, columns in db.columns_of(NVTX, _FIRST):  # damage is reported when the events are read
            kinds = coded(columns[2])
            naming = np.flatnonzero(kinds.mask(lambda kind: kind in (DOMAIN, CATEGORY)))
            if not len(naming):
                continue
            for kind, thread, text, text_id, domain, category in zip(
                *(coded(column).take(naming) for column in columns[2:8]), strict=True
            ):
                process, name = self._names.process_index(thread), self._text((text, text_id))
                if kind == DOMAIN:
                    self._domains[process, domain] = name
                else:
                    self._categories[process, domain, category] = name

    def _text(self, texts: tuple[Any, Any]) -> str:
        """The text of a row, from its columns text and textId."""
        return texts[0] if isinstance(texts[0], str) else self._names.text(texts[1]) or ""

    def events(self, columns: Sequence[Values]) -> Events:
        """The events of some rows; rows that only name a domain, a category or a thread are not events."""
        kinds = coded(columns[2])
        naming = kinds.mask(lambda kind: kind in NAMING)
        if naming.any():
            kept = np.flatnonzero(~naming)
            columns = [taken(column, kept) for column in columns]
            kinds = coded(columns[2])
        starts, ends = columns[:2]
        no_end, is_zero = _unknown_and_zero(ends)
        is_range = kinds.mask(lambda kind: kind in _RANGES)
        is_range |= kinds.mask(lambda kind: kind != MARK) & ~no_end & ~is_zero
        phases = renamed(coded(pa.array(np.where(~is_range, 0, np.where(no_end, 1, 2)))), "iBX".__getitem__)
        threads, domain_ids = coded(columns[3]), coded(columns[6])
        pids = renamed(threads, lambda thread: self._names.thread(thread)[0])
        tids = renamed(threads, lambda thread: self._names.thread(thread)[1])
        processes = renamed(threads, self._names.process_index)
        domains = renamed(combined([processes, domain_ids]), self._domains.get)
        own = combined([processes, domain_ids, coded(columns[7])])
        categories = renamed(own, lambda key: self._categories.get(key, key[2]))
        # These may cross each other, and end on another thread.
        is_async = Coded(kinds.mask(lambda kind: kind in (START_END, _TORCH_START_END)).astype(np.int32), [False, True])
        tracks = renamed(
            combined([is_async, domains, tids]),
            lambda key: NamedTrack("async", key[1] or "NVTX ranges") if key[0] else key[2],
        )
        names = renamed(combined([coded(columns[4]), coded(columns[5])]), self._text)
        others = [
            self._names.texts(column) if name == "jsonTextId" else column
            for name, column in zip(self._others, columns[len(_FIRST) :], strict=True)
        ]
        keys = ["eventType", "domainId", "domain", "category", *self._others]
        values = [columns[2], columns[6], domains, categories, *others]
        if self._payloads is not None:
            keys.append("payload")
            values.append(self._payloads.decoded(coded(others[self._others.index(_PAYLOAD)])))
        args = json_objects(keys, values, len(kinds))
        return Events(phases, names, pids, tracks, starts, _where(ends, is_range), args)


def _unknown_and_zero(column: Values) -> tuple[Mask, Mask]:
    if isinstance(column, pa.Array):
        return column.is_null().to_numpy(zero_copy_only=False), column.fill_null(1).to_numpy() == 0
    values = list(column)
    return np.array([one is None for one in values], np.bool_), np.array([not one for one in values], np.bool_)


def _where(column: Values, mask: Mask) -> Values:
    """The values of rows that satisfy a condition, NULL in others."""
    if isinstance(column, pa.Array):
        return pc.if_else(pa.array(mask), column, None)
    return [value if is_kept else None for value, is_kept in zip(column, mask.tolist(), strict=True)]
