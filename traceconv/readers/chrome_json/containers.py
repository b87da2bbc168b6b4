"""A file or standard input → the decompressed text in chunks: plain, gzip (any number of members) or zstd."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from traceconv.deflate import GZIP, DeflateError, Inflater, crc32, inflater
from traceconv.diagnostics import Code, ImportLog
from traceconv.errors import InputError, printable
from traceconv.readers.chrome_json.limits import FREE_BYTES, Limits

#: The path that stands for standard input.
STDIN = Path("-")

_READ_BYTES = 1 << 20
_ZSTD_PIECE = 16 << 10
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def container_of(head: bytes) -> str:
    """gzip, zstd or plain, by the first bytes of a file."""
    if head.startswith(_GZIP):
        return "gzip"
    return "zstd" if head.startswith(_ZSTD) else "plain"


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of the decompressed text, as many as come out of the first `size` of the file.

    Raises InputError when the file can't be read.
    """
    with opened(path) as stream:
        head = stream.read(size)
    if container_of(head) == "gzip":
        try:
            return inflater(GZIP).decompress(head, size)
        except DeflateError:
            return b""
    if container_of(head) == "zstd":
        import zstandard

        try:
            return zstandard.ZstdDecompressor().decompressobj().decompress(head)[:size]
        except zstandard.ZstdError:
            return b""
    return head


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, or of standard input for `-`. InputError when it can't be opened or read."""
    try:
        if path == STDIN:
            yield sys.stdin.buffer
        else:
            with path.open("rb") as stream:
                yield stream
    except OSError as error:
        raise InputError(f"can't read {printable(str(path))}: {error.strerror or error}") from error


class TextSource:
    """The decompressed text of one file, chunk by chunk. `crc` is that of the bytes of the file as read."""

    def __init__(self, path: Path, log: ImportLog, limits: Limits, advance: Callable[[int], None]) -> None:
        self._path = path
        self._log = log
        self._limits = limits
        self._advance = advance
        self.container = "plain"
        self.size_bytes = 0
        self.crc = 0
        self._text_bytes = 0

    def chunks(self) -> Iterator[bytes]:
        """Chunks of text. What ends too early, or is more than the limits allow, goes to the log."""
        with opened(self._path) as stream:
            raw = self._raw(stream)
            first = next(raw, b"")
            self.container = container_of(first)
            self._name_against_content()
            if self.container == "plain":
                texts = _chain(first, raw)
            elif self.container == "gzip":
                texts = self._gzip(_chain(first, raw))
            else:
                texts = self._zstd(_chain(first, raw))
            for text in texts:
                self._text_bytes += len(text)
                yield text
                if self._text_bytes > max(FREE_BYTES, self._limits.ratio * self.size_bytes):
                    self._lost("unfolds to more than the limit; raise it with --max-ratio")
                    return

    def _name_against_content(self) -> None:
        suffix = {".gz": "gzip", ".zst": "zstd"}.get(self._path.suffix, "plain")
        if suffix != self.container and self._path != STDIN:
            message = f"the name says {suffix}, the content is {self.container}"
            self._log.add(Code.ODD_CONTAINER, message, source_id=1, byte_offset=0)

    def _raw(self, stream: BinaryIO) -> Iterator[bytes]:
        while data := stream.read(_READ_BYTES):
            self.size_bytes += len(data)
            self.crc = crc32(data, self.crc)
            self._advance(len(data))
            yield data

    def _lost(self, message: str) -> None:
        self._log.add(Code.BAD_CONTAINER, message, source_id=1, byte_offset=self._text_bytes)

    def _gzip(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        member: Inflater | None = None
        for data in raw:
            rest = data
            while rest:
                if member is None:
                    rest = rest.lstrip(b"\0")  # padding between members
                    if not rest:
                        break
                    member = inflater(GZIP)
                try:
                    text = member.decompress(rest, _READ_BYTES)
                except DeflateError as error:
                    self._lost(f"the gzip data is damaged here ({printable(str(error))}); nothing behind it was read")
                    return
                rest = member.unconsumed_tail
                if text:
                    yield text
                if member.eof:
                    rest, member = member.unused_data, None
        if member is not None:
            yield member.flush()
            if not member.eof:
                self._lost("the gzip data ends before its end mark")

    def _zstd(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        import zstandard

        frame, inside = zstandard.ZstdDecompressor().decompressobj(), False
        for data in raw:
            rest = data
            while rest:
                # Little at a time: a small piece may unfold to much.
                piece, rest = rest[:_ZSTD_PIECE], rest[_ZSTD_PIECE:]
                try:
                    text = frame.decompress(piece)
                except zstandard.ZstdError as error:
                    self._lost(f"the zstd data is damaged here ({printable(str(error))}); nothing behind it was read")
                    return
                if text:
                    yield text
                if frame.eof:
                    rest = frame.unused_data + rest
                    frame = zstandard.ZstdDecompressor().decompressobj()
                    if not rest.strip(b"\0"):
                        rest = b""
                    inside = False
                else:
                    inside = True
        if inside:
            self._lost("the zstd data ends before its end mark")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
