"""Deflate, gzip and CRC-32 by zlib-ng: it checks and unfolds several times as fast as the zlib of most systems."""

from __future__ import annotations

from typing import Protocol, cast

from zlib_ng import zlib_ng

#: What damaged data raises.
DeflateError = cast(type[Exception], zlib_ng.error)
#: A window of zlib's own format; of gzip's.
ZLIB, GZIP = 15, 31


class Inflater(Protocol):
    """Takes packed data piece by piece. What does not fit the given size waits in `unconsumed_tail`."""

    @property
    def eof(self) -> bool: ...

    @property
    def unconsumed_tail(self) -> bytes: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """What comes out of `data`, so many bytes at most. DeflateError when it is damaged."""

    def flush(self) -> bytes: ...


def inflater(window: int = ZLIB) -> Inflater:
    """For one stream of packed data."""
    return cast(Inflater, zlib_ng.decompressobj(window))


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """The CRC-32 of `data`, going on from `value`."""
    return zlib_ng.crc32(data, value)
