"""The format of the tables that `ncu --csv` prints: a launch per record (page raw), or a metric (page details)."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

_HEADER = re.compile(rb'^(?:\xef\xbb\xbf)?"?ID"?,(?:[^\n]*,)?"?Kernel Name"?,', re.MULTILINE)
#: What the reader refuses with advice if no header follows: ncu's messages, and summaries of kernels.
_OTHER = re.compile(rb'^(?:==PROF== |"?Process ID"?,[^\n]*"?Invocations"?,)', re.MULTILINE)


def sniff(head: bytes) -> int:
    """Confidence, 0 to 100: ncu's messages and the program's output may be longer than `head`."""
    if b"Kernel Name" in head and _HEADER.search(head):
        return 96
    return 60 if (b"==PROF== " in head or b"Invocations" in head) and _OTHER.search(head) else 0


FORMAT = Format(
    "ncu_csv",
    "a table of Nsight Compute (CSV)",
    sniff,
    "traceconv.formats.ncu_csv.reader:NcuCsvReader",
    "traceconv.formats.ncu_csv.locate:locate",
    event_times="gpu__time_duration.sum, or Duration, in its unit; the file has no start",
)
