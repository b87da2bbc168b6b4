"""Counts of everything that can be wrong with track events, reported at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from traceconv.base.diagnostics import Code

#: Limit of the interned texts of a sequence.
MAX_TEXT_BYTES = 256 << 20


@dataclass(slots=True)
class Losses:
    """Counts by kind of loss; `clocks`: timestamps of clocks that no snapshot maps to the trace's."""

    KINDS: ClassVar[dict[str, tuple[Code, str]]] = {
        "damaged": (Code.DAMAGED_EVENT, "malformed track events"),
        "stateless": (Code.MISSING_RECORDS, "track events of a sequence whose state was lost"),
        "timeless": (Code.NO_TIME, "track events whose clock no snapshot maps to the trace's clock"),
        "dropped": (Code.MISSING_RECORDS, "gaps where packets were dropped before they were written"),
        "doubtful": (Code.BAD_CLOCK_SYNC, "events after damage with relative timestamps: they may be too early"),
        "state": (Code.DAMAGED_TEXT, "malformed descriptions of sequences, tracks, processes or clocks"),
        "valueless": (Code.BAD_NUMBER, "counter events without a value"),
        "before counter": (Code.NOT_READ, "first samples of GPU counters, of the unknown time before them: not read"),
        "unknown text": (Code.MISSING_TEXT, "unknown numbers of interned texts"),
        "not UTF-8": (Code.BAD_BYTES, "texts that are not UTF-8"),
        "annotation": (Code.DAMAGED_TEXT, "malformed debug annotations"),
        "deep": (Code.DAMAGED_TEXT, "too deeply nested debug annotations: stored as null"),
        "text limit": (Code.TOO_MUCH_TEXT, f"more than {MAX_TEXT_BYTES >> 20} MiB of interned texts"),
    }
    LOST: ClassVar[frozenset[str]] = frozenset(("damaged", "stateless", "timeless"))
    counts: Counter[str] = field(default_factory=Counter)
    clocks: Counter[int] = field(default_factory=Counter)
