"""The only list of source formats, and which one a file has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from traceconv.base.errors import InputError, UsageError, printable, suggestion
from traceconv.events.trace import TraceSource
from traceconv.formats.chrome_json.format import FORMAT as CHROME_JSON
from traceconv.formats.common.files import STDIN, head_of, why_empty
from traceconv.formats.format import Format, ReadRequest
from traceconv.formats.furiosa_csv.format import FORMAT as FURIOSA_CSV
from traceconv.formats.json_items.format import FORMAT as JSON_ITEMS
from traceconv.formats.json_items.format import may_have_items
from traceconv.formats.megengine_static.format import FORMAT as MEGENGINE_STATIC
from traceconv.formats.npulog.format import FORMAT as NPULOG
from traceconv.formats.nsys.format import FORMAT as NSYS
from traceconv.formats.perfetto_proto.format import FORMAT as PERFETTO_PROTO
from traceconv.formats.rocprofv3.format import FORMAT as ROCPROFV3
from traceconv.formats.speedscope.format import FORMAT as SPEEDSCOPE
from traceconv.formats.unsupported import what_it_is
from traceconv.formats.xplane.format import FORMAT as XPLANE

#: From this confidence on it is the format that the reader knows; below it the file may hold anything.
SURE = 50
_TRACE_NAME = re.compile(r"\.(json|jsonl|pfw)(\.gz|\.zst)?$", re.IGNORECASE)

#: All formats that are read, but for a vendor's output folder, which is found by the names of its files.
FORMATS = (
    NPULOG,
    CHROME_JSON,
    FURIOSA_CSV,
    JSON_ITEMS,
    MEGENGINE_STATIC,
    NSYS,
    PERFETTO_PROTO,
    ROCPROFV3,
    SPEEDSCOPE,
    XPLANE,
)
_BY_NAME = {one.name: one for one in FORMATS}


def format_of(name: str) -> Format | None:
    """The format with a name; None for one that is not known here, such as of a run in a store of another version."""
    return _BY_NAME.get(name)


def in_captures(name: str | None) -> bool:
    """Whether files of the format with a name belong to captures."""
    found = _BY_NAME.get(name or "")
    return found is not None and found.in_captures


def open_source(name: str, request: ReadRequest) -> TraceSource:
    """Open a trace file with the reader of a name. Raises InputError for a file that can't be read."""
    found = format_of(name)
    if found is None or not found.reader:
        raise UsageError(f"the reader '{printable(name)}' does not read trace files")
    return found.load_reader()(request)


def best_match(head: bytes) -> Format:
    """The format that is most likely for a file with these first decompressed bytes: any, where none is likely."""
    return max(FORMATS, key=lambda one: one.sniff(head))


def choose_reader(path: Path, wanted: str | None = None, *, has_items: bool = False) -> str:
    """The name of the reader for a path; `wanted` is taken as it is. `has_items`: rules say where a document has items.

    A folder is a capture, or holds some. Raises UsageError for a reader that there is not, InputError for a file
    that can't be read.
    """
    names = [*_BY_NAME]
    if wanted is not None:
        if wanted not in names:
            near = suggestion(wanted, names)
            raise UsageError(f"no reader is called '{printable(wanted)}'.{near} There are: {', '.join(names)}")
        return wanted
    if path == STDIN:
        return CHROME_JSON.name
    if not os.path.isfile(path):
        return NPULOG.name
    head = head_of(path)
    best = best_match(head)
    if has_items and best.sniff(head) < SURE and may_have_items(head):
        return JSON_ITEMS.name
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
    return best.name if best.sniff(head) else NPULOG.name
