"""The slices of a Chrome trace as JSON text, made of the columns of a stretch of time with numpy and Arrow.

An event is a few pieces: what many events share (its thread, its titles, its op and other words) is text that is made
once for each combination in a batch, its numbers are digits in a matrix, its args are the source's own text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
#: Rows of which what they share is made once.
_STRETCH_ROWS = 32_768
#: Rows whose bytes are made at once: few enough for the processor's cache.
_ROWS = 8192
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


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows of a batch: their places, in the order in which a trace wants them."""

    batch: pa.RecordBatch
    places: NDArray[np.intp]


def in_stretches(batch: pa.RecordBatch) -> Iterator[Stretch]:
    """All rows of a batch, in stretches whose text is made at once.

    The batch has the columns of the table, and `lane` and `args_valid` (whether DuckDB takes the args for JSON).
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    order = order_of(
        [
            columns["start_ns"].to_numpy(),
            -columns["dur_ns"].fill_null(2**63 - 1).to_numpy(),
            columns["depth"].fill_null(0).to_numpy(),
            columns["id"].to_numpy(),
        ]
    )
    places = np.arange(batch.num_rows) if order is None else order
    for at in range(0, batch.num_rows, _STRETCH_ROWS):
        yield Stretch(batch, places[at : at + _STRETCH_ROWS])


def slice_texts(about: SliceText, stretch: Stretch) -> list[pa.Array]:
    """The texts of the slices of a stretch, as binary arrays."""
    batch = stretch.batch.take(pa.array(stretch.places))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    places = pa.array(columns["track_id"].to_numpy() * MAX_LANES + columns["lane"].to_numpy())
    heads, titles, words = _heads(about, places), _titles(about.name, columns), _words(about, columns)
    texts = []
    for at in range(0, batch.num_rows, _ROWS):
        part = {name: column.slice(at, _ROWS) for name, column in columns.items()}
        shared = [one.dictionary.take(one.indices.slice(at, _ROWS)) for one in (heads, titles, words)]
        times, numbers = _times(about, part).binary(), _numbers(about.name, part).binary()
        pieces = [shared[0], times, shared[1], numbers, shared[2]]
        if part["args"].null_count < len(part["args"]):
            pieces.append(_args(part["args"], part["args_valid"]))
        texts.append(join_rows([*pieces, pa.scalar(b"}}", pa.binary())]))
    return texts


def _heads(about: SliceText, places: pa.Array) -> pa.DictionaryArray:
    coded = places.dictionary_encode()
    texts = [about.heads[place] for place in coded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(texts, pa.binary()))


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


def _titles(name: str, columns: Mapping[str, pa.Array]) -> pa.DictionaryArray:
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


def _words(about: SliceText, columns: Mapping[str, pa.Array]) -> pa.DictionaryArray:
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
    """Texts that may hold what only a lenient parser takes: `nan`, `inf`, or a bracket closed after a comma or blank."""
    _, ends, data = texts.buffers()
    if data is None:
        return []
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    raw = np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
    if len(raw) < 2:
        return []
    # Upper case and lower case differ in this bit; so do both kinds of closing brackets.
    lower = raw | np.uint8(0x20)
    before, after = lower[:-1], lower[1:]
    found = (after == ord("a")) | (after == ord("f"))
    found &= before == ord("n")
    words = np.flatnonzero(found)
    is_na = after[words] == ord("a")
    # The third letter: after `na`, before `nf`. Beyond either end it is one of the other end, which does no harm.
    third = lower.take(np.where(is_na, words + 2, words - 1), mode="wrap")
    words = words[third == np.where(is_na, ord("n"), ord("i"))]
    closed = np.flatnonzero((after == ord("}")) & ((raw[:-1] == ord(",")) | (raw[:-1] <= ord(" "))))
    at = np.concatenate([words, closed])
    rows: list[int] = np.unique(np.searchsorted(bounds[1:] - bounds[0], at, side="right")).tolist()
    return rows


def _combined(columns: Sequence[pa.Array], text: Callable[..., str | bytes]) -> pa.DictionaryArray:
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
    return pa.DictionaryArray.from_arrays(whole.indices, pa.array(texts, pa.binary()))


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
