"""How large things in a trace file may be before they are given up: what keeps memory and time bounded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on hostile or broken input. Passing one loses what is beyond it, and says so.

    event_bytes   one event, or all keys beside the events with their values
    ratio         bytes of text for one byte of a compressed file, once the text is larger than 256 MiB
    """

    event_bytes: int = 64 << 20
    ratio: int = 1000

    @property
    def large_events_bytes(self) -> int:
        """Of events that are large (`LARGE_BYTES`), all of one file: a store holds many of them in memory at once."""
        return 2 * self.event_bytes


#: From this size on an event is large.
LARGE_BYTES = 12 << 20
#: Text that a compressed file may unfold to, whatever its ratio.
FREE_BYTES = 256 << 20
