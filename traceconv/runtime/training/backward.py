"""The backward pass: gradients, their sums, and the collectives that exchange them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from traceconv.runtime.cost import Cost, MatrixWork, ceil_div
from traceconv.runtime.graph import Graph, Node
from traceconv.runtime.spec import DeviceSpec
from traceconv.runtime.training.forms import Form
from traceconv.runtime.training.gradient import Gradient, Same, Site, VectorUse
from traceconv.runtime.training.rules import RULES
from traceconv.runtime.training.step_ops import Numbers, Operands, StepOps, alone, made_node

#: Gradients are exchanged in buckets of at most this size, and in about this number of buckets at least.
_BUCKET_BYTES = 25 << 20
_LEAST_BUCKETS = 4


@dataclass(slots=True)
class ReverseWalk:
    """State of the reverse walk over the forward part.

    forms   of the nodes that behave differently in training
    pieces  tensor → gradients from its readers, whose sum is its gradient
    owned   gradients in memory of their own, which can be changed in place
    """

    graph: Graph
    step: StepOps
    forms: Mapping[str, Form]
    pieces: dict[str, list[str]] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)

    def walk(
        self,
        nodes: Sequence[Node],
        flowing: Mapping[str, tuple[int, ...]],
        parameters: Mapping[str, None],
        devices: int,
        bucket_bytes: int | None,
    ) -> dict[str, str]:
        """Add the tasks of the backward pass; return parameter → gradient."""
        first_use: dict[str, str] = {}
        for node in nodes:
            for place in flowing.get(node.name, ()):
                first_use.setdefault(node.inputs[place], node.name)
        due: dict[str, list[str]] = {}
        for name in parameters:
            if name in first_use:
                due.setdefault(first_use[name], []).append(name)
        total = sum(self.step.tensors[name].size_bytes for name in first_use if name in parameters)
        limit = bucket_bytes or min(_BUCKET_BYTES, max(1, ceil_div(total, _LEAST_BUCKETS)))
        gradients: dict[str, str] = {}
        bucket: list[str] = []
        for node in reversed(nodes):
            if node.name not in flowing:
                continue
            dys = tuple(self._gathered(name) if name else None for name in node.outputs)
            if any(dy is not None for dy in dys):
                self._differentiate(node, dys, flowing[node.name], parameters)
            for name in due.get(node.name, ()):
                gradient = self._own_gradient(name)
                if gradient is None:
                    continue  # the loss does not depend on it
                gradients[name] = gradient
                bucket.append(gradient)
                if sum(self.step.tensors[one].size_bytes for one in bucket) >= limit:
                    self._exchange(bucket, devices)
                    bucket = []
        # The gradients of batch normalization read the batch statistics first.
        readers = tuple(op.index for op in self.step.ops if op.op_type == "BatchNormGrad")
        bucket += [new for form in self.forms.values() for _, new, _ in form.stats]
        self._exchange(bucket, devices, readers)
        return gradients

    def saved(self, nodes: Sequence[Node], flowing: Mapping[str, tuple[int, ...]]) -> set[str]:
        """Return the tensors of the forward part that gradients read."""
        found: set[str] = set()
        for node in nodes:
            if node.name in flowing:
                dys = tuple("" if place == 0 or node.op_type == "Split" else None for place in range(len(node.outputs)))
                steps = RULES[node.op_type](self._site(node, dys, flowing[node.name]))
                found.update(name for step in steps if isinstance(step, Gradient) for name in step.reads)
        return found - {""}

    def _site(self, node: Node, dys: tuple[str | None, ...], places: tuple[int, ...]) -> Site:
        form = self.forms.get(node.name)
        saved = tuple(tensor.name for tensor in form.makes[1:]) if form else ()
        return Site(node, self.step.tensors, self.graph.constants, dys, places, saved, self.graph.opsets.get("", 0))

    def _differentiate(
        self,
        node: Node,
        dys: tuple[str | None, ...],
        places: tuple[int, ...],
        parameters: Mapping[str, None],
    ) -> None:
        site = self._site(node, dys, places)
        for step in RULES[node.op_type](site):
            if isinstance(step, Same):
                self._pass_on(site, step.wrt)
                continue
            makes = []
            for place in step.wrt:
                wrt = site.x(place)
                tensor = self.step.tensor(f"gradients/{node.name}/{wrt.name}", wrt.shape, wrt.elem_type)
                self.owned.add(tensor.name)
                self.pieces.setdefault(wrt.name, []).append(tensor.name)
                makes.append(tensor)
            reads = [self.step.tensors[name] for name in dict.fromkeys(step.reads)]
            name = f"gradients/{node.name.strip('/')}/{step.op_type}"
            constants = {**self.graph.constants, **parameters}
            if isinstance(step.work, MatrixWork):
                self.step.matrix_op(name, step, node, Operands(reads, makes, constants))
            else:
                self.step.vector_op(
                    name, step.op_type, "backward", alone(node), Operands(reads, makes, constants), step.work
                )
            self.step.computes(step.reads, [tensor.name for tensor in makes], _without_seed(step))

    def _pass_on(self, site: Site, place: int) -> None:
        """Pass the output's gradient, or a view of it, on to an input."""
        wrt, dy = site.x(place), site.dy
        self.owned.discard(dy)  # shared with the output
        if self.step.tensors[dy].shape != wrt.shape:
            view = self.step.tensor(f"gradients/{site.node.name}/{wrt.name}", wrt.shape, wrt.elem_type)
            self.step.roots[view.name] = dy
            dy = view.name
        self.pieces.setdefault(wrt.name, []).append(dy)

    def _gathered(self, name: str) -> str | None:
        """Return the gradient of a tensor: the sum of its parts."""
        parts = self.pieces.get(name, [])
        if len(parts) < 2:
            return parts[0] if parts else None
        source = self.step.tensors[name]
        tensor = self.step.tensor(f"gradients/{name}/sum", source.shape, source.elem_type)
        self.owned.add(tensor.name)
        node = made_node("Sum", f"gradients/{name}", parts, [tensor.name])
        reads = [self.step.tensors[part] for part in dict.fromkeys(parts)]
        use = VectorUse(len(parts) - 1, len(parts) - 1)
        self.step.vector_op(f"gradients/{name}/AddN", "AddN", "backward", alone(node), Operands(reads, [tensor]), use)
        self.step.computes(tuple(parts), (tensor.name,), lambda values, _: [sum(values[1:], values[0])])
        self.pieces[name] = [tensor.name]
        return tensor.name

    def _own_gradient(self, name: str) -> str | None:
        """Return the gradient of a parameter in separate memory, since it is exchanged in place."""
        gradient = self._gathered(name)
        if gradient is None:
            return None
        if gradient in self.owned:
            self.owned.discard(gradient)  # not available to another parameter
            return gradient
        source = self.step.tensors[gradient]
        copy = self.step.tensor(f"gradients/{name}/copy", source.shape, source.elem_type)
        node = made_node("Identity", f"gradients/{name}", [gradient], [copy.name])
        self.step.vector_op(
            f"gradients/{name}/TensorMove",
            "TensorMove",
            "backward",
            alone(node),
            Operands([source], [copy]),
            VectorUse(0, 0),
        )
        self.step.computes((gradient,), (copy.name,), lambda values, _: [values[0].copy()])
        return copy.name

    def _exchange(self, bucket: Sequence[str], devices: int, after: tuple[int, ...] = ()) -> None:
        """Add a collective that replaces each tensor by its mean over all devices."""
        if devices < 2 or not bucket:
            return
        tensors = tuple(self.step.tensors[name] for name in bucket)
        size = sum(tensor.size_bytes for tensor in tensors)
        number = sum(op.is_collective for op in self.step.ops)
        node = made_node("HcomAllReduce", f"hcom_allReduce__{number}", bucket, [])
        self.step.add(
            f"hcom_allReduce__{number}", "HcclAllReduce", "HCCL", "backward", alone(node),
            Operands(tensors, (), after=after), all_reduce_cost(self.step.spec, size, devices), 0,
        )  # fmt: skip


def all_reduce_cost(spec: DeviceSpec, size_bytes: int, devices: int) -> Cost:
    """A ring: each device sends 2 (n - 1) / n of the bytes, in 2 (n - 1) rounds."""
    rounds = 2 * (devices - 1)
    sent = ceil_div(size_bytes * rounds, devices)
    ns = rounds * spec.link_latency_ns + ceil_div(sent * 1_000_000_000, spec.link_bytes_per_s)
    return Cost(ceil_div(ns * spec.core_clock_hz, 1_000_000_000), 0, 0, 0, None)


def _without_seed(step: Gradient) -> Numbers:
    return lambda values, _: step.compute(*values)
