"""The first line of a library's error, without the location in its source."""

from __future__ import annotations

import re

_PREFIXES = (
    re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : "),
    re.compile(r"Non-zero status code returned while running \S+ node\. Name:'[^']*' Status Message: "),
    re.compile(r"\[ShapeInferenceError\] Inference error\(s\): \(op_type:[^)]*\): "),
    re.compile(r"\[(?:Shape|Type)InferenceError\] "),
)
_PLACE = re.compile(r"(?:/\S*)?onnxruntime\S*\.(?:cc|cpp|h):\d+ ")
_CLAUSE = " was false. "


def first_line(error: Exception) -> str:
    """Return the message of an error of onnx or onnxruntime, which is in its first line."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    for prefix in _PREFIXES:
        text = prefix.sub("", text, count=1)
    place = _PLACE.search(text)
    if place is not None:
        text = text[: place.start()] + _without_signature(text[place.end() :])
    return text.strip().rstrip(".") or type(error).__name__


def _without_signature(text: str) -> str:
    """Return the message after the signature of a C++ function and the condition that it checked."""
    _, clause, message = text.partition(_CLAUSE)
    if clause and message.strip():
        return message
    depth, start = 0, text.find("(")
    for place in range(max(start, 0), len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if start >= 0 and depth == 0:
            rest = text[place + 1 :].removeprefix(" const").lstrip()
            return re.sub(r"^\[with [^]]*\] ?", "", rest) or text
    return text
