"""Events as they happen, in a few machine words each: what costs time while a model runs is only this.

What stays the same from one event to the next of its kind (name, thread, op …) is a head, kept once and named by
a number. The words of an event are appended in one step, so that several threads can log at a time, also
while one takes what there is. They are bytes at once, since objects that stay for a while are new memory again and
again, which costs several times what packing does. `recorder` makes records of the words.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traceconv.runtime.device import Task
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

#: Kind of event → its words as bytes.
PACK: Mapping[str, Callable[..., bytes]] = {kind: struct.Struct(f"{count}q").pack for kind, count in WORDS.items()}
pack_call = PACK["api"]
_pack_task, _pack_sync = PACK["task"], PACK["sync"]
_pack_counter, _pack_mark = PACK["counter"], PACK["step_mark"]

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
#: (event, kind, pool, purpose, tensor_name, index of the op in the model, device_id)
MemoryKey = tuple[str, str, str, str, "str | None", "int | None", int]
#: (name, index of its op in the model, task_type): what tasks of one head have in common.
TaskKey = tuple[str | None, int, str]
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
    words: dict[tuple[str, int | None], bytearray] = field(default_factory=dict)
    calls: list[CallHead] = field(default_factory=list)
    blocks: list[MemoryHead] = field(default_factory=list)
    tasks: list[TaskHead] = field(default_factory=list)
    counters: list[CounterHead] = field(default_factory=list)
    #: Held while a head gets its number: sessions on several threads may need new ones at a time.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def buffer(self, kind: str, device_id: int | None) -> bytearray:
        """Where the words of a kind of event go; always the same object."""
        return self.words.setdefault((kind, device_id), bytearray())

    @property
    def pending(self) -> int:
        """Events that wait."""
        return sum(len(buffer) // (8 * WORDS[kind]) for (kind, _), buffer in list(self.words.items()))

    def take(self) -> Taken:
        """What has come so far, which is then no longer here."""
        taken: Taken = {}
        for (kind, device_id), buffer in list(self.words.items()):
            count = len(buffer)  # others may add to the end meanwhile
            if count:
                taken[kind, device_id] = np.frombuffer(buffer[:count], np.int64).reshape(-1, WORDS[kind])
                del buffer[:count]
        return taken


class _Adders(dict[int, "Callable[[bytes], None]"]):
    """Device → what adds the words of an event of a kind in one step."""

    def __init__(self, store: EventStore, kind: str) -> None:
        super().__init__()
        self._store = store
        self._kind = kind

    def __missing__(self, device_id: int) -> Callable[[bytes], None]:
        found = self[device_id] = self._store.buffer(self._kind, device_id).extend
        return found


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
        self._add_sync = _Adders(store, "sync")
        self._add_task = _Adders(store, "task")
        self._add_counter = _Adders(store, "counter")
        self._add_mark = _Adders(store, "step_mark")
        self._call_heads: dict[tuple[str, int, int, str], int] = {}
        self._memory_heads: dict[MemoryKey, int] = {}
        self._task_heads: dict[TaskKey, int] = {}
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
        self.memories([event], device_id)

    def memories(self, events: Sequence[MemoryEvent], device_id: int) -> None:
        """Allocations and frees, in their order."""
        if not self.store.memory_on:
            return
        heads = self._memory_heads
        words: list[int] = []
        for host_ns, what, kind, block_id, address, size, used, reserved, pool, purpose, tensor, op in events:
            key = what, kind, pool, purpose, tensor, op, device_id
            head = heads.get(key)
            if head is None:
                head = self._memory_head(key)
            words += (host_ns, block_id, address, size, used, reserved, head)
        self._add_memory(struct.pack(f"{len(words)}q", *words))

    def _memory_head(self, key: MemoryKey) -> int:
        what, kind, pool, purpose, tensor_name, op_index, device_id = key
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
        return head

    # What happens on the device

    def sync(self, device_id: int, ticks: int, host_before_ns: int, host_after_ns: int) -> None:
        """A reading of the device's counter between two of the host's clock."""
        if self.store.on:
            self._add_sync[device_id](_pack_sync(ticks, host_before_ns, host_after_ns))

    def task(
        self,
        device_id: int,
        task_id: int,
        stream_id: int,
        start: int,
        end: int,
        key: TaskKey,
        op: DeviceOp | None,
        size_bytes: int | None,
        correlation_id: int,
        step_id: int,
        execution_id: int,
    ) -> None:
        """A task from a tick to a tick; with the counters of its op where it has some."""
        if not self.store.tasks_on:
            return
        head = self._task_heads.get(key)
        if head is None:
            head = self._task_head(key, op)
        size = _NONE_WORD if size_bytes is None else size_bytes
        self._add_task[device_id](
            _pack_task(start, end, correlation_id, size, task_id, stream_id, step_id, execution_id, head)
        )
        if self.spans_open:
            self.see_task(device_id, stream_id, start, end)

    def tasks(self, device_id: int, tasks: Sequence[Task]) -> None:
        """Tasks that the device has done, in their order, as `task` logs them; `note` is what that is told last."""
        if not self.store.tasks_on:
            return
        heads = self._task_heads
        words: list[int] = []
        for task in tasks:
            key, op, size_bytes, correlation_id, step_id, execution_id = task.note
            head = heads.get(key)
            if head is None:
                head = self._task_head(key, op)
            size = _NONE_WORD if size_bytes is None else size_bytes
            start, end = task.span
            words += start, end, correlation_id, size, task.task_id, task.stream_id, step_id, execution_id, head
        self._add_task[device_id](struct.pack(f"{len(words)}q", *words))

    def _task_head(self, key: TaskKey, op: DeviceOp | None) -> int:
        name, op_index, task_type = key
        self.see_text(name)
        blocks = (op.cost.block_count, op.cost.mix_block_count) if op else (0, 0)
        hf32 = int(op is not None and op.hf32_eligible)
        with self.store.lock:
            self.store.tasks.append((name or "", self._op(op_index), *blocks, _TASK_TYPES[task_type], hf32))
            head = self._task_heads[key] = len(self.store.tasks) - 1
        return head

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
        self._add_counter[device_id](_pack_counter(ticks, value, head))

    def step_mark(self, device_id: int, ticks: int, step_id: int, model_id: int, iteration: int, mark: str) -> None:
        """The device passes a point of a step."""
        if self.store.steps_on:
            words = _pack_mark(ticks, step_id, self.model_base + model_id, iteration, _MARKS[mark])
            self._add_mark[device_id](words)

    def _op(self, op_index: int) -> int:
        return op_index if op_index == NONE32 else self.op_base + op_index
