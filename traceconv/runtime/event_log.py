"""Events as they happen, in a few machine words each: what costs time while a model runs is only this.

What stays the same from one event to the next of its kind (name, thread, op …) is a head, kept once and named by
a number. The words of an event are appended in one step, so that several threads can log at a time, also
while one takes what there is. `recorder` makes records of the words.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.runtime.device import Slot
from traceconv.runtime.lower import DeviceOp
from traceconv.runtime.memory import MemoryEvent
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record

NONE32 = (1 << 32) - 1
#: A field of 64 bits that is not known, as the signed word that has the same bits.
_NONE_WORD = -1

#: Kind of event → words of one. api: host_ns, correlation_id, 2 · head + (1 for an end), step_id.
WORDS: Mapping[str, int] = {
    "api": 4,
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
    words: dict[tuple[str, int | None], array[int]] = field(default_factory=dict)
    calls: list[CallHead] = field(default_factory=list)
    blocks: list[MemoryHead] = field(default_factory=list)
    tasks: list[TaskHead] = field(default_factory=list)
    counters: list[CounterHead] = field(default_factory=list)

    def buffer(self, kind: str, device_id: int | None) -> array[int]:
        """Where the words of a kind of event go; always the same array."""
        return self.words.setdefault((kind, device_id), array("q"))

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
                taken[kind, device_id] = np.frombuffer(buffer[:count], np.int64).reshape(-1, WORDS[kind])
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
        self.add_call = store.buffer("api", None).extend
        self._add_memory = store.buffer("memory", None).extend
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
        """The head of a call: twice it begins `add_call`'s third word for a begin, and one more for an end."""
        key = (name, thread_id, op_index, level)
        found = self._call_heads.get(key)
        if found is None:
            self.see_text(name)
            heads = self.store.calls
            heads.append((name, thread_id, self._op(op_index), _LEVELS[level]))
            found = self._call_heads[key] = len(heads) - 1
        return found

    def memory(self, event: MemoryEvent, device_id: int) -> None:
        """An allocation or a free."""
        if not self.store.memory_on:
            return
        key = (event.pool, event.tensor_name, event.op_index, event.event, event.kind, event.purpose, device_id)
        head = self._memory_heads.get(key)
        if head is None:
            self.see_text(event.pool)
            self.see_text(event.tensor_name)
            self.store.blocks.append(
                (
                    event.pool,
                    event.tensor_name or "",
                    device_id,
                    NONE32 if event.op_index is None else self._op(event.op_index),
                    _MEMORY_EVENTS[event.event],
                    _MEMORY_KINDS[event.kind],
                    _PURPOSES[event.purpose],
                )
            )
            head = self._memory_heads[key] = len(self.store.blocks) - 1
        self._add_memory(
            (event.host_ns, event.block_id, event.address, event.size_bytes, event.used_bytes, event.reserved_bytes,
             head)
        )  # fmt: skip

    # What happens on the device

    def sync(self, device_id: int, ticks: int, host_before_ns: int, host_after_ns: int) -> None:
        """A reading of the device's counter between two of the host's clock."""
        if self.store.on:
            self.store.buffer("sync", device_id).extend((ticks, host_before_ns, host_after_ns))

    def task(
        self,
        device_id: int,
        slot: Slot,
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
        """A task, start and end; with the counters of its op where it has some."""
        if not self.store.tasks_on:
            return
        key = (name, NONE32 if op is None else op.index, task_type)
        head = self._task_heads.get(key)
        if head is None:
            self.see_text(name)
            blocks = (op.cost.block_count, op.cost.mix_block_count) if op else (0, 0)
            hf32 = int(op is not None and op.hf32_eligible)
            self.store.tasks.append((name or "", self._op(key[1]), *blocks, _TASK_TYPES[task_type], hf32))
            head = self._task_heads[key] = len(self.store.tasks) - 1
        size = _NONE_WORD if size_bytes is None else size_bytes
        self.store.buffer("task", device_id).extend(
            (slot.start, slot.end, correlation_id, size, slot.task_id, stream_id, step_id, execution_id, head)
        )

    def counter(self, device_id: int, ticks: int, name: str, unit: str, value: int) -> None:
        """A sampled value."""
        if not self.store.tasks_on:
            return
        key = (name, unit)
        head = self._counter_heads.get(key)
        if head is None:
            self.see_text(name)
            self.see_text(unit)
            self.store.counters.append(key)
            head = self._counter_heads[key] = len(self.store.counters) - 1
        self.store.buffer("counter", device_id).extend((ticks, value, head))

    def step_mark(self, device_id: int, ticks: int, step_id: int, model_id: int, iteration: int, mark: str) -> None:
        """The device passes a point of a step."""
        if self.store.steps_on:
            words = (ticks, step_id, self.model_base + model_id, iteration, _MARKS[mark])
            self.store.buffer("step_mark", device_id).extend(words)

    def _op(self, op_index: int) -> int:
        return op_index if op_index == NONE32 else self.op_base + op_index
