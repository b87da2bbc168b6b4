"""Columns that are filled a few rows at a time: by what rules set, names of tracks, and what args say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.base.integers import parse_int64
from traceconv.events.trace import coded
from traceconv.normalize.names import constant
from traceconv.normalize.rows import ColumnData, Nullable

_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
#: Types of the schema that are whole numbers.
NUMBER_TYPES = ("i64", "i32", "u64")

#: Rows of a batch; None: all of them.
Rows = NDArray[np.intp] | None


@dataclass(frozen=True, slots=True)
class Numbers:
    """Whole numbers, one a row. `null`: rows without one."""

    values: NDArray[np.int64]
    null: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Values:
    """Values of any type in JSON, one a row: `codes` are places in `distinct`, -1 for none."""

    codes: NDArray[np.int32]
    distinct: Sequence[object]


class NumberColumn:
    """A column of whole numbers; values of other types are read as such where that changes nothing, else NULL."""

    def __init__(self, count: int) -> None:
        self._values = np.zeros(count, np.int64)
        self._null = np.ones(count, np.bool_)

    def put(self, rows: Rows, said: Numbers | Values) -> None:
        """Fills some rows; those of which nothing is said stay as they are."""
        if isinstance(said, Values):
            said = numbers_of(said)
        known = ~said.null
        at = np.flatnonzero(known) if rows is None else rows[known]
        self._values[at] = said.values[known]
        self._null[at] = False

    def column(self) -> ColumnData:
        """The column."""
        return Nullable(self._values, self._null)


class TextColumn:
    """A column of texts; values of other types are spelled as JSON. `kind` bool: only true and false, else NULL."""

    def __init__(self, count: int, kind: str = "str") -> None:
        self._codes = np.full(count, -1, np.int32)
        self._known: dict[str | bool, int] = {}
        self._kind = kind

    def put(self, rows: Rows, said: Numbers | Values) -> None:
        """Fills some rows; those of which nothing is said stay as they are."""
        assert isinstance(said, Values), "numbers are asked for by columns of numbers only"
        new = np.full(len(said.distinct) + 1, -1, np.int32)
        for place, value in enumerate(said.distinct):
            spelled: str | bool | None = _text(value)
            if self._kind == "bool":
                spelled = value if isinstance(value, bool) else None
            if spelled is not None:
                new[place] = self._known.setdefault(spelled, len(self._known))
        codes = new[said.codes]
        known = codes >= 0
        at = np.flatnonzero(known) if rows is None else rows[known]
        self._codes[at] = codes[known]

    def column(self) -> ColumnData:
        """The column."""
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
    """A column of a type of the schema, NULL in all rows."""
    return NumberColumn(count) if kind in NUMBER_TYPES else TextColumn(count, kind)


def same(value: object, count: int) -> Values:
    """One value in each of `count` rows."""
    return Values(np.zeros(count, np.int32), [value])


def values_of(values: Sequence[object]) -> Values:
    """Values as they are, a row each; None for none."""
    spelled = [value if isinstance(value, (str, int, float, type(None))) else _text(value) for value in values]
    column = coded(spelled, typed=True)
    none = np.array([value is None for value in column.distinct], np.bool_)
    return Values(np.where(none[column.codes], np.int32(-1), column.codes), column.distinct)


def numbers_of(said: Values) -> Numbers:
    """The whole numbers that values stand for; NULL for those that stand for none."""
    numbers = [_number(value) for value in said.distinct]
    values = np.array([*(number or 0 for number in numbers), 0], np.int64)
    null = np.array([*(number is None for number in numbers), True], np.bool_)
    return Numbers(values[said.codes], null[said.codes])


def _number(value: object) -> int | None:
    """A whole number, hexadecimal too."""
    return parse_int64(int(value, 16) if isinstance(value, str) and _HEXADECIMAL.fullmatch(value) else value)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
