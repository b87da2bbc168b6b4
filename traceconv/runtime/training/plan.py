"""A training step as a program: forward, backward, collectives, parameter update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import TensorProto

from traceconv.base.errors import ModelError
from traceconv.runtime.fusion import Group
from traceconv.runtime.fusion.grouping import is_view
from traceconv.runtime.graph import Array, Graph, Node
from traceconv.runtime.kernels import KernelCompiler
from traceconv.runtime.lower import DeviceOp, HostOp, Program
from traceconv.runtime.pricing import price
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.backward import ReverseWalk
from traceconv.runtime.training.forms import Form, training_form
from traceconv.runtime.training.gradient import Values, VectorUse
from traceconv.runtime.training.learned import flowing_through, leading_to, parameters_of
from traceconv.runtime.training.losses import Loss
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.step_ops import Arithmetic, Operands, StepOps, made_node


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A training step, ready to run.

    arithmetic  by op index; collectives and updates have none
    parameters  tensor that is learned → its gradient
    stats       for each running statistic: (its name, the batch's statistic, weight of the old value)
    state       initial values of the tensors that stay on the device from step to step
    """

    program: Program
    spec: DeviceSpec
    loss: Loss
    optimizer: Optimizer
    arithmetic: Mapping[int, Arithmetic]
    parameters: Mapping[str, str]
    stats: tuple[tuple[str, str, float], ...]
    state: Mapping[str, Array]

    def ops(self, phase: str) -> list[DeviceOp]:
        """Return the ops of a phase, without collectives."""
        return [op for op in self.program.ops if op.phase == phase and not op.is_collective]


def slot_name(parameter: str, slot: str) -> str:
    """Return the name of an optimizer's slot for a parameter."""
    return f"{parameter}/{slot}"


@dataclass(slots=True)
class Planner:
    """The ops planned so far.

    step          gets the ops; of the device
    initializers  names that the model declares as weights
    forms         of the nodes that behave differently in training
    """

    graph: Graph
    step: StepOps
    loss: Loss
    optimizer: Optimizer
    initializers: frozenset[str]
    forms: dict[str, Form] = field(default_factory=dict)

    def plan(self, devices: int, bucket_bytes: int | None) -> TrainingPlan:
        """Plan a step. Raises ModelError, naming every op without a gradient rule, or if nothing can be trained."""
        graph = self.graph
        if graph.dynamic:
            raise ModelError(f"{graph.name}: shapes that depend on values can't be trained")
        self.step.tensors.update(graph.tensors)
        opset = graph.opsets.get("", 0)
        nodes = leading_to(graph, self.loss.source.name)
        parameters = parameters_of(graph, nodes, self.initializers)
        flowing = flowing_through(graph, nodes, parameters, self.loss.source.name)
        read = {name for node in nodes for name in node.inputs} | {self.loss.source.name}
        fixed = {name: value for name, value in graph.constants.items() if name not in parameters}
        for node in nodes:
            form = training_form(graph, node, opset, self.step.tensor)
            if form is not None:
                self.forms[node.name] = form
        stats = tuple(stat for form in self.forms.values() for stat in form.stats)
        kept = {*parameters, *(running for running, _, _ in stats)}
        fixed = {name: value for name, value in fixed.items() if name in read and name not in kept}
        compiler = KernelCompiler(graph.opsets)
        priced = replace(graph, constants={**fixed, **{name: graph.constants[name] for name in parameters}})
        for node in nodes:
            self._forward(priced, node, fixed, parameters, read, compiler)
        loss_name, dlogits = self._loss()
        walk = ReverseWalk(graph, self.step, self.forms, {self.loss.source.name: [dlogits]}, {dlogits})
        gradients = walk.walk(nodes, flowing, parameters, devices, bucket_bytes)
        state = {name: graph.constants[name] for name in parameters}
        state |= {running: graph.constants[running] for running, _, _ in stats}
        self._refresh(gradients, stats, state, devices)
        inputs = (*graph.inputs, self.loss.target.name)
        final = replace(
            graph,
            nodes=tuple(nodes),
            tensors=self.step.tensors,
            constants=fixed,
            inputs=inputs,
            outputs=(loss_name,),
            sample=None,
        )
        before = tuple(HostOp("Lower", name, self.step.tensors[name], self.step.tensors[name]) for name in inputs)
        after = (HostOp("Unlower", loss_name, self.step.tensors[loss_name], self.step.tensors[loss_name]),)
        program = Program(
            final, tuple(self.step.ops), self.step.final_roots(), before, after, inputs, (loss_name,), tuple(state)
        )
        return TrainingPlan(
            program, self.step.spec, self.loss, self.optimizer, self.step.arithmetic, gradients, stats, state
        )

    # Forward

    def _forward(
        self,
        graph: Graph,
        node: Node,
        fixed: Mapping[str, Array],
        parameters: Mapping[str, None],
        read: set[str],
        compiler: KernelCompiler,
    ) -> None:
        form = self.forms.get(node.name)
        if form is not None:
            lanes = [self.step.tensors[name] for name in form.reads]
            self.step.vector_op(
                node.name, form.op_type, "forward", node, Operands(lanes, list(form.makes), parameters), form.work
            )
            self.step.computes(form.reads, [tensor.name for tensor in form.makes], form.forward)
            return
        if is_view(node, read, ()) and node.inputs[0] not in fixed and node.inputs[0] not in parameters:
            self.step.roots[node.outputs[0]] = node.inputs[0]
            return
        names = [name for name in dict.fromkeys(node.inputs) if name]
        operands = tuple(self.step.tensors[name] for name in names)
        writes = tuple(self.step.tensors[name] for name in node.outputs if name and name in read)
        op_type, core, cost, flops = price(graph, Group((node,), (node,)), operands, writes, self.step.spec)
        tensors = Operands(operands, writes, {**fixed, **parameters})
        self.step.add(node.name, op_type, core, "forward", node, tensors, cost, flops)
        kernel = compiler.compile([node], [tensor.name for tensor in writes], graph.tensors, fixed)

        def run(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
            return kernel.run(dict(zip(kernel.inputs, values, strict=True)))

        self.step.computes(kernel.inputs, kernel.outputs, run)

    def _loss(self) -> tuple[str, str]:
        """Return the names of the loss and of the gradient of its source."""
        loss, size = self.loss, self.loss.source.elem_type
        self.step.tensors[loss.target.name] = loss.target
        value = self.step.tensor("loss", (), size if loss.source.elem_bytes > 2 else TensorProto.FLOAT)
        kept = self.step.tensor("loss/kept", loss.source.shape, size)
        gradient = self.step.tensor(f"gradients/{loss.source.name}", loss.source.shape, size)
        forward, backward = loss.op_types
        node = made_node(forward, "loss", [loss.source.name, loss.target.name], [value.name])
        use = VectorUse(3, 3) if loss.kind == "mse" else VectorUse(16, 8)
        self.step.vector_op("loss", forward, "forward", node, Operands([loss.source, loss.target], [value, kept]), use)
        self.step.computes(
            (loss.source.name, loss.target.name), (value.name, kept.name), lambda values, _: loss.forward(*values)
        )
        self.step.vector_op(
            f"gradients/loss/{backward}",
            backward,
            "backward",
            node,
            Operands([kept, loss.target], [gradient]),
            VectorUse(2, 2),
        )
        self.step.computes((kept.name, loss.target.name), (gradient.name,), lambda values, _: loss.backward(*values))
        return value.name, gradient.name

    # Refresh

    def _refresh(
        self,
        gradients: Mapping[str, str],
        stats: Sequence[tuple[str, str, float]],
        state: dict[str, Array],
        devices: int,
    ) -> None:
        """The optimizer's ops, which wait for the backward pass and the collectives."""
        optimizer = self.optimizer
        before = tuple(op.index for op in self.step.ops if op.phase == "backward")
        for name, gradient in gradients.items():
            weight = self.step.tensors[name]
            slots = [
                self.step.tensor(slot_name(name, slot), weight.shape, weight.elem_type) for slot in optimizer.task.slots
            ]
            state.update((slot.name, np.zeros(weight.shape, weight.numpy_dtype)) for slot in slots)
            node = made_node(optimizer.task.op_type, f"refresh/{name}", [name, gradient], [name])
            written = (weight, *slots)
            tensors = Operands(
                [*written, self.step.tensors[gradient]], [], {tensor.name: None for tensor in written}, written, before
            )
            label = f"refresh/{name}/{optimizer.task.op_type}"
            self.step.vector_op(label, optimizer.task.op_type, "refresh", node, tensors, optimizer.task.work)
        for running, new, _ in stats:
            old = self.step.tensors[running]
            node = made_node("AssignMovingAvg", f"refresh/{running}", [running, new], [running])
            self.step.vector_op(
                f"refresh/{running}/AssignMovingAvg", "AssignMovingAvg", "refresh", node,
                Operands([old, self.step.tensors[new]], [], {running: None}, (old,), before), VectorUse(3, 3),
            )  # fmt: skip
