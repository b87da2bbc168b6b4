"""The number of each slice among all slices, by its event: a bit and a quarter of a byte per event."""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask

_WORD_BITS = 16
_BYTE_COUNTS = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8).sum(axis=1, dtype=np.uint8)


class SliceNumbers:
    """Add all events, then ask. `count`: the slices so far."""

    def __init__(self) -> None:
        self.count = 0
        self._words: list[NDArray[np.uint16]] = []
        self._rest = np.zeros(0, np.bool_)
        self._event_count = 0
        self._bits = np.zeros(0, np.uint16)
        #: For each word, the number of slices before it.
        self._before = np.zeros(0, np.uint32)

    def add(self, first_ordinal: int, is_slice: Mask) -> None:
        """Add the next events."""
        gap = np.zeros(first_ordinal - self._event_count, np.bool_)
        bits = np.concatenate([self._rest, gap, is_slice])
        end = len(bits) - len(bits) % _WORD_BITS
        self._words.append(np.packbits(bits[:end], bitorder="little").view("<u2"))
        self._rest = bits[end:]
        self._event_count = first_ordinal + len(is_slice)
        self.count += int(np.count_nonzero(is_slice))

    def end(self) -> None:
        """Prepare the answers."""
        last = np.zeros(_WORD_BITS, np.bool_)
        last[: len(self._rest)] = self._rest
        self._bits = np.concatenate([*self._words, np.packbits(last, bitorder="little").view("<u2")])
        self._before = np.zeros(len(self._bits) + 1, np.uint32 if self.count < 1 << 32 else np.int64)
        np.cumsum(_counts(self._bits), out=self._before[1:], dtype=self._before.dtype)
        self._words = []

    def of(self, ordinals: Int64) -> Int64:
        """Return the number of each of these slices, given by the ordinals of their events."""
        word, bit = ordinals >> 4, (ordinals & (_WORD_BITS - 1)).astype(np.uint16)
        earlier = self._bits[word] & ((np.uint16(1) << bit) - np.uint16(1))
        numbers: Int64 = self._before[word] + _counts(earlier).astype(np.int64)
        return numbers


def _counts(words: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Return how many bits of each word are set."""
    counts: NDArray[np.uint8] = _BYTE_COUNTS[words & np.uint16(255)] + _BYTE_COUNTS[words >> np.uint16(8)]
    return counts
