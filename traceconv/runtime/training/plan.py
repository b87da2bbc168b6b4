"""A training step as a program: forward, backward, collectives, parameter update."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from onnx import TensorProto

from traceconv.base.errors import ModelError
from traceconv.runtime.fusion import TRAINING_PASSES, FusedGraph, fuse
from traceconv.runtime.graph import Array, Graph, Node
from traceconv.runtime.kernels import KernelCompiler
from traceconv.runtime.lower import DeviceOp, HostOp, Program, name_of, read_outside
from traceconv.runtime.ops import traits_of
from traceconv.runtime.pricing import price
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.backward import ReverseWalk
from traceconv.runtime.training.forms import Form, training_form
from traceconv.runtime.training.gradient import Values, VectorUse
from traceconv.runtime.training.learned import flowing_through, leading_to, parameters_of
from traceconv.runtime.training.losses import Loss
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.step_ops import Arithmetic, Operands, StepOps, alone, chained, made_node


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


#: The slot of an fp16 parameter with its value in fp32. Its other slots are fp32 too: in fp16, small updates and Adam's
#: epsilon would be 0 (Micikevicius et al. 2018, "Mixed precision training").
MASTER = "master"


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

    def plan(self, devices: int, bucket_bytes: int | None, *, fuse_ops: bool = True) -> TrainingPlan:
        """Plan a step. Raises ModelError, naming every op without a gradient rule, or if nothing can be trained.

        fuse_ops  whether forward ops are fused
        """
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
        fused = fuse(
            replace(priced, nodes=tuple(nodes), outputs=(self.loss.source.name,), folded=()),
            TRAINING_PASSES if fuse_ops else (),
            self.forms,
        )
        walk = ReverseWalk(graph, self.step, self.forms)
        saved = walk.saved(nodes, flowing)
        self._forward(fused, priced, fixed, parameters, saved, compiler)
        loss_name, dlogits = self._loss()
        walk.pieces[self.loss.source.name] = [dlogits]
        walk.owned.add(dlogits)
        gradients = walk.walk(nodes, flowing, parameters, devices, bucket_bytes)
        state = {name: graph.constants[name] for name in parameters}
        state |= {running: graph.constants[running] for running, _, _ in stats}
        self._refresh(gradients, stats, state)
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
        fused: FusedGraph,
        graph: Graph,
        fixed: Mapping[str, Array],
        parameters: Mapping[str, None],
        saved: Collection[str],
        compiler: KernelCompiler,
    ) -> None:
        """Add the ops of the forward part. Each writes what other ops and gradients (`saved`) read."""
        leaving = read_outside(fused) | set(saved)
        leaving.update(new for form in self.forms.values() for _, new, _ in form.stats)
        places = {node.name: place for place, node in enumerate(fused.graph.nodes)}
        for found in fused.groups:
            nodes = tuple(self._in_training(node) for node in found.nodes)
            group = replace(found, nodes=nodes)
            self.step.roots.update((view.outputs[0], view.inputs[0]) for view in group.views)
            made = {name for node in nodes for name in node.outputs}
            reads = dict.fromkeys(name for node in nodes for name in node.inputs if name and name not in made)
            read = {name for node in nodes for name in node.inputs}
            used = {name for node in nodes for name in node.outputs if name in leaving or name in read}
            parts = [self._arithmetic(node, used, places[node.name], fixed, compiler) for node in nodes]
            operands = Operands(
                tuple(self.step.tensors[name] for name in reads),
                tuple(self.step.tensors[name] for node in nodes for name in node.outputs if name in leaving),
                {**fixed, **parameters},
            )
            form = self.forms.get(nodes[0].name)
            if form is None:
                op_type, core, cost, flops = price(graph, group, operands.reads, operands.makes, self.step.spec)
                self.step.add(name_of(group), op_type, core, "forward", group, operands, cost, flops)
            else:
                rest = [traits_of(node) for node in nodes[1:]]
                cycles = form.work.cycles + sum(one.vector_cycles for one in rest)
                work = VectorUse(cycles, form.work.flops + sum(one.flops for one in rest))
                self.step.vector_op(name_of(group), form.op_type, "forward", group, operands, work)
            whole = chained(parts, [tensor.name for tensor in operands.makes])
            self.step.computes(whole.reads, whole.makes, whole.run)

    def _in_training(self, node: Node) -> Node:
        """Return the node with the operands and results that it has in training."""
        form = self.forms.get(node.name)
        return node if form is None else node.rewired(form.reads, [tensor.name for tensor in form.makes])

    def _arithmetic(
        self, node: Node, used: Collection[str], place: int, fixed: Mapping[str, Array], compiler: KernelCompiler
    ) -> Arithmetic:
        """Return the arithmetic of a node. Its random numbers depend on its `place`, not on fusion."""
        form = self.forms.get(node.name)
        if form is not None:
            forward = form.forward
            return self.step.rounding(node.inputs, node.outputs, lambda values, seed: forward(values, (*seed, place)))
        makes = [name for name in node.outputs if name and name in used]
        kernel = compiler.compile([node], makes, self.step.tensors, fixed)

        def run(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
            return kernel.run(dict(zip(kernel.inputs, values, strict=True)))

        return Arithmetic(kernel.inputs, kernel.outputs, run)

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
        self.step.vector_op(
            "loss", forward, "forward", alone(node), Operands([loss.source, loss.target], [value, kept]), use
        )
        self.step.computes(
            (loss.source.name, loss.target.name), (value.name, kept.name), lambda values, _: loss.forward(*values)
        )
        self.step.vector_op(
            f"gradients/loss/{backward}",
            backward,
            "backward",
            alone(node),
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
    ) -> None:
        """The optimizer's ops, which wait for the backward pass and the collectives."""
        optimizer = self.optimizer
        before = tuple(op.index for op in self.step.ops if op.phase == "backward")
        for name, gradient in gradients.items():
            weight = self.step.tensors[name]
            is_half = weight.numpy_dtype == np.float16
            kept = (*optimizer.task.slots, MASTER) if is_half else optimizer.task.slots
            elem_type = TensorProto.FLOAT if is_half else weight.elem_type
            slots = [self.step.tensor(slot_name(name, slot), weight.shape, elem_type) for slot in kept]
            state.update((slot.name, np.zeros(weight.shape, slot.numpy_dtype)) for slot in slots)
            if is_half:
                state[slot_name(name, MASTER)] = state[name].astype(np.float32)
            node = made_node(optimizer.task.op_type, f"refresh/{name}", [name, gradient], [name])
            written = (weight, *slots)
            tensors = Operands(
                [*written, self.step.tensors[gradient]], [], {tensor.name: None for tensor in written}, written, before
            )
            label = f"refresh/{name}/{optimizer.task.op_type}"
            self.step.vector_op(label, optimizer.task.op_type, "refresh", alone(node), tensors, optimizer.task.work)
        for running, new, _ in stats:
            old = self.step.tensors[running]
            node = made_node("AssignMovingAvg", f"refresh/{running}", [running, new], [running])
            self.step.vector_op(
                f"refresh/{running}/AssignMovingAvg", "AssignMovingAvg", "refresh", alone(node),
                Operands([old, self.step.tensors[new]], [], {running: None}, (old,), before), VectorUse(3, 3),
            )  # fmt: skip
