"""First pass over a trace's events: compute times and tracks, spill rows, collect the spans to nest."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.workers import Workers
from traceconv.events.trace import Coded, TraceBatch
from traceconv.normalize.memory_budget import Budget
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.time_bounds import TimeBounds
from traceconv.normalize.trace import phases, spill
from traceconv.normalize.trace.args import arg_keys
from traceconv.normalize.trace.batch_flows import flows
from traceconv.normalize.trace.batch_markers import counters, metadata
from traceconv.normalize.trace.batch_slices import slices
from traceconv.normalize.trace.begin_end import POINT_DTYPE
from traceconv.normalize.trace.classify import RuleSet, identifying_words
from traceconv.normalize.trace.complete_nesting import SPAN_DTYPE
from traceconv.normalize.trace.event_batch import EventBatch
from traceconv.normalize.trace.metadata import time_places
from traceconv.normalize.trace.slice_numbers import SliceNumbers
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.normalize.trace.times import US_PLACES, Times, exact_ns
from traceconv.normalize.trace.tracks import TraceTracks

if TYPE_CHECKING:
    from traceconv.normalize.trace.exact_times import ExactTimes

#: Each group of slices has a buffer of rows.
_MOST_GROUPS = 6


class FirstPass(TimeBounds):
    """Takes batches of events, and leaves everything that the second pass needs in its spilled rows and sorters."""

    def __init__(
        self, log: ImportLog, accounts: Accounts, source_id: int, id_bits: int, rule_sets: tuple[RuleSet, ...]
    ) -> None:
        """`rule_sets`: tried in this order."""
        super().__init__()
        self.log = log
        self.accounts = accounts
        self.first_id = source_id << id_bits
        self.rule_sets = rule_sets
        #: Before a rule set is chosen, those of all.
        self.instants = frozenset(chain.from_iterable(rules.instants for rules in rule_sets))
        self.unfinished = frozenset(chain.from_iterable(rules.unfinished for rules in rule_sets))
        self.sides = {category: side for rules in rule_sets for category, side in rules.sides.items()}
        #: Bounds the state that both passes carry from batch to batch.
        self.budget = Budget()
        #: Writes what is spilled, a seventh of the work of this pass.
        self._writer = Workers(1, "traceconv-spill")
        self.tracks = TraceTracks(self.budget, self._writer)
        self.slices = SpilledRows(spill.SLICE_SCHEMA, self._writer)
        self.slice_numbers = SliceNumbers()
        self.ends = SpilledRows(spill.END_SCHEMA, self._writer)
        self.markers = SpilledRows(spill.MARKER_SCHEMA, self._writer)
        self.counters = SpilledRows(spill.COUNTER_SCHEMA, self._writer)
        self.flows = SpilledRows(spill.FLOW_SCHEMA, self._writer)
        self._spilled = (self.slices, self.ends, self.markers, self.counters, self.flows)
        self.spans = ExternalSort(SPAN_DTYPE, "start_ns", workers=self._writer)
        self.points = ExternalSort(POINT_DTYPE, "ts_ns", workers=self._writer)
        #: Categories of events, as far as rule sets are chosen by them.
        self.categories: set[str] = set()
        #: Flow events that are also markers, by ph.
        self.flow_markers: dict[str, int] = {}
        #: Whether the args of a begin and its end are merged in depth.
        self.merges_in_depth = False
        #: Whether an end of a slice names a flow.
        self.has_flow_ends = False
        #: Keys in the args of the first events.
        self.arg_keys: set[str] = set()
        #: The unit of times, as decimal places above the nanosecond.
        self.time_places = US_PLACES
        #: Of files whose args have exact times.
        self.exact_times: ExactTimes | None = None
        self.kinds = phases.Kinds()
        #: Slices of the first few categories are spilled in groups: most categories go to one table.
        self._groups: dict[str | None, int] = {}
        self._precomputed: dict[int, dict[str, Times]] = {}

    def close(self) -> None:
        """Free the disk space."""
        self._writer.shutdown(cancel_futures=True)
        for part in (*self._spilled, self.spans, self.points, self.tracks):
            part.close()

    def precompute_times(self, batch: TraceBatch) -> None:
        """Parse the times of a batch before it is taken, in any thread. Not before the first batch was taken."""
        raw = batch.columns.raw
        self._precomputed[batch.first_ordinal] = {
            field: exact_ns(raw[field], self.time_places) for field in ("ts", "dur") if field in raw
        }

    def precomputed(self, batch: TraceBatch) -> dict[str, Times]:
        """Return the precomputed times of a batch, once; empty if there are none."""
        return self._precomputed.pop(batch.first_ordinal, {})

    def take(self, batch: TraceBatch) -> None:
        """Take the next events."""
        if batch.first_ordinal == 0:
            self.time_places = time_places(batch.columns)
            self.arg_keys = arg_keys(batch.columns.raw.get("args"))
            self._find_exact_times()
        self.merges_in_depth |= batch.columns.merges_in_depth
        for track in batch.names:
            self.tracks.describe(track)
        events = EventBatch(self, batch)
        of_flows = batch.columns.flows.category if batch.columns.flows is not None else None
        named = of_flows.distinct if isinstance(of_flows, Coded) else [of_flows]
        categories = (category for category in chain(events.categories.distinct, named) if category is not None)
        self.categories = identifying_words(chain(self.categories, categories), "categories", self.rule_sets)
        events.drop_unusable()
        metadata(events)
        slices(events)
        counters(events)
        flows(events)

    def _find_exact_times(self) -> None:
        for keys in (rules.time_args for rules in self.rule_sets):
            if keys is not None and self.arg_keys.issuperset(keys):
                from traceconv.normalize.trace.exact_times import ExactTimes  # few files have them

                self.exact_times = ExactTimes(keys)
                return

    def end(self) -> None:
        """Finish writing what was spilled."""
        for rows in self._spilled:
            rows.end()
        self.slice_numbers.end()
        self.tracks.asyncs.end()

    def group_of(self, category: str | None) -> int:
        """Return the number of the group in which slices of a category are spilled."""
        last = _MOST_GROUPS - 1
        found = self._groups.get(category, last)
        if found == last and len(self._groups) < last:
            found = self._groups[category] = len(self._groups)
        return found
