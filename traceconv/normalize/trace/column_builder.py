"""Columns that are filled a few rows at a time: with constants of rules, names of tracks, and values in args."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.integers import parse_int64
from traceconv.normalize.names import constant
from traceconv.normalize.rows import ColumnData, Nullable

_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
#: A device with its kind, such as "GPU-0", "Agent 4" or "cuda:1".
_DEVICE = re.compile(r"[A-Za-z]+[-_: ]?([0-9]{1,9})")
#: Integer types of the schema.
NUMBER_TYPES = ("i64", "i32", "u64")

#: Rows of a batch; None: all of them.
Rows = NDArray[np.intp] | None


class Numbers(NamedTuple):
    """Integers, one per row. `null`: rows without one."""

    values: NDArray[np.int64]
    null: NDArray[np.bool_]


class Values(NamedTuple):
    """Values of any JSON type, one per row: `codes` are places in `distinct`, -1 for none."""

    codes: NDArray[np.int32]
    distinct: Sequence[object]


class NumberColumn:
    """A column of integers. Values of other types are converted if that is exact, else NULL."""

    def __init__(self, count: int) -> None:
        self._values = np.zeros(count, np.int64)
        self._null = np.ones(count, np.bool_)

    def put(self, rows: Rows, given: Numbers | Values) -> None:
        """Fill some rows; rows without a value are left as they are."""
        if isinstance(given, Values):
            given = numbers_of(given)
        known = ~given.null
        at = np.flatnonzero(known) if rows is None else rows[known]
        self._values[at] = given.values[known]
        self._null[at] = False

    def column(self) -> ColumnData:
        """Return the column."""
        return Nullable(self._values, self._null)


class TextColumn:
    """A column of texts; values of other types become JSON text. `kind` bool: only true and false, else NULL."""

    def __init__(self, count: int, kind: str = "str") -> None:
        self._codes = np.full(count, -1, np.int32)
        self._known: dict[str | bool, int] = {}
        self._kind = kind

    def put(self, rows: Rows, given: Numbers | Values) -> None:
        """Fill some rows; rows without a value are left as they are."""
        assert isinstance(given, Values), "only number columns take numbers"
        new = np.full(len(given.distinct) + 1, -1, np.int32)
        for place, value in enumerate(given.distinct):
            stored: str | bool | None = _text(value)
            if self._kind == "bool":
                stored = value if isinstance(value, bool) else None
            if stored is not None:
                new[place] = self._known.setdefault(stored, len(self._known))
        codes = new[given.codes]
        known = codes >= 0
        at = np.flatnonzero(known) if rows is None else rows[known]
        self._codes[at] = codes[known]

    def column(self) -> ColumnData:
        """Return the column."""
        null = self._codes < 0
        if self._kind == "bool":
            values = np.array([*self._known, False], np.bool_)
            return pa.array(values[self._codes], pa.bool_(), mask=null)
        if not self._known:
            return constant(None, len(self._codes))
        texts = pa.array(list(self._known), pa.string())
        mask = null if null.any() else None
        return pa.DictionaryArray.from_arrays(pa.array(self._codes, mask=mask), texts)


def new_column(kind: str, count: int) -> NumberColumn | TextColumn:
    """Return a column of a schema type, NULL in all rows."""
    return NumberColumn(count) if kind in NUMBER_TYPES else TextColumn(count, kind)


def same(value: object, count: int) -> Values:
    """Return the same value for `count` rows."""
    return Values(np.zeros(count, np.int32), [value])


def numbers_of(given: Values, *, of_devices: bool = False) -> Numbers:
    """Convert values to integers; NULL for those that are not integers.

    of_devices  the number of a device may follow its kind, as in "GPU-0"
    """
    found = map(_without_kind, given.distinct) if of_devices else given.distinct
    numbers = [_number(value) for value in found]
    values = np.array([*(number or 0 for number in numbers), 0], np.int64)
    null = np.array([*(number is None for number in numbers), True], np.bool_)
    return Numbers(values[given.codes], null[given.codes])


def _number(value: object) -> int | None:
    """Return an integer, also from hexadecimal text."""
    return parse_int64(int(value, 16) if isinstance(value, str) and _HEXADECIMAL.fullmatch(value) else value)


def _without_kind(value: object) -> object:
    named = _DEVICE.fullmatch(value) if isinstance(value, str) else None
    return named[1] if named else value


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
