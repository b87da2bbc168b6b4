"""The first bytes of log files and of blocks, by which they are recognised."""

from __future__ import annotations

FILE_MAGIC = b"\x89NPULOG\n"
BLOCK_MAGIC = b"\x95BLK"
