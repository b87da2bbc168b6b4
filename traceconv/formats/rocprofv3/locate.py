"""Find a record in rocprofv3's JSON."""

from __future__ import annotations

from traceconv.formats.common.elements import json_object, locate_element
from traceconv.formats.locate import Evidence, Wanted


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the record by its number in its list, or by its times."""
    start_ns, dur_ns = wanted.row.get("start_ns"), wanted.row.get("dur_ns")

    def matches(text: bytes) -> bool:
        record = json_object(text)
        inner = record.get("dispatch_data")
        times = inner if isinstance(inner, dict) else record
        return times.get("start_timestamp") == start_ns and (
            dur_ns is None or times.get("end_timestamp") == start_ns + dur_ns
        )

    return locate_element(wanted, matches)
