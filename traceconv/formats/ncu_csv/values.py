"""Values and units as Nsight Compute prints them → exact JSON numbers in base units."""

from __future__ import annotations

import json
import re
from decimal import Context, Decimal
from functools import lru_cache
from typing import NamedTuple

#: Units of time, in ns.
_NS = {
    **dict.fromkeys(("ps", "psecond"), Decimal("0.001")),
    **dict.fromkeys(("ns", "nsecond"), Decimal(1)),
    **dict.fromkeys(("us", "usecond", "µs"), Decimal(1000)),
    **dict.fromkeys(("ms", "msecond"), Decimal(10**6)),
    **dict.fromkeys(("s", "second"), Decimal(10**9)),
}
_PREFIXES = {"": 0, "K": 3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_COUNTED = re.compile(r"([KkMGTP]?)(byte|[hH]z|inst|cycle|sector|request|warp|thread|sample|op)")
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?", re.ASCII)
#: Separators of thousands that can't be decimal points.
_SPACES = re.compile("(?<=\\d)[\u00a0\u202f\u2009 '\u2019](?=\\d{3})")
#: A number with its instances.
_INSTANCES = re.compile(r"([^\s(){};]+) ?[({].*[)}]", re.DOTALL)
_DIGITS = re.compile(r"-?\d[\d.,]*", re.ASCII)
_SWAPPED = str.maketrans(",.", ".,")
_MISSING = frozenset(("", "n/a", "nan", "-nan", "inf", "-inf", "(null)"))
_EXACT = Context(prec=100)
#: Longer numbers are text.
_MAX_CHARACTERS = 40
#: A quoted cell that is a number with a decimal comma, and can't be one with separators of thousands.
DECIMAL_COMMA = re.compile(rb'"-?(?:\d{1,3}(?:\.\d{3})*,(?:\d{1,2}|\d{4,})|0,\d+|\d{1,3}(?:\.\d{3})+,\d+)"')


class Unit(NamedTuple):
    """A unit: its size in `base`, which is ns, byte, hz and others without a prefix, and rates per s."""

    factor: Decimal
    base: str


class Value(NamedTuple):
    """A printed value as JSON; empty if there is none. `is_bad`: it has the digits of a number, but is none."""

    json: str
    is_bad: bool = False


@lru_cache(1024)
def unit_of(text: str) -> Unit:
    """Return a unit as printed, such as Kbyte or cycle/nsecond."""
    above, slash, below = text.strip().partition("/")
    factor, base = _NS.get(above, Decimal(1)), "ns" if above in _NS else above
    counted = _COUNTED.fullmatch(above)
    if counted is not None:
        factor, base = Decimal(10 ** _PREFIXES[counted[1]]), counted[2].lower()
    if below in _NS:
        factor, below = factor * _NS["s"] / _NS[below], "s"
    return Unit(factor, f"{base}{slash}{below}")


@lru_cache(1 << 16)
def value_of(text: str, unit: str, *, has_decimal_comma: bool) -> Value:
    """Return a value in the base unit, without separators of thousands and without instances."""
    plain = text.strip()
    with_instances = _INSTANCES.fullmatch(plain)
    if with_instances is not None and plain[:1] in "-0123456789":
        plain = with_instances[1]
    if plain.lower() in _MISSING:
        return Value("")
    number = _number(plain, has_decimal_comma=has_decimal_comma)
    if number is None:
        is_bad = _DIGITS.fullmatch(plain) is not None
        return Value("" if is_bad else json.dumps(plain), is_bad)
    factor = unit_of(unit).factor
    if factor == 1 and _JSON_NUMBER.fullmatch(plain) and not has_decimal_comma:
        return Value(plain)
    return Value(_shown(_EXACT.multiply(number, factor)))


def _number(text: str, *, has_decimal_comma: bool) -> Decimal | None:
    plain = _SPACES.sub("", text.translate(_SWAPPED) if has_decimal_comma else text)
    if len(plain) > _MAX_CHARACTERS or not _NUMBER.fullmatch(plain):
        return None
    return Decimal(plain.replace(",", ""))


def _shown(number: Decimal) -> str:
    """Return a number as JSON, without an exponent."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
