"""Cells of a vendor's CSV → Arrow columns of exact values: never floats, and N/A is NULL."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import sums
from traceconv.events.trace import binary_column
from traceconv.normalize.trace.times import exact_ns, exact_number
from traceconv.normalize.vendor_csv.spec import Column, Layout

_NOTHING = frozenset(("", "N/A", "NA", "n/a", "None", "null", "NULL", "nan", "NaN"))
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}(?:\.0*)?")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FLAGS = {"yes": True, "no": False, "true": True, "false": False}
#: What msprof writes instead of a device in tables of the host.
_HOST = "host"
#: msprof's value for "no model" and "no context".
_NO_ID = 2**32 - 1

TYPES = {
    "text": pa.string(),
    "shapes": pa.string(),
    "int": pa.int64(),
    "flag": pa.bool_(),
    "us": pa.int64(),
    "size": pa.int64(),
}


@dataclass(slots=True)
class CellIssues:
    """Counts of invalid or imprecise cells by column. They are NULL, except for rounded ones.

    unreadable  not a value of the column's type
    rounded     times finer than a nanosecond
    negative    negative durations
    coarse      for sizes that are not integer bytes: the value of their last digit in bytes
    """

    unreadable: Counter[str] = field(default_factory=Counter)
    rounded: Counter[str] = field(default_factory=Counter)
    negative: int = 0
    coarse: dict[str, int] = field(default_factory=dict)

    def note_fractions(self, name: str, cells: Sequence[str], unit: int) -> None:
        """Note the precision of sizes: rounded ones are known to their last digit only."""
        for cell in cells:
            size = _size(cell, unit)
            if size is None or size % 1 == 0:
                continue
            exponent = size.as_tuple().exponent
            digit = math.ceil(unit * Decimal(1).scaleb(exponent)) if isinstance(exponent, int) else 1
            self.coarse[name] = min(digit, self.coarse.get(name, digit))


#: Names, in which white space at the ends counts, as in timelines.
EXACT = frozenset(("name", "op_type"))


def typed(layout: Layout, rows: Sequence[Sequence[str]], ids: NDArray[np.int64], issues: CellIssues) -> pa.RecordBatch:
    """Return a batch with `id`, every column of the kind (NULL if the file lacks it), `args` and `vendor_values`.

    args           JSON objects of the cells without a column, numbers as in the file; NULL for none
    vendor_values  the same for the cells computed from hardware counters, times in ns
    """
    as_written = list(zip(*rows, strict=True))
    cells = [[cell.strip() for cell in column] for column in as_written]
    names, arrays = ["id"], [pa.array(ids, pa.int64())]
    for column in layout.kind.columns:
        place = layout.places.get(column.name)
        names.append(column.name)
        if place is None:
            arrays.append(pa.nulls(len(rows), TYPES[column.type]))
        elif column.name in EXACT:
            arrays.append(
                pa.array(
                    [
                        None if text in _NOTHING else cell
                        for text, cell in zip(cells[place], as_written[place], strict=True)
                    ],
                    pa.string(),
                )
            )
        else:
            arrays.append(_values(column, cells[place], issues, layout.units[column.name]))
    if {"start_ns", "dur_ns"} <= set(names):
        _drop_far_ends(arrays, names.index("start_ns"), names.index("dur_ns"), issues)
    others = ((header, map(_json_value, cells[place])) for header, place in layout.others)
    counted = (
        (column.name, [_vendor_value(column, cell) for cell in cells[place]]) for column, place in layout.vendor_values
    )
    arrays += [_objects(len(rows), others), _objects(len(rows), counted)]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, "args", "vendor_values"])


def _drop_far_ends(arrays: list[pa.Array], start: int, dur: int, issues: CellIssues) -> None:
    """Make durations NULL whose end exceeds 64 bits."""
    _, beyond = sums(arrays[start].fill_null(0).to_numpy(), arrays[dur].fill_null(0).to_numpy())
    if beyond.any():
        issues.unreadable["dur_ns"] += int(np.count_nonzero(beyond))
        arrays[dur] = pc.if_else(pa.array(beyond), None, arrays[dur])


def series(layout: Layout, rows: Sequence[Sequence[str]]) -> list[tuple[str, list[str]]]:
    """Return (heading, cells) of each other column of a counter file; cells without a value are empty."""
    cells = [[cell.strip() for cell in column] for column in zip(*rows, strict=True)]
    return [(header, ["" if c in _NOTHING else c for c in cells[place]]) for header, place in layout.others]


def _values(column: Column, cells: Sequence[str], issues: CellIssues, unit: int) -> pa.Array:
    if column.type == "us":
        return _times(column.name, cells, issues)
    nothing = _NOTHING | {_HOST} if column.name == "device_id" else _NOTHING
    known = [None if cell in nothing else cell for cell in cells]
    if column.type == "text":
        return pa.array(known, pa.string())
    if column.type == "shapes":
        return pa.array([None if cell is None else cell.replace('"', "").strip() for cell in known], pa.string())
    readers: dict[str, Callable[[str], int | None]] = {
        "int": _integer,
        "flag": lambda cell: _FLAGS.get(cell.casefold()),
        "size": lambda cell: _bytes(cell, unit),
    }
    read = readers[column.type]
    if column.type == "size":
        issues.note_fractions(column.name, [cell for cell in known if cell is not None], unit)
    values = [None if cell is None else read(cell) for cell in known]
    wrong = sum(1 for cell, value in zip(known, values, strict=True) if cell is not None and value is None)
    if wrong:
        issues.unreadable[column.name] += wrong
    if column.name in ("model_id", "context_id"):
        values = [None if value == _NO_ID else value for value in values]
    return pa.array(values, TYPES[column.type])


def _times(name: str, cells: Sequence[str], issues: CellIssues) -> pa.Array:
    texts = [b"" if cell in _NOTHING else cell.encode() for cell in cells]
    times = exact_ns(binary_column(texts))
    if times.rounded:
        issues.rounded[name] += times.rounded
    wrong = int(np.count_nonzero(~times.valid & ~times.absent))
    if wrong:
        issues.unreadable[name] += wrong
    null = ~times.valid
    if name == "dur_ns":
        below = times.valid & (times.ns < 0)
        issues.negative += int(np.count_nonzero(below))
        null |= below
    return pa.array(times.ns, pa.int64(), mask=null)


def _integer(cell: str) -> int | None:
    if not _INTEGER.fullmatch(cell):
        return None
    value = int(cell.split(".")[0])
    return value if -(2**63) <= value < 2**63 else None


def _bytes(cell: str, unit: int) -> int | None:
    """Convert a size in units of `unit` bytes to bytes; fractions are rounded half to even."""
    size = _size(cell, unit)
    return None if size is None else int(size.to_integral_value())


def _size(cell: str, unit: int) -> Decimal | None:
    """Return the bytes in a cell, perhaps with a fraction; None for no number, or one beyond 62 bits."""
    value = exact_number(cell)
    return None if value is None or abs(value * unit) >= Decimal(2) ** 62 else value * unit


def _objects(count: int, columns: Iterable[tuple[str, Iterable[str | None]]]) -> pa.Array:
    """Build JSON objects from columns of JSON values, row by row; NULL for rows without values."""
    members: list[list[str]] = [[] for _ in range(count)]
    for name, values in columns:
        key = json.dumps(name, ensure_ascii=False)
        for row, value in enumerate(values):
            if value is not None:
                members[row].append(f"{key}:{value}")
    return pa.array(["{" + ",".join(row) + "}" if row else None for row in members], pa.string())


def _json_value(cell: str) -> str | None:
    if cell in _NOTHING:
        return None
    return cell if _JSON_NUMBER.fullmatch(cell) else json.dumps(cell, ensure_ascii=False)


def _vendor_value(column: Column, cell: str) -> str | None:
    value = None if cell in _NOTHING else exact_number(cell)
    if value is None or abs(value) >= Decimal(2) ** 52:
        return None
    if column.type == "us":
        return str(int((value * 1000).to_integral_value()))
    return cell if _JSON_NUMBER.fullmatch(cell) else None
