"""A stable argsort that is linear where it can be."""

from __future__ import annotations

import numpy as np

from traceconv.base.arrays import NDArray


def stable_order(keys: NDArray[np.unsignedinteger]) -> NDArray[np.intp]:
    """Return a stable argsort; a radix sort if the keys span at most 16 bits, as those of a batch often do."""
    if not len(keys):
        return np.zeros(0, np.intp)
    low = keys.min()
    if int(keys.max()) - int(low) < 1 << 16:
        return np.argsort((keys - low).astype(np.uint16), kind="stable")
    return np.argsort(keys, kind="stable")
