"""Times as text → whole nanoseconds, exactly: integers, decimals, exponents, quoted or not; never a double."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv import native
from traceconv.base.int64 import LARGEST
from traceconv.normalize.trace.binary import offsets_of

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Numbers as JSON has them, and as people quote them: +1, .5, 5., 007 too.
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FAR_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{3}")
#: Decimal places between a microsecond, the unit of nearly all writers, and a nanosecond.
US_PLACES = 3
#: Largest power of ten that a time may have: beyond it lies nothing that 64 bits hold.
_MAX_EXPONENT = 40
#: Characters of a number at most, and a context that keeps all of its digits.
_MAX_CHARACTERS = 400
_ALL_DIGITS = Context(prec=2 * _MAX_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds (0 where not `valid`). `absent`: no such key, or null. `rounded`: how many were finer than a ns."""

    ns: Int64
    valid: Mask
    absent: Mask
    rounded: int


def exact_ns(texts: pa.Array, places: int = US_PLACES) -> Times:
    """The times in a binary array of JSON values, in units of 10^places ns (µs); or in an int64 array, in ns."""
    if pa.types.is_int64(texts.type):
        return _whole_ns(texts)
    if native.AVAILABLE:
        found = _at_once(texts, places)
        if found is not None:
            return found
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    absent = lengths == 0
    if absent.all():
        return Times(np.zeros(len(texts), np.int64), ~absent, absent, 0)
    if _has_far_exponent(texts):
        return _one_by_one(texts, absent, places)
    try:
        strings = texts.cast(pa.string())
        numbers = strings if not absent.any() else pc.if_else(pa.array(absent), None, strings)
        quick = _quickly(numbers, places)
        if quick is None:
            quick = _quickly(pc.utf8_trim(numbers, '"'), places)
    except pa.ArrowInvalid:
        quick = None
    if quick is not None:
        return Times(quick, ~absent, absent, 0)
    return _one_by_one(texts, absent, places)


def _whole_ns(numbers: pa.Array) -> Times:
    absent = numbers.is_null().to_numpy(zero_copy_only=False)
    ns = numbers.fill_null(0).to_numpy()
    near = ns >= -LARGEST
    return Times(np.where(near, ns, 0), near & ~absent, absent, 0)


def _at_once(texts: pa.Array, places: int) -> Times | None:
    """All of them by the compiled reader; None when one is no plain number, too large, or finer than a nanosecond."""
    data = texts.buffers()[2]
    if data is None or texts.null_count:
        return None
    found = native.times(offsets_of(texts), data, places)
    if found is None:
        return None
    absent = np.frombuffer(found[1], np.bool_)
    return Times(np.frombuffer(found[0], np.int64), ~absent, absent, 0)


def _has_far_exponent(texts: pa.Array) -> bool:
    """Whether a text may have an exponent of three digits or more: Arrow's cast would read beyond its tables."""
    data = texts.buffers()[2]
    plain = data.to_pybytes() if data is not None else b""
    return (b"e" in plain or b"E" in plain) and _FAR_EXPONENT.search(plain) is not None


def _quickly(numbers: pa.Array, places: int) -> Int64 | None:
    """All of them at once; None when one is no number, too large, or finer than a nanosecond."""
    try:
        decimals = numbers.cast(pa.decimal128(22 + places, places))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    # The value in nanoseconds is the unscaled integer: 128 bits, of which the lower 64 hold every time.
    words = np.frombuffer(decimals.buffers()[1], np.int64)[2 * decimals.offset :][: 2 * len(decimals)]
    low, high = words[0::2], words[1::2]
    if decimals.null_count:
        valid = decimals.is_valid().to_numpy(zero_copy_only=False)
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    if not np.array_equal(high, low >> 63) or (len(low) and int(low.min()) < -LARGEST):
        return None
    return np.ascontiguousarray(low)


def _one_by_one(texts: pa.Array, absent: Mask, places: int) -> Times:
    """For batches with odd ones among them: a Python loop, and rare."""
    ns = np.zeros(len(texts), np.int64)
    valid = np.zeros(len(texts), np.bool_)
    missing = absent.copy()
    rounded = 0
    for place, raw in enumerate(texts.to_pylist()):
        if not raw or raw == b"null":
            missing[place] = True
            continue
        value = exact_number(raw.decode("utf-8", "replace"))
        exact = None if value is None else value.scaleb(places, _ALL_DIGITS)
        if exact is None:
            continue
        whole = exact.to_integral_value(ROUND_HALF_EVEN)
        if not -LARGEST <= whole <= LARGEST:
            continue
        rounded += exact != whole
        ns[place], valid[place] = int(whole), True
    return Times(ns, valid, missing, rounded)


def exact_number(text: str, most: int = _MAX_EXPONENT) -> Decimal | None:
    """A number that stands in JSON, quoted or not, exactly; None when it is no finite number of a sane size.

    `most`: the largest power of ten, up and down.
    """
    plain = text.strip().strip('"').strip()
    if len(plain) > _MAX_CHARACTERS or not NUMBER.fullmatch(plain):
        return None
    try:
        value = Decimal(plain)
    except InvalidOperation:  # an exponent that no decimal has
        return None
    return value if value == 0 or abs(value.adjusted()) <= most else None
