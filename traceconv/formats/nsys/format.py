"""How a report of Nsight Systems (SQLite) is recognised and opened."""

from __future__ import annotations

from traceconv.formats.format import Format, Reader

MAGIC = b"SQLite format 3\0"


def sniff(head: bytes) -> int:
    """How sure it is, 0 to 100, that a file with these first bytes is for this reader: any SQLite database is."""
    return 90 if head.startswith(MAGIC) else 0


def _load_reader() -> Reader:
    from traceconv.formats.nsys.reader import NsysReader

    return NsysReader


FORMAT = Format(
    "nsys",
    "a report of Nsight Systems (SQLite)",
    sniff,
    _load_reader,
    event_times="start, and end less start: ns in the file",
)
