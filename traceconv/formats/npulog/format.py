"""How a raw log of the NPU runtime is recognised."""

from __future__ import annotations

from traceconv.formats.format import Format
from traceconv.wire.frames import BLOCK_MAGIC, FILE_MAGIC


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a file with these first bytes is for this reader."""
    if head.startswith(FILE_MAGIC):
        return 100
    return 60 if BLOCK_MAGIC in head else 0


FORMAT = Format(
    "npulog",
    "a raw log of the NPU runtime",
    sniff,
    in_captures=True,
    why_skipped=lambda path: "is a log outside a capture; name the file itself to read it",
)
