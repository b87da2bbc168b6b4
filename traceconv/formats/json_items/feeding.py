"""Guard ijson against text that makes it crash, take unbounded memory, or change a string."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from traceconv.formats.chrome_json.patch import SURROGATE

_PIECE = 64 << 10
#: ijson joins the keys of all levels at each level: memory grows with the square of the depth.
MAX_DEPTH = 256
#: Its C backend crashes where Python refuses to convert an integer (by default from 4,300 digits on).
_MAX_DIGITS = 400
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % _MAX_DIGITS)
_TAIL = _MAX_DIGITS
_STEP = np.zeros(256, np.int8)
_STEP[list(b"[{")], _STEP[list(b"]}")] = 1, -1
_BOM = b"\xef\xbb\xbf"


def pieces(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, text) of pieces of bounded size, without the byte order mark."""
    offset = 0
    for chunk in chunks:
        start = 3 if offset == 0 and chunk.startswith(_BOM) else 0
        for at in range(start, len(chunk), _PIECE):
            yield offset + at, chunk[at : at + _PIECE]
        offset += len(chunk)


class Guard:
    """Checks each piece before ijson reads it."""

    def __init__(self) -> None:
        self._tail = b""
        self._depth = 0
        self._quoted = 0
        self._escape = b""

    def refusal(self, piece: bytes, *, texts_may_change: bool = False) -> str | None:
        """Return why ijson must not read the next piece; None if it may."""
        text = self._tail + piece
        self._tail = text[-_TAIL:]
        if not texts_may_change and SURROGATE.search(text):
            return "an escaped half of a surrogate pair"
        if _LONG_NUMBER.search(text):
            return f"a number of {_MAX_DIGITS} digits or more"
        return f"more than {MAX_DEPTH} levels" if self._most_levels(piece) > MAX_DEPTH else None

    def _most_levels(self, piece: bytes) -> int:
        plain = (self._escape + piece).replace(b"\\\\", b"")
        self._escape = b"\\" if plain.endswith(b"\\") else b""
        text = np.frombuffer(plain.replace(b'\\"', b""), np.uint8)
        quoted = (np.cumsum(text == ord('"'), dtype=np.int32) + self._quoted) & 1
        levels = np.cumsum(np.where(quoted, 0, _STEP[text]), dtype=np.int32) + self._depth
        if len(text):
            self._quoted, self._depth = int(quoted[-1]), int(levels[-1])
        return int(levels.max(initial=0))
