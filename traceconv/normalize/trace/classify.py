"""Find the writer of a trace, and the rule of each of its events (see rule_files)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Mask
from traceconv.events.items import Items
from traceconv.events.keys import values_at
from traceconv.normalize.trace.arg_columns import ArgColumns
from traceconv.normalize.trace.binary import codes_of
from traceconv.normalize.trace.column_builder import Values
from traceconv.normalize.trace.distinct import distinct_of

TABLES = ("task", "api", "range")
#: More words than this are reduced to those that patterns match.
_MANY_WORDS = 1 << 12
#: What makes a pattern match other words than itself.
_SPECIAL = frozenset(".^$*+?{}[]\\|()")
#: Tracks and categories whose rules are cached.
_MOST_CACHED = 1 << 15
#: Names whose rule is cached, for each combination of rules. A batch may add more.
_MOST_NAMES = 1 << 12


@dataclass(slots=True)
class Op:
    """An op, identified by its name and `OP_COLUMNS`."""

    op_id: int
    name: str | None
    op_type: str | None
    input_shapes: str | None
    input_dtypes: str | None
    input_formats: str | None
    output_shapes: str | None
    output_dtypes: str | None
    output_formats: str | None
    state: str | None


#: Columns that a rule may take from args for the op of a task.
OP_COLUMNS = tuple(column.name for column in fields(Op))[2:]


class Rule(NamedTuple):
    """One rule. None and empty: matches anything."""

    table: str
    categories: frozenset[str] | None = None
    process: re.Pattern[str] | None = None
    thread: re.Pattern[str] | None = None
    name: re.Pattern[str] | None = None
    set: Mapping[str, Any] = {}
    args: Mapping[str, tuple[str, ...]] = {}
    op: bool = False
    step: bool = False
    signature: str | None = None
    times: Mapping[str, tuple[str, ...]] = {}
    set_if_no_args: Mapping[str, Any] = {}
    launches: bool = False
    step_arg: str | None = None
    where: Mapping[str, re.Pattern[str]] = {}
    with_category: str | None = None

    @property
    def name_groups(self) -> frozenset[str]:
        """Columns taken from the event's name."""
        return frozenset(self.name.groupindex if self.name is not None else ()) - {"step"}

    @property
    def track_groups(self) -> frozenset[str]:
        """Columns taken from the names of process and thread. A step's model is not a column of its slice."""
        groups = {group for one in (self.process, self.thread) if one is not None for group in one.groupindex}
        return frozenset(groups - {"model_id"} if self.times else groups)

    def matches_track(self, category: str | None, process: str | None, thread: str | None) -> bool:
        """Whether the rule matches everything but the event's own name."""
        fits = self.categories is None or (category or "") in self.categories
        return fits and self.named(process, thread) is not None

    def fits(self, args: pa.Array) -> Mask:
        """Return which rows of `args` have the values that the rule requires."""
        found = np.ones(len(args), np.bool_)
        for key, values in ArgColumns({key: (key,) for key in self.where}, ()).read(args, None):
            assert isinstance(values, Values)  # not requested as a number
            texts = [one if isinstance(one, str) else json.dumps(one) for one in values.distinct]
            wanted = self.where[key]
            fits = [*(wanted.fullmatch(text) is not None for text in texts), not wanted.pattern]
            found &= np.array(fits)[values.codes]
        return found

    def named(self, process: str | None, thread: str | None) -> dict[str, str] | None:
        """Return the columns from the names of process and thread; None if they don't match."""
        found: dict[str, str] = {}
        for pattern, text in ((self.process, process), (self.thread, thread)):
            if pattern is None:
                continue
            match = pattern.fullmatch(text or "")
            if match is None:
                return None
            found.update({key: value for key, value in match.groupdict().items() if value is not None})
        return found


class MemoryMarkers(NamedTuple):
    """How a writer marks allocations and frees: the name of its instant events, and keys of their args.

    size_bytes   bytes, negative for a free
    device_id    the number of the device, or a place of Paddle, such as Place(gpu:0)
    device_type  0 is the host, which has no number, whatever `device_id` is; or a place of Paddle, such as Place(cpu)
    total_bytes  bytes allocated on the device afterwards

    The others are None if the trace doesn't have them:

    categories      of allocations and frees, separated by |; events of others only change reserved_bytes
    reserved_bytes  bytes in segments of the device's allocator afterwards
    kind            `segment` for memory that the allocator reserves
    is_before       true for memory that was allocated before the recording
    stream_id       the stream of the pool
    op_id           number of what allocated it; `ops` are instants that have its name in the arg `op_name`
    """

    name: str
    size_bytes: str
    address: str
    device_id: str
    device_type: str
    total_bytes: str
    categories: str | None = None
    reserved_bytes: str | None = None
    kind: str | None = None
    is_before: str | None = None
    stream_id: str | None = None
    op_id: str | None = None
    op_name: str | None = None
    ops: str | None = None


class StepEnds(NamedTuple):
    """How a writer marks the ends of steps: the name of its instants, and the name of the program's thread."""

    name: str
    thread: str


class TimeArgs(NamedTuple):
    """The args of complete events that contain their start and end in ns."""

    start_ns: str
    end_ns: str


class HostArg(NamedTuple):
    """An arg that contains the name of the host: its key, the table of its rows, and their name (None: any)."""

    table: str
    arg: str
    name: str | None = None


_BUFFERS = ("perfetto.buffers", "metadata.trace_processor_stats.traced_buf")
#: What Perfetto's buffers lost, in its own traces and in those that its tools convert to JSON, such as Chrome's.
_OVERFLOW_KEYS = tuple(
    f"{buffers}.{lost}"
    for buffers in _BUFFERS
    for lost in ("chunks_discarded", "chunks_overwritten", "trace_writer_packet_loss")
)
#: For slices without a rule.
DEFAULT = Rule("range", set={"kind": "annotation"})


@dataclass(frozen=True)
class RuleSet:
    """The rules for one writer.

    flow_chains   flow IDs are not reused: all points of an ID are one chain, including a second start
    launch_flows  matches categories of flows that lead from a call to the task that it launched
    instants      categories of complete events that are instants, whatever their duration
    unfinished    categories of complete events that last until the end of the recording if their arg `finished` is
                  false: their own end is unknown
    op_types      patterns of op names with a group `op_type`, for ops without a type
    step_ends     how instants mark the ends of steps
    hosts         args that contain the name of the host; the first that any row has is used
    launch_arg    arg that a task and the call that launched it share, for files whose calls have no correlation IDs
    event_limit   the writer omits the last complete events of JSON that has more than this number, or a multiple
    overflow_keys paths of keys outside the events, such as `about.overflow`: if a value is true, or a number above 0,
                  the writer dropped events
    sides         category → HOST or DEVICE: threads of the host and streams of devices may have the same pid and tid
    no_starts     the source has durations only: starts order its slices, and are not stored
    start_step_ns  starts are rounded down to multiples of it, while durations are exact
    time_args     args of complete events with their exact times, where `ts` and `dur` are whole microseconds
    items         where this writer's JSON documents, which are not traces, contain items, a table each
    """

    title: str
    priority: int
    detect: Mapping[str, tuple[str, ...]]
    rules: Sequence[Rule]
    device_kind: str | None = None
    flow_chains: bool = False
    launch_flows: re.Pattern[str] | None = None
    memory: MemoryMarkers | None = None
    op_types: tuple[re.Pattern[str], ...] = ()
    items: tuple[Items, ...] = ()
    hosts: tuple[HostArg, ...] = ()
    step_ends: StepEnds | None = None
    instants: frozenset[str] = frozenset()
    unfinished: frozenset[str] = frozenset()
    event_limit: int | None = None
    launch_arg: str | None = None
    overflow_keys: tuple[str, ...] = ()
    sides: Mapping[str, int] = field(default_factory=dict)
    no_starts: bool = False
    start_step_ns: int = 1
    time_args: TimeArgs | None = None

    def missing_events(self, complete_events: int, keys: Mapping[str, bytes]) -> str | None:
        """Return what is missing if the writer dropped events, or kept as many complete events as it ever does.

        complete_events  0 for formats that keep all
        keys             the file's other keys
        """
        for path in (*_OVERFLOW_KEYS, *self.overflow_keys):
            if any(isinstance(value, int) and value > 0 for value in values_at(keys, path)):
                return f"the writer dropped events because its buffer was full ({path})"
        if self.event_limit is None or not complete_events or complete_events % self.event_limit:
            return None
        return f"{complete_events:,} complete events, a limit of the writer: later ones are missing"

    @cached_property
    def filled_columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each table that these rules, or DEFAULT, fill."""
        found: dict[str, set[str]] = {table: set() for table in TABLES}
        found["task"].update(OP_COLUMNS)
        for rule in (*self.rules, DEFAULT):
            own = found[rule.table]
            own |= (
                rule.set.keys() | rule.set_if_no_args.keys() | rule.args.keys() | rule.track_groups | rule.name_groups
            )
            if "name" in rule.name_groups and rule.table == "api":
                own.add("source_name")
            if rule.table == "task":
                own.add("kind_source")
        return {table: tuple(sorted(columns)) for table, columns in found.items()}

    def type_in(self, name: str) -> str:
        """Return the type of an op by its name."""
        for pattern in self.op_types:
            match = pattern.fullmatch(name)
            if match is not None and match["op_type"]:
                return match["op_type"]
        return name

    def knows(self, words: Mapping[str, Iterable[str]]) -> bool:
        """Whether a trace with these words is this writer's: `keys` next to its events, `categories` …"""
        return any(
            _matches(pattern, word)
            for what, patterns in self.detect.items()
            for pattern in patterns
            for word in words.get(what, ())
        )


@lru_cache(4096)  # the files of a folder often have the same words
def _matches(pattern: str, word: str) -> bool:
    return re.fullmatch(pattern, word) is not None


#: For unknown writers.
PLAIN = RuleSet("", 1000, {}, ())


def rules_of(words: Mapping[str, Iterable[str]], rule_sets: Iterable[RuleSet]) -> RuleSet:
    """Return the first rules that know a trace with these words (see RuleSet.knows), or PLAIN."""
    return next((rules for rules in rule_sets if rules.knows(words)), PLAIN)


def identifying_words(words: Iterable[str], what: str, rule_sets: Iterable[RuleSet]) -> set[str]:
    """Return the words of a kind that choose a rule set: all of them or, of many, one match for each pattern."""
    found: set[str] = set()
    words = iter(words)
    for word in words:
        found.add(word)
        if len(found) > _MANY_WORDS:
            return _chosen(chain(found, words), what, tuple(rule_sets))
    return found


def _chosen(words: Iterable[str], what: str, rule_sets: Sequence[RuleSet]) -> set[str]:
    """Return one match for each pattern of a kind, and the categories that rules require."""
    patterns = {pattern for rules in rule_sets for pattern in rules.detect.get(what, ())}
    exact = {pattern for pattern in patterns if _SPECIAL.isdisjoint(pattern)}
    matchers = {pattern: re.compile(pattern).fullmatch for pattern in patterns - exact}
    if what == "categories":
        exact.update(rule.with_category for rules in rule_sets for rule in rules.rules if rule.with_category)
    found = set()
    for word in words:
        matched = [pattern for pattern, fullmatch in matchers.items() if fullmatch(word)]
        if matched or word in exact:
            found.add(word)
            for pattern in matched:
                del matchers[pattern]
    return found


class Classifier:
    """Finds the rule of each event, with caches of the rules by track and category, and of the rule by name."""

    def __init__(
        self,
        rules: Sequence[Rule],
        names_of_track: Callable[[int], tuple[str | None, str | None]],
        categories: Collection[str] = (),
    ) -> None:
        """`categories`: all categories of the trace."""
        self._rules = rules
        self._used = [number for number, rule in enumerate(rules) if rule.with_category in (None, *categories)]
        self._names = names_of_track
        #: By track, category and the first rule to try: the rules to try.
        self._matching: dict[tuple[int, str | None, int], tuple[int, ...]] = {}
        #: By rules to try: the rule of each name.
        self._by_name: dict[tuple[int, ...], dict[str, int]] = {}

    def _candidates(self, track: int, category: str | None, first: int) -> tuple[int, ...]:
        key = (track, category, first)
        found = self._matching.get(key)
        if found is None:
            process, thread = self._names(track)
            matching = []
            for number in self._used:
                rule = self._rules[number]
                if number >= first and rule.matches_track(category, process, thread):
                    matching.append(number)
                    if rule.name is None:
                        break
            found = tuple(matching)
            if len(self._matching) == _MOST_CACHED:
                self._matching.clear()
            self._matching[key] = found
        return found

    def codes(
        self,
        track: NDArray[np.int32],
        categories: pa.DictionaryArray,
        names: pa.DictionaryArray,
        args: Callable[[], pa.RecordBatch],
    ) -> NDArray[np.int16]:
        """Return the number of each event's rule, −1 for none. `args`: reads the column of this name, if needed."""
        codes = self._codes(track, categories, names, 0)
        for number in [number for number, rule in enumerate(self._rules) if rule.where]:
            rows = np.flatnonzero(codes == number)
            if len(rows):
                rows = rows[~self._rules[number].fits(args().column(0).take(pa.array(rows)))]
                at = pa.array(rows)
                codes[rows] = self._codes(track[rows], categories.take(at), names.take(at), number + 1)
        return codes

    def _codes(
        self, track: NDArray[np.int32], categories: pa.DictionaryArray, names: pa.DictionaryArray, first_rule: int
    ) -> NDArray[np.int16]:
        codes = np.full(len(track), -1, np.int16)
        if not self._rules or not len(track):
            return codes
        texts = [*categories.dictionary.to_pylist(), None]
        category = codes_of(categories, len(texts) - 1).astype(np.int64)
        name_texts = [*names.dictionary.to_pylist(), ""]
        name = codes_of(names, len(name_texts) - 1)
        firsts, pairs = distinct_of(track * np.int64(len(texts)) + category, (int(track.max()) + 1) * len(texts))
        for number, row in enumerate(firsts.tolist()):
            candidates = self._candidates(int(track[row]), texts[category[row]], first_rule)
            if not candidates:
                continue
            rows = np.flatnonzero(pairs == number)
            if self._rules[candidates[0]].name is None:
                codes[rows] = candidates[0]
                continue
            one_each, which = distinct_of(name[rows], len(name_texts))
            known = self._by_name.setdefault(candidates, {})
            if len(known) > _MOST_NAMES:
                known.clear()
            found = []
            for code in name[rows[one_each]].tolist():
                text = name_texts[code]
                rule = known.get(text)
                if rule is None:
                    rule = known[text] = self._of_name(candidates, text)
                found.append(rule)
            codes[rows] = np.array(found, np.int16)[which]
        return codes

    def _of_name(self, candidates: Sequence[int], name: str) -> int:
        for number in candidates:
            pattern = self._rules[number].name
            if pattern is None or pattern.fullmatch(name):
                return number
        return -1
