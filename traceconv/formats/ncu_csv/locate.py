"""Find a launch in a table of Nsight Compute."""

from __future__ import annotations

from itertools import islice

from traceconv.base.diagnostics import Account, ImportLog
from traceconv.formats.locate import NO_LIMITS, Evidence, Wanted, text_evidence
from traceconv.formats.ncu_csv.launches import Launches


def locate(wanted: Wanted) -> list[Evidence]:
    """Find the records of the launch by its number in the file, whose header and units they need."""
    source = wanted.source
    launches = Launches(source.chunks(), ImportLog(), Account(), source.name, NO_LIMITS)
    for launch in islice(launches, wanted.ordinal, wanted.ordinal + 1):
        text = source.text(launch.offset, launch.byte_count).rstrip(b"\r\n")
        where = f"line {launch.line}"
        return [text_evidence(source, wanted.role, launch.offset, text, where, fields=dict(launch.cells))]
    return []
