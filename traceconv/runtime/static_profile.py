"""A static profile of a model: the cost of each op, the time of each kind of core, the memory needed.

Nothing is executed. Times are those of the cost model, for each op alone on the device. Memory is what the device's
allocator does when it follows the plan of a run (`memory_plan`), so a recorded run needs exactly as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from traceconv.runtime.control import ControlFlow, lower_with_control
from traceconv.runtime.control_estimate import Assumption
from traceconv.runtime.cost import ceil_div, task_ticks
from traceconv.runtime.graph import Tensor
from traceconv.runtime.load import load_graph
from traceconv.runtime.lower import DeviceOp, Program
from traceconv.runtime.memory import Allocator, Block, MemoryEvent, use_of
from traceconv.runtime.schedule import Schedule, schedule
from traceconv.runtime.spec import DeviceSpec, reference_npu
from traceconv.runtime.zoo import FoundModel, find_model

#: After this many runs, the memory of further runs is the same.
_PLANNED_RUNS = 3
_ENDLESS_BYTES = 1 << 60


@dataclass(frozen=True, slots=True)
class OpEstimate:
    """The estimate of an op, or of all its executions in a body.

    dur_ns  its duration alone on the device, rounded up to a tick of the device's counter
    """

    op: DeviceOp
    stream_id: int
    dur_ns: int

    @property
    def memory_bytes(self) -> int:
        """Bytes of its tensors and of its scratch memory."""
        return self.op.input_bytes + self.op.weight_bytes + self.op.output_bytes + self.op.cost.workspace_bytes

    @property
    def flops_per_s(self) -> int:
        return self.op.flops * 10**9 // self.dur_ns

    @property
    def bytes_per_s(self) -> int:
        return self.memory_bytes * 10**9 // self.dur_ns

    @property
    def arithmetic_intensity(self) -> float | None:
        """Floating-point operations per byte of input, weight and output; None without such bytes."""
        moved = self.memory_bytes - self.op.cost.workspace_bytes
        return self.op.flops / moved if moved else None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of the device while a model runs repeatedly.

    peak_tensor_bytes    peak of the sizes of tensors and scratch memory
    peak_used_bytes      the same in the allocator's blocks, which are rounded up
    peak_reserved_bytes  peak of what the allocator reserves from the device, with fragmentation
    peak_op              index of the op whose launch first reaches peak_used_bytes; None: none, or an input
    """

    weight_bytes: int
    peak_tensor_bytes: int
    peak_used_bytes: int
    peak_reserved_bytes: int
    peak_op: int | None


@dataclass(frozen=True, slots=True)
class StaticProfile:
    """A model on a device, without a run. `assumptions`: what was assumed of its control flow."""

    model_name: str
    device: DeviceSpec
    ops: tuple[OpEstimate, ...]
    fusions: tuple[tuple[int, int, int, str, str], ...]
    memory: MemoryPlan
    input_bytes: int
    output_bytes: int
    assumptions: tuple[Assumption, ...] = ()

    @property
    def flops(self) -> int:
        return sum(estimate.op.flops for estimate in self.ops)

    @property
    def total_ns(self) -> int:
        """Time of all ops, one after another."""
        return sum(estimate.dur_ns for estimate in self.ops)

    @property
    def param_count(self) -> int:
        return sum(estimate.op.param_count for estimate in self.ops)

    @property
    def fits(self) -> bool:
        """Whether the device has enough memory."""
        return self.memory.peak_reserved_bytes <= self.device.memory_bytes


def static_profile(
    model: str | FoundModel, batch: int | None = None, *, spec: DeviceSpec | None = None, prefetch: bool = True
) -> StaticProfile:
    """Profile a model (a path, a name of `zoo.model_names()`, or one in memory) without running it.

    Shapes that depend on values are those for random inputs. `prefetch`: as in `record`, the inputs of a run are copied
    while the previous run computes, which needs memory for both. Raises ModelError for a model that can't be lowered.
    """
    found = find_model(model) if isinstance(model, str) else model
    device = spec or reference_npu()
    program, control = lower_with_control(load_graph(found.proto, found.name, batch), device)
    return profile_of(program, control, device, prefetch=prefetch)


def profile_of(program: Program, control: ControlFlow, device: DeviceSpec, *, prefetch: bool) -> StaticProfile:
    """Profile a lowered program; see `static_profile`."""
    plan = schedule(program, device)
    ops: list[tuple[DeviceOp, DeviceOp]] = []  # with the op whose stream it is launched on
    for op in program.ops:
        inner = control.launched(op.index, control.assumed[op.index], 0) if op.index in control.controls else ()
        ops += [(op, op), *((one, op) for one, _ in inner)]
    tensors = program.graph.tensors
    return StaticProfile(
        program.graph.name,
        device,
        tuple(OpEstimate(op, plan.placements[outer.index].stream, task_ns(device, op)) for op, outer in ops),
        tuple(
            (op.fusion_id, op.index, place, node.name, node.op_type)
            for op, _ in ops
            if op.fusion_id is not None
            for place, node in enumerate(op.originals)
        ),
        memory_plan(program, plan, prefetch=prefetch),
        sum(tensors[name].size_bytes for name in program.uploads),
        sum(tensors[name].size_bytes for name in program.downloads),
        tuple(control.assumptions),
    )


def task_ns(spec: DeviceSpec, op: DeviceOp) -> int:
    """Return the duration of an op alone on the device, in ns at its counter's nominal rate, rounded up."""
    return ceil_div(op.repeats * max(1, task_ticks(spec, op.cost)) * 1_000_000_000, spec.clock_hz)


def memory_plan(program: Program, plan: Schedule, *, prefetch: bool = True) -> MemoryPlan:
    """Return the memory needed by runs: let the allocator follow the plan of some runs, as in a session."""
    memory = _PlannedMemory(program, plan)
    tensors = program.graph.tensors
    weights = [tensors[name].size_bytes for name in (*program.graph.constants, *program.state)]
    for size in weights:
        memory.alloc(size, "weight", None)
    following: _Held = {}
    for number in range(_PLANNED_RUNS):
        held = following or memory.load_inputs()
        memory.launch_ops(held)
        following = memory.load_inputs() if prefetch and number + 1 < _PLANNED_RUNS else {}
        memory.free_all(held)
    return MemoryPlan(sum(weights), memory.most_tensor_bytes, memory.used, memory.reserved, memory.peak_op)


#: Tensor → its block, and its own size.
_Held = dict[str, tuple[Block, int]]


class _PlannedMemory:
    """The memory of planned runs and its peaks: allocates and frees in the same order as `launch.py`."""

    def __init__(self, program: Program, plan: Schedule) -> None:
        self._program, self._plan = program, plan
        self._allocator = Allocator(_ENDLESS_BYTES, self._note)
        self.used = self.reserved = self.tensor_bytes = self.most_tensor_bytes = 0
        self.peak_op: int | None = None

    def _note(self, *fields: Any) -> None:
        event = MemoryEvent(*fields)
        self.reserved = max(self.reserved, event.reserved_bytes)
        if event.used_bytes > self.used:
            self.used, self.peak_op = event.used_bytes, event.origin.op_index

    def alloc(self, size_bytes: int, pool: str, op: int | None) -> tuple[Block, int]:
        """Return a block and the requested size."""
        self.tensor_bytes += size_bytes
        self.most_tensor_bytes = max(self.most_tensor_bytes, self.tensor_bytes)
        return self._allocator.alloc(size_bytes, use_of(pool, "activation", op=op), 0), size_bytes

    def _free(self, block: Block, size_bytes: int) -> None:
        self.tensor_bytes -= size_bytes
        self._allocator.free(block, 0)

    def free_all(self, held: _Held) -> None:
        for block, size in held.values():
            self._free(block, size)

    def _hold(self, held: _Held, tensor: Tensor, pool: str, op: int | None) -> None:
        root = self._program.root(tensor.name)
        if root not in held:
            held[root] = self.alloc(tensor.size_bytes, pool, op)

    def load_inputs(self) -> _Held:
        held: _Held = {}
        for name in self._program.uploads:
            self._hold(held, self._program.graph.tensors[name], "input", None)
        return held

    def launch_ops(self, held: _Held) -> None:
        for op in self._program.ops:
            place = self._plan.placements[op.index]
            pool = f"stream {place.stream}"
            for tensor in op.writes:
                self._hold(held, tensor, pool, op.index)
            if op.cost.workspace_bytes:
                self._free(*self.alloc(op.cost.workspace_bytes, pool, op.index))
            for name in place.frees:
                self._free(*held.pop(name))


def by_core(ops: Sequence[OpEstimate]) -> dict[str, tuple[int, int, int]]:
    """Return kind of core → (ops, ns one after another, flops), the longest first."""
    found: dict[str, tuple[int, int, int]] = {}
    for estimate in ops:
        op = estimate.op
        count, total, flops = found.get(op.core, (0, 0, 0))
        found[op.core] = (count + 1, total + estimate.dur_ns, flops + op.flops)
    return dict(sorted(found.items(), key=lambda entry: (-entry[1][1], entry[0])))
