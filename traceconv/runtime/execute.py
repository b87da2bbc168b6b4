"""The device's arithmetic: every op of a program run through its kernel, in order, in little memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from traceconv.base.errors import ModelError, printable
from traceconv.runtime.graph import DTYPES, Array, Node
from traceconv.runtime.kernels import Kernel, KernelCompiler
from traceconv.runtime.lower import Program


class Executor:
    """Kernels of a program. Making one compiles them all: what can't be run is refused here."""

    def __init__(self, program: Program) -> None:
        self._program = program
        graph = program.graph
        compiler = KernelCompiler(graph.opsets)
        self.kernels = [self._compile(compiler, op.nodes, [tensor.name for tensor in op.writes]) for op in program.ops]
        self._before = [self._compile(compiler, op.nodes, [op.result.name]) for op in program.host_before if op.nodes]
        self._after = [self._compile(compiler, op.nodes, [op.result.name]) for op in program.host_after if op.nodes]
        self._last_use = program.last_uses()

    def run(self, inputs: Mapping[str, Array], fetch: Collection[str] = ()) -> dict[str, Array]:
        """The model's outputs, and the tensors named in `fetch`, by name; other tensors go when last used."""
        program, graph = self._program, self._program.graph
        values: dict[str, Array] = dict(inputs)
        wanted = {name: program.root(name) for name in [*graph.outputs, *fetch]}
        keep = {*wanted.values(), *(program.root(name) for kernel in self._after for name in kernel.inputs)}
        for kernel in self._before:
            self._run_kernel(kernel, values)
        for index, kernel in enumerate(self.kernels):
            self._run_kernel(kernel, values)
            for name in self._last_use.get(index, ()):
                if name not in keep:
                    values.pop(name, None)
        for kernel in self._after:
            self._run_kernel(kernel, values)
        return {name: self._value(name, values) for name in wanted}

    def _compile(self, compiler: KernelCompiler, nodes: Sequence[Node], outputs: Sequence[str]) -> Kernel:
        graph = self._program.graph
        kernel = compiler.compile(nodes, outputs, graph.tensors, graph.constants, graph.dynamic)
        for made in kernel.signature:
            planned = graph.tensors[made.name]
            shape = planned.shape if made.shape is None or made.name in graph.dynamic else made.shape
            if (shape, made.elem_type) != (planned.shape, planned.elem_type):
                dtype = DTYPES[made.elem_type][0]
                raise ModelError(
                    f"{graph.name}: '{printable(made.name, 80)}' is {planned.dtype} {list(planned.shape)} by ONNX "
                    f"and {dtype} {list(shape)} by onnxruntime"
                )
        return kernel

    def _run_kernel(self, kernel: Kernel, values: dict[str, Array]) -> None:
        graph = self._program.graph
        feeds = {name: self._value(name, values) for name in kernel.inputs}
        for name, value in zip(kernel.outputs, kernel.run(feeds), strict=True):
            if name not in graph.dynamic and value.shape != graph.tensors[name].shape:
                raise ModelError(
                    f"{kernel.what}: '{printable(name, 80)}' came out as {list(value.shape)}, "
                    f"but {list(graph.tensors[name].shape)} was planned"
                )
            values[name] = value

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        graph, root = self._program.graph, self._program.root(name)
        value = graph.constants.get(root)
        if value is None:
            value = values[root]
        shape = graph.tensors[name].shape
        if root == name or value.shape == shape:
            return value
        return np.ascontiguousarray(value).reshape(shape)
