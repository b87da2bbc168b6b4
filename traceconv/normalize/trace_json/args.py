"""The `args` column: what an event says beyond its columns, as the text of one JSON object, digit by digit."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from traceconv.normalize.trace_json.binary import offsets_of

#: Key under which args holds what stands beside `args` in an event, and no column holds.
BESIDE = "trace_event"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])


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


def with_beside(args: pa.Array, beside: Mapping[int, Mapping[str, bytes]]) -> pa.Array:
    """Args with what stands beside them put in: row → key → text of the value."""
    if not beside:
        return args
    texts = args.to_pylist()
    for row, keys in beside.items():
        inner = ",".join(f"{json.dumps(key)}:{bytes(value).decode('utf-8', 'replace')}" for key, value in keys.items())
        texts[row] = _with_key(texts[row], f'"{BESIDE}":{{{inner}}}')
    return pa.array(texts, pa.string())


def _with_key(text: str | None, member: str) -> str:
    if text is None:
        return "{" + member + "}"
    body = text.rstrip()[:-1].rstrip()
    return f"{body}{',' if body != '{' else ''}{member}}}"


def merged(begin: str | None, end: str | None) -> str | None:
    """The args of a begin and its end as one object; of a key that both have, the end's value counts."""
    if begin is None or end is None or begin == end:
        return begin if end is None else end
    keys = _OBJECT.decode(begin.encode())
    keys.update(_OBJECT.decode(end.encode()))
    return "{" + ",".join(f"{json.dumps(key)}:{bytes(value).decode()}" for key, value in keys.items()) + "}"


def joined_objects(args: pa.Array) -> bytes:
    """The objects of a text column as one JSON array, `{}` for none."""
    texts = args.fill_null("{}") if args.null_count else args
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    joined: bytes = pc.binary_join(whole, ",")[0].as_buffer().to_pybytes()
    return b"[" + joined + b"]"
