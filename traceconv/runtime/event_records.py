"""Turn the events of a capture into records: copies of templates, with the words of each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from traceconv.base.int64 import Mask
from traceconv.runtime import counters
from traceconv.runtime.event_log import HEADS, NONE32, WORDS, EventStore
from traceconv.runtime.expand import Part, Room, Shape, Store, Templates, Words, expand, heads_and_shapes
from traceconv.schema import record
from traceconv.schema.dtypes import RecordArray, dtype_of, join
from traceconv.wire.log_writer import new_records

_NONE64 = (1 << 64) - 1
#: Kind of event with begins and ends → fields of begins only, and their values in an end.
_OF_BEGINS: Mapping[str, Mapping[str, int]] = {
    "api": {"op_index": NONE32, "step_id": NONE32},
    "task": {
        "size_bytes": _NONE64, "context_id": NONE32, "op_index": NONE32, "step_id": NONE32, "execution_id": NONE32,
        "block_count": 0, "mix_block_count": 0, "hf32_eligible": 0,
    },
}  # fmt: skip
#: The same for fields of begins that have no head and no word.
_OF_STARTS: Mapping[str, Mapping[str, int]] = {"task": {"context_id": NONE32}}
#: Kind of event → its word with the head and, for a call, the shape.
_CODE_WORD: Mapping[str, int] = {"api": 4, **{kind: WORDS[kind] - 1 for kind in HEADS if kind != "api"}}
#: Kind of event → its word with the step.
_STEP_WORD: Mapping[str, int] = {"api": 5, "task": 6}
#: Kind of event → the fields that its first words are.
_WORD_FIELDS: Mapping[str, tuple[str, ...]] = {
    "memory": ("host_ns", "block_id", "address", "size_bytes", "used_bytes", "reserved_bytes"),
    "event_wait": ("ticks", "task_id", "event_task_id"),
    "sync": ("ticks", "host_before_ns", "host_after_ns"),
    "counter": ("ticks", "value"),
    "clock_stop": ("host_ns", "dur_ns", "thread_id"),
    "step_mark": ("ticks", "step_id", "model_id", "iteration", "mark"),
}


def _part(*fields: str, is_end: bool = False) -> Part:
    return Part(tuple(Store(word, name) for word, name in enumerate(fields) if name), is_end)


def _call(word: int, *, is_end: bool = False, inner: int = 0) -> Part:
    """The begin or end of a call, at the time in `word`."""
    stores = Store(word, "host_ns"), Store(3, "correlation_id", -inner), Store(5, "step_id")
    return Part(stores[:2] if is_end else stores, is_end, inner)


#: Kind of event → its shapes, each a list of records.
_PLANS: Mapping[str, Sequence[Shape]] = {
    "api": (
        (_call(0),),
        (_call(0, is_end=True),),
        (_call(0), _call(1, is_end=True)),
        (_call(0), _call(1, inner=1), _call(2, is_end=True, inner=1), _call(2, is_end=True)),
    ),
    "task": (
        (
            _part("ticks", "", "correlation_id", "size_bytes", "task_id", "stream_id", "step_id", "execution_id"),
            _part("", "ticks", "", "", "task_id", "stream_id", is_end=True),
        ),
    ),
    **{kind: ((_part(*fields),),) for kind, fields in _WORD_FIELDS.items()},
}
#: Records of counters: one of a task with counters, none of others.
_COUNTER_PLAN: Sequence[Shape] = (_part("", "ticks", "", "", "task_id", "stream_id"),), ()


@dataclass(slots=True)
class _Heads:
    """The heads of one kind of event as records: events are copies with their own words.

    ends       of a begin: its end, without the texts and what only begins have
    defined    whether the texts are in this capture's dictionary; `all_defined`: those of all heads
    templates  all of these; None: they have changed
    """

    begins: RecordArray
    ends: RecordArray
    defined: Mask
    all_defined: bool = True
    templates: Templates | None = None


class EventRecords:
    """Makes the records of one capture.

    metric_group     the hardware counters of tasks
    text             returns the hash of a text, which it defines in the capture
    describe_thread  called with a thread's number before records name the thread
    """

    def __init__(self, metric_group: str, text: Callable[[str], int], describe_thread: Callable[[int], None]) -> None:
        self._metric_group = metric_group
        self._text = text
        self._describe_thread = describe_thread
        self._heads: dict[tuple[int, str], _Heads] = {}
        #: Number of an op → its counters, in the order of the record's fields; ops without counters are absent.
        self._counters: dict[int, tuple[int, ...]] = {}
        #: Numbers of ops with counters, in order, and the record of a task of each.
        self._counter_table: tuple[Words, Templates] | None = None

    def set_counters(self, op_index: int, values: tuple[int, ...]) -> None:
        """Set the counters of each task of an op, in the order of the record's fields."""
        self._counters[op_index] = values
        self._counter_table = None

    def _heads_of(self, store: EventStore, kind: str, words: Words) -> _Heads:
        """Return the heads of a kind of event, with those of some events defined in this capture."""
        heads, (fields, text_count), plan = store.heads[kind], HEADS[kind], _PLANS[kind]
        key, count = (id(store), kind), len(heads)
        known = self._heads.get(key)
        if known is None:
            none = new_records(kind, 0)
            known = self._heads[key] = _Heads(none, none, np.zeros(0, np.bool_))
        if count > len(known.defined):
            new = np.zeros(count - len(known.defined), dtype_of(record(kind)))
            numbers = np.array([head[text_count:] for head in heads[len(known.defined) : count]], np.int64)
            for name, column in zip(fields[text_count:], numbers.T, strict=True):
                new[name] = column
            for name, value in _OF_STARTS.get(kind, {}).items():
                new[name] = value
            ends = new.copy()
            if kind in _OF_BEGINS:
                ends["event"] = 1
                for name, value in _OF_BEGINS[kind].items():
                    ends[name] = value
            known.begins, known.ends = join([known.begins, new]), join([known.ends, ends])
            known.defined = np.pad(known.defined, (0, len(new)))
            known.all_defined, known.templates = False, None
        if not known.all_defined:
            used, shapes = heads_and_shapes(words, _CODE_WORD[kind], plan)
            used = np.concatenate([used[shapes == s] + part.inner for s, shape in enumerate(plan) for part in shape])
            met = np.flatnonzero(np.bincount(used, minlength=count) > 0)
            for head in met[~known.defined[met]].tolist():
                for place, name in enumerate(fields[:text_count]):
                    known.begins[name][head] = self._text(str(heads[head][place]))
                if kind == "api":
                    self._describe_thread(int(heads[head][1]))
                known.defined[head] = True
                known.templates = None
            known.all_defined = bool(known.defined.all())
        return known

    def of_events(self, kind: str, words: Words, store: EventStore, room: Room, *, with_steps: bool) -> RecordArray:
        """Return the records of events of a kind, in `room`; without the numbers of steps unless `with_steps`."""
        if kind in HEADS:
            known = self._heads_of(store, kind, words)
            templates = known.templates = known.templates or Templates(_PLANS[kind], known.begins, known.ends)
        else:
            templates = _templates(kind)
        if kind in _STEP_WORD and not with_steps:
            words = words.copy()
            words[:, _STEP_WORD[kind]] = NONE32
        return expand(words, _CODE_WORD.get(kind), templates, room)

    def of_counters(self, words: Words, store: EventStore, room: Room) -> RecordArray:
        """Return the records of the hardware counters of tasks, which the device reports when they end."""
        name = counters.RECORDS[self._metric_group]
        if self._counter_table is None:
            indices = np.array(sorted(self._counters), np.int64)
            rows = np.zeros(len(indices), dtype_of(record(name)))
            values = np.array([self._counters[index] for index in indices.tolist()], np.uint64)
            for counter, column in zip(counters.names(self._metric_group), values.T, strict=False):
                rows[counter] = column
            self._counter_table = indices, Templates(_COUNTER_PLAN, rows)
        indices, templates = self._counter_table
        if not len(indices):
            return new_records(name, 0)
        op_index = self._heads_of(store, "task", words).begins["op_index"]
        places = np.minimum(np.searchsorted(indices, op_index), len(indices) - 1)
        links = 2 * places + (indices[places] != op_index)
        return expand(words, _CODE_WORD["task"], templates, room, links)


@cache
def _templates(kind: str) -> Templates:
    """Return the template of a kind of event without heads."""
    return Templates(_PLANS[kind], np.zeros(1, dtype_of(record(kind))))
