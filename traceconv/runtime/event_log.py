"""Events as they happen, in a few machine words each: what costs time while a model runs is only this.

What stays the same from one event to the next of its kind (name, thread, op …) is a head, kept once and named by
a number. The words of an event are appended in one step, so that several threads can log at a time, also
while one takes what there is: to a list, since that takes a sixth of what an array takes, which makes numbers of
them at once. `recorder` makes records of the words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record

NONE32 = (1 << 32) - 1
#: A field of 64 bits that is not known, as the signed word that has the same bits.
_NONE_WORD = -1

#: Shapes of an event of a call: the call begins, it ends, the whole of one call, a call and all of the one in it.
CALL_BEGINS, CALL_ENDS, WHOLE_CALL, CALL_IN_CALL = range(4)
#: Kind of event → words of one. Those of calls are three times (begin, and end; of a call in a call: the begins of
#: both, and their end), correlation_id, 4 · head + shape, step_id; the inner call's head and correlation_id are
#: one more and one less than the outer one's, which are the ones that are logged.
WORDS: Mapping[str, int] = {
    "api": 6,
    "memory": 7,  # host_ns, block_id, address, size_bytes, used_bytes, reserved_bytes, head
    "task": 9,  # start, end, correlation_id, size_bytes, task_id, stream_id, step_id, execution_id, head
    "sync": 3,  # ticks, host_before_ns, host_after_ns
    "counter": 3,  # ticks, value, head
    "step_mark": 5,  # ticks, step_id, model_id, iteration, mark
}

Words = NDArray[np.int64]
#: (kind, device_id; None: the host) → one row of words an event, in the order in which they came.
Taken = dict[tuple[str, "int | None"], Words]


def enum_values(record_name: str, field_name: str) -> dict[str, int]:
    """Name → number of an enum field of a record."""
    values = record(record_name).field(field_name).values or {}
    return {text: number for number, text in values.items()}


_LEVELS = enum_values("api", "level")
_TASK_TYPES = enum_values("task", "task_type")
_MARKS = enum_values("step_mark", "mark")
_MEMORY_EVENTS = enum_values("memory", "event")
_MEMORY_KINDS = enum_values("memory", "kind")
_PURPOSES = enum_values("memory", "alloc_by")

#: (name, thread_id, op_index, level)
CallHead = tuple[str, int, int, int]
#: (pool, tensor_name, device_id, op_index, event, kind, alloc_by)
MemoryHead = tuple[str, str, int, int, int, int, int]
#: (name, op_index, block_count, mix_block_count, task_type, hf32_eligible)
TaskHead = tuple[str, int, int, int, int, int]
#: (name, unit)
CounterHead = tuple[str, str]


@dataclass(slots=True)
class EventStore:
    """What waits to be written, and the heads. The flags say what is wanted at all."""

    on: bool = True
    calls_on: bool = True
    ranges_on: bool = True
    tasks_on: bool = True
    memory_on: bool = True
    steps_on: bool = True
    words: dict[tuple[str, int | None], list[int]] = field(default_factory=dict)
    calls: list[CallHead] = field(default_factory=list)
    blocks: list[MemoryHead] = field(default_factory=list)
    tasks: list[TaskHead] = field(default_factory=list)
    counters: list[CounterHead] = field(default_factory=list)
    #: Held while a head gets its number: sessions on several threads may need new ones at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def buffer(self, kind: str, device_id: int | None) -> list[int]:
        """Where the words of a kind of event go; always the same list."""
        return self.words.setdefault((kind, device_id), [])

    @property
    def pending(self) -> int:
        """Events that wait."""
        return sum(len(buffer) // WORDS[kind] for (kind, _), buffer in list(self.words.items()))

    def take(self) -> Taken:
        """What has come so far, which is then no longer here."""
        taken: Taken = {}
        for (kind, device_id), buffer in list(self.words.items()):
            count = len(buffer)  # others may add to the end meanwhile
            if count:
                taken[kind, device_id] = np.fromiter(buffer[:count], np.int64, count).reshape(-1, WORDS[kind])
                del buffer[:count]
        return taken


class EventLog:
    """One model's way into an `EventStore`: its op and model numbers become those of the capture.

    Times are host ns or, where they say ticks, readings of the device's counter.
    """

    def __init__(self, store: EventStore, *, op_base: int = 0, model_base: int = 0) -> None:
        self.store = store
        self.op_base = op_base
        self.model_base = model_base
        #: What tasks are shown to: ranges of streams that are open.
        self.spans_open: Sequence[object] = ()
        self.add_call = store.buffer("api", None).extend
        self._add_memory = store.buffer("memory", None).extend
        self._add: dict[tuple[str, int], Callable[[Iterable[int]], None]] = {}
        self._call_heads: dict[tuple[str, int, int, str], int] = {}
        self._memory_heads: dict[tuple[object, ...], int] = {}
        self._task_heads: dict[tuple[str | None, int, str], int] = {}
        self._counter_heads: dict[CounterHead, int] = {}

    # Texts and metadata: what a recorder does at once, and a log of several recorders when one asks.

    def see_text(self, text: str | None) -> None:
        """A text that a head has for the first time."""

    def device(self, spec: DeviceSpec, device_id: int, streams: Mapping[int, str]) -> None:
        """A device and its streams."""

    def range_begin(
        self,
        host_ns: int,
        span_id: int,
        parent_span_id: int,
        trace_id: int,
        name: str,
        category: str,
        args: str,
        thread_id: int,
        step_id: int,
        kind: str,
        pe_index: int = NONE32,
        item_index: int = NONE32,
        execution_id: int = NONE32,
    ) -> None:
        """A range begins; numbers may be NONE32."""

    def range_end(self, host_ns: int, span_id: int, thread_id: int, kind: str) -> None:
        """A range ends."""

    # What happens on the host

    def call_head(self, name: str, thread_id: int, op_index: int, level: str) -> int:
        """The head of a call, which goes into the words for `add_call`."""
        key = (name, thread_id, op_index, level)
        found = self._call_heads.get(key)
        if found is None:
            found = self._call_heads[key] = self.heads_in_row(((name, level),), thread_id, op_index)
        return found

    def heads_in_row(self, names: tuple[tuple[str, str], ...], thread_id: int, op_index: int) -> int:
        """The first head of calls (name, level), one in another, the outermost first: the next has one more."""
        heads = self.store.calls
        with self.store.lock:
            for name, level in names:
                self.see_text(name)
                heads.append((name, thread_id, self._op(op_index), _LEVELS[level]))
            return len(heads) - len(names)

    def memory(self, event: MemoryEvent, device_id: int) -> None:
        """An allocation or a free."""
        if not self.store.memory_on:
            return
        host_ns, what, kind, block_id, address, size, used, reserved, pool, purpose, tensor_name, op_index = event
        key = (pool, tensor_name, op_index, what, kind, purpose, device_id)
        head = self._memory_heads.get(key)
        if head is None:
            self.see_text(pool)
            self.see_text(tensor_name)
            with self.store.lock:
                self.store.blocks.append(
                    (
                        pool,
                        tensor_name or "",
                        device_id,
                        NONE32 if op_index is None else self._op(op_index),
                        _MEMORY_EVENTS[what],
                        _MEMORY_KINDS[kind],
                        _PURPOSES[purpose],
                    )
                )
                head = self._memory_heads[key] = len(self.store.blocks) - 1
        self._add_memory((host_ns, block_id, address, size, used, reserved, head))

    # What happens on the device

    def sync(self, device_id: int, ticks: int, host_before_ns: int, host_after_ns: int) -> None:
        """A reading of the device's counter between two of the host's clock."""
        if self.store.on:
            self._adder("sync", device_id)((ticks, host_before_ns, host_after_ns))

    def task(
        self,
        device_id: int,
        task_id: int,
        start: int,
        end: int,
        stream_id: int,
        task_type: str,
        correlation_id: int,
        *,
        name: str | None = None,
        size_bytes: int | None = None,
        op: DeviceOp | None = None,
        step_id: int = NONE32,
        execution_id: int = NONE32,
    ) -> None:
        """A task from a tick to a tick; with the counters of its op where it has some."""
        if not self.store.tasks_on:
            return
        key = (name, NONE32 if op is None else op.index, task_type)
        head = self._task_heads.get(key)
        if head is None:
            self.see_text(name)
            blocks = (op.cost.block_count, op.cost.mix_block_count) if op else (0, 0)
            hf32 = int(op is not None and op.hf32_eligible)
            with self.store.lock:
                self.store.tasks.append((name or "", self._op(key[1]), *blocks, _TASK_TYPES[task_type], hf32))
                head = self._task_heads[key] = len(self.store.tasks) - 1
        size = _NONE_WORD if size_bytes is None else size_bytes
        self._adder("task", device_id)(
            (start, end, correlation_id, size, task_id, stream_id, step_id, execution_id, head)
        )
        if self.spans_open:
            self.see_task(device_id, stream_id, start, end)

    def see_task(self, device_id: int, stream_id: int, start: int, end: int) -> None:
        """A task of a stream while ranges of streams are open."""

    def counter(self, device_id: int, ticks: int, name: str, unit: str, value: int) -> None:
        """A sampled value."""
        if not self.store.tasks_on:
            return
        key = (name, unit)
        head = self._counter_heads.get(key)
        if head is None:
            self.see_text(name)
            self.see_text(unit)
            with self.store.lock:
                self.store.counters.append(key)
                head = self._counter_heads[key] = len(self.store.counters) - 1
        self._adder("counter", device_id)((ticks, value, head))

    def step_mark(self, device_id: int, ticks: int, step_id: int, model_id: int, iteration: int, mark: str) -> None:
        """The device passes a point of a step."""
        if self.store.steps_on:
            words = (ticks, step_id, self.model_base + model_id, iteration, _MARKS[mark])
            self._adder("step_mark", device_id)(words)

    def _adder(self, kind: str, device_id: int) -> Callable[[Iterable[int]], None]:
        """What adds the words of an event in one step."""
        found = self._add.get((kind, device_id))
        if found is None:
            found = self._add[kind, device_id] = self.store.buffer(kind, device_id).extend
        return found

    def _op(self, op_index: int) -> int:
        return op_index if op_index == NONE32 else self.op_base + op_index
