"""The parts of a gradient rule: the tasks that compute the gradients of an op's inputs, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from traceconv.base.arrays import NDArray
from traceconv.runtime.cost import MatrixWork
from traceconv.runtime.graph import Array, Node, Tensor

#: Arrays that rules compute with. numpy's own types can't say that a sum keeps the element type.
Values: TypeAlias = NDArray[Any]
Compute: TypeAlias = "Callable[..., Sequence[Values]]"


class NoRule(Exception):
    """This op, or this form of it, can't be differentiated; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class VectorUse:
    """Work of the vector unit: `cycles` per register and `flops` per element, for `count` elements.

    `count` None: the size of the largest operand or result.
    """

    cycles: int
    flops: int
    count: int | None = None
    scattered: bool = False


@dataclass(frozen=True, slots=True)
class Gradient:
    """One task of the backward pass.

    op_type  its type on the device
    reads    tensors, in the order of the arguments of `compute`
    wrt      positions of the inputs whose gradients it computes, in the order of the results of `compute`
    compute  values of `reads` → gradients, each with the shape of its input
    work     its work on the device
    """

    op_type: str
    reads: tuple[str, ...]
    wrt: tuple[int, ...]
    compute: Compute
    work: MatrixWork | VectorUse


@dataclass(frozen=True, slots=True)
class Same:
    """The gradient of input `wrt` is that of the output, reshaped if necessary: no task."""

    wrt: int


Rule: TypeAlias = "Callable[[Site], list[Gradient | Same]]"


@dataclass(frozen=True, slots=True)
class Site:
    """An op to differentiate.

    dys     name of the gradient of each output; None for outputs that nothing depends on
    wanted  positions of the inputs whose gradients are needed
    saved   tensors that its training form keeps in addition to its outputs (batch statistics, a mask)
    """

    node: Node
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, Array]
    dys: tuple[str | None, ...]
    wanted: tuple[int, ...]
    saved: tuple[str, ...] = ()
    opset: int = 17

    @property
    def dy(self) -> str:
        """The gradient of the first output, which must be the only output with one."""
        first = self.dys[0]
        if first is None or any(dy is not None for dy in self.dys[1:]):
            raise NoRule("other outputs than the first are used")
        return first

    def x(self, position: int) -> Tensor:
        """Return an input."""
        return self.tensors[self.node.inputs[position]]

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.tensors[self.node.outputs[0]]

    def wants(self, position: int) -> bool:
        """Whether the gradient of an input is needed."""
        return position in self.wanted

    def constant(self, position: int, label: str) -> Array | None:
        """Return the value of an input that must be a constant; None if it is omitted. Raises NoRule."""
        if position >= len(self.node.inputs) or not self.node.inputs[position]:
            return None
        value = self.constants.get(self.node.inputs[position])
        if value is None:
            raise NoRule(f"its {label} must be a constant")
        return value

    def integers(self, position: int, label: str) -> list[int] | None:
        """Return the constant value of an input as a list of integers; None if it is omitted. Raises NoRule."""
        value = self.constant(position, label)
        return None if value is None else [int(number) for number in value.reshape(-1).tolist()]


def passed_on(site: Site, position: int, op_type: str = "BiasAddGrad") -> Gradient | Same:
    """Return the output's gradient as that of an operand; a broadcast operand needs a task, which sums it."""
    shape = site.x(position).shape
    if shape == site.y.shape:
        return Same(position)
    return Gradient(op_type, (site.dy,), (position,), lambda dy: [unbroadcast(dy, shape)], VectorUse(1, 1))


def unbroadcast(gradient: Values, shape: Sequence[int]) -> Values:
    """Return the gradient of a broadcast operand: the sum over all its copies."""
    extra = gradient.ndim - len(shape)
    axes = (*range(extra), *(extra + k for k, n in enumerate(shape) if n == 1 and gradient.shape[extra + k] != 1))
    summed: Values = gradient.sum(axis=axes) if axes else gradient
    return summed.reshape(tuple(shape))


def broadcast_attribute(site: Site) -> None:
    """Raise NoRule for broadcasting before opset 7, which aligns operands by an attribute."""
    if any(attribute.name in ("axis", "broadcast") for attribute in site.node.proto.attribute):
        raise NoRule("broadcasting by attribute, as before opset 7, is unsupported")
