"""Gradient rules: the tasks that compute the gradients of an op's inputs, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from traceconv.runtime.cost import MatrixWork
from traceconv.runtime.graph import Array, Node, Tensor

#: Arrays that rules compute with. numpy's own types can't say that a sum keeps the element type.
Values: TypeAlias = NDArray[Any]
Compute: TypeAlias = "Callable[..., Sequence[Values]]"


class NoRule(Exception):
    """This op, or this form of it, can't be differentiated; the message is the reason."""


@dataclass(frozen=True, slots=True)
class VectorUse:
    """Work of the vector unit: `cycles` a register and `flops` an element, for `count` elements.

    `count` None: as many as the largest operand or result has.
    """

    cycles: int
    flops: int
    count: int | None = None
    scattered: bool = False


@dataclass(frozen=True, slots=True)
class Gradient:
    """One task of the backward pass.

    op_type  its name on the device
    reads    tensors, in the order in which `compute` takes their values
    wrt      indices of the inputs whose gradients it computes, in the order of `compute`'s results
    compute  values of `reads` → gradients, each of the shape of its input
    work     what the device does
    """

    op_type: str
    reads: tuple[str, ...]
    wrt: tuple[int, ...]
    compute: Compute
    work: MatrixWork | VectorUse


@dataclass(frozen=True, slots=True)
class Same:
    """The gradient of input `wrt` is that of the output, in other clothes at most: no task."""

    wrt: int


Rule: TypeAlias = "Callable[[Site], list[Gradient | Same]]"


@dataclass(frozen=True, slots=True)
class Site:
    """An op that is to be differentiated.

    dys     names of the gradients of its outputs, by place; None where nothing depends on one
    wanted  indices of the inputs whose gradients are requested
    saved   additional outputs of its training form (batch statistics, a mask)
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
        """The gradient of the first output, which must be the only one that has one."""
        first = self.dys[0]
        if first is None or any(dy is not None for dy in self.dys[1:]):
            raise NoRule("more than its first output is used")
        return first

    def x(self, place: int) -> Tensor:
        """An input."""
        return self.tensors[self.node.inputs[place]]

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.tensors[self.node.outputs[0]]

    def wants(self, place: int) -> bool:
        """Whether the gradient of an input is requested."""
        return place in self.wanted

    def known(self, place: int, what: str) -> Array | None:
        """The value of an input that must be a constant; None if it is omitted. Raises NoRule."""
        if place >= len(self.node.inputs) or not self.node.inputs[place]:
            return None
        value = self.constants.get(self.node.inputs[place])
        if value is None:
            raise NoRule(f"its {what} must be a constant")
        return value

    def text(self, name: str, default: str) -> str:
        """Attribute `name` as a text."""
        for attribute in self.node.proto.attribute:
            if attribute.name == name:
                return str(attribute.s.decode("utf-8", "replace"))
        return default


def unbroadcast(gradient: Values, shape: Sequence[int]) -> Values:
    """The gradient of an operand that was broadcast: summed over all its copies."""
    extra = gradient.ndim - len(shape)
    axes = (*range(extra), *(extra + k for k, n in enumerate(shape) if n == 1 and gradient.shape[extra + k] != 1))
    summed: Values = gradient.sum(axis=axes) if axes else gradient
    return summed.reshape(tuple(shape))


def broadcast_attribute(site: Site) -> None:
    """Refuses the broadcasting of opset 6 and before, which aligns operands by an attribute."""
    if any(attribute.name in ("axis", "broadcast") for attribute in site.node.proto.attribute):
        raise NoRule("broadcasting by attribute (before opset 7) is not supported")


def zeros_like(tensor: Tensor) -> Values:
    """A gradient of nothing."""
    return np.zeros(tensor.shape, tensor.numpy_dtype)
