"""The device's arithmetic: every op of a program run through its kernel, in order, in little memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from traceconv.errors import ModelError, printable
from traceconv.runtime.graph import Array
from traceconv.runtime.kernels import Kernel, KernelCompiler
from traceconv.runtime.lower import Program


class Executor:
    """Kernels of a program. Making one compiles them all: what can't be run is refused here."""

    def __init__(self, program: Program) -> None:
        self._program = program
        graph = program.graph
        compiler = KernelCompiler(graph.opsets)
        self._kernels = [
            compiler.compile(op.nodes, [tensor.name for tensor in op.writes], graph.tensors, graph.constants)
            for op in program.ops
        ]
        for kernel in self._kernels:
            for made in kernel.signature:
                planned = graph.tensors[made.name]
                if (made.shape, made.elem_type) != (planned.shape, planned.elem_type):
                    raise ModelError(
                        f"{graph.name}: '{printable(made.name, 80)}' is {planned.dtype} {list(planned.shape)} by ONNX "
                        f"and {made.dtype} {list(made.shape)} by onnxruntime"
                    )
        self._last_use = program.last_uses()

    def run(self, inputs: Mapping[str, Array], fetch: Collection[str] = ()) -> dict[str, Array]:
        """The model's outputs, and the tensors named in `fetch`, by name; other tensors go when last used."""
        program, graph = self._program, self._program.graph
        values: dict[str, Array] = dict(inputs)
        wanted = {name: program.root(name) for name in [*graph.outputs, *fetch]}
        keep = set(wanted.values())
        for index, kernel in enumerate(self._kernels):
            self._run_kernel(kernel, values)
            for name in self._last_use.get(index, ()):
                if name not in keep:
                    values.pop(name, None)
        return {name: self._value(name, values) for name in wanted}

    def _run_kernel(self, kernel: Kernel, values: dict[str, Array]) -> None:
        feeds = {name: self._value(name, values) for name in kernel.inputs}
        values.update(zip(kernel.outputs, kernel.run(feeds), strict=True))

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        root = self._program.root(name)
        value = self._program.graph.constants.get(root)
        if value is None:
            value = values[root]
        shape = self._program.graph.tensors[name].shape
        return value if value.shape == shape else np.ascontiguousarray(value).reshape(shape)
