"""Slices that overlap without nesting: the view and the log agree with a comparison of all pairs."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from ingest_checks import taken
from stores import query

Slices = list[tuple[int, int]]


def overlaps(slices: Slices) -> list[tuple[int, int, int]]:
    """Return start and end of each slice that begins inside another and ends after it, and the earliest such end."""
    found = []
    for start, end in slices:
        ends = [other_end for other, other_end in slices if other < start < other_end < end]
        if ends:
            found.append((start, end, min(ends)))
    return sorted(found)


@pytest.mark.parametrize("seed", range(3))
def test_view_and_log_agree_with_a_comparison_of_all_pairs(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    tracks: dict[int, Slices] = {1: [(0, 100), (10, 50), (40, 60)]}
    for tid in range(2, 200):
        starts = [rng.randrange(rng.choice((6, 30))) for _ in range(rng.randrange(9))]
        tracks[tid] = [(start, start + rng.choice((0, 1, 2, 5, 20))) for start in starts]
    events = [
        {"ph": "X", "name": "s", "pid": 1, "tid": tid, "ts": start, "dur": end - start}
        for tid, slices in tracks.items()
        for start, end in slices
    ]
    rng.shuffle(events)
    run, store = taken(events, tmp_path)
    rows = query(
        store,
        "SELECT t.tid, o.start_ns // 1000, o.end_ns // 1000, o.other_end // 1000 "
        "FROM perfetto.partial_overlap AS o JOIN perfetto.thread_track AS k ON k.id = o.track_id "
        "JOIN perfetto.thread AS t USING (utid)",
    )
    expected = [(tid, *one) for tid, slices in tracks.items() for one in overlaps(slices)]
    assert sorted(rows) == sorted(expected)
    assert len(expected) > 50
    assert sum(entry.event_count or 0 for entry in run.log if entry.code.text == "partial_overlap") == len(expected)
