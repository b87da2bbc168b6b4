"""Times as text → integer nanoseconds, exactly: integers, decimals, exponents, quoted or not; never a float."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST
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
#: Status of a parsed text, as in native/times.c.
_VALID, _ABSENT, _UNPARSED = range(3)


class Times(NamedTuple):
    """Nanoseconds (0 if not `valid`). `absent`: missing or null. `rounded`: the number of times finer than a ns."""

    ns: Int64
    valid: Mask
    absent: Mask
    rounded: int


def exact_ns(texts: pa.Array, places: int = US_PLACES) -> Times:
    """Parse a binary array of JSON values in units of 10^places ns (default: µs), or an int64 array in ns.

    The C extension parses plain numbers; all others, and all without it, are parsed one at a time.
    """
    if pa.types.is_int64(texts.type):
        return _integer_ns(texts)
    if native.AVAILABLE and not texts.null_count and texts.buffers()[2] is not None:
        raw_ns, raw_status, rounded = native.times(offsets_of(texts), texts.buffers()[2], places)
        ns, status = np.frombuffer(raw_ns, np.int64), np.frombuffer(raw_status, np.uint8)
    else:
        ns, status, rounded = np.zeros(len(texts), np.int64), np.full(len(texts), _UNPARSED, np.uint8), 0
    rows = np.flatnonzero(status == _UNPARSED)
    if rows.size:
        ns, status = ns.copy(), status.copy()
        for row, text in zip(rows.tolist(), texts.take(rows).to_pylist(), strict=True):
            if not text or text == b"null":
                status[row] = _ABSENT
                continue
            value = exact_number(text.decode("utf-8", "replace"))
            if value is None:
                continue
            exact = value.scaleb(places, _ALL_DIGITS)
            nearest = exact.to_integral_value(ROUND_HALF_EVEN)
            if -LARGEST <= nearest <= LARGEST:
                rounded += exact != nearest
                ns[row], status[row] = int(nearest), _VALID
    return Times(ns, status == _VALID, status == _ABSENT, rounded)


def _integer_ns(numbers: pa.Array) -> Times:
    absent = numbers.is_null().to_numpy(zero_copy_only=False)
    ns = numbers.fill_null(0).to_numpy()
    in_range = ns >= -LARGEST
    return Times(np.where(in_range, ns, 0), in_range & ~absent, absent, 0)


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
