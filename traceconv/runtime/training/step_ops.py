"""The ops of a training step as they are added: tensors with fresh names, prices, and how the numbers are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import onnx
from onnx import helper

from traceconv.runtime.cost import Cost, InstructionMix, MatrixWork, VectorWork, cpu_cost, matrix_cost, vector_cost
from traceconv.runtime.graph import FLOATS, Node, Tensor
from traceconv.runtime.lower import IMAGE_OPS, DeviceOp
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.gradient import Gradient, Values, VectorUse

#: (values of what an op reads, seed of what it draws) → values of what it makes.
Numbers: TypeAlias = Callable[[Sequence[Values], Sequence[int]], Sequence[Values]]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the numbers of a device op are made."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    run: Numbers


@dataclass(frozen=True, slots=True)
class Operands:
    """The tensors of an op that is added.

    constants  names of those read that are weights
    updates    tensors that it changes in place
    after      indices of ops that must be done before it
    """

    reads: Sequence[Tensor]
    makes: Sequence[Tensor]
    constants: Mapping[str, object] = field(default_factory=dict)
    updates: tuple[Tensor, ...] = ()
    after: tuple[int, ...] = ()


@dataclass(slots=True)
class StepOps:
    """What a step is made of so far.

    tensors     those of the model, and those that were added
    roots       view → the tensor whose memory it shares
    arithmetic  by op index
    """

    spec: DeviceSpec
    tensors: dict[str, Tensor] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    ops: list[DeviceOp] = field(default_factory=list)
    arithmetic: dict[int, Arithmetic] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def fresh(self, name: str) -> str:
        """A tensor's name that is not taken."""
        number, found = 1, name
        while found in self.tensors:
            number += 1
            found = f"{name}_{number}"
        return found

    def computes(self, reads: Sequence[str], makes: Sequence[str], run: Numbers) -> None:
        """How the op that was added last makes its numbers."""
        self.arithmetic[len(self.ops) - 1] = Arithmetic(tuple(reads), tuple(makes), run)

    def matrix_op(self, name: str, step: Gradient, node: Node, operands: Operands) -> None:
        """Adds a gradient that a cube core makes."""
        work = step.work
        assert isinstance(work, MatrixWork)
        out = operands.makes[-1]
        in_bytes = sum(t.size_bytes for t in operands.reads)
        cost = matrix_cost(self.spec, work, out.elem_bytes, in_bytes + out.size_bytes, out.size_bytes)
        flops = 2 * work.groups * work.m * work.n * work.k
        cost = replace(cost, workspace_bytes=0)
        self.add(name, step.op_type, "AI_CORE", "backward", node, operands, cost, flops)

    def vector_op(self, name: str, op_type: str, phase: str, node: Node, operands: Operands, use: VectorUse) -> None:
        """Adds an op of vector cores; of an AI CPU for floats of 8 bytes."""
        written = [*operands.makes, *operands.updates]
        touched = [*operands.reads, *written]
        count = use.count or max((tensor.count for tensor in touched), default=1)
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
        self.add(name, op_type, core, phase, node, operands, cost, flops)

    def add(
        self, name: str, op_type: str, core: str, phase: str, node: Node, operands: Operands, cost: Cost, flops: int
    ) -> None:
        """Adds an op; its name gets a number where it is taken."""
        number, shown = 1, name
        while shown in self._names:
            number += 1
            shown = f"{name}_{number}"
        self._names.add(shown)
        self.ops.append(
            DeviceOp(
                len(self.ops),
                shown,
                op_type,
                core,
                (node,),
                (node,),
                tuple(tensor for tensor in operands.reads if tensor.name not in operands.constants),
                tuple(tensor for tensor in operands.reads if tensor.name in operands.constants),
                tuple(operands.makes),
                tuple(operands.reads),
                node.op_type in IMAGE_OPS,
                flops,
                cost,
                None,
                False,
                phase,
                operands.updates,
                operands.after,
            )
        )

    def final_roots(self) -> dict[str, str]:
        """Tensor → the one whose memory it shares."""
        roots = dict(self.roots)
        for name in list(roots):
            while roots[name] in roots:
                roots[name] = roots[roots[name]]
        return roots


def made_node(op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Node:
    """A node that no model has, which says what an op of training is."""
    proto: onnx.NodeProto = helper.make_node(op_type, list(inputs), list(outputs), name=name)
    return Node(name, proto)
