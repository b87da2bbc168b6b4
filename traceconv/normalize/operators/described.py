"""The shapes and types of operators' arguments as text, from `Input Dims` and `Input type` as profilers record them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.normalize.operators.arguments import MOST_DIMENSIONS, is_shape, items

#: Lists of extents, as SQL extracts them: without blanks.
_SHAPE = r"\[(?:(?:0|[1-9][0-9]{0,17})(?:,(?:0|[1-9][0-9]{0,17}))*)?\]"
_SHAPES = rf"^\[{_SHAPE}(?:,{_SHAPE})*\]$"
#: Bits of a number of arguments with such lists.
_COUNT_BITS = 8


def described(dims: pa.StringArray, types: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return the shapes and the types of the arguments of operators; NULL for both where they are not as expected.

    Dimensions are joined by ',' and arguments by ';'. The last arguments without a shape are left out. Shapes of a list
    of tensors are joined by '|'.
    """
    few = pc.less(pc.count_substring(dims, ","), MOST_DIMENSIONS)
    plain = pc.and_(few, pc.match_substring_regex(dims, _SHAPES)).to_numpy(zero_copy_only=False)
    if plain.all():
        return _plain(dims, types)
    parts = [_plain(dims.filter(plain), types.filter(plain)), _parsed(dims.filter(~plain), types.filter(~plain))]
    places = pa.array(np.argsort(np.argsort(~plain, kind="stable")))
    shapes, names = (pa.concat_arrays(arrays).take(places) for arrays in zip(*parts, strict=True))
    return shapes, names


def _plain(dims: pa.StringArray, types: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Describe arguments with dims that match _SHAPES, which need no parsing, and have few commas."""
    inner = pc.binary_slice(dims.cast(pa.binary()), 2, -2).cast(pa.string())
    shapes = pc.ascii_rtrim(pc.replace_substring(inner, "],[", ";"), ";")
    counts = pc.count_substring(inner, "],[").to_numpy().astype(np.int64) + 1
    shown = pc.count_substring(shapes, ";").to_numpy() + pc.not_equal(shapes, "").to_numpy(zero_copy_only=False)
    texts = types.dictionary_encode()
    keys = (texts.indices.to_numpy().astype(np.int64) << _COUNT_BITS | counts) << _COUNT_BITS | shown
    distinct, places = np.unique(keys, return_inverse=True)
    mask = (1 << _COUNT_BITS) - 1
    joined = []
    for key in distinct.tolist():
        text = texts.dictionary[key >> 2 * _COUNT_BITS].as_py()
        names = _type_names(text)
        is_valid = names is not None and len(names) == key >> _COUNT_BITS & mask
        joined.append(_joined_types(text, key & mask) if is_valid else None)
    types_of = pa.array(joined, pa.string()).take(pa.array(places))
    return pc.if_else(types_of.is_valid(), shapes, None), types_of


def _parsed(dims: pa.StringArray, types: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    found = [_described(*row) for row in zip(dims.to_pylist(), types.to_pylist(), strict=True)]
    return pa.array([shapes for shapes, _ in found], pa.string()), pa.array([names for _, names in found], pa.string())


def _described(dims: str, types: str) -> tuple[str | None, str | None]:
    extents, names = items(dims), _type_names(types)
    if extents is None or names is None or len(extents) != len(names):
        return None, None
    shapes = ";".join(map(_shape_text, extents)).rstrip(";")
    return shapes, _joined_types(types, shapes.count(";") + 1 if shapes else 0)


@lru_cache(1 << 10)
def _type_names(types: str) -> tuple[str, ...] | None:
    names = items(types)
    if names is None:
        return None
    return tuple(name.removeprefix("c10::") if isinstance(name, str) else "" for name in names)


@lru_cache(1 << 10)
def _joined_types(types: str, count: int) -> str:
    return ";".join((_type_names(types) or ())[:count]).encode("utf-8", "replace").decode()


def _shape_text(shape: object) -> str:
    if is_shape(shape):
        return ",".join(map(str, shape))
    return "|".join(_shape_text(one) for one in shape if is_shape(one)) if isinstance(shape, list) else ""
