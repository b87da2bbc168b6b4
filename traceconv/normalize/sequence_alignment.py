"""Where a sequence of kernels occurs in a longer one: as it is, or with kernels added, missing or changed.

Kernels are numbers, and NOTHING is equal to no kernel. A kernel that could be several of the reference gets all of
them, so that the caller can tell whether they agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from traceconv.base.int64 import Int64

#: Not a kernel of the sequence, or the end of a stream.
NOTHING = -1
#: A longer sequence is aligned in parts of this many kernels, if it doesn't occur as it is.
_PART = 4096
#: Comparisons of two kernels, of all alignments of a reference: some seconds.
_MOST_CELLS = 500_000_000
#: Places that a changed sequence is compared with: those with most in common.
_MOST_WINDOWS = 4
#: Kernels in a row that tell which place that is; fewer in short sequences.
_SEED = 8
_MOST_SEEDS = 200_000
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Kernels of a sequence with those of the reference that they may be.

    places      of the kernel in the sequence
    references  place in the reference
    """

    places: Int64
    references: Int64


class Reference:
    """A sequence in which others are looked up."""

    def __init__(self, tokens: Int64) -> None:
        self._tokens = tokens
        self._order = np.argsort(tokens, kind="stable")
        self._sorted = tokens[self._order]
        self._cells = _MOST_CELLS

    def occurrences(self, sequence: Int64) -> Pairs | None:
        """Return every place where all kernels of the sequence occur in a row; None if there is none."""
        first = np.searchsorted(self._sorted, sequence)
        counts = np.searchsorted(self._sorted, sequence, "right") - first
        rarest = int(np.argmin(counts))
        starts = self._order[first[rarest] : first[rarest] + counts[rarest]] - rarest
        starts = starts[(starts >= 0) & (starts + len(sequence) <= len(self._tokens))]
        for place in np.argsort(counts, kind="stable").tolist():
            starts = starts[self._tokens[starts + place] == sequence[place]]
            if not len(starts):
                return None
        places = np.tile(np.arange(len(sequence)), len(starts))
        return Pairs(places, np.repeat(starts, len(sequence)) + places)

    def similar(self, sequence: Int64) -> tuple[int, Pairs] | None:
        """Return the length of the longest common subsequences with the most similar places, and what all of them have.

        At least half of the kernels must match, each next to another one that does; None if not, or if there were too
        many comparisons before.
        """
        parts = [self._similar_part(sequence[first : first + _PART], first) for first in range(0, len(sequence), _PART)]
        found = [part for part in parts if part is not None]
        if not found:
            return None
        columns = ([getattr(pairs, name) for _, pairs in found] for name in ("places", "references"))
        return sum(length for length, _ in found), Pairs(*map(np.concatenate, columns))

    def _similar_part(self, sequence: Int64, first: int) -> tuple[int, Pairs] | None:
        best = 0
        found: list[Pairs] = []
        for low, high in self._windows(sequence):
            if len(sequence) * (high - low) > self._cells:
                return None
            self._cells -= len(sequence) * (high - low)
            length, pairs = common_subsequence(sequence, self._tokens[low:high])
            if length > best:
                best, found = length, []
            if length == best:
                found.append(Pairs(pairs.places, pairs.references + low))
        if not found:
            return None
        # What one place doesn't have is not certain.
        certain = np.bincount(np.concatenate([np.unique(one.places) for one in found]), minlength=1) == len(found)
        places = np.concatenate([one.places for one in found])
        references = np.concatenate([one.references for one in found])
        kept = certain[places]
        if 2 * len(np.unique(places[kept])) < len(sequence):
            return None
        return best, Pairs(places[kept] + first, references[kept])

    def _windows(self, sequence: Int64) -> list[tuple[int, int]]:
        """Return the parts of the reference that have most runs of kernels in common with the sequence."""
        size = min(_SEED, max(2, len(sequence) // 4))
        if len(sequence) < size or len(self._tokens) < size:
            return []
        runs = _hashes(self._tokens, size)
        order = np.argsort(runs, kind="stable")
        known, wanted = runs[order], _hashes(sequence, size)
        first = np.searchsorted(known, wanted)
        counts = np.searchsorted(known, wanted, "right") - first
        rare = np.argsort(counts, kind="stable")
        rare = rare[(counts[rare] > 0) & (np.cumsum(counts[rare]) <= _MOST_SEEDS)]
        if not len(rare):
            return []
        found = np.concatenate([order[first[place] : first[place] + counts[place]] - place for place in rare.tolist()])
        slack = max(8, len(sequence) // 8)
        bins, votes = np.unique(found // slack, return_counts=True)
        best = bins[np.argsort(-votes, kind="stable")]
        # A shift within the sequence moves what follows into the next bin, which the window of the first one covers.
        chosen: list[int] = []
        for one in best[: 8 * _MOST_WINDOWS].tolist():
            if len(chosen) < _MOST_WINDOWS and all(abs(one - other) > 1 for other in chosen):
                chosen.append(one)
        size_with_slack = len(sequence) + 3 * slack
        starts = [one * slack - slack for one in chosen]
        return [(max(0, start), min(len(self._tokens), start + size_with_slack)) for start in starts]


def common_subsequence(one: Int64, other: Int64) -> tuple[int, Pairs]:
    """Return the length of the longest common subsequences, and the kernels of `one` that all of them have.

    For such a kernel, `references` has each place in `other` that one of them has for it. Pairs without another pair
    right before or after them are left out. Needs 2 len(one) len(other) bytes; both have less than 65,536 kernels.
    """
    count, width = len(one), len(other)
    lengths = np.zeros((count + 1, width + 1), np.uint16)
    for place in range(count):
        _next_row(lengths[place], other == one[place], lengths[place + 1])
    longest = int(lengths[count, width])
    row, below = np.zeros(width + 1, np.uint16), np.zeros(width + 1, np.uint16)
    reversed_other = other[::-1]
    places, references = [], []
    for place in range(count - 1, -1, -1):
        # below: of what follows the place, with what follows each place of the other, in reverse
        without = int((lengths[place] + below[::-1]).max()) == longest
        equal = other == one[place]
        if not without and equal.any():
            on_path = equal & (lengths[place, :-1] + below[::-1][1:] + 1 == longest)
            found = np.flatnonzero(on_path)
            references.append(found)
            places.append(np.full(len(found), place))
        row[0] = 0
        _next_row(below, reversed_other == one[place], row)
        row, below = below, row
    if not places:
        return longest, Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64))
    at, to = np.concatenate(places), np.concatenate(references)
    keys = at * (width + 2) + to
    step = width + 3
    kept = np.isin(keys + step, keys) | np.isin(keys - step, keys)
    # All or none of the places of a kernel: else the rest would look certain.
    weak = np.bincount(at, ~kept, minlength=count) > 0
    kept &= ~weak[at]
    return longest, Pairs(at[kept], to[kept])


def _next_row(
    above: np.ndarray[tuple[int], np.dtype[np.uint16]],
    equal: np.ndarray[tuple[int], np.dtype[np.bool_]],
    row: np.ndarray[tuple[int], np.dtype[np.uint16]],
) -> None:
    """Fill the next row of the lengths of longest common subsequences of prefixes."""
    np.maximum(above[1:], above[:-1] + equal, out=row[1:])
    np.maximum.accumulate(row[1:], out=row[1:])


def _hashes(tokens: Int64, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return a hash of each `size` kernels in a row."""
    words = tokens.astype(np.uint64)
    result = np.zeros(len(tokens) - size + 1, np.uint64)
    for place in range(size):
        result = result * _FACTOR + words[place : place + len(result)] + np.uint64(1)
        result ^= result >> np.uint64(29)
    return result
