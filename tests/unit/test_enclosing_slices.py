"""Which slices are open at a time."""

from __future__ import annotations

import numpy as np
import pytest

from traceconv.normalize.enclosing_slices import OpenSlices, Probes, Slices


@pytest.mark.parametrize(("depth", "outermost_counts"), [(512, True), (513, False)])
def test_the_512_innermost_slices_are_looked_at(depth: int, outermost_counts: bool) -> None:
    """The outermost of nested slices, which loads data and synchronises, counts up to this depth."""
    level = np.arange(depth)
    is_outermost = level == 0
    nested = Slices(np.zeros(depth, np.int64), level, 10_000 - level, level + 1, is_outermost, is_outermost)
    probe = Probes(*(np.array([number]) for number in (0, 5_000, 5_000, 5_010)))
    found = OpenSlices().look(nested, probe, 20_000)
    assert found.ids.tolist() == [depth]
    assert found.loads[0] == found.syncs[0] == found.half_syncs[0] == outermost_counts
