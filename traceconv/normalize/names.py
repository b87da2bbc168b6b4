"""Text columns from a log's dictionary hashes and enum values, as dictionary-encoded Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.schema import Field

#: Larger dictionaries are reduced to the texts that a batch uses, since each batch has its own.
_SMALL = 4096
_NO_TEXTS = pa.nulls(0, pa.string())  # an array from a list would import pandas
_UINT64 = NDArray[np.uint64]


class Texts:
    """The dictionary of a log, for look-ups of many hashes. `missing` counts values without a text."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        hashes = np.array(sorted(texts), np.uint64)
        self._hashes: _UINT64 = hashes
        self._texts = pa.array([texts[text_hash] for text_hash in hashes.tolist()], pa.string())
        self.missing = 0

    def get(self, text_hash: int) -> str | None:
        """Return one text; None for 0 and, counted, for a hash without text."""
        text: str | None = self.column(np.array([text_hash], np.uint64))[0].as_py()
        return text

    def column(self, hashes: _UINT64) -> pa.DictionaryArray:
        """Return the texts of `hashes`; NULL for 0 and, counted, for hashes without text."""
        if not len(self._hashes):
            self.missing += int(np.count_nonzero(hashes))
            return constant(None, len(hashes))
        codes = np.searchsorted(self._hashes, hashes)
        np.minimum(codes, len(self._hashes) - 1, out=codes)
        unknown = self._hashes[codes] != hashes
        null = unknown if unknown.any() else None
        if null is not None:
            self.missing += int(np.count_nonzero(hashes[unknown]))
        texts = self._texts
        if len(texts) > _SMALL:
            used = np.flatnonzero(np.bincount(codes, minlength=len(texts)))
            renumbered = np.zeros(len(texts), np.int32)
            renumbered[used] = np.arange(len(used), dtype=np.int32)
            return _dictionary(renumbered[codes], null, texts.take(pa.array(used)))
        return _dictionary(codes.astype(np.int32), null, texts)


def _dictionary(codes: NDArray[np.int32], null: NDArray[np.bool_] | None, texts: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=null), texts)


class EnumColumn:
    """An enum field as text; NULL for values without a name, which `unknown` counts."""

    def __init__(self, field: Field, rename: Mapping[str, str | None] | None = None) -> None:
        """`rename`: the enum's names → other texts; None there makes NULL."""
        assert field.values is not None
        names = {value: rename.get(name) if rename is not None else name for value, name in field.values.items()}
        texts = sorted({name for name in names.values() if name is not None})
        #: The code of each value; -1: NULL, -2: unknown value.
        self._codes = np.full(256, -2, np.int32)
        for value, name in names.items():
            self._codes[value] = -1 if name is None else texts.index(name)
        self._texts = pa.array(texts, pa.string())
        self.unknown = 0

    def column(self, values: NDArray[np.uint8]) -> pa.DictionaryArray:
        """Return the texts of `values`."""
        codes = self._codes[values]
        self.unknown += int(np.count_nonzero(codes == -2))
        null = codes < 0
        return _dictionary(np.where(null, 0, codes), null if null.any() else None, self._texts)


def constant(text: str | None, count: int) -> pa.DictionaryArray:
    """Return a text column with the same text in each of `count` rows."""
    if text is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), _NO_TEXTS)
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text], pa.string()))


def number_text(numbers: _UINT64, null: NDArray[np.bool_] | None) -> pa.Array:
    """Return numbers as text, for IDs that are strings in other systems."""
    return pa.array(numbers, pa.uint64(), mask=null).cast(pa.string()).dictionary_encode()
