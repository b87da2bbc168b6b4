"""Deflate, gzip and CRC-32 by zlib-ng: it checks and unfolds several times as fast as the zlib of most systems."""

from __future__ import annotations

from collections.abc import Iterator
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
        """Decompresses `data`, up to a maximum number of bytes. DeflateError when it is damaged."""

    def flush(self) -> bytes: ...

    def copy(self) -> Inflater: ...


def inflater(window: int = ZLIB) -> Inflater:
    """For one stream of packed data."""
    return cast(Inflater, zlib_ng.decompressobj(window))


class Damaged(Exception):
    """Packed data is damaged; all that comes out of the bytes before was given. `rest`: what follows the bad byte."""

    def __init__(self, message: str, rest: bytes) -> None:
        super().__init__(message)
        self.rest = rest


def unfolded(stream: Inflater, data: bytes, most: int) -> Iterator[bytes]:
    """What comes out of `data`, `most` bytes at a time, up to the end of the stream. Raises Damaged.

    zlib throws away what a call has made when it then meets a bad byte, or a checksum that is wrong: the input is
    halved until that byte is alone.
    """
    while data and not stream.eof:
        before = stream.copy()
        try:
            text = stream.decompress(data, most)
        except DeflateError as error:
            if len(data) == 1:
                raise Damaged(str(error), b"") from error
            middle = len(data) // 2
            try:
                yield from unfolded(before, data[:middle], most)
            except Damaged as damaged:
                raise Damaged(str(damaged), damaged.rest + data[middle:]) from error
            yield from unfolded(before, data[middle:], most)
            return  # not reached: one of the halves is damaged
        data = stream.unconsumed_tail
        if text:
            yield text


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """The CRC-32 of `data`, going on from `value`."""
    return zlib_ng.crc32(data, value)
