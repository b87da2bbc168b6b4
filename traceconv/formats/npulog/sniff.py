"""Whether a file may be a log of the NPU runtime."""

from __future__ import annotations

from traceconv.wire.frames import BLOCK_MAGIC, FILE_MAGIC

name = "npulog"


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a file with these first bytes is for this reader."""
    if head.startswith(FILE_MAGIC):
        return 100
    return 60 if BLOCK_MAGIC in head else 0
