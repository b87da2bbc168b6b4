"""ONNX's operators as functions: a Python function that calls them becomes a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from traceconv.base.arrays import NDArray
from traceconv.base.errors import UsageError, printable
from traceconv.runtime.op_profile import OpInput, declare_inputs, make_attribute, op_schema
from traceconv.runtime.zoo import FoundModel


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An input or a result inside a function of ops."""

    calls: list[_Call]
    name: str


@dataclass(frozen=True, slots=True)
class _Call:
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, object]
    constants: dict[str, NDArray[Any]]


class Ops:
    """ONNX's operators as functions of values: `ops.Conv(x, w, pads=[1, 1, 1, 1])`.

    Other arguments than values are constants; None omits an input. `outputs`: number of results, which are a tuple if
    there are several.
    """

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_"):
            raise AttributeError(op_type)

        def call(*arguments: object, outputs: int = 1, **attributes: object) -> Value | tuple[Value, ...]:
            values = [argument for argument in arguments if isinstance(argument, Value)]
            if not values:
                raise UsageError(f"ops.{printable(op_type, 60)}: pass at least one value of the expression")
            calls = values[0].calls
            names: list[str] = []
            constants: dict[str, NDArray[Any]] = {}
            for place, argument in enumerate(arguments):
                if isinstance(argument, Value):
                    if argument.calls is not calls:
                        raise UsageError(f"ops.{printable(op_type, 60)}: its values are of different expressions")
                    names.append(argument.name)
                elif argument is None:
                    names.append("")
                else:
                    names.append(f"c{len(calls)}_{place}")
                    constants[names[-1]] = np.asarray(argument)
            results = tuple(f"v{len(calls)}_{place}" for place in range(outputs))
            calls.append(_Call(op_type, tuple(names), results, attributes, constants))
            found = tuple(Value(calls, name) for name in results)
            return found[0] if outputs == 1 else found

        return call


ops = Ops()


def model_of_function(
    function: Callable[..., Value | Sequence[Value]],
    inputs: Sequence[OpInput] | None,
    dtypes: str | Sequence[str],
    opset: int | None,
) -> FoundModel:
    """Return the model of what a function of ops calls."""
    if inputs is None:
        raise UsageError("inputs: give a shape or an array for each argument of the function")
    name = getattr(function, "__name__", "expression").strip("<>")
    calls: list[_Call] = []
    names = [f"input{place}" for place in range(len(inputs))]
    declared, constants = declare_inputs(names, inputs, dtypes)
    made = function(*(Value(calls, one) for one in names))
    results = [made] if isinstance(made, Value) else list(made) if isinstance(made, (tuple, list)) else []
    if not results or not all(isinstance(one, Value) and one.calls is calls for one in results) or not calls:
        raise UsageError(f"{printable(name, 60)}: must return one or more results of traceconv.ops")
    version = max(op_schema(call.op_type, opset)[1] for call in calls)
    nodes = []
    for number, call in enumerate(calls):
        schema, _ = op_schema(call.op_type, version)
        node = helper.make_node(call.op_type, call.inputs, call.outputs, name=f"{call.op_type}_{number}")
        node.attribute.extend(make_attribute(schema, *one) for one in sorted(call.attributes.items()))
        nodes.append(node)
        constants += declare_inputs(list(call.constants), list(call.constants.values()), "")[1]
    outputs = [onnx.ValueInfoProto(name=one.name) for one in dict.fromkeys(results)]
    graph = helper.make_graph(nodes, name, declared, outputs, constants)
    return FoundModel(name, helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)]))
