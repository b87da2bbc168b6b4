"""The list of source formats, and which of them a file has.

Formats of other packages are looked up only when no built-in format is certain.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

from traceconv.base.errors import InputError, UsageError, option, printable, suggestion
from traceconv.events.trace import TraceSource
from traceconv.formats.ascend_db.format import FORMAT as ASCEND_DB
from traceconv.formats.ascend_raw.format import FORMAT as ASCEND_RAW
from traceconv.formats.chrome_json.format import FORMAT as CHROME_JSON
from traceconv.formats.common.files import STDIN, head_of, why_empty
from traceconv.formats.format import Format, ReadRequest
from traceconv.formats.furiosa_csv.format import FORMAT as FURIOSA_CSV
from traceconv.formats.json_items.format import FORMAT as JSON_ITEMS
from traceconv.formats.json_items.format import may_have_items
from traceconv.formats.megengine_static.format import FORMAT as MEGENGINE_STATIC
from traceconv.formats.ncu_csv.format import FORMAT as NCU_CSV
from traceconv.formats.npulog.format import FORMAT as NPULOG
from traceconv.formats.nsys.format import FORMAT as NSYS
from traceconv.formats.nsys.format import can_export
from traceconv.formats.perfetto_proto.format import FORMAT as PERFETTO_PROTO
from traceconv.formats.plugins import PluginSource, as_input_error, confidence_of, plugin_formats
from traceconv.formats.rocpd.format import FORMAT as ROCPD
from traceconv.formats.rocprof_csv.format import FORMAT as ROCPROF_CSV
from traceconv.formats.rocprofv3.format import FORMAT as ROCPROFV3
from traceconv.formats.rpd.format import FORMAT as RPD
from traceconv.formats.speedscope.format import FORMAT as SPEEDSCOPE
from traceconv.formats.torch_memory.format import FORMAT as TORCH_MEMORY
from traceconv.formats.xplane.format import FORMAT as XPLANE

if TYPE_CHECKING:
    from traceconv.formats.locate import Evidence, Wanted

#: From this confidence on, a format is certain; below it, the file may contain anything.
SURE = 50
#: Names of traces in JSON.
TRACE_NAME = re.compile(r"\.(?:json|jsonl|pfw)(?:\.(?:gz|zst|xz))?$", re.IGNORECASE)

#: The built-in formats, except a vendor's output folder, which is found by the names of its files.
FORMATS = (
    NPULOG,
    ASCEND_DB,
    ASCEND_RAW,
    CHROME_JSON,
    FURIOSA_CSV,
    JSON_ITEMS,
    MEGENGINE_STATIC,
    NCU_CSV,
    NSYS,
    PERFETTO_PROTO,
    ROCPD,
    ROCPROF_CSV,
    ROCPROFV3,
    RPD,
    SPEEDSCOPE,
    TORCH_MEMORY,
    XPLANE,
)
_BUILT_IN = {one.name: one for one in FORMATS}
_PARTS = [one.parts for one in FORMATS if one.parts is not None]


def format_names() -> list[str]:
    """The names of all formats, those of other packages last."""
    return list(dict.fromkeys(one.name for one in (*FORMATS, *plugin_formats())))


def format_of(name: str) -> Format | None:
    """The format with this name; None for an unknown one, such as that of a run from another version."""
    return _BUILT_IN.get(name) or next((one for one in plugin_formats() if one.name == name), None)


def parts_of(path: Path) -> tuple[Path, ...]:
    """Return the files that are read together with one, by their names, first the one that is opened."""
    found = (parts(path) for parts in _PARTS)
    return next((files for files in found if files != (path,)), (path,))


def in_captures(name: str | None) -> bool:
    """Whether files of the format with this name belong to captures."""
    found = _BUILT_IN.get(name or "")
    return found is not None and found.in_captures


def open_source(name: str, request: ReadRequest) -> TraceSource:
    """Open a trace file with the reader of a format. Raises InputError for a file that can't be read."""
    found = format_of(name)
    if found is None or not found.reader:
        raise UsageError(f"the reader '{printable(name)}' does not read trace files")
    if name in _BUILT_IN:
        return found.load_reader()(request)
    return cast(TraceSource, PluginSource(found, request))


def locate_event(wanted: Wanted) -> list[Evidence]:
    """Find an event in its source. Raises InputError for a file that has changed since ingest."""
    from traceconv.formats.locate import locate_block

    found = format_of(wanted.source.format.partition(" ")[0])
    if found is None:
        return locate_block(wanted)
    if found.name in _BUILT_IN:
        return found.load_locate()(wanted)
    with as_input_error(found, wanted.source.path):
        return found.load_locate()(wanted)


def best_match(head: bytes, path: Path) -> tuple[Format, int]:
    """The most likely format of a file with these first decompressed bytes, and the confidence; any format at 0."""
    best, confidence = max(((one, one.sniff(head)) for one in FORMATS), key=lambda match: match[1])
    if confidence < SURE:
        for one in plugin_formats():
            if (found := confidence_of(one, head)) > confidence and one.name not in _BUILT_IN:
                best, confidence = one, found
    return (NSYS, SURE) if confidence < SURE and can_export(path) else (best, confidence)


def check_reader(name: str) -> None:
    """Raise UsageError unless a format has this name."""
    if name not in _BUILT_IN and name not in (names := format_names()):
        near = suggestion(name, names)
        raise UsageError(f"unknown reader '{printable(name)}'.{near} Readers: {', '.join(names)}")


def choose_reader(path: Path, wanted: str | None = None, *, has_items: bool = False) -> str:
    """The name of the reader for a path: `wanted`, or by the first bytes; a folder is a capture, or contains some.

    has_items  a rule file describes the items of JSON documents

    Raises UsageError for an unknown reader, InputError for a file that can't be read.
    """
    if wanted is not None:
        check_reader(wanted)
        return wanted
    if path == STDIN:
        return CHROME_JSON.name
    if not os.path.isfile(path):
        return NPULOG.name
    head = head_of(path)
    best, confidence = best_match(head, path)
    if confidence < SURE:
        if has_items and may_have_items(head):
            return JSON_ITEMS.name
        from traceconv.formats.unsupported import TABLE, what_it_is  # compiles patterns that most files don't need

        other = what_it_is(head, path.name)
        if other is not None:
            raise InputError(f"{printable(str(path))} {other}")
    if confidence == 0 and not head.strip() and path.suffix != ".bin":
        raise InputError(f"{printable(str(path))} {why_empty(path)}")
    if confidence == 0 and TRACE_NAME.search(path.name):
        reader = option("traceconv ingest --reader chrome_json", 'ingest(…, reader="chrome_json")')
        what = f"does not begin like a JSON trace; if it is a damaged one: {reader}"
        raise InputError(f"{printable(str(path))} {what}")
    if confidence == 0 and path.suffix.lower() in (".csv", ".tsv"):
        what = f"is a table that no reader recognises; if its rows have times, {TABLE}"
        raise InputError(f"{printable(str(path))} {what}")
    if confidence == 0 and path.suffix != ".bin":
        reader = option("traceconv ingest --reader NAME", "ingest(…, reader=NAME)")
        raise InputError(f"{printable(str(path))} is not a raw log or a known trace format; if it is one: {reader}")
    # The reader of raw logs explains what is wrong with a file that only has the name of one.
    return best.name if confidence else NPULOG.name
