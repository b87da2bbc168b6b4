"""The ops of a training step: their tensors, costs and arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import onnx
from onnx import helper

from traceconv.runtime.bfloat16 import BF16, rounded
from traceconv.runtime.cost import (
    Cost,
    InstructionMix,
    MatrixWork,
    VectorWork,
    at_speed,
    cpu_cost,
    matrix_cost,
    split_cost,
    vector_cost,
)
from traceconv.runtime.fusion import Group
from traceconv.runtime.graph import FLOATS, Node, Tensor
from traceconv.runtime.lower import IMAGE_OPS, DeviceOp
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.gradient import Gradient, Values, VectorUse
from traceconv.runtime.workspace import aligned, partial_bytes, unfold_bytes

#: (values of the operands, seed of random numbers) → values of the results.
Numbers: TypeAlias = Callable[[Sequence[Values], Sequence[int]], Sequence[Values]]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the numbers of a device op are computed."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    run: Numbers


@dataclass(frozen=True, slots=True)
class Operands:
    """The tensors of an op.

    constants  names of the operands that are weights
    updates    tensors that the op changes in place
    after      indices of ops that it waits for
    """

    reads: Sequence[Tensor]
    makes: Sequence[Tensor]
    constants: Mapping[str, object] = field(default_factory=dict)
    updates: tuple[Tensor, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(slots=True)
class StepOps:
    """The ops of a step.

    tensors     the model's, and those that were added
    roots       view → the tensor whose memory it shares
    arithmetic  by op index
    """

    spec: DeviceSpec
    tensors: dict[str, Tensor] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    ops: list[DeviceOp] = field(default_factory=list)
    arithmetic: dict[int, Arithmetic] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)
    _fusions: int = 0

    def tensor(self, name: str, shape: tuple[int, ...], elem_type: int) -> Tensor:
        """Add a tensor; its name gets a number if it is taken."""
        tensor = Tensor(_unused(name, self.tensors), shape, elem_type)
        self.tensors[tensor.name] = tensor
        return tensor

    def computes(self, reads: Sequence[str], makes: Sequence[str], run: Numbers) -> None:
        """Set how the numbers of the latest op are computed."""
        self.arithmetic[len(self.ops) - 1] = self.rounding(reads, makes, run)

    def rounding(self, reads: Sequence[str], makes: Sequence[str], run: Numbers) -> Arithmetic:
        """Return an arithmetic that computes in fp32 and rounds results of bfloat16."""
        halves = [self.tensors[name].numpy_dtype == BF16 for name in makes]

        def run_rounded(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
            return [rounded(one) if half else one for one, half in zip(run(values, seed), halves, strict=True)]

        return Arithmetic(tuple(reads), tuple(makes), run_rounded if any(halves) else run)

    def matrix_op(self, name: str, step: Gradient, node: Node, operands: Operands) -> None:
        """Add a gradient that a cube core computes."""
        work = step.work
        assert isinstance(work, MatrixWork)
        out = operands.makes[-1]
        in_bytes = sum(t.size_bytes for t in operands.reads)
        cost = matrix_cost(self.spec, work, out.elem_bytes, in_bytes + out.size_bytes, out.size_bytes)
        flops = 2 * work.groups * work.m * work.n * work.k
        if step.op_type == "MatMulGrad":
            cost = split_cost(self.spec, cost, out.size_bytes)
            scratch = cost.workspace_bytes
        else:
            scratch = unfold_bytes(node, self.tensors, out.elem_bytes)
        cost = replace(cost, workspace_bytes=aligned(scratch))
        core = "MIX_AIC" if cost.mix_block_count else "AI_CORE"
        self.add(name, step.op_type, core, "backward", alone(node), operands, cost, flops)

    def vector_op(self, name: str, op_type: str, phase: str, group: Group, operands: Operands, use: VectorUse) -> None:
        """Add an op of vector cores; of an AI CPU for 64-bit floats."""
        written = [*operands.makes, *operands.updates]
        touched = [*operands.reads, *written]
        largest = max((tensor.count for tensor in touched), default=1)
        count = use.count or largest
        size = max((t.elem_bytes for t in touched if t.elem_type in FLOATS), default=4)
        in_bytes = sum(tensor.size_bytes for tensor in operands.reads)
        out_bytes = sum(tensor.size_bytes for tensor in written)
        flops = use.flops * count
        if size == 8:
            cost, core = cpu_cost(self.spec, count, in_bytes + out_bytes), "AI_CPU"
        else:
            mix = InstructionMix("fp16" if size == 2 else "fp32")
            work = VectorWork(count, use.cycles, size, in_bytes, out_bytes, use.scattered, mix=mix)
            cost, core = vector_cost(self.spec, work), "AI_VECTOR_CORE"
            # Windows overlap within the tile of a core; smaller results are sums over all cores.
            sums = [t.count for t in operands.makes if t.count < largest and use.flops]
            scratch = sum(partial_bytes(self.spec, largest, number) for number in sums)
            cost = replace(cost, workspace_bytes=aligned(scratch))
        self.add(name, op_type, core, phase, group, operands, cost, flops)

    def add(
        self, name: str, op_type: str, core: str, phase: str, group: Group, operands: Operands, cost: Cost, flops: int
    ) -> None:
        """Add an op; its name gets a number if it is taken."""
        name = _unused(name, self._names)
        self._names.add(name)
        fused = len(group.originals) > 1
        self.ops.append(
            DeviceOp(
                len(self.ops),
                name,
                op_type,
                core,
                group.nodes,
                group.originals,
                tuple(tensor for tensor in operands.reads if tensor.name not in operands.constants),
                tuple(tensor for tensor in operands.reads if tensor.name in operands.constants),
                tuple(operands.makes),
                tuple(operands.reads),
                any(node.op_type in IMAGE_OPS for node in group.nodes),
                flops,
                at_speed(self.spec, op_type, cost),
                self._fusions if fused else None,
                False,
                phase,
                operands.updates,
                operands.after,
            )
        )
        self._fusions += fused

    def final_roots(self) -> dict[str, str]:
        """Map each view to the tensor whose memory it shares."""
        roots = dict(self.roots)
        for name in list(roots):
            while roots[name] in roots:
                roots[name] = roots[roots[name]]
        return roots


def _unused(name: str, taken: Container[str]) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def alone(node: Node) -> Group:
    """Return the group of a node that is not fused."""
    return Group((node,), (node,))


def chained(parts: Sequence[Arithmetic], makes: Sequence[str]) -> Arithmetic:
    """Return the arithmetic of a fused op: that of its nodes, one after another, so that fusion changes no result."""
    inside = {name for part in parts for name in part.makes}
    reads = tuple(dict.fromkeys(name for part in parts for name in part.reads if name not in inside))

    def run(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
        known = dict(zip(reads, values, strict=True))
        for part in parts:
            made = part.run([known[name] for name in part.reads], seed)
            known.update(zip(part.makes, made, strict=True))
        return [known[name] for name in makes]

    return Arithmetic(reads, tuple(makes), run)


def made_node(op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Node:
    """Create a node for a training op that the model does not contain."""
    proto: onnx.NodeProto = helper.make_node(op_type, list(inputs), list(outputs), name=name)
    return Node(name, proto)
