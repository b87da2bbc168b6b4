"""A host clock that tests advance, to simulate work that takes long."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from traceconv.runtime import clock


@dataclass
class Hand:
    """What was added, in ns; only ever more."""

    ns: int = 0


def turned_by_hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    """The runtime's host clock reads the machine's time plus what the hand has."""
    hand = Hand()

    def monotonic_ns() -> int:
        return time.monotonic_ns() + hand.ns

    monkeypatch.setattr(clock, "SOURCE", monotonic_ns)
    return hand
