"""What a library says against a model, in its first line, without where in its own source it says so."""

from __future__ import annotations

import re

_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
_RUNNING = re.compile(r"Non-zero status code returned while running \S+ node\. Name:'[^']*' Status Message: ")
_PLACE = re.compile(r"(?:/\S*)?onnxruntime\S*\.(?:cc|cpp|h):\d+ ")
_INFERENCE = re.compile(r"\[ShapeInferenceError\] Inference error\(s\): \(op_type:[^)]*\): ")
_KIND = re.compile(r"\[(?:Shape|Type)InferenceError\] ")
_CLAUSE = " was false. "


def first_line(error: Exception) -> str:
    """The first line of what onnx or onnxruntime says, which is the one that says what is wrong."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    for mark in (_CODE, _RUNNING, _INFERENCE, _KIND):
        text = mark.sub("", text, count=1)
    place = _PLACE.search(text)
    if place is not None:
        text = text[: place.start()] + _without_signature(text[place.end() :])
    return text.strip().rstrip(".") or type(error).__name__


def _without_signature(text: str) -> str:
    """What follows the signature of a C++ function, and the condition that it checked: its message."""
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
