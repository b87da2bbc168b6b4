"""What can be wrong with track events, counted; said once, at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from traceconv.base.diagnostics import Code


@dataclass(slots=True)
class Losses:
    """How many events or packets something was wrong with."""

    KINDS: ClassVar[dict[str, tuple[Code, str]]] = {
        "damaged": (Code.DAMAGED_EVENT, "track events that can't be read"),
        "stateless": (Code.MISSING_RECORDS, "track events of a sequence whose state was lost: they can't be told"),
        "timeless": (Code.NO_TIME, "track events whose clock no snapshot ties to the trace's"),
        "dropped": (Code.MISSING_RECORDS, "times at which packets were dropped before they came to the file"),
        "doubtful": (
            Code.BAD_CLOCK_SYNC,
            "events behind damage whose times are differences: they may be early, by what was lost",
        ),
        "state": (Code.DAMAGED_TEXT, "descriptions of sequences or clocks that can't be read"),
        "valueless": (Code.BAD_NUMBER, "events of counters without a value"),
    }
    LOST: ClassVar[frozenset[str]] = frozenset(("damaged", "stateless", "timeless"))
    counts: Counter[str] = field(default_factory=Counter)
    clocks: Counter[int] = field(default_factory=Counter)
    text_over: int = 0
