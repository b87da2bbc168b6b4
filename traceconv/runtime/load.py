"""ONNX model → Graph: checks, constant folding, inference of every shape. Shapes are never guessed.

One pass over the nodes does everything, so that errors can name the node. A node whose inputs are all known is computed
and becomes a constant. The output shapes of others come from ONNX's inference; from onnxruntime, for domains unknown to
ONNX; or, if they depend on values, from running the model up to there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto, helper

from traceconv.base.errors import ModelError, UsageError, option, printable
from traceconv.runtime.bfloat16 import array_of, elem_type_of, mentions, narrowed, tensor_of
from traceconv.runtime.binding import InputBinder
from traceconv.runtime.error_text import first_line
from traceconv.runtime.graph import DTYPES, FLOATS, Array, Graph, Node, Tensor, describe, subgraphs
from traceconv.runtime.kernels import KernelCompiler
from traceconv.runtime.sample import Sampler, random_arrays

#: (op, index of its input, value of that) → whether training changes the value.
IsTrained: TypeAlias = Callable[[Node, int, Array], bool]

#: Ops with random results; and dequantisation, which would turn integer weights into floats.
NOT_FOLDED = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
    | {"DequantizeLinear"}
)

#: Inputs up to this size are passed to shape inference by value: shapes, axes, repeats.
_VALUE_LIMIT = 1 << 10

#: Letters for dimensions, at most one ellipsis per term, terms separated by commas, and the result.
_EINSUM = re.compile(r"{0}(,{0})*(->{0})?".format(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?"))


def load_graph(
    model: onnx.ModelProto,
    name: str,
    batch: int | None = None,
    *,
    given: Mapping[str, Array] | None = None,
    seed: int = 0,
    is_trained: IsTrained | None = None,
) -> Graph:
    """Return the graph of `model`, with `batch`, if given, as the first dimension of every input.

    Arrays in `given` settle dimensions that the model leaves open. If a shape depends on values, the model is run up to
    there on `given`, or on inputs from `seed`. In training, `is_trained` keeps Casts of weights as ops. Raises
    ModelError for what can't be run (unknown op, element type, open dimension), naming op, node and opset; UsageError
    for a batch that is not positive.
    """
    if batch is not None and (type(batch) is not int or batch < 1):
        raise UsageError(f"{option('--batch')} {printable(str(batch), 40)}: must be an integer, at least 1")
    return _Loader(model, name, batch, given, seed, is_trained).load()


def load_body(
    body: onnx.GraphProto,
    name: str,
    opsets: Mapping[str, int],
    inputs: Sequence[Tensor],
    known: Mapping[str, Array],
    given: Mapping[str, Array] | None = None,
) -> Graph:
    """Return the graph of a subgraph; it may have no nodes.

    inputs  its own inputs and the tensors that it reads from outside; `known`: constants from outside; `given`: values
            of the inputs, from which shapes that depend on values follow; None: random values
    """
    graph = helper.make_graph(body.node, body.name, [one.value_info() for one in inputs], body.output, body.initializer)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*opset) for opset in opsets.items()])
    return _Loader(model, name, None, given, 0).load(known, may_be_empty=True)


class _Loader:
    """State of one pass: the tensors and constants found so far."""

    def __init__(
        self,
        model: onnx.ModelProto,
        name: str,
        batch: int | None,
        given: Mapping[str, Array] | None,
        seed: int,
        is_trained: IsTrained | None = None,
    ) -> None:
        self.name = name
        self.batch = batch
        self.seed = seed
        self.is_trained = is_trained
        self.model = onnx.inliner.inline_local_functions(model) if model.functions else model
        self.given = _named_as_input(self.model, given)
        self.binder = InputBinder(name, batch, self.given)
        self.opsets = {
            ("" if o.domain == "ai.onnx" else str(o.domain)): int(o.version) for o in self.model.opset_import
        }
        self.imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        self._context = onnx.checker.C.CheckerContext()
        self._context.ir_version = self.model.ir_version
        self._context.opset_imports = self.opsets
        self.compiler = KernelCompiler(self.opsets)
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}
        self.dynamic: set[str] = set()
        self.inputs: tuple[str, ...] = ()
        self.results = {entry.name for entry in self.model.graph.output}
        self.sampler: Sampler | None = None
        self.producers: dict[str, Node] = {}
        self.readers: dict[str, list[Node]] = {}
        self._fills: dict[tuple[tuple[int, ...], bytes], Array] = {}

    def _check(self, node: Node) -> None:
        """Raise ModelError for a node that its opset lacks, or lacks with these inputs, outputs and attributes."""
        if not node.domain:
            try:
                onnx.defs.get_schema(node.op_type, self.opsets.get("", 0), "")
            except onnx.defs.SchemaError as error:
                raise self._error(node, "does not exist in this opset") from error
        if node.has_subgraph:
            # The checker rejects names from outside; onnxruntime checks the node when it is compiled.
            for body in subgraphs(node.proto):
                for inner in named_nodes(body.node, f"{node.name}/"):
                    self._check(inner)
            return
        try:
            onnx.checker.check_node(node.proto, self._context)
        except onnx.checker.ValidationError as error:
            raise self._error(node, f"is not valid: {printable(first_line(error))}") from error
        if node.op_type == "Einsum" and not node.domain:
            # onnx hangs on an invalid equation.
            equation = onnx.helper.get_node_attr_value(node.proto, "equation").decode(errors="replace")
            if not _EINSUM.fullmatch(equation.replace(" ", "")):
                raise self._error(node, f"has the equation '{printable(equation, 60)}', which is not valid")

    def load(self, known: Mapping[str, Array] | None = None, *, may_be_empty: bool = False) -> Graph:
        graph = self.model.graph
        for name, value in (known or {}).items():
            self._add_constant(name, value)
        for initializer in graph.initializer:
            self._add_constant(initializer.name, self._initializer(initializer))
        if graph.sparse_initializer:
            raise ModelError(f"{self.name}: sparse initializers can't be run")
        inputs = [entry for entry in graph.input if entry.name not in self.constants]
        for entry in inputs:
            self.tensors[entry.name] = self.binder.bind(entry)
        self.inputs = tuple(entry.name for entry in inputs)
        kept: list[Node] = []
        folded: list[str] = []
        nodes = named_nodes(graph.node)
        for node in nodes:
            self._check(node)
        alive = alive_nodes(nodes, [o.name for o in graph.output])
        for node in alive:
            for name in dict.fromkeys(node.inputs):
                self.readers.setdefault(name, []).append(node)
        for node in map(self._without_unread, alive):
            if any(name in self.tensors for name in node.outputs if name):
                raise self._error(node, "produces a tensor that already exists")
            if self._fold(node):
                folded.append(node.name)
            else:
                kept.append(self._infer(node))
                self.producers.update((name, kept[-1]) for name in node.outputs if name)
        outputs = tuple(o.name for o in graph.output)
        for output in outputs:
            if output not in self.tensors:
                raise ModelError(f"{self.name}: no op produces the output '{printable(output)}'")
        if not kept and not may_be_empty:
            raise ModelError(f"{self.name}: no op remains after constant folding")
        used = {name for node in kept for name in node.inputs} | set(outputs)
        return Graph(
            self.name,
            graph.name,
            self.opsets,
            tuple(kept),
            self.tensors,
            {key: value for key, value in self.constants.items() if key in used},
            self.inputs,
            outputs,
            tuple(folded),
            frozenset(self.dynamic),
            self.sampler.inputs if self.sampler else None,
            None if self.given else self.seed,
        )

    def _initializer(self, initializer: onnx.TensorProto) -> Array:
        if initializer.data_type not in DTYPES:
            kind = TensorProto.DataType.Name(initializer.data_type)
            raise ModelError(
                f"{self.name}: weight '{printable(initializer.name)}' has element type {kind}, which can't be run"
            )
        return array_of(initializer)

    # Constants

    def _add_constant(self, name: str, value: Array) -> None:
        self.constants[name] = value
        self.tensors[name] = Tensor(name, tuple(value.shape), elem_type_of(value.dtype))

    def _fold(self, node: Node) -> bool:
        """Compute `node` if everything that it reads is known; return whether it was."""
        if node.op_type == "Shape" and node.inputs[0] in self.tensors and node.inputs[0] not in self.dynamic:
            extents = np.array(self.tensors[node.inputs[0]].shape, np.int64)
            start, end = node.int("start", 0), node.int("end", len(extents))
            self._add_constant(node.outputs[0], extents[start:end])
            return True
        if (
            node.op_type in NOT_FOLDED
            or node.has_subgraph
            or any(name not in self.constants for name in node.inputs if name)
            or self._casts_trained(node)
        ):
            return False
        if node.op_type == "ConstantOfShape":
            self._add_constant(node.outputs[0], self._fill(node))
            return True
        if node.op_type in ("Unsqueeze", "Squeeze", "Reshape", "Identity"):
            # These move no data, while onnxruntime would copy weights.
            shape = self._outputs(node)[0].shape
            self._add_constant(node.outputs[0], self.constants[node.inputs[0]].reshape(shape))
            return True
        outputs = [name for name in node.outputs if name]
        halves = self._halves(node, outputs)
        kernel = self.compiler.compile([node], outputs, {**self.tensors, **halves}, self.constants)
        for name, value in zip(outputs, kernel.run(self.constants), strict=True):
            self._add_constant(name, narrowed(value) if name in halves else value)
        return True

    def _casts_trained(self, node: Node) -> bool:
        """Whether a node casts a constant for an op that trains it."""
        if self.is_trained is None or node.op_type != "Cast" or node.domain:
            return False
        value, output = self.constants[node.inputs[0]], node.outputs[0]
        readers = (
            (one, place)
            for one in self.readers.get(output, ())
            for place, name in enumerate(one.inputs)
            if name == output
        )
        return any(self.is_trained(reader, place, value) for reader, place in readers)

    def _fill(self, node: Node) -> Array:
        """Return the array of a ConstantOfShape, shared by all of this shape and value, since models repeat them."""
        shape = tuple(int(extent) for extent in self.constants[node.inputs[0]])
        value = np.zeros(1, np.float32)
        for attribute in node.proto.attribute:
            if attribute.name == "value":
                value = array_of(attribute.t)
        key = (shape, value.dtype.str.encode() + value.tobytes())
        if key not in self._fills:
            self._fills[key] = np.full(shape, value.reshape(-1)[0])
        return self._fills[key]

    # Shapes

    def _without_unread(self, node: Node) -> Node:
        """Return the node without optional outputs (such as a mask) that nothing reads."""
        if len(node.outputs) < 2 or not onnx.defs.has(node.op_type, node.domain):
            return node
        declared = onnx.defs.get_schema(node.op_type, self.opsets.get(node.domain, 1), node.domain).outputs
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        outputs = list(node.outputs)
        while outputs[-1] not in self.readers and outputs[-1] not in self.results:
            if declared[min(len(outputs), len(declared)) - 1].option != optional:
                break
            outputs.pop()
        return node if len(outputs) == len(node.outputs) else node.rewired(outputs=outputs)

    def _infer(self, node: Node) -> Node:
        """Note the shapes of the outputs of `node`; return the node, rewritten if the batch requires it."""
        for name in node.inputs:
            if name and name not in self.tensors:
                raise self._error(node, f"reads '{printable(name, 80)}', which no op produces")
        node = self._with_batch(node)
        for tensor in self._outputs(node):
            self.tensors[tensor.name] = tensor
        return node

    def _outputs(self, node: Node) -> list[Tensor]:
        """Return the outputs of `node`: by ONNX's inference, else by onnxruntime's, else by running it."""
        names = [name for name in node.outputs if name]
        inferred: list[Tensor] | None = None
        if onnx.defs.has(node.op_type, node.domain):
            try:
                inferred = self._inferred(node, names)
            except onnx.shape_inference.InferenceError as error:
                if not node.has_subgraph:
                    hint = f"; the model may not allow this {option('--batch')}" if self.batch is not None else ""
                    reason = printable(first_line(error))
                    raise self._error(node, f"has no valid shape: {reason}{hint}") from error
        if inferred is not None:
            return inferred
        tensors = {**self.tensors, **self._halves(node, names)}
        outputs = self.compiler.compile([node], names, tensors, self.constants, self.dynamic).signature
        known = [Tensor(one.name, one.shape, one.elem_type) for one in outputs if one.shape is not None]
        if len(known) == len(outputs):
            return known
        self.dynamic.update(names)
        values = self._sampler().run(node, self.producers, tensors, self.constants)
        return [Tensor(one.name, tuple(values[one.name].shape), one.elem_type) for one in outputs]

    def _sampler(self) -> Sampler:
        """Return a sampler of the model with the given inputs, and random ones for the others."""
        if self.sampler is None:
            inputs = random_arrays(self.inputs, self.tensors, self.readers, self.seed)
            self.sampler = Sampler(self.compiler, {**inputs, **self.given})
        return self.sampler

    def _halves(self, node: Node, names: list[str]) -> dict[str, Tensor]:
        """Return the outputs of bfloat16, without their shapes."""
        read = [self.tensors[name] for name in node.inputs if name]
        if not mentions(node.proto) and all(tensor.elem_type != TensorProto.BFLOAT16 for tensor in read):
            return {}
        if onnx.defs.has(node.op_type, node.domain):
            entries = self._inference(node, names, strict=False)
            found = [entry.name for entry in entries if entry.type.tensor_type.elem_type == TensorProto.BFLOAT16]
        elif {tensor.elem_type for tensor in read} & FLOATS == {TensorProto.BFLOAT16}:
            # onnxruntime's own ops: results have the type of the operands.
            signature = self.compiler.compile([node], names, self.tensors, self.constants, self.dynamic).signature
            found = [output.name for output in signature if output.elem_type == TensorProto.FLOAT]
        else:
            found = []
        return {name: Tensor(name, (), TensorProto.BFLOAT16) for name in found}

    def _inference(self, node: Node, names: list[str], *, strict: bool) -> list[onnx.ValueInfoProto]:
        """Return what ONNX's inference says of the outputs of `node`."""
        read = [name for name in dict.fromkeys(node.inputs) if name]
        known = [
            tensor_of(self.constants[name], name)
            for name in read
            if name in self.constants and self.constants[name].nbytes <= _VALUE_LIMIT
        ]
        graph = helper.make_graph(
            [node.proto],
            "one",
            [self.tensors[name].value_info(any_shape=name in self.dynamic) for name in read],
            [onnx.ValueInfoProto(name=name) for name in names],
            known,
        )
        model = helper.make_model(graph, opset_imports=self.imports)
        return list(onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=True).graph.output)

    def _inferred(self, node: Node, names: list[str]) -> list[Tensor] | None:
        found = []
        for entry in self._inference(node, names, strict=True):
            kind = entry.type.tensor_type
            is_tensor = entry.type.WhichOneof("value") in (None, "tensor_type")
            if not is_tensor or (kind.elem_type and kind.elem_type not in DTYPES):
                what = TensorProto.DataType.Name(kind.elem_type) if kind.elem_type else entry.type.WhichOneof("value")
                raise self._error(node, f"produces {what}, which can't be run")
            dims = kind.shape.dim
            if not (kind.elem_type and kind.HasField("shape") and all(d.HasField("dim_value") for d in dims)):
                return None
            found.append(Tensor(entry.name, tuple(int(d.dim_value) for d in dims), kind.elem_type))
        return found

    # Batch

    def _with_batch(self, node: Node) -> Node:
        """Replace the model's own batch in the target of a Reshape by the new one.

        Only if both data and target begin with the batch: any other Reshape is still right, or fails the check of its
        element count.
        """
        if node.op_type != "Reshape" or node.inputs[1] not in self.constants or node.inputs[0] in self.dynamic:
            return node
        data = self.tensors[node.inputs[0]]
        target = [int(extent) for extent in self.constants[node.inputs[1]].tolist()]
        old, new = self.binder.old_batch, self.batch
        if old is not None and new is not None and old != new and target and data.shape[:1] == (new,):
            if target[0] == old:
                target[0] = new
                shape_name = f"{node.inputs[1]}@batch{new}"
                self._add_constant(shape_name, np.array(target, np.int64))
                node = node.rewired([node.inputs[0], shape_name])
            elif target[0] > 0 and target[0] % new:
                problem = (
                    f"has its batch written into its shape {target}: this model can't take {option('--batch')} {new}"
                )
                raise self._error(node, problem)
        copied = [
            data.shape[k] if extent == 0 and not node.int("allowzero", 0) else extent for k, extent in enumerate(target)
        ]
        if -1 not in copied and math.prod(copied) != data.count:
            hint = f": this model can't take {option('--batch')} {new}" if new is not None else ""
            raise self._error(node, f"turns shape {list(data.shape)} into {target}{hint}")
        return node

    def _error(self, node: Node, problem: str) -> ModelError:
        return ModelError(f"{self.name}: {describe(node, self.opsets)} {problem}")


def _named_as_input(model: onnx.ModelProto, given: Mapping[str, Array] | None) -> dict[str, Array]:
    """Return the given arrays by input; a single array is the single input, whatever its name."""
    weights = {entry.name for entry in model.graph.initializer}
    names = [entry.name for entry in model.graph.input if entry.name not in weights]
    if given is not None and len(names) == len(given) == 1:
        return {names[0]: next(iter(given.values()))}
    return {name: value for name, value in (given or {}).items() if name in names}


def named_nodes(protos: Iterable[onnx.NodeProto], prefix: str = "") -> list[Node]:
    """Return nodes with unique names: those of the model, or made from type and index."""
    taken: set[str] = set()
    nodes = []
    for index, proto in enumerate(protos):
        name = prefix + (proto.name or f"{proto.op_type}_{index}")
        while name in taken:
            name = f"{name}_{index}"
        taken.add(name)
        nodes.append(Node(name, proto))
    return nodes


def alive_nodes(nodes: list[Node], outputs: list[str]) -> list[Node]:
    """Return the nodes that the outputs depend on, in the model's order."""
    needed = set(outputs)
    alive = []
    for node in reversed(nodes):
        if needed.intersection(name for name in node.outputs if name):
            alive.append(node)
            needed.update(node.inputs)
    return alive[::-1]
