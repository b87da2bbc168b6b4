"""Deflate, gzip and CRC-32 by zlib-ng, which is several times as fast as most systems' zlib."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol, cast

from zlib_ng import zlib_ng

_DeflateError = cast(type[Exception], zlib_ng.error)
#: Window sizes of zlib's own format and of gzip's.
_ZLIB, _GZIP = 15, 31
_MOST_BYTES = 1 << 20
#: The beginning of a gzip member: deflate, and no reserved flags.
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
#: A candidate is a member if this much of it can be decompressed; the number of candidates per file is limited.
_PROBED_BYTES, _MOST_PROBES = 4 << 10, 1 << 12


class Inflater(Protocol):
    """Decompresses one stream piece by piece. Input beyond `max_length` of output waits in `unconsumed_tail`."""

    @property
    def eof(self) -> bool: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...

    def copy(self) -> Inflater: ...


class Damaged(Exception):
    """Compressed data is damaged; all output of the bytes before was returned. `rest`: data after the bad byte."""

    def __init__(self, message: str, rest: bytes) -> None:
        super().__init__(message)
        self.rest = rest


def inflater(window: int = _ZLIB) -> Inflater:
    """Return a decompressor for one zlib stream."""
    return cast(Inflater, zlib_ng.decompressobj(window))


def inflated(stream: Inflater, data: bytes) -> Iterator[bytes]:
    """Decompress `data` in bounded pieces, up to the end of the stream. Raises Damaged.

    zlib discards the output of a call with a bad byte or checksum, so the input is halved until that byte is alone.
    """
    while data and not stream.eof:
        before = stream.copy()
        try:
            text = stream.decompress(data, _MOST_BYTES)
        except _DeflateError as error:
            if len(data) == 1:
                raise Damaged(str(error), b"") from error
            middle = len(data) // 2
            try:
                yield from inflated(before, data[:middle])
            except Damaged as damaged:
                raise Damaged(str(damaged), damaged.rest + data[middle:]) from error
            yield from inflated(before, data[middle:])
            return  # not reached: one of the halves is damaged
        data = stream.unconsumed_tail
        if text:
            yield text


class GzipMembers:
    """Decompresses gzip with any number of members."""

    name, part = "gzip", "member"

    def __init__(self) -> None:
        self._member: Inflater | None = None
        self._probes = iter(range(_MOST_PROBES))

    @property
    def is_inside(self) -> bool:
        """Whether a member has begun and not ended."""
        return self._member is not None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data`. Raises Damaged; then another member is expected."""
        while data:
            if self._member is None:
                data = data.lstrip(b"\0")  # padding between members
                if not data:
                    return
                self._member = inflater(_GZIP)
            try:
                yield from inflated(self._member, data)
            except Damaged:
                self._member = None
                raise
            if not self._member.eof:
                return
            data, self._member = self._member.unused_data, None

    def finish(self) -> bytes:
        """Return the output of the last, truncated data."""
        return b""

    def next_start(self, data: bytes) -> int:
        """Where the next member seems to begin; -1 if none does."""
        for match, _ in zip(_MEMBER.finditer(data), self._probes, strict=False):
            try:
                inflater(_GZIP).decompress(data[match.start() : match.start() + _PROBED_BYTES], _MOST_BYTES)
            except _DeflateError:
                continue
            return match.start()
        return -1


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """Return the CRC-32 of `data`, continuing from `value`."""
    return zlib_ng.crc32(data, value)


def compress(data: bytes | memoryview, level: int) -> bytes:
    """Return zlib's form of `data`."""
    return zlib_ng.compress(data, level)
