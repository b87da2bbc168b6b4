"""What a model is fed: arrays from an .npz file, or random ones that the model can take."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from traceconv.base.errors import InputError, printable
from traceconv.runtime.graph import Array
from traceconv.runtime.sample import random_arrays
from traceconv.runtime.session import CompiledModel, check_inputs


def random_inputs(model: CompiledModel, seed: int) -> dict[str, Array]:
    """Inputs by name from a seed: normal floats; integers below what they index, where a Gather says so."""
    graph = model.program.graph
    if graph.sample is not None and graph.sample_seed == seed:
        return dict(graph.sample)  # the shapes of the program are what these lead to
    return random_arrays(graph.inputs, graph.tensors, graph.consumers(), seed)


def read_arrays(path: Path) -> dict[str, Array]:
    """Arrays by name from an .npz file. Raises InputError for a file that can't be read."""
    shown = printable(str(path))
    try:
        file = np.load(path, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError(f"{shown} is one array: --input takes an .npz file with an array for each input")
        with file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"{shown} can't be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{shown} is not an .npz file of plain arrays") from error


def inputs_from_file(model: CompiledModel, path: Path) -> dict[str, Array]:
    """Inputs by name from an .npz file; where there is one of each, its name does not matter.

    Raises InputError for a file that can't be read and arrays that the model does not take.
    """
    return fitting_inputs(model, read_arrays(path))


def fitting_inputs(model: CompiledModel, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """`arrays` as the model takes them; where there is one of each, its name does not matter.

    Raises InputError for a missing, unknown or misshapen one.
    """
    names = model.program.graph.inputs
    if len(names) == len(arrays) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    return check_inputs(model, arrays)
