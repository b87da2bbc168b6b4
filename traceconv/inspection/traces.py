"""Trace files, output folders of vendors' tools and JSON documents, as `traceconv info` shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceconv.base.errors import option, printable, reason_of

if TYPE_CHECKING:
    from traceconv.base.diagnostics import LogEntry
    from traceconv.formats.json_items.outline import Outline, Prefix
    from traceconv.formats.vendor_folder.discover import VendorFolder
    from traceconv.pipeline.inspect import TraceSummary

_SHOWN = 20
#: Lines of an outline, and the number of values at a prefix from which they may be the items of a recording.
_SHOWN_PREFIXES, _MANY_VALUES = 30, 10
#: Plausible times in nanoseconds since 1970: from 2001 to 2096.
_EPOCH_RANGE = (10**18, 4 * 10**18)


def trace_lines(state: TraceSummary) -> Iterator[str]:
    """Describe a trace file in lines of 80 columns."""
    from traceconv.formats.registry import format_of

    yield printable(state.path.name, 80)
    container = "" if state.container == "plain" else f", {state.container}"
    verdict = "intact" if state.closed else "intact, but not closed"
    if state.unread_count:
        verdict += f", but {state.unread_count:,} records are of unknown types"
    if not state.scanned:
        verdict = "no problems found"
    if not state.intact:
        verdict = "damaged"
    known = format_of(state.reader)
    title = known.title if known is not None else state.reader
    yield f"  {title}, {state.size_bytes:,} bytes{container}: {verdict}"
    yield from _fact("writer", printable(state.writer, 68) if state.writer else "unknown; its events become ranges")
    if state.first_ns is not None and state.last_ns is not None:
        yield from _fact("time", _times(state.first_ns, state.last_ns))
    if state.process_count:
        yield from _fact("processes", f"{state.process_count:,}")
    if state.keys:
        yield from _fact("keys", ", ".join(printable(key, 40) for key in state.keys[:_SHOWN]))
    kinds = ", ".join(
        f"{printable(kind.removesuffix(' events'), 20)}\xa0{count:,}" for kind, count in state.events.items()
    )
    yield from _fact("events", f"{state.event_count:,}" + (f": {kinds}" if kinds else ""))
    if not state.scanned:
        yield "  (--quick: only the first events were read)"
    yield from _log_lines(state.log)


def folder_lines(folder: VendorFolder) -> Iterator[str]:
    """Describe an output folder of msprof or torch_npu in lines of 80 columns."""
    yield printable(folder.path.name or str(folder.path), 80)
    yield "  an output folder of msprof or torch_npu"
    parts = (
        ("timeline", folder.timelines),
        ("table", folder.tables),
        ("facts", folder.facts),
        ("communication", folder.communication),
    )
    for title, files in parts:
        for file in files:
            yield f"  {title:<9} {printable(folder.name_of(file), 48):<48}{_size(file):>14,} bytes"
    for file, why in folder.left:
        text = f"{printable(folder.name_of(file), 100)}: {printable(why)}"
        yield from _fact("skipped", text)


def describe_trace(state: TraceSummary) -> dict[str, Any]:
    """Describe it for --json."""
    known = state.first_ns is not None and _EPOCH_RANGE[0] <= state.first_ns < _EPOCH_RANGE[1]
    return {
        "kind": "trace",
        "path": str(state.path),
        "format": state.reader,
        "container": state.container,
        "size_bytes": state.size_bytes,
        "intact": state.intact and state.closed,
        "closed": state.closed,
        "usable": True,
        "scanned": state.scanned,
        "writer": state.writer,
        "keys": list(state.keys),
        "event_count": state.event_count,
        "events": {kind.removesuffix(" events"): count for kind, count in state.events.items()},
        "first_ns": state.first_ns,
        "last_ns": state.last_ns,
        "epoch_known": known,
        "process_count": state.process_count,
        "log": [
            {
                "severity": entry.severity.value,
                "code": entry.code.text,
                "message": entry.message,
                "byte_offset": entry.byte_offset,
                "byte_count": entry.byte_count,
                "event_count": entry.event_count,
            }
            for entry in state.log
        ],
    }


def document_lines(document: Outline) -> Iterator[str]:
    """Outline a JSON document that no reader recognises, one line per prefix; of many, the most useful ones."""
    yield printable(document.path.name, 80)
    container = "" if document.container == "plain" else f", {document.container}"
    verdict = "intact" if document.scanned else "no problems found"
    if document.stopped_at is not None:
        verdict = f"damaged or truncated near byte {document.stopped_at:,}"
    yield f"  a JSON document that no reader recognises, {document.size_bytes:,} bytes{container}: {verdict}"
    yield f"  {'values':>10}  {'type':<9}prefix: samples"
    shown = sorted(document.prefixes, key=lambda prefix: _usefulness(prefix, document.prefixes[prefix]))
    chosen = set(shown[:_SHOWN_PREFIXES])
    for prefix, one in document.prefixes.items():
        if prefix not in chosen:
            continue
        kinds = "mixed" if len(one.counts) > 1 else next(iter(one.counts))
        samples = ", ".join(printable(sample, 44) for sample in one.samples)
        dotted = "" if one.addressable else " (unaddressable: a key is empty or contains a dot)"
        text = f"{printable(prefix, 200) or '(the document)'}{dotted}" + (f": {samples}" if samples else "")
        yield f"  {one.counts.total():>10,}  {kinds:<9}{text}"
    others = document.left_out + sum(document.prefixes[prefix].counts.total() for prefix in shown[_SHOWN_PREFIXES:])
    if others:
        which = f", which {option('--json', 'details')} lists" if not document.left_out else ""
        yield f"  {others:>10,}  at other prefixes{which}"
    yield "  To import its items, write a rule file with a section [items]: ingest --rules FILE"


def _usefulness(prefix: str, values: Prefix) -> tuple[int, int]:
    """The sort key: first what has many values, which may be items with times, then what is near the top."""
    count = values.counts.total()
    return -count if count >= _MANY_VALUES else 0, prefix.count(".") if prefix else -1


def describe_document(document: Outline) -> dict[str, Any]:
    """Describe it for --json."""
    return {
        "kind": "json_document",
        "path": str(document.path),
        "container": document.container,
        "size_bytes": document.size_bytes,
        "intact": document.stopped_at is None,
        "usable": True,
        "scanned": document.scanned,
        "stopped_at": document.stopped_at,
        "prefixes": [
            {"prefix": prefix, "addressable": one.addressable, "counts": dict(one.counts), "samples": one.samples}
            for prefix, one in document.prefixes.items()
        ],
        "left_out": document.left_out,
    }


def describe_folder(folder: VendorFolder) -> dict[str, Any]:
    """Describe it for --json."""
    return {
        "kind": "vendor_folder",
        "path": str(folder.path),
        "timelines": [str(file) for file in folder.timelines],
        "tables": [str(file) for file in folder.tables],
        "facts": [str(file) for file in folder.facts],
        "communication": [str(file) for file in folder.communication],
        "left": [{"path": str(file), "reason": why} for file, why in folder.left],
    }


def unreadable_in(folder: VendorFolder) -> Iterator[str]:
    """Yield a line for each unreadable file of an output folder."""
    for file in (*folder.files, *folder.facts):
        try:
            file.open("rb").close()
        except OSError as error:
            yield f"can't read {printable(str(file))}: {reason_of(error)}"


def _fact(title: str, text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 78, initial_indent=f"  {title:<9} ", subsequent_indent=" " * 12):
        yield line.replace("\xa0", " ")  # spaces at which the line must not be broken


def _times(first_ns: int, last_ns: int) -> str:
    from traceconv.formats.npulog.inspect import wall_clock_text

    if _EPOCH_RANGE[0] <= first_ns < _EPOCH_RANGE[1]:
        return f"{wall_clock_text(first_ns)}, {seconds(last_ns - first_ns)} long"
    return f"{seconds(first_ns)} to {seconds(last_ns)}, {seconds(last_ns - first_ns)} long"


def seconds(ns: int) -> str:
    """Format a duration in seconds, exactly."""
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{size // 10**9:,}.{size % 10**9:09d} s"


def _log_lines(log: tuple[LogEntry, ...]) -> Iterator[str]:
    """Yield the diagnostics, losses marked with `!`."""
    from traceconv.base.diagnostics import Severity

    lines: list[tuple[str, str]] = []
    for entry in log:
        place = "" if entry.byte_offset is None else f" at byte {entry.byte_offset:,}"
        count = "" if entry.event_count in (None, 1) else f" ({entry.event_count:,} times)"
        mark = "-" if entry.severity is Severity.INFO else "!"
        lines.append((mark, f"{entry.message}{place}{count}"))
    return listed(lines)


def listed(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the first lines, wrapped, after their marks, and how many were omitted."""
    for mark, text in lines[:_SHOWN]:
        yield from textwrap.wrap(printable(text), 78, initial_indent=f"  {mark} ", subsequent_indent="    ")
    if len(lines) > _SHOWN:
        yield f"  and {len(lines) - _SHOWN:,} more (--json has them)"


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
