"""The device's arithmetic: runs every op of a program through its kernel, freeing tensors early."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from traceconv.base.errors import ModelError, printable
from traceconv.runtime.bfloat16 import BF16, narrowed, widened
from traceconv.runtime.control import ControlFlow
from traceconv.runtime.control_bodies import Flow
from traceconv.runtime.graph import DTYPES, Array, Node
from traceconv.runtime.kernels import Kernel, KernelCompiler
from traceconv.runtime.lower import Program


class Executor:
    """The kernels of a program, all compiled at once. Raises ModelError for a program that can't be run."""

    def __init__(self, program: Program, control: ControlFlow) -> None:
        self._program = program
        self.control = control
        graph = program.graph
        self._constants = {name: widened(value) for name, value in graph.constants.items()}
        compiler = KernelCompiler(graph.opsets)
        self.kernels = [self._compile(compiler, op.nodes, [tensor.name for tensor in op.writes]) for op in program.ops]
        self._before = [self._compile(compiler, op.nodes, [op.result.name]) for op in program.host_before if op.nodes]
        self._after = [self._compile(compiler, op.nodes, [op.result.name]) for op in program.host_after if op.nodes]
        self._last_use = program.last_uses()

    def run(
        self, inputs: Mapping[str, Array], fetch: Collection[str] = (), flows: dict[int, Flow] | None = None
    ) -> dict[str, Array]:
        """Return the model's outputs and the tensors named in `fetch`, by name.

        flows  gets the trips of each op of control flow, by its index
        """
        program, graph = self._program, self._program.graph
        values: dict[str, Array] = {name: widened(value) for name, value in inputs.items()}
        wanted = {name: program.root(name) for name in [*graph.outputs, *fetch]}
        keep = {*wanted.values(), *(program.root(name) for kernel in self._after for name in kernel.inputs)}
        for kernel in self._before:
            self._run_kernel(kernel, values)
        for index, kernel in enumerate(self.kernels):
            if not (index in self.control.controls and self._run_control(index, kernel, values, flows)):
                self._run_kernel(kernel, values)
            for name in self._last_use.get(index, ()):
                if name not in keep:
                    values.pop(name, None)
        for kernel in self._after:
            self._run_kernel(kernel, values)
        found = {name: self._value(name, values) for name in wanted}
        return {name: narrowed(one) if graph.tensors[name].numpy_dtype == BF16 else one for name, one in found.items()}

    def _compile(self, compiler: KernelCompiler, nodes: Sequence[Node], outputs: Sequence[str]) -> Kernel:
        graph = self._program.graph
        kernel = compiler.compile(nodes, outputs, graph.tensors, graph.constants, graph.dynamic)
        for output in kernel.signature:
            planned = graph.tensors[output.name]
            shape = planned.shape if output.shape is None or output.name in graph.dynamic else output.shape
            if (shape, output.elem_type) != (planned.shape, planned.elem_type):
                dtype = DTYPES[output.elem_type][0]
                raise ModelError(
                    f"{graph.name}: '{printable(output.name, 80)}' is {planned.dtype} {list(planned.shape)} "
                    f"according to ONNX, but {dtype} {list(shape)} according to onnxruntime"
                )
        return kernel

    def _run_control(self, index: int, kernel: Kernel, values: dict[str, Array], flows: dict[int, Flow] | None) -> bool:
        """Run an op of control flow trip by trip; return whether its bodies could be run."""
        graph = self._program.graph
        control = self.control.controls[index]
        feeds = {name: self._value(name, values) for name in control.node.inputs if name}
        try:
            results, flow = control.run(feeds, graph.constants, graph.tensors)
        except ModelError:  # the op as one kernel raises it again, if it is due to the values
            return False
        self._keep(kernel, [results[name] for name in kernel.outputs], values)
        if flows is not None:
            flows[index] = flow
        return True

    def _run_kernel(self, kernel: Kernel, values: dict[str, Array]) -> None:
        self._keep(kernel, kernel.run({name: self._value(name, values) for name in kernel.inputs}), values)

    def _keep(self, kernel: Kernel, results: Sequence[Array], values: dict[str, Array]) -> None:
        graph = self._program.graph
        for name, value in zip(kernel.outputs, results, strict=True):
            if name not in graph.dynamic and value.shape != graph.tensors[name].shape:
                raise ModelError(
                    f"{kernel.description}: '{printable(name, 80)}' has shape {list(value.shape)}, "
                    f"not {list(graph.tensors[name].shape)} as planned"
                )
            values[name] = value

    def _value(self, name: str, values: Mapping[str, Array]) -> Array:
        graph, root = self._program.graph, self._program.root(name)
        value = self._constants.get(root)
        if value is None:
            value = values[root]
        shape = graph.tensors[name].shape
        if root == name or value.shape == shape:
            return value
        return np.ascontiguousarray(value).reshape(shape)
