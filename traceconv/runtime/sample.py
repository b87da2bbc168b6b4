"""Values at load: random inputs, and what a model computes from inputs where a shape depends on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from traceconv.runtime.graph import FLOATS, Array, Node, Tensor
from traceconv.runtime.kernels import KernelCompiler

#: Integers with no known indexing use are 0 or 1, which is valid for ids, masks and flags.
_DEFAULT_LIMIT = 2
#: Ops that pass integers on unchanged.
_PASSED_ON = frozenset({"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze"})


def random_arrays(
    names: Sequence[str], tensors: Mapping[str, Tensor], readers: Mapping[str, Sequence[Node]], seed: int
) -> dict[str, Array]:
    """Return arrays by name from a seed: normal floats; integers within the bounds of what they index with Gather.

    `readers`: tensor → nodes that read it.
    """
    random = np.random.default_rng(seed)
    arrays: dict[str, Array] = {}
    for name in names:
        tensor = tensors[name]
        if tensor.elem_type in FLOATS:
            values: Array = np.asarray(random.standard_normal(tensor.shape))
        else:
            limit = min(_index_limits(name, tensors, readers), default=_DEFAULT_LIMIT)
            values = np.asarray(random.integers(0, limit, tensor.shape))
        arrays[name] = values.astype(tensor.numpy_dtype)
    return arrays


def _index_limits(name: str, tensors: Mapping[str, Tensor], readers: Mapping[str, Sequence[Node]]) -> list[int]:
    """Return the extents of what a tensor indexes, also through Cast and the like."""
    limits = []
    for node in readers.get(name, ()):
        if node.op_type == "Gather" and node.inputs[1] == name:
            data = tensors.get(node.inputs[0])
            if data is not None:
                limits.append(data.shape[node.int("axis", 0)])
        elif node.op_type in _PASSED_ON:
            limits += _index_limits(node.outputs[0], tensors, readers)
    return limits


class Sampler:
    """Runs nodes one by one on one set of inputs, keeping their outputs."""

    def __init__(self, compiler: KernelCompiler, inputs: Mapping[str, Array]) -> None:
        self.inputs = inputs
        self._compiler = compiler
        self._values: dict[str, Array] = dict(inputs)

    def run(
        self, node: Node, producers: Mapping[str, Node], tensors: Mapping[str, Tensor], constants: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the outputs of `node`, after running everything that it needs. Raises ModelError when that fails."""
        pending = [node]
        while pending:
            todo = pending[-1]
            if all(name in self._values for name in todo.outputs if name):
                pending.pop()
                continue
            needed = [name for name in todo.inputs if name and name not in constants and name not in self._values]
            if needed:
                pending.extend({producers[name].name: producers[name] for name in needed}.values())
                continue
            outputs = [name for name in todo.outputs if name]
            # Shapes are those of the arrays: inferred ones may be open.
            reads = {name for name in todo.inputs if name} - set(constants)
            kernel = self._compiler.compile([todo], outputs, tensors, constants, reads)
            feeds = {name: constants[name] if name in constants else self._values[name] for name in kernel.inputs}
            self._values.update(zip(outputs, kernel.run(feeds), strict=True))
            pending.pop()
        return {name: self._values[name] for name in node.outputs if name}
