"""Times as text → integer nanoseconds, exactly: integers, decimals, exponents, quoted or not; never a float."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import LARGEST, Int64, Mask
from traceconv.normalize.trace.binary import offsets_of

#: JSON numbers, and variants that occur in quoted numbers: +1, .5, 5., 007.
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
#: Decimal places between a microsecond, the usual unit, and a nanosecond.
US_PLACES = 3
#: Largest power of ten of a time: anything beyond exceeds 64 bits.
_MAX_EXPONENT = 40
#: Maximum length of a number, and a context that keeps all of its digits.
_MAX_CHARACTERS = 400
_ALL_DIGITS = Context(prec=2 * _MAX_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds (0 if not `valid`). `absent`: missing or null. `rounded`: the number of times finer than a ns."""

    ns: Int64
    valid: Mask
    absent: Mask
    rounded: int


def exact_ns(texts: pa.Array, places: int = US_PLACES) -> Times:
    """Parse a binary array of JSON values in units of 10^places ns (default: µs), or an int64 array in ns."""
    if pa.types.is_int64(texts.type):
        return _integer_ns(texts)
    found = _native_ns(texts, places) if native.AVAILABLE else None
    return found or _decimal_ns(texts, places)


def _integer_ns(numbers: pa.Array) -> Times:
    absent = numbers.is_null().to_numpy(zero_copy_only=False)
    ns = numbers.fill_null(0).to_numpy()
    in_range = ns >= -LARGEST
    return Times(np.where(in_range, ns, 0), in_range & ~absent, absent, 0)


def _native_ns(texts: pa.Array, places: int) -> Times | None:
    """Parse with the C parser; None if a value is not a plain number, too large, or finer than a nanosecond."""
    data = texts.buffers()[2]
    if data is None or texts.null_count:
        return None
    found = native.times(offsets_of(texts), data, places)
    if found is None:
        return None
    absent = np.frombuffer(found[1], np.bool_)
    return Times(np.frombuffer(found[0], np.int64), ~absent, absent, 0)


def _decimal_ns(texts: pa.Array, places: int) -> Times:
    """Parse any number in a Python loop."""
    ns = np.zeros(len(texts), np.int64)
    valid, absent = np.zeros(len(texts), np.bool_), np.zeros(len(texts), np.bool_)
    rounded = 0
    for place, raw in enumerate(texts.to_pylist()):
        if not raw or raw == b"null":
            absent[place] = True
            continue
        value = exact_number(raw.decode("utf-8", "replace"))
        if value is None:
            continue
        exact = value.scaleb(places, _ALL_DIGITS)
        nearest = exact.to_integral_value(ROUND_HALF_EVEN)
        if -LARGEST <= nearest <= LARGEST:
            rounded += exact != nearest
            ns[place], valid[place] = int(nearest), True
    return Times(ns, valid, absent, rounded)


def exact_number(text: str, most: int = _MAX_EXPONENT) -> Decimal | None:
    """Parse a JSON number, quoted or not, exactly; None if it is not a finite number of a reasonable size.

    `most`: the largest positive and negative power of ten.
    """
    plain = text.strip().strip('"').strip()
    if len(plain) > _MAX_CHARACTERS or not NUMBER.fullmatch(plain):
        return None
    try:
        value = Decimal(plain)
    except InvalidOperation:  # the exponent is too large for Decimal
        return None
    return value if value == 0 or abs(value.adjusted()) <= most else None
