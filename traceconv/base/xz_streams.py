"""Decompress xz with any number of streams, by Python's own module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traceconv.base.deflate import Damaged
from traceconv.base.errors import InputError

MAGIC = b"\xfd7zXZ\x00"
#: xz -9 takes 65 MiB.
_MOST_MEMORY = 256 << 20
#: Output of one call, which is lost if the call meets damage, and output that is yielded at once.
_CALL_BYTES, _PIECE_BYTES = 4 << 10, 256 << 10


class XzStreams:
    """Decompresses xz, with the interface of `GzipMembers`. Raises InputError if Python was built without it."""

    name, part = "xz", "stream"

    def __init__(self) -> None:
        try:
            import lzma
        except ImportError as error:
            raise InputError("can't decompress xz: this Python was built without the module lzma") from error
        self._lzma = lzma
        self._stream: Any = None

    @property
    def is_inside(self) -> bool:
        """Whether a stream has begun and not ended."""
        return self._stream is not None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data`. Raises Damaged; then another stream is expected."""
        while True:
            if self._stream is None:
                data = data.lstrip(b"\0")  # padding between streams
                if not data:
                    return
                self._stream = self._lzma.LZMADecompressor(self._lzma.FORMAT_XZ, _MOST_MEMORY)
            pieces: list[bytes] = []
            try:
                for text in self._texts(data):
                    pieces.append(text)
                    if len(pieces) * _CALL_BYTES >= _PIECE_BYTES:
                        yield b"".join(pieces)
                        pieces.clear()
            except self._lzma.LZMAError as error:
                self._stream = None
                yield b"".join(pieces)
                raise Damaged(str(error), data[1:]) from error
            if pieces:
                yield b"".join(pieces)
            if not self._stream.eof:
                return
            data, self._stream = self._stream.unused_data, None

    def finish(self) -> bytes:
        """Return the output of the last, truncated data."""
        return b""

    @staticmethod
    def next_start(data: bytes) -> int:
        """Where the next stream seems to begin; -1 if none does."""
        return data.find(MAGIC)

    def _texts(self, data: bytes) -> Iterator[bytes]:
        """Yield the output of `data`, of bounded size each."""
        while not self._stream.eof and (data or not self._stream.needs_input):
            text = self._stream.decompress(data, _CALL_BYTES)
            data = b""
            if text:
                yield text
