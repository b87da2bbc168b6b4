"""Shapes of a model's inputs: fixed by the model, by `--batch`, or by the given arrays."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import TensorProto

from traceconv.base.errors import InputError, ModelError, option, printable
from traceconv.runtime.graph import DTYPES, Array, Tensor


class InputBinder:
    """Determines the shapes of a model's inputs; a named dimension has the same extent in all of them."""

    def __init__(self, model_name: str, batch: int | None, given: Mapping[str, Array] | None) -> None:
        self._model_name = model_name
        self._batch = batch
        self._given = given or {}
        self._extents: dict[str, tuple[int, str]] = {}
        #: The batch in the model itself, if any.
        self.old_batch: int | None = None

    def bind(self, entry: onnx.ValueInfoProto) -> Tensor:
        """Return the input as a tensor of known shape.

        Raises ModelError for an unsupported element type or an open dimension, InputError when two inputs give
        a dimension different extents.
        """
        where = f"{self._model_name}: input '{printable(entry.name, 80)}'"
        if not entry.type.HasField("tensor_type"):
            raise ModelError(f"{where} is not a tensor ({entry.type.WhichOneof('value')}): it can't be run")
        kind = entry.type.tensor_type
        if kind.elem_type not in DTYPES:
            raise ModelError(
                f"{where} has element type {TensorProto.DataType.Name(kind.elem_type)}, which can't be run"
            )
        given = self._given.get(entry.name)
        if not kind.HasField("shape"):
            if given is None:
                raise ModelError(f"{where} has no shape: give {option('--input', 'inputs')}")
            return Tensor(entry.name, tuple(given.shape), kind.elem_type)
        dims = list(kind.shape.dim)
        fits = given is not None and given.ndim == len(dims)
        shape = [
            self._extent(axis, dim, int(given.shape[axis]) if given is not None and fits else None, where)
            for axis, dim in enumerate(dims)
        ]
        return Tensor(entry.name, tuple(shape), kind.elem_type)

    def _extent(self, axis: int, dim: onnx.TensorShapeProto.Dimension, given: int | None, where: str) -> int:
        fixed = int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else None
        name = str(dim.dim_param) if any(sign.isalnum() for sign in dim.dim_param) else ""  # '?' is not a name
        if axis == 0 and self._batch is not None:
            if fixed is not None and self.old_batch not in (None, fixed):
                raise ModelError(
                    f"{where} has the batch {fixed}, another has {self.old_batch}: {option('--batch')} is ambiguous"
                )
            self.old_batch = fixed or self.old_batch
            fixed = self._batch
        if fixed is None and given is None and name in self._extents:
            return self._extents[name][0]
        extent = given if fixed is None else fixed
        if extent is None:
            called = f"'{printable(name, 40)}'" if name else str(axis)
            inputs = option("--input", "inputs")
            todo = f"give {option('--batch')} or {inputs}" if axis == 0 else f"give {inputs}, or fix it in the model"
            raise ModelError(f"{where}: dimension {called} is dynamic: {todo}")
        if name:
            first, place = self._extents.setdefault(name, (extent, where))
            if first != extent:
                raise InputError(f"{where}: dimension '{printable(name, 40)}' is {extent}, but {first} in {place}")
        return extent
