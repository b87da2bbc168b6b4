"""Args of counter events → samples: every number is a series, exact where it is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from traceconv import native
from traceconv.events.trace import Coded, coded
from traceconv.normalize.trace.binary import as_text, offsets_of
from traceconv.normalize.trace.times import exact_number

#: Powers of ten of all doubles, and of those that are too small for one.
_MOST_EXPONENT = 400
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
#: Numbers that are not whole, and those that are, of a spelling that most writers use.
_FRACTION = r"^-?(0|[1-9][0-9]{0,17})\.[0-9]{0,17}[1-9]$"
_WHOLE = r"^-?(0|[1-9][0-9]{0,17})\.0{1,9}$"


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of events, in the order of the text.

    events  the event of each; series: what each is called
    values  as numbers; wholes: exactly, NULL where it is no whole number of 64 bits
    bad     of each value that is no number: its event
    """

    events: NDArray[np.intp]
    series: Coded
    values: NDArray[np.float64]
    wholes: pa.Array
    bad: list[int]


def samples_of(args: pa.Array) -> Samples:
    """The samples in the args of events, a binary column; of anything but an object there are none."""
    found = _at_once(args) if native.AVAILABLE and not args.null_count else None
    return found if found is not None else _one_by_one(args.to_pylist())


def _at_once(args: pa.Array) -> Samples | None:
    """By the compiled reader; None when some args are beyond it."""
    found = native.series(offsets_of(args), args.buffers()[2] or b"")
    if found is None:
        return None
    events, codes, keys, are_whole, wholes, ends, texts = found
    try:
        names = [key.decode() for key in keys]
    except UnicodeDecodeError:
        return None
    whole = np.frombuffer(are_whole, np.int32) != 0
    numbers = np.frombuffer(wholes, np.int64)
    values, known = numbers.astype(np.float64), np.ones(len(numbers), np.bool_)
    others = np.flatnonzero(~whole)
    if len(others):
        read = _Others(pa.Array.from_buffers(pa.binary(), len(others), [None, pa.py_buffer(ends), pa.py_buffer(texts)]))
        values[others], known[others] = read.values, read.known
        numbers = numbers.copy()
        numbers[others], whole[others] = read.wholes, read.are_whole
    event = np.frombuffer(events, np.int32)
    return Samples(
        event[known].astype(np.intp),
        Coded(np.frombuffer(codes, np.int32)[known], names),
        values[known],
        pa.array(numbers[known], mask=~whole[known]),
        event[~known].tolist(),
    )


class _Others:
    """Values that are no plain whole numbers. `known`: those that are numbers."""

    def __init__(self, values: pa.Array) -> None:
        texts = as_text(values)
        fraction, whole = (_match(texts, pattern) for pattern in (_FRACTION, _WHOLE))
        self.known, self.are_whole = fraction | whole, whole
        plain = pc.if_else(pa.array(self.known), texts, "0")
        self.values = plain.cast(pa.float64()).to_numpy().copy()
        self.wholes = np.where(whole, pc.replace_substring_regex(plain, r"\..*", "").cast(pa.int64()).to_numpy(), 0)
        rest = np.flatnonzero(~self.known)
        if not len(rest):
            return
        spelled = coded(values.take(pa.array(rest)).to_pylist())
        numbers = [_number(text) for text in spelled.distinct]
        exact = [None if number is None else number[1] for number in numbers]
        self.known[rest] = np.array([number is not None for number in numbers])[spelled.codes]
        self.values[rest] = np.array([0.0 if number is None else number[0] for number in numbers])[spelled.codes]
        self.are_whole[rest] = np.array([one is not None for one in exact])[spelled.codes]
        self.wholes[rest] = np.array([one or 0 for one in exact], np.int64)[spelled.codes]


def _match(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return found


def _number(text: bytes) -> tuple[float, int | None] | None:
    """A value as a number, and exactly where it is a whole one of 64 bits; None when it is no number."""
    value = exact_number(text.decode("utf-8", "replace"), _MOST_EXPONENT)
    if value is None or isinf(float(value)):
        return None
    whole = int(value) if value == value.to_integral_value() else None
    if whole is not None and not -(2**63) <= whole < 2**63:
        whole = None
    return float(value), whole


def _one_by_one(args: Sequence[bytes | None]) -> Samples:
    events: list[int] = []
    names: list[str] = []
    numbers: list[tuple[float, int | None]] = []
    bad: list[int] = []
    for event, text in enumerate(args):
        try:
            series = _OBJECT.decode(text) if text else {}
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        for name, raw in series.items():
            number = _number(bytes(raw))
            if number is None:
                bad.append(event)
                continue
            events.append(event)
            names.append(name)
            numbers.append(number)
    return Samples(
        np.array(events, np.intp),
        coded(names),
        np.array([value for value, _ in numbers], np.float64),
        pa.array([whole for _, whole in numbers], pa.int64()),
        bad,
    )
