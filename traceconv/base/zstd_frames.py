"""Decompress zstd frames block by block: its output is returned before the next block, or the checksum, is read."""

from __future__ import annotations

from collections.abc import Iterator

from traceconv.base.deflate import Damaged

MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPED = b"\x2a\x4d\x18"  # after a byte from 0x50 to 0x5f
_MOST_HEADER_BYTES = 18
_BLOCK_HEAD_BYTES, _CHECKSUM_BYTES = 3, 4
_RLE = 1


class ZstdFrames:
    """Decompresses zstd with any number of frames."""

    name, part = "zstd", "frame"

    def __init__(self) -> None:
        import zstandard

        self._zstandard = zstandard
        self._waiting = b""
        self._skip = 0
        self._checked = False
        self._begin()

    def _begin(self) -> None:
        self._frame = self._zstandard.ZstdDecompressor().decompressobj()
        self._expects = "frame"

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._expects != "frame" or bool(self._waiting.strip(b"\0")) or self._skip > 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress `data`, a block at a time. Raises Damaged; then another frame is expected."""
        data, at = self._waiting + data, 0
        while True:
            gone = min(self._skip, len(data) - at)
            at, self._skip = at + gone, self._skip - gone
            if self._expects == "frame":
                while data[at : at + 1] == b"\0":  # padding between frames
                    at += 1
            size = self._size(data, at)
            if size is None or len(data) - at < size:
                break
            piece, at = data[at : at + size], at + size
            if self._skip:
                continue
            try:
                text = self._frame.decompress(piece)
            except self._zstandard.ZstdError as error:
                self._waiting = b""
                self._begin()
                raise Damaged(str(error), data[at:]) from error
            self._advance(piece)
            if text:
                yield text
        self._waiting = data[at:]

    def finish(self) -> bytes:
        """Return the output of the last, truncated block."""
        try:
            return self._frame.decompress(self._waiting) if self._waiting and not self._skip else b""
        except self._zstandard.ZstdError:
            return b""

    @staticmethod
    def next_start(data: bytes) -> int:
        """Where the next frame seems to begin; -1 if none does."""
        return data.find(MAGIC)

    def _size(self, data: bytes, at: int) -> int | None:
        """Size of the part expected at `at`; None if it depends on more data."""
        left = len(data) - at
        if self._expects == "checksum":
            return _CHECKSUM_BYTES
        if self._expects == "block":
            if left < _BLOCK_HEAD_BYTES:
                return None
            head = int.from_bytes(data[at : at + _BLOCK_HEAD_BYTES], "little")
            return _BLOCK_HEAD_BYTES + (1 if head >> 1 & 3 == _RLE else head >> 3)
        if left < _MOST_HEADER_BYTES // 2:
            return None
        if data[at + 1 : at + 4] == _SKIPPED and data[at] >> 4 == 5:
            self._skip = int.from_bytes(data[at + 4 : at + 8], "little")
            return 8
        descriptor = data[at + 4]
        single = descriptor >> 5 & 1
        self._checked = bool(descriptor >> 2 & 1)
        content_size = (0, 2, 4, 8)[descriptor >> 6] or single
        return 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size

    def _advance(self, piece: bytes) -> None:
        """Set what is expected after `piece`."""
        if self._expects == "frame":
            self._expects = "block"
            return
        if self._expects == "block" and not piece[0] & 1:
            return
        if self._expects == "block" and self._checked:
            self._expects = "checksum"
            return
        self._begin()
