"""How a report of Nsight Systems (SQLite) is recognised and opened."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

MAGIC = b"SQLite format 3\0"
#: Names of tables that reports have and other databases don't; the schema is at the beginning of the file.
_TABLES = re.compile(rb"CUPTI_ACTIVITY_KIND_|TARGET_INFO_|CREATE TABLE StringIds")


def sniff(head: bytes) -> int:
    """Confidence, 0 to 100, that a file with these first bytes is a report: any SQLite database may be one."""
    if not head.startswith(MAGIC):
        return 0
    return 90 if _TABLES.search(head) else 40


FORMAT = Format(
    "nsys",
    "a report of Nsight Systems (SQLite)",
    sniff,
    "traceconv.formats.nsys.reader:NsysReader",
    "traceconv.formats.nsys.locate:locate",
    event_times="start, and end less start: ns in the file",
)
