"""Begins and ends matched together equal those matched one by one by the rule."""

from __future__ import annotations

import random

import numpy as np
import pytest

from traceconv import native
from traceconv.normalize.trace.begin_end import POINT_DTYPE, BeginEndMatcher
from traceconv.normalize.trace.complete_nesting import PAIR, UNFINISHED
from traceconv.schema.dtypes import RecordArray

FAR = 2**62


def expected(points: RecordArray) -> tuple[set[tuple[int, ...]], set[int], dict[str, list[int]]]:
    """Return (start, duration, begin, end, track, kind) of pairs, open begins, and matched and unmatched ends."""
    opened: list[tuple[int, int, int, int]] = []
    pairs = set()
    ends: dict[str, list[int]] = {}
    for ts_ns, id_, name, track, end in points.tolist():
        if not end:
            opened.append((ts_ns, id_, name, track))
            continue
        own = [one for one in opened if one[3] == track and (name in (0, one[2]))]
        ends.setdefault(chr(end), [0, 0])[not own] += 1
        if own:
            opened.remove(own[-1])
            dur_ns = ts_ns - own[-1][0]
            fits = dur_ns < 2**63
            pairs.add((own[-1][0], dur_ns if fits else 0, own[-1][1], id_, track, PAIR if fits else UNFINISHED))
    return pairs, {one[1] for one in opened}, ends


@pytest.mark.parametrize("seed", range(10, 16))  # some have pairs that are too far apart
@pytest.mark.parametrize("strays", [0, 0.02, 0.5])
@pytest.mark.parametrize("way", ["in C", "without the C extension", "with tracks far apart"])
def test_pairs_are_those_of_the_rule(seed: int, strays: float, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    numbers = [-(2**31), 7, 2**31 - 1] if way == "with tracks far apart" else [0, 1, 2]
    if way == "without the C extension":
        monkeypatch.setattr(native, "AVAILABLE", False)
    count, stacks = 600, [list[int](), [], []]
    points = np.zeros(count, POINT_DTYPE)
    points["id"] = np.arange(count)
    points["ts_ns"] = np.sort([rng.choice([rng.randrange(-FAR, FAR), 5]) * rng.choice([1, 2]) for _ in range(count)])
    for point in points:
        track = rng.randrange(3)
        point["track"] = numbers[track]
        point["name"] = rng.choice([0, 5, -7])
        if rng.random() < 0.5:
            stacks[track].append(point["name"])
            continue
        point["end"] = ord(rng.choice("Ee"))
        name = stacks[track].pop() if stacks[track] else 0
        if rng.random() >= strays:
            point["name"] = rng.choice([0, name])
    matcher = BeginEndMatcher()
    windows = [points[first : first + 250] for first in range(0, count, 250)]
    found = np.concatenate([matcher.feed(window) for window in windows])
    left = [span for spans in matcher.finish() for span in spans["id"].tolist()]
    pairs, opened, ends = expected(points)
    fields = ["start_ns", "dur_ns", "id", "link", "track", "kind"]
    assert set(found[fields].tolist()) == pairs
    assert len(found) == len(pairs)
    assert (set(left), len(left)) == (opened, len(opened))
    assert matcher.ends == ends
    assert matcher.too_long == sum(pair[5] == UNFINISHED for pair in pairs)


@pytest.mark.skipif(not native.AVAILABLE, reason="needs the C extension: python setup.py build_ext --inplace")
def test_points_that_are_no_array_are_refused() -> None:
    points = np.zeros(4, POINT_DTYPE)
    assert native.pair(points[:0]) == (b"", b"")
    with pytest.raises(ValueError, match="points of no array"):
        native.pair(points.view(np.uint8)[1:])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.pair(None)  # type: ignore[arg-type]
