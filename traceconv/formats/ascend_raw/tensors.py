"""Tensors of operators: distinct lists are numbered, and described as msprof does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.formats.ascend_raw.names import numbers
from traceconv.formats.ascend_raw.records import NONE, TENSOR, TENSORS_PER_RECORD

#: Distinct lists that are kept; shapes of further ones are unknown.
_MOST_DISTINCT = 1 << 18
UNKNOWN = -1


class Described(NamedTuple):
    """Tensors as text: those of the inputs, then those of the outputs, separated by `;`."""

    input_shapes: str
    input_types: str
    input_formats: str
    output_shapes: str
    output_types: str
    output_formats: str


class Tensors:
    """The distinct lists of tensors in records."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def numbered(self, counts: NDArray[np.uint32], tensors: NDArray[np.void]) -> Int64:
        """Return the number of each record's list; UNKNOWN for one too many."""
        used = np.empty((len(counts), 1 + tensors.dtype.itemsize), np.uint8)
        used[:, 0] = np.minimum(counts, TENSORS_PER_RECORD)
        used[:, 1:] = np.ascontiguousarray(tensors).view(np.uint8).reshape(len(counts), -1)
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(used.shape[1]), len(used), [None, pa.py_buffer(used)])
        encoded = column.dictionary_encode()
        known = [self._number(one) for one in encoded.dictionary.to_pylist()]
        return np.array(known, np.int64)[encoded.indices.to_numpy()] if known else np.zeros(0, np.int64)

    def _number(self, one: bytes) -> int:
        found = self._numbers.get(one)
        if found is None and len(self._numbers) < _MOST_DISTINCT:
            found = self._numbers[one] = len(self._numbers)
        return UNKNOWN if found is None else found

    def describe(self, lists: Sequence[Sequence[int]]) -> list[Described]:
        """Describe the tensors of operators; each has one record or more, by the numbers of their lists."""
        known = list(self._numbers)
        return [_described(b"".join(_whole(known[number]) for number in one if number >= 0)) for one in lists]


def _whole(one: bytes) -> bytes:
    return one[1 : 1 + one[0] * TENSOR.itemsize]


def _described(data: bytes) -> Described:
    tensors = np.frombuffer(data, TENSOR)
    texts = []
    for kind in (0, 1):
        chosen = tensors[tensors["kind"] == kind]
        shapes = (",".join(map(str, _dimensions(shape))) for shape in chosen["shape"].tolist())
        types = (_name("data_types", number) for number in chosen["dtype"].tolist())
        formats = map(_format, chosen["format"].tolist())
        texts += [";".join(shapes), ";".join(types), ";".join(formats)]
    return Described(*texts)


def _format(number: int) -> str:
    """Name a format: the low byte; those above it are its sub-format, such as the number of groups."""
    if number == NONE:
        return _name("tensor_formats", number)
    name, sub = _name("tensor_formats", number & 0xFF), number >> 8 & 0xFFFF
    return f"{name}:{sub}" if sub else name


def _dimensions(shape: list[int]) -> list[int]:
    return shape[: shape.index(0)] if 0 in shape else shape


def _name(table: str, number: int) -> str:
    return numbers(table).get(number, str(number))
