"""The format of rocpd databases, which rocprofv3 and rocprof-sys write."""

from __future__ import annotations

import re

from traceconv.formats.common.files import SQLITE_MAGIC
from traceconv.formats.format import Format

#: Names of tables end with the UUID of the process.
_TABLES = re.compile(rb"rocpd_(?:metadata|string|info_node)_[0-9a-f]{8}")

FORMAT = Format(
    "rocpd",
    "a rocpd database of rocprofv3 or rocprof-sys (SQLite)",
    lambda head: 95 if head.startswith(SQLITE_MAGIC) and _TABLES.search(head) else 0,
    "traceconv.formats.rocpd.reader:RocpdReader",
    "traceconv.formats.rocpd.reader:locate",
    event_times="start, and end minus start: ns in the file",
)
