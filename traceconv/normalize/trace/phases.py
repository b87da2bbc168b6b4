"""Kinds of events by their phase (ph)."""

from __future__ import annotations

COMPLETE, BEGIN, END, INSTANT, COUNTER, FLOW, ASYNC_BEGIN, ASYNC_END, ASYNC_INSTANT, METADATA, OTHER = range(11)
UNKNOWN, MISSING = 11, 12

_KINDS = {
    "X": COMPLETE,
    "B": BEGIN,
    "E": END,
    "i": INSTANT,
    "I": INSTANT,
    "R": INSTANT,
    "C": COUNTER,
    "s": FLOW,
    "t": FLOW,
    "f": FLOW,
    "b": ASYNC_BEGIN,
    "S": ASYNC_BEGIN,
    "e": ASYNC_END,
    "F": ASYNC_END,
    "n": ASYNC_INSTANT,
    "T": ASYNC_INSTANT,
    "p": ASYNC_INSTANT,
    "M": METADATA,
    # Objects, samples, memory dumps, marks, clock syncs, contexts, links: markers with args.
    # Also DFTracer's aggregates of many calls (A).
    **dict.fromkeys("NODPvVcarmul(),=A", OTHER),
}


class Kinds(dict[object, int]):
    """ph → kind. For a longer ph the first letter is used, as in other readers."""

    def __missing__(self, ph: object) -> int:
        kind = MISSING if not isinstance(ph, str) or not ph else _KINDS.get(ph[0], UNKNOWN)
        if len(self) < 1024:
            self[ph] = kind
        return kind


def account_of(ph: object) -> str:
    """Return the account of events with this ph."""
    return f"{ph[0]} events" if isinstance(ph, str) and ph and ph[0] in _KINDS else "other events"
