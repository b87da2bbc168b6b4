"""Numbers of a log → text columns: dictionary hashes and enum values as dictionary-encoded Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.schema import Field

#: Dictionaries larger than this are cut down to what a batch uses, since each batch carries its own.
_SMALL = 4096
_UINT64 = NDArray[np.uint64]


class Texts:
    """The dictionary of a log: look-up of many hashes at once. `missing` counts values that had no text."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        hashes = np.array(sorted(texts), np.uint64)
        self._hashes: _UINT64 = hashes
        self._texts = pa.array([texts[text_hash] for text_hash in hashes.tolist()], pa.string())
        self.missing = 0

    def get(self, text_hash: int) -> str | None:
        """One text; None for 0, and (counted) for a hash that has none."""
        place = int(np.searchsorted(self._hashes, np.uint64(text_hash)))
        if place < len(self._hashes) and int(self._hashes[place]) == text_hash:
            return str(self._texts[place].as_py())
        self.missing += text_hash != 0
        return None

    def column(self, hashes: _UINT64) -> pa.DictionaryArray:
        """The texts of `hashes`, NULL for 0 and (counted) for those that have none."""
        if not len(self._hashes):
            self.missing += int(np.count_nonzero(hashes))
            return pa.DictionaryArray.from_arrays(pa.nulls(len(hashes), pa.int32()), pa.array([], pa.string()))
        codes = np.searchsorted(self._hashes, hashes)
        np.minimum(codes, len(self._hashes) - 1, out=codes)
        unknown = self._hashes[codes] != hashes
        if unknown.any():
            self.missing += int(np.count_nonzero(hashes[unknown]))
            return self._encoded(codes, unknown)
        return self._encoded(codes, None)

    def _encoded(self, codes: NDArray[np.intp], null: NDArray[np.bool_] | None) -> pa.DictionaryArray:
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
    """An enum field as text; NULL for values without a name. `unknown` counts those."""

    def __init__(self, field: Field, rename: Mapping[str, str | None] | None = None) -> None:
        """`rename` maps the enum's names to the texts wanted instead; None there makes NULL."""
        assert field.values is not None
        names = {value: rename.get(name) if rename is not None else name for value, name in field.values.items()}
        texts = sorted({name for name in names.values() if name is not None})
        self._codes = np.full(256, -1, np.int32)
        self._known = np.zeros(256, np.bool_)
        for value, name in names.items():
            self._known[value] = True
            if name is not None:
                self._codes[value] = texts.index(name)
        self._texts = pa.array(texts, pa.string())
        self.unknown = 0

    def column(self, values: NDArray[np.uint8]) -> pa.DictionaryArray:
        """The texts of `values`."""
        self.unknown += int(np.count_nonzero(~self._known[values]))
        codes = self._codes[values]
        null = codes < 0
        return _dictionary(np.where(null, 0, codes), null if null.any() else None, self._texts)


def constant(text: str | None, count: int) -> pa.DictionaryArray:
    """A text column that says the same in each of `count` rows."""
    if text is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int32()), pa.array([], pa.string()))
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text], pa.string()))


def number_text(numbers: _UINT64, null: NDArray[np.bool_] | None) -> pa.Array:
    """Numbers as text: ids that other systems spell as strings."""
    return pa.array(numbers, pa.uint64(), mask=null).cast(pa.string()).dictionary_encode()
