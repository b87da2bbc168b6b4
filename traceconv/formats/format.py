"""What a source format is to the rest of the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from traceconv.base.diagnostics import Accounts, ImportLog
    from traceconv.events.trace import TraceSource
    from traceconv.formats.common.limits import Limits

#: Opens a trace file. The last argument is called with the number of bytes read since the call before.
Reader: TypeAlias = "Callable[[Path, ImportLog, Accounts, Limits, Callable[[int], None]], TraceSource]"


@dataclass(frozen=True, slots=True)
class Format:
    """One source format.

    name         what `--reader` takes and `run.source_format` contains
    title        what `traceconv info` calls such a file
    sniff        confidence, 0 to 100, that a file with these first decompressed bytes has this format
    load_reader  imports the reader of trace files; None where `registry` opens the files differently
    event_times  how start_ns and dur_ns follow from the file, for `traceconv why`; empty: from ts and dur in µs
    in_captures  its files belong to captures, folders that are read as one recording
    read_ahead   a thread should read ahead: the reader works mostly outside of the interpreter's lock
    why_skipped  why a file of this format that was found in a folder is not ingested; None: it is
    """

    name: str
    title: str
    sniff: Callable[[bytes], int]
    load_reader: Callable[[], Reader] | None = None
    event_times: str = ""
    in_captures: bool = False
    read_ahead: bool = False
    why_skipped: Callable[[Path], str | None] = lambda path: None
