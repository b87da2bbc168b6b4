"""The runs of a store that is written, by ID and by the digest of their source."""

from __future__ import annotations

from bisect import insort
from operator import itemgetter


class RunIndex:
    """(run_id, label, digest) of all runs, in order; several may have the same source."""

    def __init__(self, runs: list[tuple[int, str, str | None]]) -> None:
        self.runs = runs
        self._first_of = {digest: (run_id, label) for run_id, label, digest in reversed(runs) if digest is not None}

    def add(self, run_id: int, label: str, digest: str | None) -> None:
        """Add a run."""
        insort(self.runs, (run_id, label, digest), key=itemgetter(0))
        if digest is not None:
            self._first_of[digest] = min(self._first_of.get(digest, (run_id, label)), (run_id, label))

    def next_id(self) -> int:
        """Return the ID of the next run."""
        return self.runs[-1][0] + 1 if self.runs else 1

    def of(self, digest: str | None) -> tuple[int, str] | None:
        """Return (run_id, label) of the first run with this digest; None if there is none, or it is unknown."""
        return None if digest is None else self._first_of.get(digest)
