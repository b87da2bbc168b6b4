"""A file or standard input → its text in chunks: decompressed (gzip of any number of members, zstd), and in UTF-8."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from traceconv.base.deflate import GZIP, Damaged, DeflateError, Inflater, crc32, inflater, unfolded
from traceconv.base.diagnostics import Code, ImportLog
from traceconv.base.errors import InputError, printable
from traceconv.base.zstd_frames import MAGIC as _ZSTD
from traceconv.base.zstd_frames import ZstdFrames
from traceconv.formats.common.limits import FREE_BYTES, Limits

#: The path that stands for standard input.
STDIN = Path("-")

_READ_BYTES = 1 << 20
#: Packed data is unfolded in pieces of this size: what a damaged one gives is looked for piece by piece.
_PACKED_PIECE = 32 << 10
_GZIP = b"\x1f\x8b"
#: A frame of zstd without data, such as pzstd begins with.
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
#: A member of gzip seems to begin: deflate, and no flags that there are none of.
_MEMBER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
#: A member is taken for one when so much of it can be unfolded; in so many places of a file that is tried.
_PROBED_BYTES, _MOST_PROBES = 4 << 10, 1 << 12
#: Bytes that identify an encoding.
_HEAD_BYTES = 64
#: Damaged members or frames per file; each is followed by a search for the next.
_MOST_DAMAGED = 64
#: Text begins so in each encoding: by its mark, or by a bracket and blanks before it. UTF-32 comes before UTF-16.
_ENCODINGS = (
    ("utf-32-le", re.compile(rb"\xff\xfe\0\0|(?:[ \t\r\n]\0\0\0)*[\[{]\0\0\0")),
    ("utf-32-be", re.compile(rb"\0\0\xfe\xff|(?:\0\0\0[ \t\r\n])*\0\0\0[\[{]")),
    ("utf-16-le", re.compile(rb"\xff\xfe|(?:[ \t\r\n]\0)*[\[{]\0[^\0]\0")),
    ("utf-16-be", re.compile(rb"\xfe\xff|(?:\0[ \t\r\n])*\0[\[{]\0[^\0]")),
)


def encoding_of(head: bytes) -> str:
    """The encoding of a text with these first bytes: UTF-8, unless they can't be."""
    return next((name for name, opening in _ENCODINGS if opening.match(head)), "utf-8")


def container_of(head: bytes) -> str:
    """gzip, zstd or plain, by the first bytes of a file."""
    if head.startswith(_GZIP):
        return "gzip"
    return "zstd" if head.startswith(_ZSTD) or _SKIPPABLE.match(head) else "plain"


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of the text, as many as come out of the first `size` of the file.

    Raises InputError when the file can't be read.
    """
    with opened(path) as stream:
        head = stream.read(size)
    container = container_of(head)
    if container != "plain":
        texts = _gzip_texts(head, size) if container == "gzip" else _zstd_texts(head)
        head = b""
        try:
            for text in texts:
                head += text
                if len(head) >= size:
                    break
        except Damaged:
            pass
    encoding = encoding_of(head)
    if encoding != "utf-8":
        head = codecs.getincrementaldecoder(encoding)("replace").decode(head).encode()
    return head[:size]


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
    """The text of one file, chunk by chunk. `crc` is that of the bytes of the file as read.

    is_text  text in UTF-16 or UTF-32 is made UTF-8: all offsets are in that
    """

    def __init__(
        self, path: Path, log: ImportLog, limits: Limits, advance: Callable[[int], None], *, is_text: bool = True
    ) -> None:
        self._path = path
        self._log = log
        self._limits = limits
        self._advance = advance
        self._is_text = is_text
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
            raw = _chain(first, raw)
            if self.container == "gzip":
                raw = self._gzip(raw)
            elif self.container == "zstd":
                raw = self._zstd(raw)
            for text in self._in_utf8(raw) if self._is_text else raw:
                self._text_bytes += len(text)
                yield text
                if self._text_bytes > max(FREE_BYTES, self._limits.ratio * self.size_bytes):
                    self._lost("unfolds to more than the limit; raise it with --max-ratio")
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
        self._log.add(Code.ENCODING, message, source_id=1, byte_offset=0)
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        for text in _chain_end(texts):
            state = decoder.getstate()
            try:
                shown = decoder.decode(text, not text)
            except UnicodeDecodeError as error:
                self._log.add(
                    Code.BAD_BYTES,
                    f"bytes that are not {encoding.upper()}",
                    source_id=1,
                    byte_offset=self._text_bytes,
                    byte_count=error.end - error.start,
                )
                decoder.setstate(state)
                decoder.errors = "replace"
                shown = decoder.decode(text, not text)
                decoder.errors = "strict"
            if shown:
                yield shown.encode()

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
        damaged, resumes, probes = 0, False, iter(range(_MOST_PROBES))
        for data in _pieces(raw):
            rest = data
            while rest:
                if member is None and resumes:
                    begin = _next_member(rest, probes)
                    if begin is None:
                        break
                    rest = rest[begin:]
                    resumes = False
                if member is None:
                    rest = rest.lstrip(b"\0")  # padding between members
                    if not rest:
                        break
                    member = inflater(GZIP)
                try:
                    yield from unfolded(member, rest, _READ_BYTES)
                except Damaged as error:
                    damaged += 1
                    self._damaged("gzip", "member", error, damaged)
                    if damaged == _MOST_DAMAGED:
                        return
                    rest, member, resumes = error.rest, None, True
                    continue
                rest = b""
                if member.eof:
                    rest, member = member.unused_data, None
        if member is not None:
            self._lost("the gzip data ends before its end mark")

    def _zstd(self, raw: Iterator[bytes]) -> Iterator[bytes]:
        frames = ZstdFrames()
        damaged, resumes = 0, False
        for data in _pieces(raw):
            rest = data
            while rest:
                if resumes:
                    begin = rest.find(_ZSTD)
                    if begin < 0:
                        break
                    rest, resumes = rest[begin:], False
                try:
                    yield from frames.feed(rest)
                    break
                except Damaged as error:
                    damaged += 1
                    self._damaged("zstd", "frame", error, damaged)
                    if damaged == _MOST_DAMAGED:
                        return
                    rest, resumes = error.rest, True
        if frames.inside:
            yield frames.finish()
            self._lost("the zstd data ends before its end mark")

    def _damaged(self, packing: str, part: str, error: Damaged, count: int) -> None:
        behind = "nothing behind it was read" if count == _MOST_DAMAGED else f"read on at the next {part}, if any"
        self._lost(f"the {packing} data is damaged here ({printable(str(error))}); {behind}")


def why_empty(path: Path) -> str:
    """Why a file has no text at its beginning: it has none, or it is packed and cut off or damaged there."""
    log = ImportLog()
    with suppress(InputError):  # gone since its beginning was read
        any(TextSource(path, log, Limits(), lambda size: None, is_text=False).chunks())
    damaged = any(entry.code is Code.BAD_CONTAINER for entry in log)
    return "has nothing that can be decompressed: it is cut off or damaged" if damaged else "is empty"


def _next_member(data: bytes, probes: Iterator[int]) -> int | None:
    """Where a member of gzip begins that can be unfolded as far as it goes here; None when none does."""
    for match, _ in zip(_MEMBER.finditer(data), probes, strict=False):
        try:
            inflater(GZIP).decompress(data[match.start() : match.start() + _PROBED_BYTES], _READ_BYTES)
        except DeflateError:
            continue
        return match.start()
    return None


def _gzip_texts(head: bytes, size: int) -> Iterator[bytes]:
    while head:
        member = inflater(GZIP)
        yield from unfolded(member, head, size)
        head = member.unused_data.lstrip(b"\0")


def _zstd_texts(head: bytes) -> Iterator[bytes]:
    frames = ZstdFrames()
    yield from frames.feed(head)
    yield frames.finish()


def _pieces(raw: Iterator[bytes]) -> Iterator[bytes]:
    for data in raw:
        for at in range(0, len(data), _PACKED_PIECE):
            yield data[at : at + _PACKED_PIECE]


def _chain_end(texts: Iterator[bytes]) -> Iterator[bytes]:
    """The same, and an empty text at the end."""
    yield from texts
    yield b""


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
