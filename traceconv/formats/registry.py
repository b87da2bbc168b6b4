"""Readers, one package for each source format, and which one is to read a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from traceconv.base.errors import InputError, UsageError, printable, suggestion
from traceconv.formats.chrome_json import sniff as chrome_json_sniff
from traceconv.formats.common.files import STDIN, head_of, why_empty
from traceconv.formats.furiosa_csv import sniff as furiosa_csv_sniff
from traceconv.formats.megengine_static import sniff as megengine_static_sniff
from traceconv.formats.npulog import sniff as npulog_sniff
from traceconv.formats.nsys import sniff as nsys_sniff
from traceconv.formats.perfetto_proto import sniff as perfetto_proto_sniff
from traceconv.formats.rocprofv3 import sniff as rocprofv3_sniff
from traceconv.formats.speedscope import sniff as speedscope_sniff
from traceconv.formats.unsupported import what_it_is
from traceconv.formats.xplane import sniff as xplane_sniff

#: From this confidence on it is the format that the reader knows; below it the file may hold anything.
SURE = 50
_TRACE_NAME = re.compile(r"\.(json|jsonl|pfw)(\.gz|\.zst)?$", re.IGNORECASE)

#: All readers. Each has a `name`, and `sniff(head) -> confidence` (0 to 100) for the first bytes of a file's text.
READERS = (
    npulog_sniff,
    chrome_json_sniff,
    furiosa_csv_sniff,
    megengine_static_sniff,
    nsys_sniff,
    perfetto_proto_sniff,
    rocprofv3_sniff,
    speedscope_sniff,
    xplane_sniff,
)


def choose_reader(path: Path, wanted: str | None = None) -> str:
    """The name of the reader for a path; `wanted` is taken as it is.

    A folder is a capture, or holds some. Raises UsageError for a reader that there is not, InputError for a file
    that can't be read.
    """
    names = [reader.name for reader in READERS]
    if wanted is not None:
        if wanted not in names:
            near = suggestion(wanted, names)
            raise UsageError(f"no reader is called '{printable(wanted)}'.{near} There are: {', '.join(names)}")
        return wanted
    if path == STDIN:
        return chrome_json_sniff.name
    if not os.path.isfile(path):
        return npulog_sniff.name
    head = head_of(path)
    best = max(READERS, key=lambda reader: reader.sniff(head))
    other = what_it_is(head, path.name) if best.sniff(head) < SURE else None
    if other is not None:
        raise InputError(f"{printable(str(path))} {other}")
    if best.sniff(head) == 0 and _TRACE_NAME.search(path.name):
        what = why_empty(path) if not head.strip() else "does not begin as a trace in JSON does"
        raise InputError(f"{printable(str(path))} {what}; --reader chrome_json reads it all the same")
    if best.sniff(head) == 0 and path.suffix != ".bin":
        shown = printable(str(path))
        raise InputError(
            f"{shown} is no log of the NPU runtime, and no trace that is known; name its --reader to read it"
        )
    # Of what calls itself a log, the reader of logs says what it lacks.
    return best.name if best.sniff(head) else npulog_sniff.name
