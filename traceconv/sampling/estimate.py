"""Blocks of a file as a sample of all its blocks → 95 % intervals of counts, sums of durations, and shares.

A block is a cluster: its events are alike, so that the number of blocks, not of events, says how precise an estimate
is. The blocks are divided into strata of equal size, in the order of the file, and one block of each is drawn at
random. The variance is that of the differences between neighbours (Wolter, Introduction to Variance Estimation,
chapter 8), which is never too small on average: what changes along the file adds to it.

A sample says nothing about what it can't have seen. Two allowances make the upper limits honest:

- counts: with n blocks, a part of the file that has 3 / n of its blocks is missed by all with a probability of 5 %
  ("rule of three"). It may have as many events of a kind as any block has of any kind.
- sums: a single event may be longer than all others together. On a track whose events don't overlap, it would leave a
  gap between the sampled blocks: see `hidden_time`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64

#: Two-sided 95 % quantile of the normal distribution.
_Z = 1.959964
#: Blocks that a sample of n misses, of n, with a probability of 5 %: -log(0.05), rounded up.
_UNSEEN_BLOCKS = 3
#: A gap is unusual if it is this many times as long as the median one.
_UNUSUAL = 3
#: A block with a larger share of the sampled time decides about shares on its own.
_DOMINANT = 0.1
#: The share of a track's time, or of its events, that may overlap or be out of order, as rounding causes.
_MOST_OVERLAP = 0.01
#: Times of longer runs are not computed with: their sums may exceed 64 bits.
_LONGEST_RUN_NS = 2**62
_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval. `low` is never less than what was seen; None: unknown."""

    low: int | None
    estimate: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class ShareInterval:
    """A 95 % interval of a share, from 0 to 1; None: unknown."""

    low: float | None
    estimate: float | None
    high: float | None


UNKNOWN_SHARE = ShareInterval(None, None, None)


@dataclass(frozen=True, slots=True)
class HiddenTime:
    """How much time events that are not in the sample may take on some tracks, beyond what the estimate expects.

    beyond_ns   allowance for single long events
    unsampled_ns  time between the sampled blocks: an upper limit of the durations of all other events
    """

    beyond_ns: float
    unsampled_ns: float


@dataclass(frozen=True, slots=True)
class Sample:
    """Blocks that were drawn, one of each stratum.

    blocks   number of blocks in the file
    drawn    number of strata, i.e. of blocks that were drawn
    missing  how many of these could not be used: nothing is known of them
    """

    blocks: int
    drawn: int
    missing: int = 0

    @property
    def weight(self) -> float:
        """Number of blocks per stratum."""
        return self.blocks / self.drawn

    def count(self, counts: Int64, seen: int, most: int) -> Interval:
        """Estimate the number of events of a kind.

        counts  by usable block, in the order of the file
        seen    number in parts of the file that were read in addition
        most    events of any kind in the usable block that has most of it
        """
        estimate, margin = self._total(counts.astype(np.float64))
        unseen = (_UNSEEN_BLOCKS + self.missing) * self.weight * most
        return _interval(int(counts.sum()) + seen, estimate + seen, margin, unseen if self.weight > 1 else 0)

    def duration(self, sums: Int64, seen: int, hidden: HiddenTime | None) -> Interval:
        """Estimate the sum of the durations of a kind of event, in ns.

        sums    by usable block, in the order of the file
        seen    sum in parts of the file that were read in addition
        hidden  of the tracks with such events; None: unknown, so that there is no upper limit
        """
        certain = sum(sums.tolist()) + seen
        estimate, margin = self._total(sums.astype(np.float64))
        if hidden is None:
            return _interval(certain, estimate + seen, margin, None)
        found = _interval(certain, estimate + seen, margin, hidden.beyond_ns)
        limit = math.ceil(certain + hidden.unsampled_ns)
        if found.high is None or found.high <= limit:
            return found
        return Interval(found.low, min(found.estimate or limit, limit), limit)

    def share(
        self,
        parts: Int64,
        wholes: Int64,
        seen: tuple[int, int],
        hidden: HiddenTime | None,
        hidden_whole: HiddenTime | None,
    ) -> ShareInterval:
        """Estimate the share of a kind of event in a sum of durations.

        parts, wholes         sums of the kind and of all kinds, by usable block
        seen                  the same sums in parts of the file that were read in addition
        hidden, hidden_whole  of the tracks with events of the kind, and of all tracks
        """
        if hidden is None or hidden_whole is None:
            return UNKNOWN_SHARE
        part, _ = self._total(parts.astype(np.float64))
        whole, whole_margin = self._total(wholes.astype(np.float64))
        part, whole = part + seen[0], whole + seen[1]
        if whole <= 0:
            return UNKNOWN_SHARE
        share = part / whole
        if int(wholes.max(initial=0)) > _DOMINANT * float(wholes.sum()):
            return self._share_of_few(parts, wholes, seen, hidden, hidden_whole, share)
        _, margin = self._total(parts - share * wholes, int(np.count_nonzero(parts)))
        margin /= whole
        least = max(whole - whole_margin, float(sum(wholes.tolist()) + seen[1]), 1.0)
        low = max(0.0, share - margin) * least / (least + hidden_whole.beyond_ns)
        high = (min(1.0, share + margin) * least + hidden.beyond_ns) / (least + hidden.beyond_ns)
        return ShareInterval(low, min(max(share, low), high), high)

    def _share_of_few(
        self,
        parts: Int64,
        wholes: Int64,
        seen: tuple[int, int],
        hidden: HiddenTime,
        hidden_whole: HiddenTime,
        share: float,
    ) -> ShareInterval:
        """As `share`, if a single block decides about it, so that the blocks' variance says nothing."""
        own = self.duration(parts, seen[0], hidden)
        rest = self.duration(wholes - parts, seen[1] - seen[0], hidden_whole)
        if own.low is None or own.high is None or rest.low is None or rest.high is None:
            return UNKNOWN_SHARE
        low, high = own.low / max(1, own.low + rest.high), own.high / max(1, own.high + rest.low)
        return ShareInterval(low, min(max(share, low), high), high)

    def _total(self, values: NDArray[np.float64], nonzero: int | None = None) -> tuple[float, float]:
        """Return the estimated total of all blocks and half the width of its interval."""
        usable = len(values)
        if usable == 0:
            return 0.0, 0.0
        total = float(values.sum()) * self.blocks / usable
        if self.weight <= 1 and not self.missing:
            return total, 0.0
        differences = np.diff(values)
        variance = float((differences * differences).mean()) / 2 if usable > 1 else float(values[0] ** 2)
        freedom = max(1, (int(np.count_nonzero(values)) if nonzero is None else nonzero) - 1)
        deviation = self.blocks * math.sqrt(max(0.0, 1 - usable / self.blocks) * variance / usable)
        return total, _student(freedom) * deviation


def hidden_time(tracks: Sequence[TrackSample], first_ns: int, last_ns: int) -> HiddenTime | None:
    """Return how much time unseen events may take on tracks, in a run from `first_ns` to `last_ns` as far as known.

    Events on a track that don't overlap, and are in the file in order of time, can only be in the gaps between its
    sampled blocks. Gaps have about the same length if the events are alike; one that is much longer may hide a long
    event, and even the longest of the usual ones may. None if the events of a track overlap or are not in order.
    """
    beyond = unsampled = 0.0
    if last_ns - first_ns > _LONGEST_RUN_NS:
        return None
    for track in tracks:
        gaps = track.gaps(first_ns, last_ns)
        if gaps is None:
            return None
        usual = gaps[gaps <= _UNUSUAL * float(np.median(gaps))]
        all_gaps = float(gaps.sum())
        longest = float(usual.max(initial=0))
        unsampled += all_gaps
        beyond += min(all_gaps, all_gaps - float(usual.sum()) + _UNSEEN_BLOCKS * longest)
    return HiddenTime(beyond, unsampled)


@dataclass(frozen=True, slots=True)
class TrackSample:
    """The sampled events of a track in the order of the file.

    blocks  the block of each; those of neighbouring parts of the file have the same number
    """

    blocks: Int64
    start_ns: Int64
    end_ns: Int64

    def gaps(self, first_ns: int, last_ns: int) -> NDArray[np.float64] | None:
        """Return the times between its sampled blocks, and before and after them; None if they can't be known."""
        start, end = ((column - first_ns).astype(np.float64) for column in (self.start_ns, self.end_ns))
        # The file may consist of several parts, each in order of time.
        backwards = start[1:] < start[:-1]
        if np.count_nonzero(backwards) > _MOST_OVERLAP * len(start):
            return None
        begins = np.flatnonzero(np.append(True, backwards | (self.blocks[1:] != self.blocks[:-1])))
        overlap = np.maximum(end[:-1] - start[1:], 0)
        overlap[begins[1:] - 1] = 0
        starts, ends = start[begins], np.maximum.reduceat(end, begins)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        between = starts[1:] - ends[:-1]
        overlaps = float(overlap.sum()) + float(np.maximum(-between, 0).sum())
        if overlaps > _MOST_OVERLAP * float((end - start).sum()):
            return None
        between = np.maximum(between, 0)
        edge = float(between.max(initial=0))
        outer = [max(edge, float(starts[0])), max(edge, float(last_ns - first_ns - ends[-1]))]
        return np.append(between, outer)


def _interval(certain: int, estimate: float, margin: float, unseen: float | None) -> Interval:
    low = max(certain, math.floor(estimate - margin))
    middle = max(low, round(estimate))
    high = None if unseen is None else max(middle, math.ceil(estimate + margin + unseen))
    return Interval(*(value if value is not None and value <= _MAX else None for value in (low, middle, high)))


def _student(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t (Abramowitz and Stegun, 26.7.5); exact for 1 and 2 degrees."""
    if freedom <= 2:
        return 12.7063 if freedom == 1 else 4.3027
    z, n = _Z, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + terms[0] / n + terms[1] / n**2 + terms[2] / n**3
