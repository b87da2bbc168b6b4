"""The format of Nsight Systems reports in SQLite."""

from __future__ import annotations

import re

from traceconv.formats.common.files import SQLITE_MAGIC
from traceconv.formats.format import Format

#: Tables that only reports have.
_TABLES = re.compile(rb"CUPTI_ACTIVITY_KIND_|TARGET_INFO_|CREATE TABLE StringIds")


FORMAT = Format(
    "nsys",
    "a report of Nsight Systems (SQLite)",
    # Any SQLite database may be a report.
    lambda head: 0 if not head.startswith(SQLITE_MAGIC) else 90 if _TABLES.search(head) else 40,
    "traceconv.formats.nsys.reader:NsysReader",
    "traceconv.formats.nsys.locate:locate",
    event_times="start, and end minus start: ns in the file",
)
