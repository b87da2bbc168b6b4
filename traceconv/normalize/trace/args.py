"""The `args` column: what an event says beyond its columns, as the text of one JSON object, digit by digit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw
from numpy.typing import NDArray

from traceconv.normalize.trace.binary import offsets_of

#: Key under which args holds what stands beside `args` in an event, and no column holds.
BESIDE = "trace_event"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])


def args_column(raw: pa.Array | None, count: int) -> pa.Array:
    """Args as they stand in the text; NULL for none and for an empty object. Other values than objects are wrapped."""
    if raw is None:
        return pa.nulls(count, pa.string())
    data = raw.buffers()[2]
    offsets = offsets_of(raw)
    empty = np.diff(offsets) <= 2
    if data is not None and len(data):
        first = np.frombuffer(data, np.uint8)[np.minimum(offsets[:-1], len(data) - 1)]
        odd = ~empty & (first != ord("{"))
        if odd.any():
            texts = [_wrapped(value) if value else None for value in raw.to_pylist()]
            return pa.array(texts, pa.string())
    bitmap = pa.py_buffer(np.packbits(~empty, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.string(), len(raw), [bitmap, pa.py_buffer(np.ascontiguousarray(offsets)), data], int(empty.sum())
    )


def arg_keys(raw: pa.Array | None, count: int = 64) -> set[str]:
    """The keys in the args of the first events."""
    found: set[str] = set()
    for text in [] if raw is None else raw.slice(0, count).to_pylist():
        try:
            found.update(_OBJECT.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return found


def _wrapped(value: bytes) -> str | None:
    text = value.decode("utf-8", "replace").strip()
    if text in ("null", "{}") or not text:
        return None
    return text if text.startswith("{") else f'{{"args":{text}}}'


@dataclass(frozen=True, slots=True)
class Beside:
    """Keys beside the args of some rows, which rise; `texts`: a row's keys and values, as JSON without braces."""

    rows: NDArray[np.intp]
    texts: pa.Array


def members_of(rows: Sequence[int], keys: Sequence[Mapping[str, bytes]]) -> Beside:
    """Of each of these rows: keys and the text of their values."""
    names = {key: json.dumps(key) for key in set().union(*keys)}
    texts = [
        ",".join([f"{names[key]}:{bytes(value).decode('utf-8', 'replace')}" for key, value in said.items()])
        for said in keys
    ]
    return Beside(np.array(rows, np.intp), pa.array(texts, pa.string()))


def with_beside(args: pa.Array, beside: Sequence[Beside]) -> pa.Array:
    """Args with what stands beside them put in, under one key."""
    if not beside:
        return args
    said = np.zeros(len(args), np.bool_)
    for one in beside:
        said[one.rows] = True
    rows = np.flatnonzero(said)
    members = beside[0].texts if len(beside) == 1 else _joined(beside, rows)
    # Of the object that is there, all but the brace at its end.
    bodies = pc.ascii_rtrim(pc.fill_null(args.take(pa.array(rows)), "{}"), " \t\r\n")
    bodies = pc.ascii_rtrim(pc.utf8_slice_codeunits(bodies, 0, -1), " \t\r\n")
    commas = pc.if_else(pc.equal(bodies, "{"), "", ",")
    whole = pc.binary_join_element_wise(bodies, commas, f'"{BESIDE}":{{', members, "}}", "")
    return whole if len(rows) == len(args) else pc.replace_with_mask(args, pa.array(said), whole)


def _joined(beside: Sequence[Beside], rows: NDArray[np.intp]) -> pa.Array:
    """All that stands beside these rows, which rise, one after another."""
    columns = []
    for one in beside:
        places = np.full(len(rows), -1, np.int64)
        places[np.searchsorted(rows, one.rows)] = np.arange(len(one.rows))
        columns.append(one.texts.take(pa.array(places, mask=places < 0)))
    return pc.binary_join_element_wise(*columns, ",", null_handling="skip")


def merged(begins: pa.Array, ends: pa.Array) -> pa.Array:
    """The args of begins and of their ends as one object each; of a key that both have, the end's value counts."""
    found = pc.coalesce(begins, ends)
    differ = pc.fill_null(pc.not_equal(begins, ends), False)
    if not pc.any(differ).as_py():
        return found
    pairs = zip(*(_OBJECTS.decode(joined_objects(args.filter(differ))) for args in (begins, ends)), strict=True)
    texts = [b"{%s}" % b",".join([_spelled(key) + value for key, value in (one | two).items()]) for one, two in pairs]
    return pc.replace_with_mask(found, differ, pa.array(texts, pa.string()))


@lru_cache(1 << 10)
def _spelled(key: str) -> bytes:
    """A key and its colon."""
    return f"{json.dumps(key)}:".encode()


def joined_objects(args: pa.Array) -> bytes:
    """The objects of a text column as one JSON array, `{}` for none."""
    texts = args.fill_null("{}") if args.null_count else args
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(whole, ",")[0].as_buffer().to_pybytes()
    return b"[" + joined + b"]"
