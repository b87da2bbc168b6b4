"""Inputs of a model: arrays from an .npz file, or valid random ones."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from traceconv.base.errors import InputError, option, printable, reason_of
from traceconv.runtime.bfloat16 import BF16
from traceconv.runtime.compiled import CompiledModel, check_inputs
from traceconv.runtime.graph import Array
from traceconv.runtime.sample import random_arrays


def random_inputs(model: CompiledModel, seed: int) -> dict[str, Array]:
    """Return inputs by name from a seed: normal floats; integers within the bounds of what they index with Gather."""
    graph = model.program.graph
    if graph.sample is not None and graph.sample_seed == seed:
        return dict(graph.sample)  # these lead to the shapes of the program
    return random_arrays(graph.inputs, graph.tensors, graph.consumers(), seed)


def read_arrays(path: Path) -> dict[str, Array]:
    """Return arrays by name from an .npz file. Raises InputError for an unreadable file."""
    shown = printable(str(path))
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(
                f"{shown} is one array: {option('--input', 'input_path')} takes an .npz file with an array per input"
            )
        with file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"{shown} can't be read: {reason_of(error)}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{shown} is not an .npz file of plain arrays") from error
    # numpy saves bfloat16 as opaque elements of two bytes.
    return {name: value.view(BF16) if value.dtype == np.dtype("V2") else value for name, value in arrays.items()}


def fitting_inputs(model: CompiledModel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return `arrays` as the model's inputs; a single array fits a single input, whatever its name.

    Raises InputError for a missing or unknown one, or a wrong shape or type.
    """
    names = model.program.graph.inputs
    if len(names) == len(arrays) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    return check_inputs(model, arrays)
