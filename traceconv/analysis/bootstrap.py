"""Intervals for the change of a mean or median, by resampling steps. Seeded: the same input gives the same interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64

Floats = NDArray[np.float64]

_SEED = 20240229
_RESAMPLES = 2000
#: Ends of the interval, which contains 95 % of the resampled changes.
_ENDS = (0.025, 0.975)
#: Values resampled at once.
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Resampled:
    """Resampled steps of two runs: [resample, sample] how often each sample was drawn. None: a run has one sample.

    windows  number of windows of each sample, which weigh its mean
    """

    base: Int64 | None
    new: Int64 | None
    base_windows: Int64
    new_windows: Int64

    def mean_change(self, base: Int64, new: Int64) -> list[tuple[int, int]] | None:
        """Return the interval of the change of the mean per window, in ns, for each row of [row, sample] sums."""
        if self.base is None or self.new is None:
            return None
        found: list[tuple[int, int]] = []
        for first in range(0, len(base), _BLOCK):
            change = _means(self.new, new[first : first + _BLOCK], self.new_windows)
            change -= _means(self.base, base[first : first + _BLOCK], self.base_windows)
            ends = np.quantile(change, _ENDS, axis=0)
            found += [(round(low), round(high)) for low, high in ends.T.tolist()]
        return found

    def relative_median_change(self, base: Floats, new: Floats) -> tuple[float, float] | None:
        """Return the interval of (median of new) / (median of base) − 1 over samples of these values."""
        if self.base is None or self.new is None:
            return None
        changes = _medians(new, self.new) / _medians(base, self.base) - 1
        low, high = np.quantile(changes, _ENDS).tolist()
        return low, high


def resample(base_windows: Int64, new_windows: Int64) -> Resampled:
    """Draw samples of both runs with replacement."""
    random = np.random.Generator(np.random.PCG64(_SEED))
    sizes = len(base_windows), len(new_windows)
    counts = [random.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) if n > 1 else None for n in sizes]
    return Resampled(counts[0], counts[1], base_windows, new_windows)


def _means(counts: Int64, sums: Int64, windows: Int64) -> Floats:
    """[resample, row] mean per window of resampled sums."""
    weights = counts.astype(np.float64)
    means: Floats = weights @ sums.T.astype(np.float64) / (weights @ windows.astype(np.float64))[:, None]
    return means


def _medians(values: Floats, counts: Int64) -> Floats:
    """[resample] median of the values, each as often as drawn."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[:, order], axis=1)
    size = counts.sum(axis=1)
    # The two middle values; the same one if their number is odd.
    low = (reached > ((size - 1) // 2)[:, None]).argmax(axis=1)
    high = (reached > (size // 2)[:, None]).argmax(axis=1)
    found: Floats = (values[order][low] + values[order][high]) / 2
    return found
