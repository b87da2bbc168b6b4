"""Limits that keep memory and time bounded for any trace file."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Limits for hostile or damaged input. Data beyond a limit is lost, which is logged.

    event_bytes   one event, or all keys outside the events with their values
    ratio         decompression ratio, once the text is larger than 256 MiB
    """

    event_bytes: int = 64 << 20
    ratio: int = 1000

    @property
    def large_events_bytes(self) -> int:
        """Limit of all large events (`LARGE_BYTES`) of a file, of which a store has many in memory at once."""
        return 2 * self.event_bytes


#: The size from which an event counts as large.
LARGE_BYTES = 12 << 20
#: Decompressed size that is allowed at any ratio.
FREE_BYTES = 256 << 20
