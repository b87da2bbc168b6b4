"""One step of training as a program: forward, the reverse walk over it, collectives, refresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper

from traceconv.errors import ModelError, printable
from traceconv.runtime.cost import (
    Cost,
    InstructionMix,
    MatrixWork,
    VectorWork,
    ceil_div,
    cpu_cost,
    matrix_cost,
    vector_cost,
)
from traceconv.runtime.fusion import Group
from traceconv.runtime.fusion.grouping import is_view
from traceconv.runtime.graph import FLOATS, Array, Graph, Node, Tensor
from traceconv.runtime.kernels import KernelCompiler
from traceconv.runtime.lower import IMAGE_OPS, DeviceOp, HostOp, Program
from traceconv.runtime.pricing import price
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.forms import Form, is_parameter, training_form
from traceconv.runtime.training.gradient import Gradient, NoRule, Same, Site, Values, VectorUse
from traceconv.runtime.training.losses import Loss
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.rules import RULES

#: Gradients are exchanged in buckets of at most this many bytes, and in about so many buckets at least.
_BUCKET_BYTES = 25 << 20
_LEAST_BUCKETS = 4

#: (values of what an op reads, seed of what it draws) → values of what it makes.
Numbers: TypeAlias = Callable[[Sequence[Values], Sequence[int]], Sequence[Values]]


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the numbers of a device op are made."""

    reads: tuple[str, ...]
    makes: tuple[str, ...]
    run: Numbers


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A step of training, ready to run.

    arithmetic  by op index; collectives and refresh have none
    parameters  what is learned: tensor → its gradient
    stats       (running statistic, what it is moved towards, the old one's share) for each
    state       tensors that stay on the device from step to step, with their values at first
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
        """The ops of a phase, without collectives."""
        return [op for op in self.program.ops if op.phase == phase and not op.is_collective]


def slot_name(parameter: str, slot: str) -> str:
    """What an optimizer's slot of a parameter is called."""
    return f"{parameter}/{slot}"


def plan_training(
    graph: Graph,
    spec: DeviceSpec,
    loss: Loss,
    optimizer: Optimizer,
    *,
    initializers: frozenset[str] = frozenset(),
    devices: int = 1,
    bucket_bytes: int | None = None,
) -> TrainingPlan:
    """Plans a step; `initializers`: what the model declares as weights.

    Raises ModelError, which names all of them, for ops that have no gradient rule, and for a model that has nothing
    to learn.
    """
    return _Planner(graph, spec, loss, optimizer, initializers).plan(devices, bucket_bytes)


@dataclass(slots=True)
class _Planner:
    """State of the walk: ops so far, tensors with those that were added, gradients by tensor."""

    graph: Graph
    spec: DeviceSpec
    loss: Loss
    optimizer: Optimizer
    initializers: frozenset[str]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)
    ops: list[DeviceOp] = field(default_factory=list)
    arithmetic: dict[int, Arithmetic] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    pieces: dict[str, list[str]] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)
    op_names: set[str] = field(default_factory=set)

    def plan(self, devices: int, bucket_bytes: int | None) -> TrainingPlan:
        graph = self.graph
        if graph.dynamic:
            raise ModelError(f"{graph.name}: shapes that depend on values can't be trained")
        self.tensors.update(graph.tensors)
        opset = graph.opsets.get("", 0)
        nodes = _leading_to(graph, self.loss.source.name)
        parameters = self._parameters(nodes)
        flowing = self._flowing(nodes, parameters)
        read = {name for node in nodes for name in node.inputs} | {self.loss.source.name}
        fixed = {name: value for name, value in graph.constants.items() if name not in parameters}
        for node in nodes:
            form = training_form(graph, node, opset, self._fresh)
            if form is not None:
                self.forms[node.name] = form
                for tensor in form.makes:
                    self.tensors[tensor.name] = tensor
        stats = tuple(stat for form in self.forms.values() for stat in form.stats)
        kept = {*parameters, *(running for running, _, _ in stats)}
        fixed = {name: value for name, value in fixed.items() if name in read and name not in kept}
        compiler = KernelCompiler(graph.opsets)
        priced = replace(graph, constants={**fixed, **{name: graph.constants[name] for name in parameters}})
        for node in nodes:
            self._forward(priced, node, fixed, parameters, read, compiler)
        loss_name, dlogits = self._loss()
        self.pieces[self.loss.source.name] = [dlogits]
        gradients = self._backward(nodes, flowing, parameters, opset, devices, bucket_bytes)
        state = {name: graph.constants[name] for name in parameters}
        state |= {running: graph.constants[running] for running, _, _ in stats}
        self._refresh(gradients, stats, state, devices)
        inputs = (*graph.inputs, self.loss.target.name)
        uploads = inputs
        final = replace(
            graph,
            nodes=tuple(nodes),
            tensors=self.tensors,
            constants=fixed,
            inputs=inputs,
            outputs=(loss_name,),
            sample=None,
        )
        before = tuple(HostOp("Lower", name, self.tensors[name], self.tensors[name]) for name in uploads)
        after = (HostOp("Unlower", loss_name, self.tensors[loss_name], self.tensors[loss_name]),)
        program = Program(
            final, tuple(self.ops), self._final_roots(), before, after, uploads, (loss_name,), tuple(state)
        )
        return TrainingPlan(program, self.spec, self.loss, self.optimizer, self.arithmetic, gradients, stats, state)

    # What is learned

    def _parameters(self, nodes: Sequence[Node]) -> dict[str, None]:
        constants = self.graph.constants
        found: dict[str, None] = {}
        for node in nodes:
            for place, name in enumerate(node.inputs):
                value = constants.get(name) if name else None
                if value is not None and is_parameter(node, place, value, self.initializers):
                    found[name] = None
        return found

    def _flowing(self, nodes: Sequence[Node], parameters: Mapping[str, None]) -> dict[str, tuple[int, ...]]:
        """Node → places of its inputs through which a gradient reaches a parameter. Raises ModelError."""
        tensors, opset = self.graph.tensors, self.graph.opsets.get("", 0)
        needing = set(parameters)
        flowing: dict[str, tuple[int, ...]] = {}
        missing: dict[str, str] = {}
        for node in nodes:
            places = tuple(
                place for place, name in enumerate(node.inputs) if name in needing and tensors[name].elem_type in FLOATS
            )
            outputs = [name for name in node.outputs if name and tensors[name].elem_type in FLOATS]
            if not places or not outputs:
                continue
            flowing[node.name] = places
            needing.update(outputs)
            reason = self._why_not(node, places, opset)
            if reason is not None:
                missing.setdefault(f"{node.op_type}{reason}", node.name)
        if self.loss.source.name not in needing:
            raise ModelError(f"{self.graph.name}: nothing to train: no weight has a part in its first output")
        if missing:
            shown = [f"{printable(what, 100)} (node '{printable(name, 60)}')" for what, name in missing.items()]
            more = f", and {len(shown) - 8} more" if len(shown) > 8 else ""
            raise ModelError(f"{self.graph.name} can't be trained: no gradient rule for {', '.join(shown[:8])}{more}")
        return flowing

    def _why_not(self, node: Node, places: tuple[int, ...], opset: int) -> str | None:
        """Why an op can't be differentiated: '' for one without a rule; None when it can be."""
        rule = None if node.domain or node.has_subgraph else RULES.get(node.op_type)
        if rule is None:
            return ""
        dys = tuple("dy" if k == 0 or node.op_type == "Split" else None for k in range(len(node.outputs)))
        tensors = {**self.graph.tensors, "saved": self.graph.tensors[node.inputs[0]]}
        site = Site(node, tensors, self.graph.constants, dys, places, ("saved", "saved"), opset)
        try:
            made = rule(site)
        except NoRule as why:
            return f" with {why}"
        covered = {one.wrt if isinstance(one, Same) else place for one in made for place in _places(one)}
        return None if covered >= set(places) else " with respect to one of its operands"

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
            lanes = [self.tensors[name] for name in form.reads]
            self._vector_op(node.name, form.op_type, "forward", node, lanes, list(form.makes), form.work, parameters)
            self._computes(form.reads, [tensor.name for tensor in form.makes], form.forward)
            return
        if is_view(node, read, ()) and node.inputs[0] not in fixed and node.inputs[0] not in parameters:
            self.roots[node.outputs[0]] = node.inputs[0]
            return
        names = [name for name in dict.fromkeys(node.inputs) if name]
        operands = tuple(self.tensors[name] for name in names)
        writes = tuple(self.tensors[name] for name in node.outputs if name and name in read)
        op_type, core, cost, flops = price(graph, Group((node,), (node,)), operands, writes, self.spec)
        self._add(node.name, op_type, core, "forward", node, operands, writes, cost, flops, {**fixed, **parameters})
        kernel = compiler.compile([node], [tensor.name for tensor in writes], graph.tensors, fixed)

        def run(values: Sequence[Values], seed: Sequence[int]) -> Sequence[Values]:
            return kernel.run(dict(zip(kernel.inputs, values, strict=True)))

        self._computes(kernel.inputs, kernel.outputs, run)

    def _loss(self) -> tuple[str, str]:
        """(the loss, the gradient of what it is made of)."""
        loss, size = self.loss, self.loss.source.elem_type
        self.tensors[loss.target.name] = loss.target
        value = Tensor(self._fresh("loss"), (), size if loss.source.elem_bytes > 2 else TensorProto.FLOAT)
        kept = Tensor(self._fresh("loss/kept"), loss.source.shape, size)
        gradient = Tensor(self._fresh(f"gradients/{loss.source.name}"), loss.source.shape, size)
        for tensor in (value, kept, gradient):
            self.tensors[tensor.name] = tensor
        forward, backward = loss.op_types
        node = _node(forward, "loss", [loss.source.name, loss.target.name], [value.name])
        use = VectorUse(3, 3) if loss.kind == "mse" else VectorUse(16, 8)
        self._vector_op("loss", forward, "forward", node, [loss.source, loss.target], [value, kept], use)
        self._computes(
            (loss.source.name, loss.target.name), (value.name, kept.name), lambda values, _: loss.forward(*values)
        )
        self._vector_op(
            f"gradients/loss/{backward}", backward, "backward", node, [kept, loss.target], [gradient], VectorUse(2, 2)
        )
        self._computes((kept.name, loss.target.name), (gradient.name,), lambda values, _: loss.backward(*values))
        self.owned.add(gradient.name)
        return value.name, gradient.name

    # Backward

    def _backward(
        self,
        nodes: Sequence[Node],
        flowing: Mapping[str, tuple[int, ...]],
        parameters: Mapping[str, None],
        opset: int,
        devices: int,
        bucket_bytes: int | None,
    ) -> dict[str, str]:
        """Tasks of the reverse walk; parameter → its gradient."""
        first_use: dict[str, str] = {}
        for node in nodes:
            for place in flowing.get(node.name, ()):
                first_use.setdefault(node.inputs[place], node.name)
        due: dict[str, list[str]] = {}
        for name in parameters:
            if name in first_use:
                due.setdefault(first_use[name], []).append(name)
        total = sum(self.tensors[name].size_bytes for name in first_use if name in parameters)
        limit = bucket_bytes or min(_BUCKET_BYTES, max(1, ceil_div(total, _LEAST_BUCKETS)))
        gradients: dict[str, str] = {}
        bucket: list[str] = []
        for node in reversed(nodes):
            if node.name not in flowing:
                continue
            dys = tuple(self._gathered(name) if name else None for name in node.outputs)
            if any(dy is not None for dy in dys):
                self._differentiate(node, dys, flowing[node.name], parameters, opset)
            for name in due.get(node.name, ()):
                gradient = self._own_gradient(name)
                if gradient is None:
                    continue  # nothing that the loss is made of depends on it
                gradients[name] = gradient
                bucket.append(gradient)
                if sum(self.tensors[one].size_bytes for one in bucket) >= limit:
                    self._exchange(bucket, devices)
                    bucket = []
        # Batch statistics are read by their ops' gradients until then.
        readers = tuple(op.index for op in self.ops if op.op_type == "BatchNormGrad")
        bucket += [new for form in self.forms.values() for _, new, _ in form.stats]
        self._exchange(bucket, devices, readers)
        return gradients

    def _differentiate(
        self,
        node: Node,
        dys: tuple[str | None, ...],
        places: tuple[int, ...],
        parameters: Mapping[str, None],
        opset: int,
    ) -> None:
        form = self.forms.get(node.name)
        saved = tuple(tensor.name for tensor in form.makes[1:]) if form else ()
        site = Site(node, self.tensors, self.graph.constants, dys, places, saved, opset)
        for step in RULES[node.op_type](site):
            if isinstance(step, Same):
                self._pass_on(site, step.wrt)
                continue
            makes = []
            for place in step.wrt:
                wrt = site.x(place)
                tensor = Tensor(self._fresh(f"gradients/{node.name}/{wrt.name}"), wrt.shape, wrt.elem_type)
                self.tensors[tensor.name] = tensor
                self.owned.add(tensor.name)
                self.pieces.setdefault(wrt.name, []).append(tensor.name)
                makes.append(tensor)
            reads = [self.tensors[name] for name in dict.fromkeys(step.reads)]
            name = f"gradients/{node.name.strip('/')}/{step.op_type}"
            constants = {**self.graph.constants, **parameters}
            if isinstance(step.work, MatrixWork):
                self._matrix_op(name, step, node, reads, makes, constants)
            else:
                self._vector_op(name, step.op_type, "backward", node, reads, makes, step.work, constants)
            self._computes(step.reads, [tensor.name for tensor in makes], _without_seed(step))

    def _pass_on(self, site: Site, place: int) -> None:
        """The gradient of an input that is the output's, or a view of it."""
        wrt, dy = site.x(place), site.dy
        self.owned.discard(dy)  # of the output too
        if self.tensors[dy].shape != wrt.shape:
            view = Tensor(self._fresh(f"gradients/{site.node.name}/{wrt.name}"), wrt.shape, wrt.elem_type)
            self.tensors[view.name] = view
            self.roots[view.name] = dy
            dy = view.name
        self.pieces.setdefault(wrt.name, []).append(dy)

    def _gathered(self, name: str) -> str | None:
        """The gradient of a tensor, of which each reader gave a part."""
        parts = self.pieces.get(name, [])
        if len(parts) < 2:
            return parts[0] if parts else None
        tensor = Tensor(self._fresh(f"gradients/{name}/sum"), self.tensors[name].shape, self.tensors[name].elem_type)
        self.tensors[tensor.name] = tensor
        self.owned.add(tensor.name)
        node = _node("Sum", f"gradients/{name}", parts, [tensor.name])
        reads = [self.tensors[part] for part in dict.fromkeys(parts)]
        use = VectorUse(len(parts) - 1, len(parts) - 1)
        self._vector_op(f"gradients/{name}/AddN", "AddN", "backward", node, reads, [tensor], use)
        self._computes(tuple(parts), (tensor.name,), lambda values, _: [sum(values[1:], values[0])])
        self.pieces[name] = [tensor.name]
        return tensor.name

    def _own_gradient(self, name: str) -> str | None:
        """The gradient of a parameter in memory of its own: it is exchanged in place."""
        gradient = self._gathered(name)
        if gradient is None or gradient in self.owned:
            if gradient is not None:
                self.owned.discard(gradient)  # of no other parameter
            return gradient
        copy = Tensor(self._fresh(f"gradients/{name}/copy"), self.tensors[name].shape, self.tensors[name].elem_type)
        self.tensors[copy.name] = copy
        node = _node("Identity", f"gradients/{name}", [gradient], [copy.name])
        source = self.tensors[gradient]
        self._vector_op(
            f"gradients/{name}/TensorMove", "TensorMove", "backward", node, [source], [copy], VectorUse(0, 0)
        )
        self._computes((gradient,), (copy.name,), lambda values, _: [values[0].copy()])
        return copy.name

    def _exchange(self, bucket: Sequence[str], devices: int, after: tuple[int, ...] = ()) -> None:
        """A collective: the mean over all devices takes the place of each tensor."""
        if devices < 2 or not bucket:
            return
        tensors = tuple(self.tensors[name] for name in bucket)
        size = sum(tensor.size_bytes for tensor in tensors)
        number = sum(op.is_collective for op in self.ops)
        node = _node("HcomAllReduce", f"hcom_allReduce__{number}", bucket, [])
        self._add(
            f"hcom_allReduce__{number}", "HcclAllReduce", "HCCL", "backward", node, tensors, (),
            all_reduce_cost(self.spec, size, devices), 0, {}, after=after,
        )  # fmt: skip

    # Refresh

    def _refresh(
        self,
        gradients: Mapping[str, str],
        stats: Sequence[tuple[str, str, float]],
        state: dict[str, Array],
        devices: int,
    ) -> None:
        """The optimizer's ops, once all of the backward pass is done and the exchanges are."""
        optimizer = self.optimizer
        before = tuple(op.index for op in self.ops if op.phase == "backward")
        for name, gradient in gradients.items():
            weight = self.tensors[name]
            slots = []
            for slot in optimizer.slots:
                tensor = Tensor(self._fresh(slot_name(name, slot)), weight.shape, weight.elem_type)
                self.tensors[tensor.name] = tensor
                state[tensor.name] = np.zeros(weight.shape, weight.numpy_dtype)
                slots.append(tensor)
            node = _node(optimizer.op_type, f"refresh/{name}", [name, gradient], [name])
            self._vector_op(
                f"refresh/{name}/{optimizer.op_type}", optimizer.op_type, "refresh", node,
                [weight, *slots, self.tensors[gradient]], [], optimizer.work, dict.fromkeys([name, *_names(slots)]),
                updates=(weight, *slots), after=before,
            )  # fmt: skip
        for running, new, _ in stats:
            old = self.tensors[running]
            node = _node("AssignMovingAvg", f"refresh/{running}", [running, new], [running])
            self._vector_op(
                f"refresh/{running}/AssignMovingAvg", "AssignMovingAvg", "refresh", node,
                [old, self.tensors[new]], [], VectorUse(3, 3), {running: None}, updates=(old,), after=before,
            )  # fmt: skip

    # Ops

    def _fresh(self, name: str) -> str:
        """A tensor's name that is not taken."""
        number, found = 1, name
        while found in self.tensors:
            number += 1
            found = f"{name}_{number}"
        return found

    def _computes(self, reads: Sequence[str], makes: Sequence[str], run: Numbers) -> None:
        """How the op that was added last makes its numbers."""
        self.arithmetic[len(self.ops) - 1] = Arithmetic(tuple(reads), tuple(makes), run)

    def _matrix_op(
        self,
        name: str,
        step: Gradient,
        node: Node,
        reads: Sequence[Tensor],
        makes: Sequence[Tensor],
        constants: Mapping[str, object],
    ) -> None:
        work = step.work
        assert isinstance(work, MatrixWork)
        out = makes[-1]
        in_bytes = sum(t.size_bytes for t in reads)
        cost = matrix_cost(self.spec, work, out.elem_bytes, in_bytes + out.size_bytes, out.size_bytes)
        flops = 2 * work.groups * work.m * work.n * work.k
        cost = replace(cost, workspace_bytes=0)
        self._add(name, step.op_type, "AI_CORE", "backward", node, reads, makes, cost, flops, constants)

    def _vector_op(
        self,
        name: str,
        op_type: str,
        phase: str,
        node: Node,
        reads: Sequence[Tensor],
        makes: Sequence[Tensor],
        use: VectorUse,
        constants: Mapping[str, object] | None = None,
        *,
        updates: tuple[Tensor, ...] = (),
        after: tuple[int, ...] = (),
    ) -> None:
        touched = [*reads, *makes, *updates]
        count = use.count or max((tensor.count for tensor in touched), default=1)
        size = max((t.elem_bytes for t in touched if t.elem_type in FLOATS), default=4)
        in_bytes = sum(tensor.size_bytes for tensor in reads)
        out_bytes = sum(tensor.size_bytes for tensor in (*makes, *updates))
        flops = use.flops * count
        if size == 8:
            cost, core = cpu_cost(self.spec, count, in_bytes + out_bytes), "AI_CPU"
        else:
            mix = InstructionMix("fp16" if size == 2 else "fp32")
            work = VectorWork(count, use.cycles, size, in_bytes, out_bytes, use.scattered, mix=mix)
            cost, core = vector_cost(self.spec, work), "AI_VECTOR_CORE"
        self._add(
            name, op_type, core, phase, node, reads, makes, cost, flops, constants or {}, updates=updates, after=after
        )

    def _add(
        self,
        name: str,
        op_type: str,
        core: str,
        phase: str,
        node: Node,
        operands: Sequence[Tensor],
        writes: Sequence[Tensor],
        cost: Cost,
        flops: int,
        constants: Mapping[str, object],
        *,
        updates: tuple[Tensor, ...] = (),
        after: tuple[int, ...] = (),
    ) -> None:
        number, shown = 1, name
        while shown in self.op_names:
            number += 1
            shown = f"{name}_{number}"
        self.op_names.add(shown)
        self.ops.append(
            DeviceOp(
                len(self.ops),
                shown,
                op_type,
                core,
                (node,),
                (node,),
                tuple(tensor for tensor in operands if tensor.name not in constants),
                tuple(tensor for tensor in operands if tensor.name in constants),
                tuple(writes),
                tuple(operands),
                node.op_type in IMAGE_OPS,
                flops,
                cost,
                None,
                False,
                phase,
                updates,
                after,
            )
        )

    def _final_roots(self) -> dict[str, str]:
        roots = dict(self.roots)
        for name in list(roots):
            while roots[name] in roots:
                roots[name] = roots[roots[name]]
        return roots


def all_reduce_cost(spec: DeviceSpec, size_bytes: int, devices: int) -> Cost:
    """A ring: each device sends 2 (n - 1) / n of the bytes, in 2 (n - 1) rounds."""
    rounds = 2 * (devices - 1)
    sent = ceil_div(size_bytes * rounds, devices)
    ns = rounds * spec.link_latency_ns + ceil_div(sent * 1_000_000_000, spec.link_bytes_per_s)
    return Cost(ceil_div(ns * spec.core_clock_hz, 1_000_000_000), 0, 0, 0, None)


def _leading_to(graph: Graph, name: str) -> list[Node]:
    """The nodes that a tensor is made of, in order."""
    needed = {name}
    found = []
    for node in reversed(graph.nodes):
        if needed.intersection(made for made in node.outputs if made):
            found.append(node)
            needed.update(node.inputs)
    return found[::-1]


def _places(step: Gradient | Same) -> tuple[int, ...]:
    return (step.wrt,) if isinstance(step, Same) else step.wrt


def _names(tensors: Sequence[Tensor]) -> list[str]:
    return [tensor.name for tensor in tensors]


def _without_seed(step: Gradient) -> Numbers:
    return lambda values, _: step.compute(*values)


def _node(op_type: str, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Node:
    """A node that no model has, which says what an op of training is."""
    proto: onnx.NodeProto = helper.make_node(op_type, list(inputs), list(outputs), name=name)
    return Node(name, proto)
