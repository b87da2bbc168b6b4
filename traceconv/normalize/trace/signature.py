"""Types of an op's tensors → shapes and data types of inputs and outputs.

They are one text, `T<768x3xf32>,|T<768xf16>`, or a list for each side, `[{"float": [1, 64]}]`.
"""

from __future__ import annotations

import re

SIGNATURE_COLUMNS = ("input_shapes", "input_dtypes", "output_shapes", "output_dtypes")
_TENSOR = re.compile(r"T<((?:[0-9?]+x)*)([a-z]+[0-9]*)>")
#: Allowed between tensors: commas, and the brackets of tuples.
_BETWEEN = re.compile(r"[\s,()]*")


def signature(text: str) -> dict[str, str]:
    """Return the columns from `text`; empty unless all of it matches. Text after a `;` is ignored.

    A scalar is `T<f32>`: its shape is empty. A side without tensors has no columns; tuples are flattened.
    """
    sides = text.split(";", 1)[0].split("|")
    if len(sides) != 2:
        return {}
    found: dict[str, str] = {}
    for side, words in zip(("input", "output"), sides, strict=True):
        tensors = list(_TENSOR.finditer(words))
        if not _BETWEEN.fullmatch(_TENSOR.sub("", words)) or words.count("(") != words.count(")"):
            return {}
        if tensors:
            shapes = [tensor[1].rstrip("x").replace("x", ",") for tensor in tensors]
            found[f"{side}_shapes"] = ";".join(shapes)
            found[f"{side}_dtypes"] = ";".join(tensor[2] for tensor in tensors)
    return found


def of_tensors(column: str, value: object) -> object:
    """Return the text of one of the columns from a list of tensors, None for none; any other value is unchanged."""
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return value
    tensors = [tensor for one in value for tensor in one.items()]
    if not all(isinstance(shape, list) for _, shape in tensors):
        return value
    if column.endswith("_dtypes"):
        return ";".join(dtype for dtype, _ in tensors) or None
    return ";".join(",".join(map(str, shape)) for _, shape in tensors) if tensors else None
