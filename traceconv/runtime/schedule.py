"""The schedule: the stream of each op, the events that order streams, and when memory can be freed.

Ops are launched in program order. An op goes to the stream on which it would end first by the cost model alone, so that
independent branches go to different streams. If an op reads a result of another stream, its stream waits for an event
recorded there, unless another wait implies it. Collectives have a stream of their own, to run concurrently with ops.

Vector clocks track what is certainly done: `clock[s][t]` is the number of tasks of stream t that are done when the next
task of stream s starts. They also determine when a block of memory can be reused: when its stream is past every task
that touches it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.runtime.cost import task_ticks
from traceconv.runtime.device import EVENT_TICKS
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.spec import DeviceSpec

#: Represents the copies of the model's inputs among the ops that are waited for.
INPUTS = -1
#: Ops whose first inputs determine what is launched → the number of these inputs.
_DECIDING = {"If": 1, "Loop": 2}
#: HCCL's name for the group of all devices of a job. The name of the stream of collectives ends with it, from which
#: ingest gets task.comm_group.
WORLD_GROUP = "hccl_world_group"
#: Represents the stream of collectives until the number of other streams is known.
_COMMUNICATION = -1


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an op runs.

    waits    ops (or `INPUTS`) whose events its stream waits for before it
    records  whether an event is recorded after it
    frees    tensors (that own their bytes) to be freed after its launch
    """

    stream: int
    waits: tuple[int, ...]
    records: bool
    frees: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """Tensors to copy to the host after the events of the ops `waits`, when all work is done."""

    tensors: tuple[str, ...]
    waits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The plan of one run.

    placements    by op index
    stream_count  number of compute streams
    host_reads    op index → values that the host reads before launching the op; at the end, for the number of ops
    stores        the outputs of the run
    communicates  whether there is a stream of collectives
    """

    placements: tuple[Placement, ...]
    stream_count: int
    host_reads: Mapping[int, Copy]
    stores: Copy
    communicates: bool = False

    @property
    def copy_in(self) -> int:
        """The stream of copies to the device."""
        return self.stream_count

    @property
    def copy_out(self) -> int:
        """The stream of copies to the host."""
        return self.stream_count + 1

    @property
    def stream_names(self) -> dict[int, str]:
        """Number and name of every stream."""
        names = {stream: f"compute {stream}" for stream in range(self.stream_count)}
        names |= {self.copy_in: "copy in", self.copy_out: "copy out"}
        return {**names, self.communication: f"communication {WORLD_GROUP}"} if self.communicates else names

    @property
    def communication(self) -> int:
        """The stream of collectives, if there is one."""
        return self.stream_count + 2


def schedule(program: Program, spec: DeviceSpec, fetch: Sequence[str] = ()) -> Schedule:
    """Plan the runs of a program; `fetch` are tensors that the host reads as soon as they are produced.

    Raises UsageError for a tensor that no op produces.
    """
    producers = {program.root(tensor.name): op.index for op in program.ops for tensor in op.writes}
    reads = _host_reads(program, producers, fetch)
    placer = _Placer(program, spec, producers)
    streams = [placer.place(op) for op in program.ops]
    stream_count = max((stream for stream in streams if stream != _COMMUNICATION), default=0) + 1
    streams = [stream_count + 2 if stream == _COMMUNICATION else stream for stream in streams]
    clocks = _Clocks(program, streams, producers, [program.root(n) for names in reads.values() for n in names])
    waits: list[tuple[int, ...]] = []
    host_reads: dict[int, Copy] = {}
    for op in program.ops:
        if op.index in reads:
            host_reads[op.index] = Copy(reads[op.index], clocks.join())
        waits.append(clocks.launch(op))
    if len(waits) in reads:
        host_reads[len(waits)] = Copy(reads[len(waits)], clocks.join())
    stores = Copy(tuple(program.downloads), clocks.join())
    recorded = {index for found in [*waits, stores.waits, *(c.waits for c in host_reads.values())] for index in found}
    placements = tuple(
        Placement(stream, found, index in recorded, tuple(clocks.frees.get(index, ())))
        for index, (stream, found) in enumerate(zip(streams, waits, strict=True))
    )
    communicates = any(op.is_collective for op in program.ops)
    return Schedule(placements, stream_count, host_reads, stores, communicates)


def _host_reads(program: Program, producers: Mapping[str, int], fetch: Sequence[str]) -> dict[int, tuple[str, ...]]:
    """Return op index → values that the host needs before launching it: conditions of branches and loops, tensors whose
    shapes depend on values (which are read completely), and those of `fetch`.
    """
    made = {tensor.name: op.index for op in program.ops for tensor in op.writes}
    dynamic = program.graph.dynamic
    found: dict[int, dict[str, None]] = {}
    known: set[str] = set()
    for op in program.ops:
        first = op.nodes[0]
        names = list(first.inputs[: _DECIDING.get(first.op_type, 0)])
        # A shape that depends on values must be read once; later shapes follow from it.
        names += [t.name for t in op.reads if t.name in dynamic and t.name not in known]
        for root in dict.fromkeys(program.root(name) for name in names):
            if root in producers and root not in known:
                found.setdefault(op.index, {})[root] = None
                known.add(root)
        if any(t.name in dynamic for t in op.reads):
            known.update(name for t in op.writes for name in (t.name, program.root(t.name)))
    for name in fetch:
        if name not in made:
            near = suggestion(name, list(made)) or " Inner tensors of a fused op are not available."
            raise UsageError(
                f"{option('--fetch')} {printable(name, 80)}: no op of {program.graph.name} produces it.{near}"
            )
        found.setdefault(made[name] + 1, {})[name] = None
    return {index: tuple(names) for index, names in sorted(found.items())}


def _planned_ticks(spec: DeviceSpec, op: DeviceOp) -> int:
    """Return an op's duration by the cost model. A device with other speeds of single op types gets the same plan."""
    return task_ticks(spec, replace(op.cost, speed_percent=100))


class _Placer:
    """List scheduling: place each op in turn where it ends first."""

    def __init__(self, program: Program, spec: DeviceSpec, producers: Mapping[str, int]) -> None:
        self._program = program
        self._spec = spec
        self._producers = producers
        self._free: list[int] = [0]
        self._end: dict[int, int] = {}
        self._stream: dict[int, int] = {}
        self._communication_end = 0
        self._hop = 2 * (EVENT_TICKS + spec.dispatch_gap_ticks)

    def place(self, op: DeviceOp) -> int:
        """Return the stream of the next op."""
        before = {self._producers[root] for t in op.reads if (root := self._program.root(t.name)) in self._producers}
        before |= set(op.after)
        before.discard(op.index)
        if op.is_collective:
            ready = max([self._communication_end, *(self._end[index] + self._hop for index in before)])
            self._communication_end = self._end[op.index] = ready + _planned_ticks(self._spec, op)
            self._stream[op.index] = _COMMUNICATION
            return _COMMUNICATION
        fresh = [len(self._free)] if len(self._free) < self._spec.compute_stream_count else []
        latest = max(before, key=lambda index: (self._end[index], index), default=None)
        home = 0 if latest is None else max(0, self._stream[latest])

        def start(stream: int) -> int:
            free = self._free[stream] if stream < len(self._free) else 0
            hops = [self._end[i] + (self._hop if self._stream[i] != stream else 0) for i in before]
            return max([free + self._spec.dispatch_gap_ticks, *hops])

        stream: int = min([*range(len(self._free)), *fresh], key=lambda s: (start(s), s != home, s))
        end = start(stream) + _planned_ticks(self._spec, op)
        if stream == len(self._free):
            self._free.append(0)
        self._free[stream] = end
        self._end[op.index], self._stream[op.index] = end, stream
        return stream


class _Clocks:
    """What is certainly done for each stream, as ops are launched one after another."""

    def __init__(
        self, program: Program, streams: Sequence[int], producers: Mapping[str, int], read_by_host: Sequence[str]
    ) -> None:
        width = max(streams, default=0) + 2
        self._program, self._streams, self._producers = program, streams, producers
        self._uploads = {program.root(name) for name in program.uploads}
        self._kept = self._uploads | {program.root(name) for name in program.downloads} | set(read_by_host)
        self._last_uses = program.last_uses()
        self._copies = width - 1
        self._clock = [[0] * width for _ in range(width)]
        self._clock[self._copies][self._copies] = 1
        #: Op (or INPUTS) → its stream, and the clock when it is done.
        self._at = {INPUTS: (self._copies, list(self._clock[self._copies]))}
        self._joined = [0] * width
        self._touched: dict[str, list[int]] = {}
        #: Stream → tensors in its memory that no later op reads, but other streams may still be reading.
        self._lingering: dict[int, list[str]] = {}
        #: Op → tensors to be freed after its launch.
        self.frees: dict[int, list[str]] = {}

    def launch(self, op: DeviceOp) -> tuple[int, ...]:
        """Launch an op; return the events that its stream must wait for first."""
        stream, root = self._streams[op.index], self._program.root
        needed = {self._producers[name] for t in op.reads if (name := root(t.name)) in self._producers} - {op.index}
        needed |= set(op.after)
        if any(root(t.name) in self._uploads for t in op.reads):
            needed.add(INPUTS)
        mine = self._clock[stream]
        waits = self._learn(mine, needed)
        mine[stream] += 1
        self._at[op.index] = (stream, list(mine))
        for tensor in (*op.reads, *op.writes):
            self._touched.setdefault(root(tensor.name), []).append(op.index)
        for name in self._last_uses.get(op.index, ()):
            if name not in self._kept and name in self._producers:
                self._lingering.setdefault(self._streams[self._producers[name]], []).append(name)
        waiting = self._lingering.get(stream, [])
        free = [name for name in waiting if all(self._is_done(index, mine) for index in self._touched[name])]
        if free:
            self.frees[op.index] = free
            self._lingering[stream] = [name for name in waiting if name not in free]
        return waits

    def join(self) -> tuple[int, ...]:
        """Return the events after which everything launched is done. The host waits for them: all clocks get them."""
        latest: dict[int, int] = {}
        for index, (stream, _) in self._at.items():
            latest[stream] = index
        waits = self._learn(self._joined, latest.values())
        for clock in self._clock:
            clock[:] = map(max, clock, self._joined)
        return waits

    def _is_done(self, index: int, clock: Sequence[int]) -> bool:
        stream, seen = self._at[index]
        return clock[stream] >= seen[stream]

    def _learn(self, clock: list[int], needed: Collection[int]) -> tuple[int, ...]:
        """Merge the clocks of the ops `needed` into a clock; return those that it did not imply, in order."""
        found = []
        for index in sorted(needed, reverse=True):  # later ops imply more
            if not self._is_done(index, clock):
                found.append(index)
                clock[:] = map(max, clock, self._at[index][1])
        return tuple(sorted(found))
