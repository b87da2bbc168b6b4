"""IDs of async events, flows and counters: their texts, and a number for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import parse_int64
from traceconv.normalize.trace.binary import offsets_of

#: Where an ID is unique, as `id2` specifies it; `` if it does not.
UNIQUE_IN = ("", "global", "local")


class Ids(NamedTuple):
    """IDs of events.

    codes      int32: the place of each event's ID in `texts`
    texts      the distinct IDs without quotes, empty for none
    unique_in  int8: the place in UNIQUE_IN of where each event's ID is unique
    """

    codes: NDArray[np.int32]
    texts: pa.Array
    unique_in: NDArray[np.int8]

    def column(self) -> pa.Array:
        """Return each event's ID."""
        return self.texts.take(pa.array(self.codes))


def numbers_of(texts: pa.Array) -> Int64:
    """Return each ID's own number, or else a hash; for an ID the same in all batches. None is NULL."""
    if native.AVAILABLE and texts.buffers()[2] is not None:
        return np.frombuffer(native.id_numbers(offsets_of(texts), texts.buffers()[2]), np.int64)
    return np.array([_number_of(text) for text in texts.to_pylist()], np.int64)


def _number_of(text: str) -> int:
    number = parse_int64(text)
    return number if number is not None and str(number) == text else hash(text)  # 07 isn't the ID 7


def salt_of(words: tuple[object, ...]) -> int:
    """Return what to add to the numbers of the IDs that have `words` in common, so that others' are different."""
    return hash(repr(words))  # hashes of texts have a secret, those of numbers and None do not
