"""What is known of a model before it runs: the cost of each op, the time of each kind of core, the memory it will take.

Nothing is executed. Times are those of the cost model, an op alone on the device; memory is what the device's own
allocator does when it is led through the plan of a run (`memory_plan`), so that a recorded run needs just as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from traceconv.runtime.cost import ceil_div, task_ticks
from traceconv.runtime.fusion import fuse
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import DeviceOp, Program, lower
from traceconv.runtime.memory import Allocator, Block, MemoryEvent
from traceconv.runtime.schedule import Schedule, schedule
from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.runtime.zoo import FoundModel, find_model

#: Runs after which memory is as it will be in all that follow.
_PLANNED_RUNS = 3
_ENDLESS_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class OpEstimate:
    """An op on paper. Bytes are those of its tensors; `memory_bytes` is all that it touches, scratch memory too.

    dur_ns                what it takes alone on the device, rounded up to the next tick of its counter
    flops                 2 for each multiply-accumulate
    param_count           elements of its weights
    arithmetic_intensity  flops for each byte of input, weight and output; None where there are no bytes
    """

    op_index: int
    name: str
    op_type: str
    core_type: str
    stream_id: int
    dur_ns: int
    cycles: int
    block_count: int
    mix_block_count: int
    hf32_eligible: bool
    state: str
    scope_path: str | None
    fusion_id: int | None
    flops: int
    param_count: int
    input_bytes: int
    weight_bytes: int
    output_bytes: int
    workspace_bytes: int
    input_shapes: str
    input_dtypes: str
    input_formats: str
    output_shapes: str
    output_dtypes: str
    output_formats: str

    @property
    def memory_bytes(self) -> int:
        return self.input_bytes + self.weight_bytes + self.output_bytes + self.workspace_bytes

    @property
    def flops_per_s(self) -> int:
        return self.flops * 10**9 // self.dur_ns

    @property
    def bytes_per_s(self) -> int:
        return self.memory_bytes * 10**9 // self.dur_ns

    @property
    def arithmetic_intensity(self) -> float | None:
        moved = self.input_bytes + self.weight_bytes + self.output_bytes
        return self.flops / moved if moved else None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of the device while a model runs again and again.

    peak_tensor_bytes    most bytes of tensors and scratch memory that are needed at a time, by their own sizes
    peak_used_bytes      the same in the allocator's blocks, which are rounded up
    peak_reserved_bytes  most bytes that the allocator holds from the device: with fragmentation
    peak_op              index of the op at whose launch peak_used_bytes is reached first; None: none, or an input
    """

    weight_bytes: int
    peak_tensor_bytes: int
    peak_used_bytes: int
    peak_reserved_bytes: int
    peak_op: int | None


@dataclass(frozen=True, slots=True)
class StaticProfile:
    """A model on a device, without a run."""

    model_name: str
    device: DeviceSpec
    ops: tuple[OpEstimate, ...]
    fusions: tuple[tuple[int, int, int, str, str], ...]
    memory: MemoryPlan
    input_bytes: int
    output_bytes: int

    @property
    def flops(self) -> int:
        return sum(op.flops for op in self.ops)

    @property
    def total_ns(self) -> int:
        """One op after another."""
        return sum(op.dur_ns for op in self.ops)

    @property
    def param_count(self) -> int:
        return sum(op.param_count for op in self.ops)

    @property
    def fits(self) -> bool:
        """Whether the device has as much memory."""
        return self.memory.peak_reserved_bytes <= self.device.memory_bytes


def static_profile(
    model: str | FoundModel, batch: int | None = None, *, spec: DeviceSpec | None = None, prefetch: bool = True
) -> StaticProfile:
    """Profiles a model (a path, a name of `zoo.model_names()`, or one in memory) without running it.

    Of tensors whose shapes depend on values, the shapes are those that random inputs lead to. `prefetch`: as in
    `record`, the inputs of a run are copied while the one before computes, and need room beside them. Raises
    ModelError for a model that can't be lowered.
    """
    found = find_model(model) if isinstance(model, str) else model
    device = spec or reference_npu()
    program = lower(fuse(load_graph(found.proto, found.name, batch)), device)
    plan = schedule(program, device)
    tensors = program.graph.tensors
    return StaticProfile(
        program.graph.name,
        device,
        tuple(_estimate(op, plan, device) for op in program.ops),
        tuple(
            (op.fusion_id, op.index, place, node.name, node.op_type)
            for op in program.ops
            if op.fusion_id is not None
            for place, node in enumerate(op.originals)
        ),
        memory_plan(program, plan, prefetch=prefetch),
        sum(tensors[name].size_bytes for name in program.uploads),
        sum(tensors[name].size_bytes for name in program.downloads),
    )


def _estimate(op: DeviceOp, plan: Schedule, spec: DeviceSpec) -> OpEstimate:
    return OpEstimate(
        op.index,
        op.name,
        op.op_type,
        op.core,
        plan.placements[op.index].stream,
        task_ns(spec, op),
        op.cost.cycles,
        op.cost.block_count,
        op.cost.mix_block_count,
        op.hf32_eligible,
        "dynamic" if op.dynamic else "static",
        op.scope_path,
        op.fusion_id,
        op.flops,
        sum(tensor.count for tensor in op.weights),
        sum(tensor.size_bytes for tensor in op.reads),
        sum(tensor.size_bytes for tensor in op.weights),
        sum(tensor.size_bytes for tensor in op.writes),
        op.cost.workspace_bytes,
        *op.describe_operands(),
        *op.describe_results(),
    )


def task_ns(spec: DeviceSpec, op: DeviceOp) -> int:
    """Duration of an op that is alone on the device, in ns of its counter's nominal rate, rounded up."""
    return ceil_div(max(1, task_ticks(spec, op.cost)) * 1_000_000_000, spec.clock_hz)


class _Peaks:
    """What the allocator says, reduced to its most."""

    def __init__(self) -> None:
        self.used = self.reserved = self.tensors = self.most_tensors = 0
        self.op: int | None = None

    def note(self, event: MemoryEvent) -> None:
        self.reserved = max(self.reserved, event.reserved_bytes)
        if event.used_bytes > self.used:
            self.used, self.op = event.used_bytes, event.op_index

    def hold(self, size_bytes: int) -> None:
        self.tensors += size_bytes
        self.most_tensors = max(self.most_tensors, self.tensors)


def memory_plan(program: Program, plan: Schedule, *, prefetch: bool = True) -> MemoryPlan:
    """Leads the allocator through the plan of some runs, as a session would, and takes the peaks."""
    peaks = _Peaks()
    memory = Allocator(_ENDLESS_BYTES, peaks.note)
    tensors = program.graph.tensors
    weights = [tensors[name].size_bytes for name in (*program.graph.constants, *program.state)]
    for size in weights:
        memory.alloc(size, pool="weight", purpose="weight", tensor=None, op=None, now_ns=0)
        peaks.hold(size)
    runs = [_PlannedRun(program, plan, memory, peaks) for _ in range(_PLANNED_RUNS)]
    for run, following in zip(runs, [*runs[1:], None], strict=True):
        run.load_inputs()
        run.launch_ops()
        if prefetch and following is not None:
            following.load_inputs()
        run.finish()
    return MemoryPlan(sum(weights), peaks.most_tensors, peaks.used, peaks.reserved, peaks.op)


class _PlannedRun:
    """One run of the model as far as memory goes: what `launch.py` allocates and frees, in the same order."""

    def __init__(self, program: Program, plan: Schedule, memory: Allocator, peaks: _Peaks) -> None:
        self._program, self._plan, self._memory, self._peaks = program, plan, memory, peaks
        self._held: dict[str, tuple[Block, int]] = {}
        self._loaded = False

    def load_inputs(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for name in self._program.uploads:
            self._alloc(self._program.root(name), self._program.graph.tensors[name].size_bytes, "input", None)

    def launch_ops(self) -> None:
        for op in self._program.ops:
            place = self._plan.placements[op.index]
            pool = f"stream {place.stream}"
            for tensor in op.writes:
                self._alloc(self._program.root(tensor.name), tensor.size_bytes, pool, op.index)
            size = op.cost.workspace_bytes
            if size:
                scratch = self._block(size, pool, op.index)
                self._release(scratch, size)
            for name in place.frees:
                self._release(*self._held.pop(name))

    def finish(self) -> None:
        for block, size in self._held.values():
            self._release(block, size)
        self._held.clear()

    def _alloc(self, root: str, size_bytes: int, pool: str, op: int | None) -> None:
        if root not in self._held:
            self._held[root] = (self._block(size_bytes, pool, op), size_bytes)

    def _block(self, size_bytes: int, pool: str, op: int | None) -> Block:
        self._peaks.hold(size_bytes)
        return self._memory.alloc(size_bytes, pool=pool, purpose="activation", tensor=None, op=op, now_ns=0)

    def _release(self, block: Block, size_bytes: int) -> None:
        self._peaks.hold(-size_bytes)
        self._memory.free(block, 0)


def by_core(ops: Sequence[OpEstimate]) -> dict[str, tuple[int, int, int]]:
    """Of each kind of core: ops, ns one after another, flops; the longest first."""
    found: dict[str, tuple[int, int, int]] = {}
    for op in ops:
        count, total, flops = found.get(op.core_type, (0, 0, 0))
        found[op.core_type] = (count + 1, total + op.dur_ns, flops + op.flops)
    return dict(sorted(found.items(), key=lambda entry: (-entry[1][1], entry[0])))
