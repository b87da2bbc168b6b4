"""Statistics of events, of kinds of events and of planes → keys and values in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.events.trace import coded
from traceconv.formats.xplane import field_numbers as pb
from traceconv.wire.protobuf import FIXED64, LEN, VARINT, FieldTable, walk

#: Keys for what is not a statistic: the name of a kind of event that has a shorter one, and the ID of an unknown kind.
LONG_NAME, KIND_ID = "long_name", "metadata_id"
#: Kinds of the fields that contain a value.
_KINDS = {
    pb.DOUBLE: FIXED64,
    pb.UNSIGNED: VARINT,
    pb.SIGNED: VARINT,
    pb.TEXT: LEN,
    pb.BYTES: LEN,
    pb.REFERENCE: VARINT,
    pb.COMPRESSED: LEN,
}
_KIND_OF = np.full(pb.COMPRESSED + 1, -1, np.int32)
for _number, _kind in _KINDS.items():
    _KIND_OF[_number] = _kind


#: Pairs of an owner and a name that have an array of their own.
_MOST_PAIRS = 1 << 22


class Texts:
    """Texts by ID. The text of an unknown ID is `unknown`."""

    def __init__(self, by_id: dict[int, str], unknown: str | None) -> None:
        self._ids = np.array(sorted(by_id), np.int64)
        self.texts: list[str | None] = [*(by_id[one] for one in self._ids.tolist()), unknown]

    def places(self, ids: Int64) -> tuple[Int64, Mask]:
        """Return the place of each ID in `texts`, and whether it is known."""
        if not len(self._ids):
            return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
        places = np.searchsorted(self._ids, ids)
        known = self._ids[np.minimum(places, len(self._ids) - 1)] == ids
        return np.where(known, places, len(self._ids)), known


class StatNames(Texts):
    """Names of statistics, which are also the texts that statistics refer to.

    json   each as a JSON text
    leads  `"name":` of each
    keys   of each: the first place of its name
    """

    def __init__(self, by_id: dict[int, str]) -> None:
        super().__init__(by_id, "unknown")
        self.texts += [LONG_NAME, KIND_ID]
        quoted = [json.dumps(text, ensure_ascii=False) for text in self.texts]
        self.json = pa.array(quoted, pa.string())
        self.leads = pa.array([f"{text}:" for text in quoted], pa.string())
        firsts: dict[str | None, int] = {}
        self.keys = np.array([firsts.setdefault(text, place) for place, text in enumerate(self.texts)], np.int64)
        self._firsts = firsts

    def key(self, name: str) -> int:
        """Return the key of a name; -1 if no statistic has it."""
        return self._firsts.get(name, -1)


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics.

    owners   whose they are, rising
    keys     of their names
    texts    their values as JSON
    unknown  how many have an unknown name, or refer to an unknown text
    damaged  how many are malformed
    strange  how many different texts are not UTF-8
    """

    owners: Int64
    keys: Int64
    texts: pa.Array
    unknown: int = 0
    damaged: int = 0
    strange: int = 0


NO_STATS = Stats(np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], pa.string()))


def read_stats(data: bytes, bounds: Int64, owners: Int64, names: StatNames) -> Stats:
    """Return the statistics with these bounds that have a value."""
    found = walk(data, bounds)
    ids = column(found, pb.STAT_ID, len(bounds))
    keys, known = names.places(ids)
    number = np.minimum(found.number, pb.COMPRESSED)
    is_value = (found.number == number) & (_KIND_OF[number] == found.kind)
    rows = found.row[is_value]
    kind, value, at = np.zeros((3, len(bounds)), np.int64)
    # A value has one of the fields; the last one counts.
    kind[rows] = found.number[is_value]
    value[rows] = found.value[is_value].view(np.int64)
    at[rows] = found.at[is_value]
    of, parts = [], []
    unknown_texts = strange = 0
    for which in _KINDS:
        own = np.flatnonzero(kind == which)
        if not len(own):
            continue
        if which == pb.REFERENCE:
            places, is_text = names.places(value[own])
            unknown_texts += int(np.count_nonzero(~is_text))
            texts = names.json.take(pa.array(places))
        elif _KINDS[which] == LEN:
            texts, strange_texts = _texts(data, which == pb.TEXT, value[own], at[own])
            strange += strange_texts
        else:
            texts = _numbers(which, value[own])
        of.append(own)
        parts.append(texts)
    place = np.concatenate(of) if of else np.zeros(0, np.int64)
    texts = pa.concat_arrays(parts) if parts else pa.array([], pa.string())
    if len(parts) > 1:
        order = np.argsort(place, kind="stable")
        place, texts = place[order], texts.take(pa.array(order))
    unknown = int(np.count_nonzero(~known[place])) + unknown_texts
    damaged = int(np.count_nonzero(~found.sound))
    return Stats(owners[place], names.keys[keys[place]], texts, unknown, damaged, strange)


def joined(one: Stats, other: Stats, names: StatNames) -> Stats:
    """Return the statistics of both, those of `one` first. Of several with one name, the last counts."""
    owners = np.concatenate([one.owners, other.owners])
    keys = np.concatenate([one.keys, other.keys])
    texts = pa.concat_arrays([one.texts, other.texts])
    if len(one.owners) and len(other.owners):
        order = np.argsort(owners, kind="stable")
        owners, keys, texts = owners[order], keys[order], texts.take(pa.array(order))
    pairs = owners * np.int64(len(names.texts)) + keys
    if pairs.max(initial=0) >= _MOST_PAIRS:
        pairs = pa.array(pairs).dictionary_encode().indices.to_numpy()
    last = np.zeros(int(pairs.max(initial=0)) + 1, np.int64)
    last[pairs] = np.arange(len(pairs))
    kept = last[pairs] == np.arange(len(pairs))
    if not kept.all():
        owners, keys, texts = owners[kept], keys[kept], texts.filter(pa.array(kept))
    return Stats(owners, keys, texts)


def members(stats: Stats, names: StatNames, count: int) -> pa.Array:
    """Return the statistics of each of `count` owners as the members of a JSON object, empty for none."""
    texts = pc.binary_join_element_wise(names.leads.take(pa.array(stats.keys)), stats.texts, "")
    ends = np.append(0, np.cumsum(np.bincount(stats.owners, minlength=count))).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), texts), ",")


def objects(one: pa.Array, other: pa.Array) -> pa.Array:
    """Return the members in both as JSON objects, empty for none: a binary array."""
    comma = pc.if_else(pc.or_(pc.equal(one, ""), pc.equal(other, "")), "", ",")
    found = pc.binary_join_element_wise("{", one, comma, other, "}", "")
    return pc.if_else(pc.equal(found, "{}"), "", found).cast(pa.binary())


def column(found: FieldTable, number: int, count: int) -> Int64:
    """Return a field of messages that is a number: 0 where it is missing, the last one where there are several."""
    values = np.zeros(count, np.int64)
    own = (found.number == number) & (found.kind == VARINT)
    values[found.row[own]] = found.value[own].view(np.int64)
    return values


def spans(found: FieldTable, number: int) -> tuple[Int64, Int64]:
    """Return the bounds of a field that is a text or a message, and the message that each is in."""
    own = (found.number == number) & (found.kind == LEN)
    at = found.at[own]
    return np.stack([at, at + found.value[own].astype(np.int64)], axis=1), found.row[own]


def decoded(text: bytes) -> tuple[str, bool]:
    """Return a text, and whether it is UTF-8."""
    try:
        return text.decode(), True
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace"), False


def _numbers(kind: int, values: Int64) -> pa.Array:
    """Return numbers of one kind as JSON."""
    if kind != pb.DOUBLE:
        return pa.array(values if kind == pb.SIGNED else values.view(np.uint64)).cast(pa.string())
    numbers = coded(pa.array(values))
    doubles = np.array(numbers.distinct, np.int64).view(np.float64).tolist()
    return _taken([json.dumps(one if math.isfinite(one) else str(one)) for one in doubles], numbers.codes)


def _texts(data: bytes, is_text: bool, sizes: Int64, at: Int64) -> tuple[pa.Array, int]:
    """Return texts, or bytes in hexadecimal, as JSON, and how many different texts are not UTF-8."""
    ends = at + sizes
    found = coded([data[start:end] for start, end in zip(at.tolist(), ends.tolist(), strict=True)])
    if not is_text:
        return _taken([f'"{text.hex()}"' for text in found.distinct], found.codes), 0
    texts = [decoded(text) for text in found.distinct]
    strange = sum(not is_utf8 for _, is_utf8 in texts)
    return _taken([json.dumps(text, ensure_ascii=False) for text, _ in texts], found.codes), strange


def _taken(texts: Sequence[str], codes: NDArray[np.int32]) -> pa.Array:
    return pa.array(texts, pa.string()).take(pa.array(codes))
