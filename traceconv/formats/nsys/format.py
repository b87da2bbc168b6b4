"""The format of Nsight Systems reports in SQLite."""

from __future__ import annotations

import re
from pathlib import Path

from traceconv.formats.common.files import SQLITE_MAGIC
from traceconv.formats.format import Format

#: Tables that only reports have.
_TABLES = re.compile(rb"CUPTI_ACTIVITY_KIND_|TARGET_INFO_|CREATE TABLE StringIds")
#: Suffixes of reports in the program's own format, which it exports to SQLite.
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")


def can_export(path: Path) -> bool:
    """Whether a file has the name of a report, and the program that exports it is installed."""
    if path.suffix.lower() not in REPORT_SUFFIXES:
        return False
    from traceconv.formats.nsys.export import program

    return program() is not None


def _why_skipped(path: Path) -> str | None:
    from traceconv.formats.nsys.export import why_skipped

    return why_skipped(path)


FORMAT = Format(
    "nsys",
    "a report of Nsight Systems",
    # Any SQLite database may be a report.
    lambda head: 0 if not head.startswith(SQLITE_MAGIC) else 90 if _TABLES.search(head) else 40,
    "traceconv.formats.nsys.reader:NsysReader",
    "traceconv.formats.nsys.locate:locate",
    event_times="start, and end minus start: ns in the file",
    why_skipped=_why_skipped,
)
