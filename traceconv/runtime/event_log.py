"""Events as they happen, packed into a few machine words each: the only logging work done while a model runs.

The part that events of a kind share (name, thread, op …) is a head: it is stored once and referenced by number. An
event's words are appended in one step, so several threads can log at once, also while another takes what is pending.
Words are packed to bytes at once, because keeping an object per event costs several times as much. `recorder` turns
words into records.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.runtime.device import Device, Task
from traceconv.runtime.expand import Room
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.memory import MemoryEvent, Origin
from traceconv.runtime.spec import DeviceSpec
from traceconv.schema import record

#: A number that is unknown.
NONE32 = (1 << 32) - 1
#: An unknown 64-bit field, as the signed word with the same bits.
_NONE_WORD = -1

#: Shapes of a call event: the call begins, it ends, one complete call, a complete call with one complete call inside.
CALL_BEGINS, CALL_ENDS, WHOLE_CALL, CALL_IN_CALL = range(4)
#: Kind of event → number of words. A call has three times (begin and end; for a call in a call: both begins and their
#: common end), correlation_id, 4 · head + shape, step_id. The logged head and correlation_id are the outer call's; the
#: inner call's are one more and one less.
WORDS: Mapping[str, int] = {
    "api": 6,
    "memory": 7,  # host_ns, block_id, address, size_bytes, used_bytes, reserved_bytes, head
    "task": 9,  # start, end, correlation_id, size_bytes, task_id, stream_id, step_id, execution_id, head
    "event_wait": 3,  # ticks, task_id, event_task_id
    "sync": 3,  # ticks, host_before_ns, host_after_ns
    "counter": 3,  # ticks, value, head
    "clock_stop": 3,  # host_ns, dur_ns, thread_id
    "step_mark": 5,  # ticks, step_id, model_id, iteration, mark
}
#: Kind of event → the fields of its heads, and how many of them are texts, which come first.
HEADS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "api": (("name", "thread_id", "op_index", "level"), 1),
    "memory": (("pool", "tensor_name", "device_id", "op_index", "event", "kind", "alloc_by"), 2),
    "task": (("name", "op_index", "block_count", "mix_block_count", "task_type", "hf32_eligible"), 1),
    "counter": (("name", "value_unit"), 2),
}

if TYPE_CHECKING or native.AVAILABLE:
    from traceconv.native import Buffer as Buffer
    from traceconv.native import append as append
else:

    class Buffer(bytearray):
        """The same without the C extension."""

        def take(self, out: NDArray[np.uint8]) -> int:
            """Move the first bytes to `out`; return how many. Other threads may append meanwhile."""
            taken = self[: len(out)]
            out[: len(taken)] = taken
            del self[: len(taken)]
            return len(taken)

    def append(buffer: Buffer, *words: int) -> None:
        """Append words to a buffer in one step."""
        buffer.extend(struct.pack(f"{len(words)}q", *words))


Words = NDArray[np.int64]
#: Where C appends the records of modules on a thread: a buffer, the records of begins by the paths that are entered
#: together, what adds some, the record of an end, whether their parents are in the log, and the step.
ModuleTarget: TypeAlias = tuple[
    Buffer, dict[tuple[str, ...], bytes], Callable[[tuple[str, ...]], bytes], bytes, bool, int
]
#: (kind, device_id or None for the host) → one row of words per event, in order of arrival.
Taken = dict[tuple[str, "int | None"], Words]
Head = tuple[str | int, ...]


class _Heads(dict[Any, int]):
    """Numbers of heads by what events are logged with, which is found by identity; `add` numbers a new one."""

    def __init__(self, add: Callable[[Any], int]) -> None:
        super().__init__()
        self._add = add

    def __missing__(self, key: Any) -> int:
        head = self[key] = self._add(key)
        return head


@dataclass(frozen=True, slots=True, eq=False)
class TaskOrigin:
    """What tasks with the same head have in common. Logs find it by identity: one object for each op, not for each run.

    name      None: that of its op
    op_index  index of its op in the model, NONE32 for none; `op`: the op
    """

    name: str | None
    op_index: int
    task_type: str
    op: DeviceOp | None = None


#: What `EventLog.tasks` finds in the `note` of a task: its origin, size_bytes, correlation_id, step_id, execution_id.
TaskNote = tuple[TaskOrigin, "int | None", int, int, int]


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


@dataclass(frozen=True, slots=True)
class CaptureIds:
    """Sources of numbers that are unique in a capture, over all devices."""

    spans: Iterator[int] = field(default_factory=lambda: count(1))
    steps: Iterator[int] = field(default_factory=lambda: count(1))
    executions: Iterator[int] = field(default_factory=lambda: count(1))
    blocks: Iterator[int] = field(default_factory=lambda: count(1))
    correlations: Iterator[int] = field(default_factory=lambda: count(1))
    #: Of live calls: the odd number before one belongs to a call inside.
    live_correlations: Iterator[int] = field(default_factory=lambda: count(2, 2))


@lru_cache(4096)
def module_texts(path: str) -> tuple[str, str]:
    """Return name and args of a module's range."""
    return path.rsplit("/", 1)[-1], f'{{"path": {json.dumps(path)}}}'


class RangeBegin(NamedTuple):
    """The begin of a range on a host thread."""

    host_ns: int
    span_id: int
    thread_id: int
    kind: str
    name: str
    category: str
    args: str = ""
    trace_id: int = 0
    step_id: int = NONE32
    pe_index: int = NONE32
    item_index: int = NONE32
    execution_id: int = NONE32
    cut: bool = False


@dataclass(slots=True)
class EventStore:
    """Events waiting to be written, and their heads. The flags select the kinds to keep."""

    on: bool = True
    calls_on: bool = True
    ranges_on: bool = True
    tasks_on: bool = True
    memory_on: bool = True
    steps_on: bool = True
    stops_on: bool = True
    words: dict[tuple[str, int | None], Buffer] = field(default_factory=dict)
    heads: dict[str, list[Head]] = field(default_factory=lambda: {kind: [] for kind in HEADS})
    #: Held while heads get their numbers: sessions on several threads may add some at the same time.
    lock: threading.Lock = field(default_factory=threading.Lock)
    _room: Room = field(default_factory=Room)

    def buffer(self, kind: str, device_id: int | None) -> Buffer:
        """The buffer for the words of a kind of event; always the same object."""
        found = self.words.get((kind, device_id))
        return self.words.setdefault((kind, device_id), Buffer()) if found is None else found

    def add(self, kind: str, device_id: int | None, *words: int) -> None:
        """Append the words of an event."""
        append(self.buffer(kind, device_id), *words)

    def add_heads(self, kind: str, heads: Sequence[Head]) -> int:
        """Append heads; return the number of the first."""
        with self.lock:
            self.heads[kind] += heads
            return len(self.heads[kind]) - len(heads)

    @property
    def pending(self) -> int:
        """Number of events waiting."""
        return sum(len(buffer) // (8 * WORDS[kind]) for (kind, _), buffer in list(self.words.items()))

    def taken(self) -> Iterator[Taken]:
        """Remove what has arrived so far, in pieces, each valid until the next: one at least, which may be empty."""
        room, self._room = self._room, Room()  # a signal handler or the garbage collector may use it meanwhile
        taken: Taken = {}
        for (kind, device_id), buffer in list(self.words.items()):
            for words in room.pieces(buffer, 8 * WORDS[kind]):
                taken[kind, device_id] = words.view(np.int64).reshape(-1, WORDS[kind])
                if room.has_piece:
                    yield taken
                    taken = {}
                    room.clear()
        yield taken
        room.clear()
        self._room = room


class EventLog:
    """Logs the events of one model to an `EventStore`; shifts its op and model numbers to those of the capture.

    Times are host ns or, where named ticks, readings of the device's counter.
    """

    def __init__(self, store: EventStore, *, op_base: int = 0, model_base: int = 0) -> None:
        self.store = store
        self.op_base = op_base
        self.model_base = model_base
        #: Open spans on streams, which need the times of tasks.
        self.spans_open: Sequence[object] = ()
        #: `append` here adds the words of a call.
        self.calls = store.buffer("api", None)
        self._call_heads: dict[tuple[str, int, int, str], int] = {}
        self._memory_heads: dict[Head, int] = {}
        self._task_heads = _Heads(self._task_head)
        #: (device, name, unit) → where its values go, and its head.
        self._samples: dict[tuple[int, str, str], tuple[Buffer, int]] = {}

    # Texts, metadata and ranges: a recorder writes them at once; a log of several recorders writes them on demand.

    def on_text(self, text: str) -> None:
        """Note the first use of a text by a head."""

    def device(self, spec: DeviceSpec, device_id: int, streams: Mapping[int, str]) -> None:
        """Describe a device and its streams."""

    def inner_ops(self, spec: DeviceSpec, program: Program, model_id: int) -> None:
        """Describe the ops in bodies of a model that have run, if that was not done yet."""

    def range_begin(self, begin: RangeBegin, parent_id: int) -> None:
        """Log the begin of a range; `parent_id` is the range around it, 0 for none."""

    def range_end(self, host_ns: int, span_id: int, thread_id: int, kind: str) -> None:
        """Log the end of a range."""

    def module_targets(self, thread_id: int, step_id: int) -> tuple[ModuleTarget, ...]:
        """Return where C appends the records of modules on a thread in a run of a step; none: they are not selected."""
        return ()

    # Host

    def call_head(self, name: str, thread_id: int, op_index: int, level: str) -> int:
        """Return the head of a call, for its words."""
        key = (name, thread_id, op_index, level)
        found = self._call_heads.get(key)
        if found is None:
            found = self._call_heads[key] = self.call_heads(((name, level),), thread_id, op_index)
        return found

    def call_heads(self, names: Sequence[tuple[str, str]], thread_id: int, op_index: int) -> int:
        """Return the head of the outermost of nested calls (name, level); each inner call's head is one more."""
        op = self._op(op_index)
        return self._add_heads("api", *((name, thread_id, op, _LEVELS[level]) for name, level in names))

    def memory(self, events: Sequence[MemoryEvent], device_id: int) -> None:
        """Log allocations and frees, in their order."""
        if self.store.memory_on:
            buffer = self.store.buffer("memory", None)
            for *words, origin in events:
                append(buffer, *words, self._memory_head(origin, device_id))

    def memory_log(self, device_id: int) -> Callable[..., None]:
        """Return a function that logs a change of a device's memory, given as the fields of a `MemoryEvent`."""
        buffer, heads = self.store.buffer("memory", None), _Heads(partial(self._memory_head, device_id=device_id))
        if native.AVAILABLE:
            return partial(native.append_memory, buffer, heads)

        def log(*fields: Any) -> None:
            *words, origin = fields
            append(buffer, *words, heads[origin])

        return log

    def _memory_head(self, origin: Origin, device_id: int) -> int:
        op_index = NONE32 if origin.op_index is None else self._op(origin.op_index)
        enums = _MEMORY_EVENTS[origin.event], _MEMORY_KINDS[origin.kind], _PURPOSES[origin.purpose]
        head = origin.pool, origin.tensor_name or "", device_id, op_index, *enums
        found = self._memory_heads.get(head)
        if found is None:
            found = self._memory_heads[head] = self._add_heads("memory", head)
        return found

    def clock_stop(self, thread_id: int, host_ns: int, dur_ns: int) -> None:
        """Log that the host clock stopped, also while logs are paused."""
        if self.store.stops_on:
            self.store.add("clock_stop", None, host_ns, dur_ns, thread_id)

    # Device

    def sync(self, device_id: int, ticks: int, host_before_ns: int, host_after_ns: int) -> None:
        """Log a reading of the device's counter taken between two of the host clock."""
        if self.store.on:
            self.store.add("sync", device_id, ticks, host_before_ns, host_after_ns)

    def tasks(self, device: Device, tasks: Sequence[Task]) -> None:
        """Log tasks that the device has finished, in order, with the contents of their `note`."""
        if not self.store.tasks_on:
            return
        heads, clock, device_id = self._task_heads, device.clock, device.device_id
        buffer = self.store.buffer("task", device_id)
        if native.AVAILABLE and not clock.jump_ticks and not self.spans_open:
            native.append_tasks(buffer, self.store.buffer("event_wait", device_id), list(tasks), heads)
            return
        for task in tasks:
            origin, size_bytes, correlation_id, step_id, execution_id = task.note
            head = heads[origin]
            size = _NONE_WORD if size_bytes is None else size_bytes
            start, end = task.span
            if clock.jump_ticks and end >= clock.jump_at:
                start, end = clock.reading(start), clock.reading(end)
            task_id, stream_id = task.task_id, task.stream_id
            append(buffer, start, end, correlation_id, size, task_id, stream_id, step_id, execution_id, head)
            if task.event is not None:
                self.store.add("event_wait", device_id, end, task_id, task.event.task_id)
            if self.spans_open:
                self.on_task(device_id, stream_id, start, end)

    def _task_head(self, origin: TaskOrigin) -> int:
        op = origin.op
        blocks = (op.cost.block_count, op.cost.mix_block_count) if op else (0, 0)
        kind = _TASK_TYPES[origin.task_type], int(bool(op and op.hf32_eligible))
        return self._add_heads("task", (origin.name or "", self._op(origin.op_index), *blocks, *kind))

    def on_task(self, device_id: int, stream_id: int, start: int, end: int) -> None:
        """Called for each task of a stream while spans on streams are open."""

    def counter(self, device_id: int, ticks: int, name: str, unit: str, value: int) -> None:
        """Log a sampled value."""
        if not self.store.tasks_on:
            return
        key = device_id, name, unit
        found = self._samples.get(key)
        if found is None:
            buffer, head = self.store.buffer("counter", device_id), self._add_heads("counter", (name, unit))
            found = self._samples[key] = buffer, head
        append(found[0], ticks, value, found[1])

    def step_mark(self, device_id: int, ticks: int, step_id: int, model_id: int, iteration: int, mark: str) -> None:
        """Log that the device passes a point of a step."""
        if self.store.steps_on:
            model_id += self.model_base
            self.store.add("step_mark", device_id, ticks, step_id, model_id, iteration, _MARKS[mark])

    def _add_heads(self, kind: str, *heads: Head) -> int:
        for head in heads:
            for text in head[: HEADS[kind][1]]:
                self.on_text(str(text))
        return self.store.add_heads(kind, heads)

    def _op(self, op_index: int) -> int:
        return op_index if op_index == NONE32 else self.op_base + op_index
