"""95 % intervals from blocks: they contain the exact value in at least 93 % of 500 samples of each kind of file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from traceconv.sampling.estimate import Interval, Sample, ShareInterval, TrackSample, hidden_time

_BLOCKS, _DRAWN, _EVENTS = 12_000, 600, 20
_FILES, _SAMPLES = 25, 20
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class File:
    """Blocks of events on one track: how many and how long those of a kind are, and the time of all."""

    counts: Ints
    sums: Ints
    wholes: Ints
    start_ns: Ints
    end_ns: Ints


def _file(of_kind: NDArray[np.bool_], durations: Ints, idle: Ints) -> File:
    """Lay out events (block × event) one after the other, with idle time before each block."""
    wholes = durations.sum(axis=1)
    end = np.cumsum(wholes + idle)
    return File(of_kind.sum(axis=1), (durations * of_kind).sum(axis=1), wholes, end - wholes, end)


def _durations(rng: np.random.Generator) -> Ints:
    return rng.lognormal(9, 1, (_BLOCKS, _EVENTS)).astype(np.int64)


def _idle(rng: np.random.Generator) -> Ints:
    return rng.integers(0, 50_000, _BLOCKS)


def _steps(rng: np.random.Generator) -> File:
    """Each step has its events in the same order: a kind has its place, and there is a gap after each step."""
    length = int(rng.integers(5, 400))
    place = np.arange(_BLOCKS) % length
    share = np.where(place < length * rng.uniform(0.1, 0.6), rng.uniform(0.2, 0.9), 0.01)
    gap = np.where(place == 0, int(rng.integers(10**5, 10**8)), 0)
    return _file(rng.random((_BLOCKS, _EVENTS)) < share[:, None], _durations(rng), _idle(rng) + gap)


def _bursts(rng: np.random.Generator) -> File:
    """Most events of the kind are in a few parts of the file, which may be small."""
    share = np.full(_BLOCKS, 0.01)
    for start in rng.integers(0, _BLOCKS, int(rng.integers(1, 12))):
        share[start : start + int(rng.integers(5, 300))] = rng.uniform(0.2, 0.6)
    return _file(rng.random((_BLOCKS, _EVENTS)) < share[:, None], _durations(rng), _idle(rng))


def _one_long_event(rng: np.random.Generator) -> File:
    """One event takes half of the time."""
    durations, of_kind = _durations(rng), rng.random((_BLOCKS, _EVENTS)) < 0.2
    block, event = rng.integers(_BLOCKS), rng.integers(_EVENTS)
    of_kind[block, event] = True
    durations[block, event] = (durations * of_kind).sum() if rng.random() < 0.5 else durations.sum()
    return _file(of_kind, durations, _idle(rng))


def _rare(rng: np.random.Generator) -> File:
    """One event in 10,000 is of the kind."""
    return _file(rng.random((_BLOCKS, _EVENTS)) < 1e-4, _durations(rng), _idle(rng))


def _long_tail(rng: np.random.Generator) -> File:
    """One event in 5,000 takes thousands of times as long as others."""
    durations = _durations(rng)
    durations[rng.random((_BLOCKS, _EVENTS)) < 1 / 5000] *= 5000
    return _file(rng.random((_BLOCKS, _EVENTS)) < 0.3, durations, _idle(rng))


def _trend(rng: np.random.Generator) -> File:
    """The kind becomes more frequent, and longer, along the file."""
    slope = np.linspace(0, 1, _BLOCKS)
    durations = (_durations(rng) * (1 + 9 * slope[:, None])).astype(np.int64)
    return _file(rng.random((_BLOCKS, _EVENTS)) < slope[:, None] ** 2, durations, _idle(rng))


KINDS = {one.__name__[1:]: one for one in (_steps, _bursts, _one_long_event, _rare, _long_tail, _trend)}


@dataclass(frozen=True)
class Found:
    """The intervals from one sample, with the exact values."""

    count: tuple[Interval, int]
    time: tuple[Interval, int]
    share: tuple[ShareInterval, float]


def _samples(kind: str) -> Iterator[Found]:
    edges = np.arange(_DRAWN + 1) * _BLOCKS // _DRAWN
    sample = Sample(_BLOCKS, _DRAWN)
    for number in range(_FILES):
        rng = np.random.default_rng(number)
        file = KINDS[kind](rng)
        exact = int(file.sums.sum()), int(file.wholes.sum())
        for _ in range(_SAMPLES):
            drawn = rng.integers(edges[:-1], edges[1:])
            counts, sums, wholes = file.counts[drawn], file.sums[drawn], file.wholes[drawn]
            track = TrackSample(np.arange(_DRAWN), file.start_ns[drawn], file.end_ns[drawn])
            hidden = hidden_time([track], 0, int(file.end_ns[-1]))
            assert hidden is not None
            others = int((_EVENTS - counts).max())
            yield Found(
                (sample.count(counts, 0, max(others, int(counts.max()))), int(file.counts.sum())),
                (sample.duration(sums, 0, hidden), exact[0]),
                (sample.share(sums, wholes, (0, 0), hidden, hidden), exact[0] / exact[1]),
            )


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_contain_the_exact_value(kind: str) -> None:
    found = list(_samples(kind))
    assert len(found) == 500
    for name in ("count", "time", "share"):
        pairs = [getattr(one, name) for one in found]
        within = [one.low <= exact <= one.high for one, exact in pairs]
        assert np.mean(within) >= 0.93, (name, np.mean(within))
