"""The format of raw logs of the NPU runtime."""

from __future__ import annotations

from traceconv.formats.format import Format
from traceconv.wire.magic import BLOCK_MAGIC, FILE_MAGIC

FORMAT = Format(
    "npulog",
    "a raw log of the NPU runtime",
    lambda head: 100 if head.startswith(FILE_MAGIC) else 60 if BLOCK_MAGIC in head else 0,
    in_captures=True,
    why_skipped=lambda path: "is a log outside a capture; specify the file itself to read it",
)
