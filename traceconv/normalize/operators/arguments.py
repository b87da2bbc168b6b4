"""The arguments of an operator as PyTorch's profiler records them: `Input Dims`, `Input type` and `Concrete Inputs`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias, TypeGuard, TypeVar

#: C++ names of PyTorch's types → type, bytes of an element.
_TYPES = {
    "double": ("fp64", 8), "float": ("fp32", 4), "c10::Half": ("fp16", 2), "c10::BFloat16": ("bf16", 2),
    "c10::Float8_e4m3fn": ("fp8", 1), "c10::Float8_e4m3fnuz": ("fp8", 1), "c10::Float8_e5m2": ("fp8", 1),
    "c10::Float8_e5m2fnuz": ("fp8", 1), "c10::Float8_e8m0fnu": ("fp8", 1), "c10::Float4_e2m1fn_x2": ("fp4", 1),
    "signed char": ("int8", 1), "unsigned char": ("uint8", 1), "bool": ("bool", 1), "short": ("int16", 2),
    "short int": ("int16", 2), "int": ("int32", 4), "long": ("int64", 8), "long int": ("int64", 8),
    "long long": ("int64", 8), "__int64": ("int64", 8), "unsigned short": ("uint16", 2), "unsigned int": ("uint32", 4),
    "unsigned long": ("uint64", 8), "c10::complex<float>": ("complex64", 8), "c10::complex<double>": ("complex128", 16),
    # Names of PyTorch's types (c10::ScalarType), as execution traces and programs that write traces have them.
    "Double": ("fp64", 8), "Float": ("fp32", 4), "Half": ("fp16", 2), "BFloat16": ("bf16", 2), "Char": ("int8", 1),
    "Byte": ("uint8", 1), "Bool": ("bool", 1), "Short": ("int16", 2), "Int": ("int32", 4), "Long": ("int64", 8),
    "Float8_e4m3fn": ("fp8", 1), "Float8_e4m3fnuz": ("fp8", 1), "Float8_e5m2": ("fp8", 1),
    "Float8_e5m2fnuz": ("fp8", 1),
}  # fmt: skip
_SIZES = dict(_TYPES.values())
#: Kinds of scalars in PyTorch 1.9: Int, Double and Bool without a shape are values, not tensors.
_SCALARS = frozenset({"Int", "Double", "Bool"})
#: PyTorch's numbers of types (c10::ScalarType), as concrete inputs contain them.
_NUMBERED = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 9: "complex64",
    10: "complex128", 11: "bool", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8", 27: "uint16", 28: "uint32",
    29: "uint64",
}  # fmt: skip
_FLOATS = {"fp8": 1, "bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8}
_INTEGERS = {"uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
_LARGEST = (1 << 63) - 1
#: Dimensions of a shape.
MOST_DIMENSIONS = 64

Shape: TypeAlias = "tuple[int, ...]"
T = TypeVar("T")


class UnknownWork(Exception):
    """The arguments of a call are not as the definition of its operator has them."""


def require(condition: object) -> None:
    """Raise UnknownWork unless a condition of a formula is true."""
    if not condition:
        raise UnknownWork


def known(value: T | None) -> T:
    """Return a value that a formula needs. Raises UnknownWork for None."""
    if value is None:
        raise UnknownWork
    return value


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's shape and type; the type is a name such as bf16."""

    shape: Shape
    dtype: str

    @property
    def count(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of its elements, each once, whatever its strides."""
        return self.count * _SIZES[self.dtype]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments by position.

    tensors  None for an argument that is not a tensor
    lists    shapes of a list of tensors, whose types are not recorded; empty for other arguments
    values   concrete values as text; empty for tensors and None; no items if the profiler didn't record values
    """

    tensors: tuple[Tensor | None, ...]
    lists: tuple[tuple[Shape, ...], ...]
    values: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.tensors)

    def tensor(self, place: int) -> Tensor:
        """Return the tensor at a place. Raises UnknownWork if there is none."""
        return known(self.optional(place))

    def optional(self, place: int) -> Tensor | None:
        """Return the tensor at a place; None if there is none."""
        return self.tensors[place] if place < len(self.tensors) else None

    def shapes(self, place: int) -> tuple[Shape, ...]:
        """Return the shapes of a list of tensors. Raises UnknownWork if it is empty, or its shapes are unknown."""
        return known((self.lists[place] or None) if place < len(self.lists) else None)

    def value(self, place: int) -> str | None:
        """Return a value that is not a tensor, as text; None if it is unknown or None."""
        return (self.values[place] or None) if place < len(self.values) else None

    def flag(self, place: int) -> bool | None:
        """Return a boolean; None if it is unknown."""
        return {"True": True, "False": False}.get(self.value(place) or "")

    def integers(self, place: int) -> list[int] | None:
        """Return a list of integers, of a single one or a tuple too; None if it is unknown."""
        numbers = _json((self.value(place) or "").replace("(", "[").replace(")", "]"))
        numbers = [numbers] if type(numbers) is int else numbers
        return numbers if isinstance(numbers, list) and all(type(number) is int for number in numbers) else None

    def integer(self, place: int) -> int:
        """Return an integer. Raises UnknownWork if it is unknown."""
        numbers = known(self.integers(place))
        require(len(numbers) == 1)
        return numbers[0]

    def flags(self, place: int) -> list[bool] | None:
        """Return a list of booleans; None if it is unknown."""
        flags = _json((self.value(place) or "").lower())
        return flags if isinstance(flags, list) and all(type(flag) is bool for flag in flags) else None

    def dtype(self, place: int) -> str | None:
        """Return a type that is given by its number; None if it is unknown or None."""
        number = _json(self.value(place))
        return _NUMBERED.get(number) if type(number) is int else None


def parse_arguments(dims: str, types: str, values: str | None) -> Arguments | None:
    """Parse the three keys of an event's args, as JSON: lists, or torch_npu's texts. None if they don't match."""
    shapes, names, concrete = items(dims), items(types), items(values or "[]")
    if shapes is None or names is None or concrete is None or len(shapes) != len(names):
        return None
    tensors: list[Tensor | None] = []
    lists: list[tuple[Shape, ...]] = []
    for shape, name in zip(shapes, names, strict=True):
        if not isinstance(name, str) or name not in _TYPES or (name in _SCALARS and shape == []):
            tensors.append(None)
            lists.append(_shapes(shape) if name == "TensorList" else ())
            continue
        if not is_shape(shape):
            return None
        tensors.append(Tensor(tuple(shape), _TYPES[name][0]))
        lists.append(())
    return Arguments(tuple(tensors), tuple(lists), tuple(None if value is None else str(value) for value in concrete))


def promoted(tensors: Sequence[Tensor]) -> str | None:
    """Return the type of a result of several tensors; None if it is unknown.

    Tensors without dimensions count only if no other tensor is of their category, as in PyTorch.
    """
    ranked = [(_category(one.dtype), bool(one.shape), one.dtype) for one in tensors]
    if not ranked or any(category is None for category, _, _ in ranked):
        return None
    highest = max(category or 0 for category, _, _ in ranked)
    same = [(has_shape, dtype) for category, has_shape, dtype in ranked if category == highest]
    names = {dtype for has_shape, dtype in same if has_shape} or {dtype for _, dtype in same}
    if len(names) == 1:
        return names.pop()
    sizes = _FLOATS if highest == 2 else _INTEGERS
    if not names <= sizes.keys() or "fp8" in names:
        return None
    if names == {"fp16", "bf16"}:
        return "fp32"
    if names == {"uint8", "int8"}:
        return "int16"
    return max(names, key=lambda name: sizes[name])


def element_bytes(dtype: str) -> int:
    """Return the bytes of an element. Raises KeyError."""
    return _SIZES[dtype]


def fits(number: int | None) -> int | None:
    """Return a number that fits into 64 bits, and None otherwise."""
    return number if number is not None and 0 <= number <= _LARGEST else None


def is_shape(shape: object) -> TypeGuard[list[int]]:
    """Whether a value of JSON is the extents of a tensor."""
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        return False
    return all(type(extent) is int and 0 <= extent <= _LARGEST for extent in shape)


def _shapes(shapes: object) -> tuple[Shape, ...]:
    if not isinstance(shapes, list) or not all(is_shape(shape) for shape in shapes):
        return ()
    return tuple(map(tuple, shapes))


def _category(dtype: str) -> int | None:
    if dtype == "bool":
        return 0
    return 1 if dtype in _INTEGERS else 2 if dtype in _FLOATS else None


def items(text: str) -> list[object] | None:
    """Return a JSON list, or the items of torch_npu's text; shapes there are integers separated by commas."""
    found = _json(text)
    if isinstance(found, str):
        return [_extents(item) for item in found.split(";\r\n")]
    return found if isinstance(found, list) else None


def _extents(item: str) -> object:
    parts = item.split(",")
    if item == "":
        return []
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 19 for part in parts) else item


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "")
    except (ValueError, RecursionError):
        return None
