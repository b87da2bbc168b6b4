"""The `args` column: what an event contains beyond its columns, as the exact text of one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.normalize.trace.binary import offsets_of

#: Key in args for the content of an event outside of its `args` that has no column.
EXTRA_KEY = "trace_event"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Raw]])


def args_column(raw: pa.Array | None, count: int) -> pa.Array:
    """Return args as in the source; NULL for none and for an empty object. Values other than objects are wrapped."""
    if raw is None:
        return pa.nulls(count, pa.string())
    data = raw.buffers()[2]
    offsets = offsets_of(raw)
    empty = np.diff(offsets) <= 2
    if data is not None and len(data):
        first = np.frombuffer(data, np.uint8)[np.minimum(offsets[:-1], len(data) - 1)]
        wrapped = ~empty & (first != ord("{"))
        if wrapped.any():
            texts = [_wrapped(value) if value else None for value in raw.to_pylist()]
            return pa.array(texts, pa.string())
    bitmap = pa.py_buffer(np.packbits(~empty, bitorder="little").tobytes())
    return pa.Array.from_buffers(
        pa.string(), len(raw), [bitmap, pa.py_buffer(np.ascontiguousarray(offsets)), data], int(empty.sum())
    )


def arg_keys(raw: pa.Array | None, count: int = 64) -> set[str]:
    """Return the keys in the args of the first events."""
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


class Members(NamedTuple):
    """Members to add to the args of some rows, in ascending order. `texts`: keys and values as JSON without braces."""

    rows: NDArray[np.intp]
    texts: pa.Array


def members_of(rows: Sequence[int], keys: Sequence[Mapping[str, bytes]]) -> Members:
    """Build members from the keys and JSON values of each of these rows."""
    names = {key: json.dumps(key) for key in set().union(*keys)}
    texts = [
        ",".join([f"{names[key]}:{bytes(value).decode('utf-8', 'replace')}" for key, value in own.items()])
        for own in keys
    ]
    return Members(np.array(rows, np.intp), pa.array(texts, pa.string()))


def with_members(args: pa.Array, added: Sequence[Members]) -> pa.Array:
    """Return args with these members added, under one key."""
    if not added:
        return args
    has_any = np.zeros(len(args), np.bool_)
    for one in added:
        has_any[one.rows] = True
    rows = np.flatnonzero(has_any)
    members = added[0].texts if len(added) == 1 else _joined(added, rows)
    existing = args if len(rows) == len(args) else args.take(pa.array(rows))
    if existing.null_count == len(rows):
        extended = pc.binary_join_element_wise(f'{{"{EXTRA_KEY}":{{', members, "}}", "")
    else:
        # The existing objects without their closing brace.
        bodies = pc.ascii_rtrim(pc.fill_null(existing, "{}"), " \t\r\n")
        bodies = pc.ascii_rtrim(pc.utf8_slice_codeunits(bodies, 0, -1), " \t\r\n")
        commas = pc.if_else(pc.equal(bodies, "{"), "", ",")
        extended = pc.binary_join_element_wise(bodies, commas, f'"{EXTRA_KEY}":{{', members, "}}", "")
    return extended if len(rows) == len(args) else pc.replace_with_mask(args, pa.array(has_any), extended)


def _buffers(texts: pa.Array) -> tuple[NDArray[np.int32], pa.Buffer | bytes]:
    """Return offsets and data of a text column."""
    return offsets_of(texts), texts.buffers()[2] or b""


def _joined(added: Sequence[Members], rows: NDArray[np.intp]) -> pa.Array:
    """Join all members of each of these rows."""
    columns = []
    for one in added:
        places = np.full(len(rows), -1, np.int64)
        places[np.searchsorted(rows, one.rows)] = np.arange(len(one.rows))
        columns.append(one.texts.take(pa.array(places, mask=places < 0)))
    return pc.binary_join_element_wise(*columns, ",", null_handling="skip")


def merged(begins: pa.Array, ends: pa.Array, *, in_depth: bool = False) -> pa.Array:
    """Merge the args of begins and of their ends. For a key that both have, the end's value is used.

    `in_depth`: objects that both have under a key are merged too, and arrays are appended.
    """
    found = pc.coalesce(begins, ends)
    differ = pc.fill_null(pc.not_equal(begins, ends), False)
    if in_depth:
        differ = pc.and_(begins.is_valid(), ends.is_valid())
    if not pc.any(differ).as_py():
        return found
    both = begins.filter(differ), ends.filter(differ)
    texts = None if in_depth else _merged_at_once(*both)
    if texts is None:
        pairs = zip(*(_OBJECTS.decode(joined_objects(args)) for args in both), strict=True)
        merged = [_object(_merged_in_depth(one, two) if in_depth else one | two) for one, two in pairs]
        texts = pa.array(merged, pa.string())
    return pc.replace_with_mask(found, differ, texts)


def _merged_at_once(begins: pa.Array, ends: pa.Array) -> pa.Array | None:
    """Merge columns without NULL; None if it must be done one by one."""
    if not native.AVAILABLE:
        return None
    merged = native.merge(*_buffers(begins), *_buffers(ends))
    if merged is None:
        return None
    return pa.Array.from_buffers(pa.string(), len(begins), [None, *map(pa.py_buffer, merged)], null_count=0)


def _object(members: Mapping[str, bytes]) -> bytes:
    return b"{%s}" % b",".join([_key_text(key) + value for key, value in members.items()])


def _merged_in_depth(begin: Mapping[str, Raw], end: Mapping[str, Raw]) -> dict[str, bytes]:
    found: dict[str, bytes] = {key: bytes(value) for key, value in begin.items()}
    for key, raw in end.items():
        value, before = bytes(raw), found.get(key, b"")
        if before[:1] == value[:1] == b"{":
            # As deep as the parser allows.
            value = _object(_merged_in_depth(_OBJECT.decode(before), _OBJECT.decode(value)))
        elif before[:1] == value[:1] == b"[":
            parts = [part for part in (before[1:-1].strip(), value[1:-1].strip()) if part]
            value = b"[%s]" % b",".join(parts)
        found[key] = value
    return found


@lru_cache(1 << 10)
def _key_text(key: str) -> bytes:
    return f"{json.dumps(key)}:".encode()


def has_none(args: pa.Array) -> NDArray[np.bool_]:
    """Return which rows have no args of their own: NULL, or only what the event contains outside of its args."""
    none: NDArray[np.bool_] = np.array(args.is_null())
    extended = pc.starts_with(args, f'{{"{EXTRA_KEY}":').fill_null(False).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(extended).tolist():
        none[row] = len(_OBJECT.decode(args[row].as_py())) == 1
    return none


def joined_objects(args: pa.Array) -> bytes:
    """Return the objects of a text column as one JSON array, `{}` for NULL."""
    texts = args.fill_null("{}") if args.null_count else args
    all_texts = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(all_texts, ",")[0].as_buffer().to_pybytes()
    return b"[" + joined + b"]"
