"""The slices of a Chrome trace as JSON text, made of the columns of a stretch of time with numpy and Arrow.

An event is a few pieces: what many events share (its thread, its titles, its op and other words) is text that is made
once for each combination in a batch, its numbers are digits in a matrix, its args are the source's own text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traceconv.export.byte_rows import ByteRows, Mask, join_rows, magnitudes
from traceconv.export.json_sql import EXACT_LIMIT, json_text
from traceconv.export.overlap import MAX_LANES
from traceconv.export.row_order import order_of
from traceconv.normalize.trace_json.own_columns import CATEGORY, NO_NAME
from traceconv.schema import table

Int64 = NDArray[np.int64]

#: What DuckDB's parser takes for JSON and other parsers don't: NaN, Infinity, a comma before a bracket.
_LENIENT = re.compile(rb"(?i)(^|[:,\[])\s*-?(nan|inf)|,\s*[\]}]")
#: Codes of several columns are one number while it is less than this.
_MOST_CODES = 1 << 62


@dataclass(frozen=True, slots=True)
class SliceText:
    """What the slices of a table have in common.

    name     the table
    base_ns  the time that is 0 in the trace
    heads    the begin of an event, by track · MAX_LANES + lane
    ops      the members that describe an op, by op_id; None: the batch has a column `op_text`
    """

    name: str
    base_ns: int
    heads: Mapping[int, bytes]
    ops: Mapping[int, str] | None


def slice_texts(about: SliceText, batch: pa.RecordBatch) -> pa.Array:
    """The text of each slice of a batch, in the order in which a trace wants them, as a binary array."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    places = columns["track_id"].to_numpy() * MAX_LANES + columns["lane"].to_numpy()
    parts = [_classes(pa.array(places), lambda place: about.heads[place])]
    parts.append(_times(about, columns).binary())
    parts.append(_titles(about.name, columns))
    parts.append(_numbers(about.name, columns).binary())
    parts.append(_words(about, columns))
    if columns["args"].null_count < batch.num_rows:
        parts.append(_args(columns["args"], columns["args_valid"]))
    texts = join_rows([*parts, pa.scalar(b"}}", pa.binary())])
    order = order_of(
        [
            columns["start_ns"].to_numpy(),
            -columns["dur_ns"].fill_null(2**63 - 1).to_numpy(),
            columns["depth"].fill_null(0).to_numpy(),
            columns["id"].to_numpy(),
        ]
    )
    return texts if order is None else texts.take(pa.array(order))


def _times(about: SliceText, columns: Mapping[str, pa.Array]) -> ByteRows:
    """Phase, start and duration."""
    duration = columns["dur_ns"]
    rows = ByteRows(len(duration))
    where = _valid(duration)
    if where is None:
        rows.put(b"X")
    else:
        rows.matrix(np.where(where, np.uint8(ord("X")), np.uint8(ord("B")))[:, None])
    rows.put(b'","ts":')
    base = np.uint64(about.base_ns & (1 << 64) - 1)
    # Modulo 2^64, which the difference is less than: no start is before the base.
    rows.digits(columns["start_ns"].to_numpy().view(np.uint64) - base, least=4, point=3)
    if duration.null_count < len(duration):
        rows.put(b',"dur":', where)
        numbers, negative = magnitudes(_filled(duration))
        _sign(rows, negative, where)
        rows.digits(numbers, where, least=4, point=3)
    return rows


def _titles(name: str, columns: Mapping[str, pa.Array]) -> pa.Array:
    no_name = json_text(NO_NAME)

    def text(title: str | None, category: str | None) -> str:
        shown = no_name if title is None else json_text(title)
        return f',"name":{shown}' + ("" if category is None else f',"cat":{json_text(category)}') + ',"args":{'

    return _combined([columns["name"], columns[CATEGORY[name]]], text)


def _numbers(name: str, columns: Mapping[str, pa.Array]) -> ByteRows:
    """The members that are whole numbers; the run comes first."""
    rows = ByteRows(len(columns["id"]))
    placed = {"track_id", "start_ns", "dur_ns"}
    first = True
    for column in table(name).columns:
        if column.type in ("i32", "i64", "u64") and column.name not in placed:
            _put_number(rows, column.name, columns[column.name], first=first)
            first = False
    return rows


def _put_number(rows: ByteRows, key: str, column: pa.Array, *, first: bool) -> None:
    """A member; nothing where it is NULL. Beyond ±2^53 a number is a string."""
    if column.null_count == len(column):
        return
    where = _valid(column)
    numbers, negative = magnitudes(_filled(column))
    large = numbers > np.uint64(EXACT_LIMIT)
    start = (b"" if first else b",") + json.dumps(key).encode() + b":"
    quoted = where if large.all() else _both(large, where) if large.any() else None
    is_quoted = bool(large.any())
    rows.put(start, where)
    if is_quoted:
        rows.put(b'"', quoted)
    _sign(rows, negative, where)
    rows.digits(numbers, where)
    if is_quoted:
        rows.put(b'"', quoted)


def _sign(rows: ByteRows, negative: Mask | None, where: Mask | None) -> None:
    if negative is not None:
        rows.put(b"-", _both(negative, where))


def _words(about: SliceText, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The members that are words, then those of the op; the begin of the args where there are some."""
    category = CATEGORY[about.name]
    keys = [
        column.name
        for column in table(about.name).columns
        if column.type in ("str", "bool") and column.name not in ("name", category)
    ]
    keys = [key for key in keys if columns[key].null_count < len(columns[key])]
    parts = [columns["name"].is_null(), columns["args"].is_valid(), *(columns[key] for key in keys)]
    ops = about.ops
    if ops is not None:
        parts.append(columns["op_id"])
    elif "op_text" in columns:
        parts.append(columns["op_text"])

    def text(no_name: bool, has_args: bool, *values: Any) -> bytes:
        members = [',"name":null'] if no_name else []
        members += [
            f",{json.dumps(key)}:{json_text(value)}"
            for key, value in zip(keys, values[: len(keys)], strict=True)
            if value is not None
        ]
        for op in values[len(keys) :]:
            if op is not None:
                members.append(op if ops is None else ops.get(op, ""))
        return "".join(members).encode() + (b',"args":' if has_args else b"")

    return _combined(parts, text)


def _args(args: pa.Array, valid: pa.Array) -> pa.Array:
    """JSON text as it is, or as a string when it is not JSON by the letter."""
    binary = args.cast(pa.binary())
    wrong = set(np.flatnonzero(~valid.fill_null(True).to_numpy(zero_copy_only=False)).tolist())
    wrong.update(row for row in _suspects(binary) if _LENIENT.search(binary[row].as_py()))
    if not wrong:
        return binary
    listed = sorted(wrong)
    mask = np.zeros(len(binary), np.bool_)
    mask[listed] = True
    texts = [json_text(binary[row].as_py().decode()).encode() for row in listed]
    return pc.replace_with_mask(binary, pa.array(mask), pa.array(texts, pa.binary()))


def _suspects(texts: pa.Array) -> list[int]:
    """Texts that may hold what only a lenient parser takes: those with its letters or a bracket after a blank."""
    _, ends, data = texts.buffers()
    if data is None:
        return []
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    if len(raw) < 2:
        return []
    # Upper case and lower case differ in this bit; so do both kinds of closing brackets.
    lower = raw | np.uint8(0x20)
    found = (lower[1:] == ord("}")) & ((raw[:-1] == ord(",")) | (raw[:-1] <= ord(" ")))
    if len(raw) > 2:
        second = lower[1:-1]
        nan = (second == ord("a")) & (lower[:-2] == ord("n")) & (lower[2:] == ord("n"))
        inf = (second == ord("n")) & (lower[:-2] == ord("i")) & (lower[2:] == ord("f"))
        found[:-1] |= nan | inf
    at = np.flatnonzero(found)
    rows: list[int] = np.unique(np.searchsorted(bounds[1:] - bounds[0], at, side="right")).tolist()
    return rows


def _classes(numbers: pa.Array, text: Callable[[int], bytes]) -> pa.Array:
    """The text of each number, made once for each distinct one."""
    coded = numbers.dictionary_encode()
    texts = [text(number) for number in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.binary()).take(coded.indices)


def _combined(columns: Sequence[pa.Array], text: Callable[..., str | bytes]) -> pa.Array:
    """The text of each row's values of some columns, made once for each combination that there is."""
    found: list[list[tuple[object, ...]]] = []
    code: Int64 = np.zeros(len(columns[0]), np.int64)
    total = 1
    for column in columns:
        coded = column.dictionary_encode()
        values = [(value,) for value in coded.dictionary.to_pylist()]
        if coded.null_count:
            values.append((None,))
        if total * len(values) >= _MOST_CODES:
            whole = pa.array(code).dictionary_encode()
            found = [[_decoded(number, found) for number in whole.dictionary.to_pylist()]]
            code, total = whole.indices.to_numpy().astype(np.int64), len(found[0])
        found.append(values)
        if len(values) > 1:
            indices = coded.indices.fill_null(len(values) - 1) if coded.null_count else coded.indices
            code = code * len(values) + indices.to_numpy()
            total *= len(values)
    whole = pa.array(code).dictionary_encode()
    made = (text(*_decoded(number, found)) for number in whole.dictionary.to_pylist())
    texts = [one if isinstance(one, bytes) else one.encode() for one in made]
    return pa.array(texts, pa.binary()).take(whole.indices)


def _decoded(code: int, found: Sequence[Sequence[tuple[object, ...]]]) -> tuple[object, ...]:
    """The values that a code stands for."""
    chosen: list[tuple[object, ...]] = []
    for values in reversed(found):
        code, at = divmod(code, len(values))
        chosen.append(values[at])
    return tuple(value for part in reversed(chosen) for value in part)


def _valid(column: pa.Array) -> Mask | None:
    """Which values are not NULL; None when none is."""
    return column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None


def _both(one: Mask, other: Mask | None) -> Mask:
    return one if other is None else one & other


def _filled(column: pa.Array) -> Int64:
    """The numbers of a column, with the least of them where it is NULL: that makes no digits more."""
    if column.null_count:
        column = column.fill_null(pc.min(column))
    found: Int64 = column.to_numpy().astype(np.int64, copy=False)
    return found
