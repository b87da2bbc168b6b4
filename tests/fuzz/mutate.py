"""Mutations of bytes: flips, truncations, splices, dictionary tokens, and changes that keep JSON or blocks valid."""

from __future__ import annotations

import copy
import json
import random
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from traceconv.wire.frames import BLOCK_HEADER_BYTES, BLOCK_MAGIC, encode_block_header

NUMBERS = (
    b"0", b"-1", b"1e999", b"9223372036854775807", b"-9223372036854775808", b"18446744073709551616", b"1e-400",
    b"4611686018427387904", b"123456789012345678901234567890.123456789", b"NaN", b"Infinity", b"-0", b"1.", b".5",
    b"2147483648", b"4294967295", b"1e18", b'"1e3"', b"true", b"null", b'""', b"[]", b"{}", b"007", b"+1",
    b"1e-40009342", b"1e-4000",
)  # fmt: skip
ODD_BYTES = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xed\xa0\x80", b"\r", b"\n", b'"', b"\\",
    b"\\u0000", b"\\ud800", b"\x1b[31m", b"{", b"}", b"[", b"]", b",", b":", b"},{", b'"ph":', b"]\n[",
    b"'; DROP TABLE", b"</script>", b"%s%n", b"../../../x", b"\xc3", b"\xf0\x9f\x98\x80", b"/*", b"nan", b"N/A",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 1e300, -0.0, 0.1, "", "0x1",
    "1e3", "N/A", "\u0000", "\ud7ff", "é" * 9, "a" * 300, [], {}, [[]], {"": None}, "X", "B", "E", "s", "f", "M", "C",
)  # fmt: skip

_NUMBER = re.compile(rb"[0-9][0-9.]*")

Mutation = Callable[[bytes, random.Random, Sequence[bytes]], bytes]


def mutate(data: bytes, rng: random.Random, corpus: Sequence[bytes], structured: Sequence[Mutation]) -> bytes:
    """`data` after one to some mutations. `corpus`: what is spliced in; `structured`: those that know the format."""
    for _ in range(min(1 + int(rng.expovariate(0.6)), 12)):
        use = rng.choice(structured) if structured and rng.random() < 0.55 else rng.choice(BLIND)
        data = use(data, rng, corpus)
        if len(data) > 1 << 18:
            data = data[: 1 << 18]
    return data


def flip(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Bits turned over."""
    if not data:
        return data
    out = bytearray(data)
    for _ in range(1 << rng.randrange(4)):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def overwrite(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A stretch of other bytes: random, equal, or numbers at the edge."""
    if not data:
        return data
    at, size = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 16, 64))
    put = rng.choice((rng.randbytes(size), b"\x00" * size, b"\xff" * size, struct.pack("<Q", 1 << rng.randrange(64))))
    return data[:at] + put[:size] + data[at + size :]


def cut(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """The end, the beginning or a stretch taken away."""
    low, high = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    if rng.random() < 0.5:
        high = min(high, low + 64)
    return rng.choice((data[:high], data[low:], data[:low] + data[high:]))


def repeat(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A stretch once more, or many times."""
    low = rng.randrange(len(data) + 1)
    part = data[low : low + rng.choice((1, 8, 64, 512))]
    times = rng.choice((1, 2, 3, 50)) if len(part) < 65 else 1
    at = rng.choice((low, rng.randrange(len(data) + 1)))
    return data[:at] + part * times + data[at:]


def splice(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """The beginning of one, the end of another."""
    other = rng.choice(corpus)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def insert(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A token that readers may trip over."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(rng.choice((ODD_BYTES, NUMBERS))) + data[at:]


BLIND: tuple[Mutation, ...] = (flip, overwrite, cut, repeat, splice, insert)


def number(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """A number in text, replaced."""
    places = [match.span() for match in _NUMBER.finditer(data)]
    if not places:
        return data
    low, high = rng.choice(places)
    return data[:low] + rng.choice(NUMBERS) + data[high:]


def lines(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Lines taken away, put twice, or in another order; cells of a line likewise."""
    parts = data.split(b"\n")
    place = rng.randrange(len(parts))
    what = rng.randrange(4)
    if what == 0:
        del parts[place]
    elif what == 1:
        parts.insert(place, rng.choice(parts))
    elif what == 2:
        rng.shuffle(parts)
    else:
        cells = parts[place].split(b",")
        cells[rng.randrange(len(cells))] = rng.choice((*NUMBERS, *ODD_BYTES))
        if rng.random() < 0.3:
            del cells[rng.randrange(len(cells))]
        parts[place] = b",".join(cells)
    return b"\n".join(parts)


def json_values(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Values and keys of a document changed so that it stays JSON; as it is when it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return number(data, rng, corpus)
    for _ in range(1 + rng.randrange(4)):
        _change(document, rng)
    kept = rng.choice(((",", ":"), (", ", ": ")))
    return json.dumps(document, separators=kept, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _change(document: Any, rng: random.Random) -> None:
    """One change somewhere in a document, mostly deep in it."""
    here, path = document, []
    while isinstance(here, (dict, list)) and here and (not path or rng.random() < 0.85):
        key = rng.choice(list(here)) if isinstance(here, dict) else rng.randrange(len(here))
        path.append((here, key))
        here = here[key]
    if not path:
        return
    owner, key = path[-1]
    what = rng.randrange(6)
    if what == 0:
        del owner[key]
    elif what == 1 and isinstance(owner, dict):
        owner[rng.choice(("ph", "ts", "dur", "id", "id2", "args", "bind_id", "", "pid", str(key) + "2"))] = owner.pop(
            key
        )
    elif what == 2 and isinstance(owner, list):
        owner.insert(rng.randrange(len(owner) + 1), owner[key])
    elif what == 3:
        above = rng.choice(path)
        owner[key] = (
            above[0][above[1]]
            if not isinstance(above[0][above[1]], (dict, list))
            else copy.deepcopy(rng.choice(VALUES))
        )
    elif what == 4 and isinstance(owner, list):
        rng.shuffle(owner)
    else:
        owner[key] = copy.deepcopy(rng.choice(VALUES))


def records(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Records of a log changed, with the checksums of their blocks made right again."""
    at = data.find(BLOCK_MAGIC)
    starts = []
    while at >= 0:
        starts.append(at)
        at = data.find(BLOCK_MAGIC, at + 4)
    if not starts:
        return data
    start = rng.choice(starts)
    head = data[start : start + BLOCK_HEADER_BYTES]
    if len(head) < BLOCK_HEADER_BYTES:
        return data
    _, tag, size, count, _, sequence, _, _ = struct.unpack("<4sHHIIQII", head)
    end = start + BLOCK_HEADER_BYTES + size * count
    payload = bytearray(data[start + BLOCK_HEADER_BYTES : end])
    if not payload or not size or len(payload) % size:
        return data
    what = rng.randrange(5)
    if what == 0:
        place = rng.randrange(len(payload) // size) * size
        payload[place:place] = payload[place : place + size]
    elif what == 1 and len(payload) > size:
        place = rng.randrange(len(payload) // size) * size
        del payload[place : place + size]
    elif what == 2:
        sequence = rng.choice((sequence ^ 1, max(0, sequence - 1), 0, 1 << 39, (1 << 64) - 1))
    else:
        for _ in range(1 + rng.randrange(4)):
            place = rng.randrange(len(payload))
            put = rng.choice((b"\xff" * 8, b"\x00" * 8, struct.pack("<Q", 1 << rng.randrange(64)), rng.randbytes(1)))
            payload[place : place + len(put)] = put[: len(payload) - place]
    return data[:start] + encode_block_header(tag, size, sequence, bytes(payload)) + bytes(payload) + data[end:]


def header(data: bytes, rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """The header of a log changed (its schemas too), with its checksum made right again."""
    if len(data) < 60:
        return data
    size = int.from_bytes(data[12:16], "little")
    if not 60 <= size <= len(data):
        return data
    body = bytearray(data[: size - 4])
    text = bytes(body[56:])
    if rng.random() < 0.5:
        text = json_values(text, rng, corpus)
    else:
        place = rng.randrange(8, 52)
        body[place] ^= 1 << rng.randrange(8)
    fixed = bytearray(body[:56])
    fixed[12:16] = (56 + len(text) + 4).to_bytes(4, "little")
    fixed[52:56] = len(text).to_bytes(4, "little")
    header = bytes(fixed) + text
    return header + zlib.crc32(header).to_bytes(4, "little") + data[size:]
