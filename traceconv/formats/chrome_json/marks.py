"""Where quotes and brackets stand in JSON text: all at once, with numpy.

A bracket behind an odd number of quotes is part of a string; the sum of those that open and close is the depth.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Places: TypeAlias = NDArray[np.intp]
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEP = np.zeros(256, np.int8)
_STEP[[ord("{"), ord("[")]] = 1
_STEP[[ord("}"), ord("]")]] = -1
_BLOCK_BYTES = 1 << 20
_MARKS = bytes(chr(byte) in '"{}[]' for byte in range(256))


def structure(text: bytes, data: Bytes) -> tuple[Places, Mask, NDArray[np.int8]]:
    """Where quotes stand, and brackets outside of strings; which are quotes; how each changes the depth.

    data  the bytes of `text`; there may be more behind them
    """
    marks = np.flatnonzero(np.frombuffer(text.translate(_MARKS), np.bool_))
    if b"\\" in text:
        marks = marks[~_escaped(data[: len(text)]).take(marks)]
    kind = data.take(marks)
    is_quote = kind == _QUOTE
    inside = (np.cumsum(is_quote, dtype=np.uint8) & 1).view(np.bool_)
    outside = is_quote | ~inside
    if not outside.all():
        marks, kind, is_quote = marks[outside], kind[outside], is_quote[outside]
    return marks, is_quote, _STEP.take(kind)


def end_of_bracketed(text: bytes, at: int, stop: int) -> int | None:
    """The end of the object or array that begins at `at`; None when it does not end before `stop`.

    Block by block, so that the places of a block are all that is in memory.
    """
    depth, is_inside = 0, False
    while at < stop:
        lead = b'"' if is_inside else b""
        block = lead + text[at : min(stop, at + _BLOCK_BYTES)]
        places, is_quote, step = structure(block, np.frombuffer(block, np.uint8))
        level = np.cumsum(step, dtype=np.int32) + depth
        ends = np.flatnonzero((level <= 0) & ~is_quote)
        if len(ends):
            return at + int(places[ends[0]]) + 1 - len(lead)
        depth = int(level[-1]) if len(level) else depth
        is_inside = bool(np.count_nonzero(is_quote) & 1)
        at += len(block) - len(lead)
        # A byte behind an odd number of backslashes is no mark.
        at += (len(block) - len(block.rstrip(b"\\"))) & 1
    return None


def _escaped(data: Bytes) -> Mask:
    """Whether a byte stands behind a backslash that is not escaped itself."""
    places = np.flatnonzero(data == _BACKSLASH)
    begins = np.ones(len(places), np.bool_)
    begins[1:] = places[1:] != places[:-1] + 1
    rank = np.arange(len(places))
    rank -= np.maximum.accumulate(np.where(begins, rank, 0))
    found = np.zeros(len(data) + 1, np.bool_)
    found[places[rank % 2 == 0] + 1] = True
    return found
