"""First pass over the events of a trace: times exact, tracks known, rows put aside, spans handed to be nested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.events.trace import TraceBatch
from traceconv.normalize.carried import Budget, NumberedRows
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.args import arg_keys
from traceconv.normalize.trace.batch_flows import flows
from traceconv.normalize.trace.batch_markers import counters, metadata
from traceconv.normalize.trace.batch_slices import slices
from traceconv.normalize.trace.begin_end import POINT_DTYPE
from traceconv.normalize.trace.complete_nesting import SPAN_DTYPE
from traceconv.normalize.trace.event_batch import EventBatch
from traceconv.normalize.trace.metadata import time_places
from traceconv.normalize.trace.spill import (
    COUNTER_SCHEMA,
    END_SCHEMA,
    FLOW_SCHEMA,
    MARKER_SCHEMA,
    SLICE_SCHEMA,
    Lane,
)
from traceconv.normalize.trace.times import US_PLACES, Times, exact_ns
from traceconv.normalize.trace.tracks import TraceTracks

Int64 = NDArray[np.int64]
#: Each group of slices has rows that wait to be written.
_MOST_GROUPS = 6
#: Tracks with a quick look-up; the others are found by what makes them.
_MOST_CACHED = 1 << 15


@dataclass(slots=True)
class Category:
    """A category that events have."""

    category_id: int
    category: str


class FirstPass:
    """Takes batches; then its lanes and sorters have all that the second pass needs."""

    def __init__(self, log: ImportLog, accounts: Accounts, source_id: int, id_bits: int) -> None:
        self.log = log
        self.accounts = accounts
        self.first_id = source_id << id_bits
        #: Bounds what both passes carry from batch to batch.
        self.budget = Budget()
        self.tracks = TraceTracks(self.budget)
        self.slices = Lane(SLICE_SCHEMA)
        self.slice_count = 0
        self.ends = Lane(END_SCHEMA)
        self.markers = Lane(MARKER_SCHEMA)
        self.counters = Lane(COUNTER_SCHEMA)
        self.flows = Lane(FLOW_SCHEMA)
        self.spans = ExternalSort(SPAN_DTYPE, "start_ns")
        self.points = ExternalSort(POINT_DTYPE, "ts_ns")
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self._categories = NumberedRows(self.budget, "category", Category)
        #: Per ph, the flow events that are markers too.
        self.flow_markers: dict[str, int] = {}
        #: Keys in the args of the first events.
        self.arg_keys: set[str] = set()
        #: The unit of times: so many decimal places above the nanosecond.
        self.time_places = US_PLACES
        self.kinds = phases.Kinds()
        #: Slices of a category are put aside together, as far as there are few: mostly they go to one table.
        self._groups: dict[str | None, int] = {}
        self._threads: dict[tuple[object, object], int] = {}
        self._asyncs: dict[tuple[object, ...], int] = {}
        self._foreseen: dict[int, dict[str, Times]] = {}

    def close(self) -> None:
        """Frees the disk space."""
        for lane in (self.slices, self.ends, self.markers, self.counters, self.flows):
            lane.close()
        self.spans.close()
        self.points.close()
        self.tracks.close()

    def foresee(self, batch: TraceBatch) -> None:
        """Reads the times of a batch that will be taken, in whatever thread; none before the first batch is taken."""
        raw = batch.columns.raw
        self._foreseen[batch.first_ordinal] = {
            field: exact_ns(raw[field], self.time_places) for field in ("ts", "dur") if field in raw
        }

    def foreseen(self, batch: TraceBatch) -> dict[str, Times]:
        """What `foresee` found, which is asked for once; nothing where it was not called."""
        return self._foreseen.pop(batch.first_ordinal, {})

    def take(self, batch: TraceBatch) -> None:
        """Takes the next events."""
        if batch.first_ordinal == 0:
            self.time_places = time_places(batch.columns)
            self.arg_keys = arg_keys(batch.columns.raw.get("args"))
        for track in batch.names:
            self.tracks.describe(track)
        events = EventBatch(self, batch)
        events.drop_unusable()
        metadata(events)
        slices(events)
        counters(events)
        flows(events)

    def end(self) -> None:
        """No more events come."""
        for lane in (self.slices, self.ends, self.markers, self.counters, self.flows):
            lane.end()

    def note_times(self, *times: Int64) -> None:
        """Widens the run's bounds to hold `times`."""
        for ns in times:
            if len(ns):
                low, high = int(ns.min()), int(ns.max())
                self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
                self.last_ns = high if self.last_ns is None else max(self.last_ns, high)

    def group_of(self, category: str | None) -> int:
        """The number of the group of slices that those of a category are put aside in."""
        last = _MOST_GROUPS - 1
        found = self._groups.get(category, last)
        if found == last and len(self._groups) < last:
            found = self._groups[category] = len(self._groups)
        return found

    def note_categories(self, categories: Iterable[str | None]) -> None:
        """Keeps categories of events, each once."""
        for category in categories:
            if category is not None:
                self._categories.number((category,), category)

    def categories(self) -> Iterator[str]:
        """All categories that were noted."""
        return (row.category for rows in self._categories.rows() for row in rows)

    def thread(self, pid: object, tid: object) -> int:
        """The track of a thread, quickly."""
        key = (pid, tid)
        found = self._threads.get(key)
        if found is None:
            if len(self._threads) == _MOST_CACHED:
                self._threads.clear()
            found = self._threads[key] = self.tracks.thread_of(pid, tid)  # type: ignore[arg-type] # as decoded
        return found

    def async_track(self, pid: object, category: object, id_text: str, scope: object, name: object) -> int:
        """The track of an asynchronous sequence, quickly."""
        key = (pid, category, id_text, scope)
        found = self._asyncs.get(key)
        if found is None:
            if len(self._asyncs) == _MOST_CACHED:
                self._asyncs.clear()
            found = self.tracks.async_of(pid, category, id_text, scope, name)  # type: ignore[arg-type] # as decoded
            self._asyncs[key] = found
        return found
