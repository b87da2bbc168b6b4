"""Losses: softmax cross-entropy of the model's logits, or the mean squared error of its output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from traceconv.base.errors import InputError, ModelError, UsageError, option, printable, suggestion
from traceconv.runtime.bfloat16 import is_float
from traceconv.runtime.graph import FLOATS, Array, Graph, Node, Tensor
from traceconv.runtime.training.gradient import Values

LOSSES = ("cross-entropy", "mse")
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of one tensor of the model against a target.

    kind        one of `LOSSES`
    source      the tensor to compare with the target: logits or a prediction
    target      input of each step
    class_axis  the axis of the logits that the target indexes
    """

    kind: str
    source: Tensor
    target: Tensor
    class_axis: int = -1

    @property
    def op_types(self) -> tuple[str, str]:
        """Device op types of the loss and of its gradient."""
        if self.kind == "mse":
            return "MseLoss", "MseLossGrad"
        return "SoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyGrad"

    def check(self, target: Array) -> None:
        """Raise InputError if a target has the wrong shape or type, or unknown classes."""
        if tuple(target.shape) != self.target.shape or target.dtype != self.target.numpy_dtype:
            raise InputError(
                f"the target is {target.dtype} {list(target.shape)}, "
                f"but must be {self.target.numpy_dtype} {list(self.target.shape)}"
            )
        if self.kind == "cross-entropy" and target.size:
            least, most = int(target.min()), int(target.max())
            classes = self.source.shape[self.class_axis]
            if least < 0 or most >= classes:
                wrong = least if least < 0 else most
                raise InputError(f"target class {wrong} is out of range: there are {classes} classes, from 0")

    def forward(self, source: Values, target: Values) -> list[Values]:
        """Return the mean loss, and the probabilities or differences that its gradient needs."""
        wide = source.astype(np.float32) if source.dtype == np.float16 else source
        if self.kind == "mse":
            difference = wide - target
            return [np.mean(difference * difference).reshape(()), difference.astype(source.dtype)]
        shifted = wide - wide.max(axis=self.class_axis, keepdims=True)
        exponents = np.exp(shifted)
        sums = exponents.sum(axis=self.class_axis, keepdims=True)
        chosen = np.take_along_axis(shifted - np.log(sums), np.expand_dims(target, self.class_axis), self.class_axis)
        return [-chosen.mean().reshape(()), (exponents / sums).astype(source.dtype)]

    def backward(self, kept: Values, target: Values) -> list[Values]:
        """Return the gradient of `source`."""
        if self.kind == "mse":
            return [(kept * (2.0 / max(1, kept.size))).astype(kept.dtype)]
        made = kept.copy()
        places = np.expand_dims(target, self.class_axis)
        ones = np.take_along_axis(made, places, self.class_axis) - 1
        np.put_along_axis(made, places, ones, self.class_axis)
        made /= max(1, target.size)
        return [made]


def loss_of(graph: Graph, kind: str | None, target: Array | None) -> Loss:
    """Return the loss of a model's first output.

    kind    one of `LOSSES`; None: "mse" for a float target, otherwise "cross-entropy"
    target  an example; None: class indices with the shape of the output

    Raises UsageError for an unknown kind, ModelError if the output does not support the loss, and InputError if the
    target does not match the output.
    """
    if kind is not None and kind not in LOSSES:
        near = suggestion(kind, list(LOSSES)) or f" Choose one of: {', '.join(LOSSES)}."
        raise UsageError(f"{option('--loss')} {printable(kind, 40)}: unknown loss.{near}")
    if kind is None:
        kind = "mse" if target is not None and is_float(target.dtype) else "cross-entropy"
    output = graph.tensors[graph.outputs[0]]
    if output.elem_type not in FLOATS:
        raise ModelError(f"{graph.name}: its first output is {output.dtype}: a loss needs floats")
    if kind == "mse":
        loss = Loss(kind, output, Tensor("target", output.shape, output.elem_type))
    else:
        logits = _logits(graph, output)
        if not logits.shape:
            raise ModelError(f"{graph.name}: its first output is one number: there are no classes to choose from")
        axis = _class_axis(logits, target)
        shape = logits.shape[:axis] + logits.shape[axis + 1 :]
        elem_type = TensorProto.INT32 if target is not None and target.dtype == np.int32 else TensorProto.INT64
        loss = Loss(kind, logits, Tensor("target", shape, elem_type), axis)
    if target is not None:
        loss.check(target)
    return loss


def _class_axis(logits: Tensor, target: Array | None) -> int:
    """Return axis 1 for images and for targets of that shape, otherwise the last axis."""
    rank = len(logits.shape)
    images = logits.shape[:1] + logits.shape[2:]
    last = logits.shape[:-1]
    if target is None or images == last:
        return 1 if rank == 4 else rank - 1
    return 1 if tuple(target.shape) == images else rank - 1


def _logits(graph: Graph, output: Tensor) -> Tensor:
    """Return the input of a softmax at the end of the model, as the loss has its own; otherwise the output."""
    producers = graph.producers()
    node: Node | None = producers.get(output.name)
    while node is not None and node.op_type in ("Identity", "Dropout") and not node.domain:
        node = producers.get(node.inputs[0])
    if node is not None and node.op_type in ("Softmax", "LogSoftmax") and not node.domain:
        return graph.tensors[node.inputs[0]]
    return output
