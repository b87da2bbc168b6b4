"""The first and the last time of a run."""

from __future__ import annotations

from traceconv.base.int64 import Int64


class TimeBounds:
    """`first_ns` and `last_ns` of all times noted so far; None before the first."""

    def __init__(self) -> None:
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def note_times(self, *times: Int64) -> None:
        """Widen the bounds to include `times`."""
        for ns in times:
            if len(ns):
                low, high = int(ns.min()), int(ns.max())
                self.first_ns = low if self.first_ns is None else min(self.first_ns, low)
                self.last_ns = high if self.last_ns is None else max(self.last_ns, high)
