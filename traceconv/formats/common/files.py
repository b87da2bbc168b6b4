"""Read a file or standard input as chunks of text, decompressed (gzip, zstd, xz) and in UTF-8."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from traceconv.base.deflate import Damaged, GzipMembers, crc32
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError, printable, reason_of
from traceconv.base.xz_streams import MAGIC as _XZ
from traceconv.base.xz_streams import XzStreams
from traceconv.base.zstd_frames import MAGIC as _ZSTD
from traceconv.base.zstd_frames import ZstdFrames
from traceconv.formats.common.limits import FREE_BYTES, Limits

#: The path of standard input.
STDIN = Path("-")
SQLITE_MAGIC = b"SQLite format 3\0"

_READ_BYTES = 4 << 20
#: Compressed data is fed in small pieces: a damaged piece is searched for its intact part.
_COMPRESSED_PIECE = 32 << 10
_GZIP = b"\x1f\x8b"
#: A zstd frame without data: pzstd writes one first.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
#: Bytes that are enough to identify an encoding.
_HEAD_BYTES = 64
#: Damaged members or frames per file; each is followed by a search for the next.
_MOST_DAMAGED = 64
#: How text begins in each encoding: with a byte order mark, or blanks and a bracket. UTF-32 before UTF-16.
_ENCODINGS = (
    ("utf-32-le", re.compile(rb"\xff\xfe\0\0|(?:[ \t\r\n]\0\0\0)*[\[{]\0\0\0")),
    ("utf-32-be", re.compile(rb"\0\0\xfe\xff|(?:\0\0\0[ \t\r\n])*\0\0\0[\[{]")),
    ("utf-16-le", re.compile(rb"\xff\xfe|(?:[ \t\r\n]\0)*[\[{]\0[^\0]\0")),
    ("utf-16-be", re.compile(rb"\xfe\xff|(?:\0[ \t\r\n])*\0[\[{]\0[^\0]")),
)

Decompressor: TypeAlias = "GzipMembers | ZstdFrames | XzStreams"
_DECOMPRESSORS: dict[str, Callable[[], Decompressor]] = {
    "gzip": GzipMembers,
    "zstd": ZstdFrames,
    "xz": XzStreams,
}
#: Suffixes of names, and how such files are compressed.
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".xz": "xz"}


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text by its first bytes; UTF-8 unless another is evident."""
    return next((name for name, opening in _ENCODINGS if opening.match(head)), "utf-8")


def container_of(head: bytes) -> str:
    """Return gzip, zstd, xz or plain, by the first bytes of a file."""
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_XZ):
        return "xz"
    return "zstd" if head.startswith(_ZSTD) or _SKIPPABLE.match(head) else "plain"


def file_size(path: Path) -> int:
    """Return the bytes of a file; 0 for standard input, and for a file that can't be read, as reading it will show."""
    try:
        return 0 if path == STDIN else path.stat().st_size
    except OSError:
        return 0


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """Return up to `size` bytes of text, from the first `size` bytes of the file. Raises InputError.

    The names of a SQLite file's tables, which may be anywhere in the file, follow.
    """
    with opened(path) as stream:
        head = stream.read(size)
    if head.startswith(SQLITE_MAGIC):
        from traceconv.formats.common.sqlite_database import table_names  # most files are others

        return head + table_names(path)
    container = container_of(head)
    if container != "plain":
        decompressor, data, head = _DECOMPRESSORS[container](), head, b""
        with suppress(Damaged):
            for text in decompressor.feed(data):
                head += text
                if len(head) >= size:
                    break
            head += decompressor.finish()
    encoding = encoding_of(head)
    if encoding != "utf-8":
        head = codecs.getincrementaldecoder(encoding)("replace").decode(head).encode()
    return head[:size]


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`. Raises InputError if it can't be opened or read."""
    try:
        if path == STDIN:
            yield sys.stdin.buffer
        else:
            with path.open("rb") as stream:
                yield stream
    except OSError as error:
        raise InputError(f"can't read {printable(str(path))}: {reason_of(error)}") from error


@dataclass(slots=True)
class TextSource:
    """The text of one file, chunk by chunk. `crc` is that of the file's bytes.

    is_text  convert UTF-16 and UTF-32 to UTF-8, to which all byte offsets then refer
    """

    path: Path
    log: ImportLog
    limits: Limits
    advance: Callable[[int], None]
    is_text: bool = True
    container: str = "plain"
    size_bytes: int = 0
    crc: int = 0
    _text_bytes: int = 0

    def chunks(self) -> Iterator[bytes]:
        """Yield chunks of text. Truncation and data beyond the limits are logged."""
        with opened(self.path) as stream:
            raw = self._raw(stream)
            first = next(raw, b"")
            self.container = container_of(first)
            self._check_suffix()
            raw = _chain(first, raw)
            if self.container != "plain":
                raw = self._decompressed(raw, _DECOMPRESSORS[self.container]())
            for text in self._in_utf8(raw) if self.is_text else raw:
                self._text_bytes += len(text)
                yield text
                if self._text_bytes > max(FREE_BYTES, self.limits.ratio * self.size_bytes):
                    self._lost("decompresses to more than the limit; raise it with --max-ratio")
                    return

    def _in_utf8(self, texts: Iterator[bytes]) -> Iterator[bytes]:
        first = b""
        while len(first) < _HEAD_BYTES and (text := next(texts, b"")):
            first += text
        encoding = encoding_of(first)
        texts = _chain(first, texts)
        if encoding == "utf-8":
            yield from texts
            return
        self.container += f" {encoding}"
        message = f"the text is {encoding.upper()}; all byte offsets are in its UTF-8 form"
        self.log.add(Code.ENCODING, message, source_id=1, byte_offset=0)
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        for text in _chain_end(texts):
            state = decoder.getstate()
            try:
                shown = decoder.decode(text, not text)
            except UnicodeDecodeError as error:
                message, size = f"bytes that are not {encoding.upper()}", error.end - error.start
                self.log.add(Code.BAD_BYTES, message, source_id=1, byte_offset=self._text_bytes, byte_count=size)
                decoder.setstate(state)
                decoder.errors = "replace"
                shown = decoder.decode(text, not text)
                decoder.errors = "strict"
            if shown:
                yield shown.encode()

    def _check_suffix(self) -> None:
        suffix = COMPRESSED.get(self.path.suffix, "plain")
        if suffix != self.container and self.path != STDIN:
            message = f"the file name implies {suffix}, the content is {self.container}"
            self.log.add(Code.UNEXPECTED_CONTAINER, message, source_id=1, byte_offset=0)

    def _raw(self, stream: BinaryIO) -> Iterator[bytes]:
        while data := stream.read(_READ_BYTES):
            self.size_bytes += len(data)
            self.crc = crc32(data, self.crc)
            self.advance(len(data))
            yield data

    def _lost(self, message: str) -> None:
        self.log.add(Code.BAD_CONTAINER, message, source_id=1, byte_offset=self._text_bytes)

    def _decompressed(self, raw: Iterator[bytes], stream: Decompressor) -> Iterator[bytes]:
        damaged, is_searching = 0, False
        for data in _pieces(raw):
            rest = data
            while rest:
                if is_searching:
                    start = stream.next_start(rest)
                    if start < 0:
                        break
                    rest, is_searching = rest[start:], False
                try:
                    yield from stream.feed(rest)
                    break
                except Damaged as error:
                    damaged += 1
                    is_last = damaged == _MOST_DAMAGED
                    action = "the rest is skipped" if is_last else f"resuming at the next {stream.part}, if any"
                    self._lost(f"the {stream.name} data is damaged here ({printable(str(error))}); {action}")
                    if is_last:
                        return
                    rest, is_searching = error.rest, True
        if stream.is_inside:
            yield stream.finish()
            self._lost(f"the {stream.name} data is truncated")


def why_empty(path: Path) -> str:
    """Explain why a file has no text: it is empty, or its compressed data is damaged."""
    log = ImportLog()
    with suppress(InputError):  # deleted meanwhile
        any(TextSource(path, log, Limits(), lambda size: None, is_text=False).chunks())
    damaged = any(entry.code is Code.BAD_CONTAINER for entry in log)
    return "can't be decompressed: it is truncated or damaged" if damaged else "is empty"


def _pieces(raw: Iterator[bytes]) -> Iterator[bytes]:
    for data in raw:
        for at in range(0, len(data), _COMPRESSED_PIECE):
            yield data[at : at + _COMPRESSED_PIECE]


def _chain_end(texts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield `texts` and an empty one at the end."""
    yield from texts
    yield b""


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
