"""The format of rocmProfileData's databases, which rpd_tracer writes."""

from __future__ import annotations

import re

from traceconv.formats.common.files import SQLITE_MAGIC
from traceconv.formats.format import Format

#: rocpd databases have tables of other names, and views of these.
_TABLES = re.compile(rb"CREATE TABLE \"?rocpd_(?:api|op|api_ops|string)\"? ?\(")

FORMAT = Format(
    "rpd",
    "a database of rocmProfileData (SQLite)",
    lambda head: 95 if head.startswith(SQLITE_MAGIC) and _TABLES.search(head) else 0,
    "traceconv.formats.rpd.reader:RpdReader",
    "traceconv.formats.rpd.reader:locate",
    event_times="start, and end minus start: ns in the file",
)
