"""Args of counter events → samples: every number is a series, with an exact value if it is an integer."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import Coded, binary_column, coded
from traceconv.normalize.trace.binary import as_text, offsets_of
from traceconv.normalize.trace.times import exact_number

#: Powers of ten of all doubles, and of numbers that are too small for one.
_MOST_EXPONENT = 400
#: DFTracer repeats the hash of the host's name in the args of every counter.
_HOST_HASH = "hhash"
_MEMBERS = msgspec.json.Decoder(dict[str, Raw] | None)
#: The usual text of numbers with a fraction, and of integers with a decimal point.
_FRACTION = r"^-?(0|[1-9][0-9]{0,17})\.[0-9]{0,17}[1-9]$"
_INTEGER = r"^-?(0|[1-9][0-9]{0,17})\.0{1,9}$"


class Samples(NamedTuple):
    """The samples of events, in the order of the source.

    events  the event of each sample; series: its name
    values  as floats; integers: exact values, NULL if not a 64-bit integer
    bad     the event of each value that is not a number
    unread  events whose args are neither an object nor null
    """

    events: NDArray[np.intp]
    series: Coded
    values: NDArray[np.float64]
    integers: pa.Array
    bad: list[int]
    unread: list[int]


class _Members(NamedTuple):
    """Members of args: event, series, plain integers (where `is_integer`), and the text of all other values.

    unread  events whose args are neither an object nor null
    """

    events: NDArray[np.int32]
    series: Coded
    is_integer: Mask
    integers: Int64
    texts: pa.Array
    unread: list[int]


def samples_of(args: pa.Array) -> Samples:
    """Return the samples in the args of events, a binary column."""
    found = _native_members(args) if native.AVAILABLE and not args.null_count else None
    found = found or _decoded_members(args.to_pylist())
    is_integer, integers = found.is_integer.copy(), found.integers.copy()
    values, known = integers.astype(np.float64), np.ones(len(integers), np.bool_)
    others = np.flatnonzero(~is_integer)
    if len(others):
        parsed = _ParsedTexts(found.texts)
        values[others], known[others] = parsed.values, parsed.known
        integers[others], is_integer[others] = parsed.integers, parsed.is_integer
    bad = ~known
    if _HOST_HASH in found.series.distinct:
        is_hash = ~found.is_integer & (found.series.codes == found.series.distinct.index(_HOST_HASH))
        known, bad = known & ~is_hash, bad & ~is_hash
    return Samples(
        found.events[known].astype(np.intp),
        Coded(found.series.codes[known], found.series.distinct),
        values[known],
        pa.array(integers[known], mask=~is_integer[known]),
        found.events[bad].tolist(),
        found.unread,
    )


def _native_members(args: pa.Array) -> _Members | None:
    """Decode args with the C parser; None if it does not support some of them."""
    found = native.series(offsets_of(args), args.buffers()[2] or b"")
    if found is None:
        return None
    events, codes, keys, is_integer, integers, ends, texts = found
    try:
        series = Coded(np.frombuffer(codes, np.int32), [key.decode() for key in keys])
    except UnicodeDecodeError:
        return None
    plain = np.frombuffer(is_integer, np.int32) != 0
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
    other_texts = pa.Array.from_buffers(pa.binary(), int(np.count_nonzero(~plain)), buffers)
    return _Members(np.frombuffer(events, np.int32), series, plain, np.frombuffer(integers, np.int64), other_texts, [])


def _decoded_members(args: Sequence[bytes | None]) -> _Members:
    found: list[tuple[int, str, Raw]] = []
    unread: list[int] = []
    for event, text in enumerate(args):
        try:
            members = _MEMBERS.decode((text or b"").strip() or b"{}") or {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            unread.append(event)
        else:
            found += [(event, name, value) for name, value in members.items()]
    events, names, texts = zip(*found, strict=True) if found else ((), (), ())
    none = np.zeros(len(found), np.int64)
    return _Members(np.array(events, np.int32), coded(names), none > 0, none, binary_column(texts), unread)


class _ParsedTexts:
    """Values that are not plain integers. `known`: those that are numbers."""

    def __init__(self, column: pa.Array) -> None:
        texts = as_text(column)
        fraction, integer = (_match(texts, pattern) for pattern in (_FRACTION, _INTEGER))
        self.known, self.is_integer = fraction | integer, integer
        plain = pc.if_else(pa.array(self.known), texts, "0")
        self.values = plain.cast(pa.float64()).to_numpy().copy()
        self.integers = np.where(integer, pc.replace_substring_regex(plain, r"\..*", "").cast(pa.int64()).to_numpy(), 0)
        rest = np.flatnonzero(~self.known)
        if not len(rest):
            return
        distinct = coded(column.take(pa.array(rest)).to_pylist())
        numbers = [_number(text) for text in distinct.distinct]
        exact = [None if number is None else number[1] for number in numbers]
        self.known[rest] = np.array([number is not None for number in numbers])[distinct.codes]
        self.values[rest] = np.array([0.0 if number is None else number[0] for number in numbers])[distinct.codes]
        self.is_integer[rest] = np.array([one is not None for one in exact])[distinct.codes]
        self.integers[rest] = np.array([one or 0 for one in exact], np.int64)[distinct.codes]


def _match(texts: pa.Array, pattern: str) -> Mask:
    found: Mask = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found


def _number(text: bytes) -> tuple[float, int | None] | None:
    """Return a value as a float, and exactly if it is a 64-bit integer; None if it is not a number."""
    value = exact_number(text.decode("utf-8", "replace"), _MOST_EXPONENT)
    if value is None or isinf(float(value)):
        return None
    exact = int(value) if value == value.to_integral_value() else None
    return float(value), exact if exact is not None and -(2**63) <= exact < 2**63 else None
