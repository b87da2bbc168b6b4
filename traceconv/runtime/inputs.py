"""What a model is fed: arrays from an .npz file, or random ones that the model can take."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from traceconv.errors import InputError, printable
from traceconv.runtime.graph import FLOATS, Array, Graph, Tensor
from traceconv.runtime.session import CompiledModel, check_inputs

#: Integers that index nothing we know of are 0 or 1: ids, masks and flags can all be that.
_DEFAULT_LIMIT = 2


def random_inputs(model: CompiledModel, seed: int) -> dict[str, Array]:
    """Inputs by name from a seed: normal floats; integers below what they index, where a Gather says so."""
    graph = model.program.graph
    random = np.random.default_rng(seed)
    return {name: _random(graph, graph.tensors[name], random) for name in graph.inputs}


def _random(graph: Graph, tensor: Tensor, random: np.random.Generator) -> Array:
    if tensor.elem_type in FLOATS:
        values: Array = random.standard_normal(tensor.shape).astype(tensor.numpy_dtype)
        return values.reshape(tensor.shape)
    limit = _index_limit(graph, tensor.name)
    return random.integers(0, limit, tensor.shape).astype(tensor.numpy_dtype).reshape(tensor.shape)


def _index_limit(graph: Graph, name: str) -> int:
    """Least extent of what a tensor indexes, looking through Cast and the like."""
    limits = []
    for node in graph.consumers().get(name, []):
        if node.op_type == "Gather" and list(node.inputs)[1:2] == [name]:
            limits.append(graph.tensors[node.inputs[0]].shape[node.int("axis", 0)])
        elif node.op_type in ("Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze"):
            limits.append(_index_limit(graph, node.outputs[0]))
    return min(limits, default=_DEFAULT_LIMIT)


def inputs_from_file(model: CompiledModel, path: Path) -> dict[str, Array]:
    """Inputs by name from an .npz file; where there is one of each, its name does not matter.

    Raises InputError for a file that can't be read and arrays that the model does not take.
    """
    shown = printable(str(path))
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{shown} is one array: --input takes an .npz file with an array for each input")
        with file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"{shown} can't be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{shown} is not an .npz file of plain arrays") from error
    names = model.program.graph.inputs
    if len(names) == len(arrays) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    return check_inputs(model, arrays)
