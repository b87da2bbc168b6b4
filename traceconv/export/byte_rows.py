"""Rows of bytes, many at once: columns become bytes of one width, and what a row does not have is filtered out.

A record of each row is a row of a matrix. Whole numbers become decimal digits in it, four at a time; leading digits
that all rows share are written once, as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
UInt64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

#: The digits of 0000 to 9999, as bytes and as numbers of four bytes.
_FOUR = np.array([list(b"%04d" % number) for number in range(10_000)], np.uint8)
_FOUR_AS_ONE = _FOUR.view(np.uint32).reshape(-1)


@dataclass(slots=True)
class ByteRows:
    """The records of `count` rows, block by block: bytes that all have, or a matrix with some of each row.

    A mask says which rows have a block, or which bytes of it.
    """

    count: int
    blocks: list[tuple[bytes | UInt8, Mask | None]] = field(default_factory=list)

    def put(self, data: bytes, where: Mask | None = None) -> None:
        """The same bytes in all records, or in some."""
        self.blocks.append((data, where))

    def matrix(self, block: UInt8, where: Mask | None = None) -> None:
        """Bytes of each record, a row for each; `where` has one value for each row, or one for each byte."""
        self.blocks.append((block, where))

    def digits(self, numbers: UInt64, where: Mask | None = None, least: int = 1, point: int = 0) -> None:
        """Decimal digits, at least so many; the last `point` of them after a decimal point.

        Rows that are not to have them need a number too: one of another row makes the text shortest.
        """
        if not len(numbers):
            return
        low, high = int(numbers.min()), int(numbers.max())
        width = max(least, len(str(high)))
        shared = next((places for places in range(point, width) if low // 10**places == high // 10**places), width)
        if shared < width and len(str(low)) >= least:
            prefix = low // 10**shared
            self.put(b"%d" % prefix, where)
            if shared > point:
                self._fixed(numbers - np.uint64(prefix * 10**shared), shared - point, shared, where, None)
        else:
            shortest = max(least, len(str(low)))
            self._fixed(numbers, width - point, width, where, width - shortest)
        if point:
            self.put(b".", where)
            last = numbers % np.uint64(10**point)
            self._fixed(last, point, point, where, None)

    def _fixed(self, numbers: UInt64, count: int, width: int, where: Mask | None, optional: int | None) -> None:
        """The first `count` of `width` digits; of those the first `optional` only where they are not zeros."""
        rest = numbers // np.uint64(10 ** (width - count)) if count < width else numbers
        narrow = rest.astype(np.uint32) if count <= 9 else rest
        block = _digits(narrow, count)
        if not optional:
            self.blocks.append((block, where))
            return
        mask = np.ones((self.count, count), np.bool_)
        for at in range(optional):
            mask[:, at] = numbers >= np.uint64(10 ** (width - 1 - at))
        if where is not None:
            mask &= where[:, None]
        self.blocks.append((block, mask))

    def binary(self) -> pa.Array:
        """A binary array of the records."""
        widths = [len(block) if isinstance(block, bytes) else block.shape[1] for block, _ in self.blocks]
        template = b"".join(
            block if isinstance(block, bytes) else bytes(width)
            for (block, _), width in zip(self.blocks, widths, strict=True)
        )
        matrix = np.empty((self.count, len(template)), np.uint8)
        matrix[:] = np.frombuffer(template, np.uint8)
        sizes = np.full(self.count, len(template), np.int64)
        mask = None
        at = 0
        for (block, where), width in zip(self.blocks, widths, strict=True):
            if not isinstance(block, bytes):
                _copy(block, matrix, at)
            if where is not None:
                if mask is None:
                    mask = np.ones((self.count, len(template)), np.bool_)
                if where.ndim == 1:
                    mask[:, at : at + width] = where[:, None]
                    sizes -= ~where * np.int64(width)
                else:
                    mask[:, at : at + width] = where
                    sizes -= width - np.count_nonzero(where, axis=1)
            at += width
        ends = np.zeros(self.count + 1, np.int32)
        np.cumsum(sizes, out=ends[1:])
        data = pa.py_buffer(matrix) if mask is None else _kept(matrix, mask)
        return pa.Array.from_buffers(pa.binary(), self.count, [None, pa.py_buffer(ends), data])


def _copy(block: UInt8, matrix: UInt8, at: int) -> None:
    """Copies the block into the matrix, four bytes of a row at once."""
    width = block.shape[1]
    whole = width // 4 * 4
    if whole and block.strides[1] == 1:
        matrix[:, at : at + whole].view(np.uint32)[:] = block[:, :whole].view(np.uint32)
    else:
        whole = 0
    for place in range(whole, width):
        matrix[:, at + place] = block[:, place]


def _kept(matrix: UInt8, mask: Mask) -> pa.Buffer:
    """The bytes that the mask keeps; Arrow's filter takes half of numpy's time."""
    bits = pa.py_buffer(np.packbits(mask.reshape(-1), bitorder="little"))
    kept = pa.array(matrix.reshape(-1)).filter(pa.Array.from_buffers(pa.bool_(), mask.size, [None, bits]))
    return kept.buffers()[1].slice(kept.offset, len(kept))


def _digits(numbers: NDArray[np.uint32] | UInt64, count: int) -> UInt8:
    """The last `count` decimal digits of each number."""
    groups = -(-count // 4)
    block = np.empty((len(numbers), groups), np.uint32)
    kind = numbers.dtype.type
    for group in range(groups - 1, -1, -1):
        rest = numbers // kind(10_000)
        # The remainder is below 10,000, so that no place is out of bounds.
        _FOUR_AS_ONE.take((numbers - rest * kind(10_000)).astype(np.intp), mode="wrap", out=block[:, group])
        numbers = rest
    return block.view(np.uint8)[:, groups * 4 - count :]


def magnitudes(numbers: NDArray[np.int64]) -> tuple[UInt64, Mask | None]:
    """The numbers without their signs; which of them are below zero, None when none is."""
    bits = numbers.view(np.uint64)
    if not len(numbers) or int(numbers.min()) >= 0:
        return bits, None
    negative = numbers < 0
    return np.where(negative, ~bits + np.uint64(1), bits), negative


def join_rows(pieces: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """Binary columns joined row by row; nothing where one is NULL."""
    return pc.binary_join_element_wise(*pieces, b"", null_handling="skip")
