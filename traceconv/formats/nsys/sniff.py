"""Whether a file may be a report of Nsight Systems in SQLite."""

from __future__ import annotations

name = "nsys"

MAGIC = b"SQLite format 3\0"


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a file with these first bytes is for this reader: any SQLite database is."""
    return 90 if head.startswith(MAGIC) else 0
