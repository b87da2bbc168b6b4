"""The interface of a source format to the rest of the program."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.formats.common.limits import Limits

if TYPE_CHECKING:
    from traceconv.events.items import Items
    from traceconv.events.trace import TraceSource
    from traceconv.formats.locate import Locate


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A trace file to read.

    log, accounts  receive what the reader loses, and why
    advance        called with the number of bytes read since the last call
    items          where a JSON document contains its items, from a rule file: no table is inside another
    """

    path: Path
    log: ImportLog = field(default_factory=ImportLog)
    accounts: Accounts = field(default_factory=Accounts)
    limits: Limits = field(default_factory=Limits)
    advance: Callable[[int], None] = lambda byte_count: None
    items: tuple[Items, ...] = ()


#: Opens a trace file. Raises InputError for a file that it can't read.
Reader: TypeAlias = "Callable[[ReadRequest], TraceSource]"


class Format(NamedTuple):
    """One source format.

    name         what `--reader` takes and `run.source_format` contains
    title        what `traceconv info` calls such a file
    sniff        confidence, 0 to 100, that a file with these first decompressed bytes has this format
    reader       `module:name` of the Reader of its trace files; empty for raw logs
    locate       `module:name` of the Locate that finds its events for `traceconv why`; empty: finds the block of each
    event_times  how start_ns and dur_ns follow from the file, for `traceconv why`; empty: from ts and dur in µs
    in_captures  its files belong to captures, folders that are read as one recording
    read_ahead   a thread should read ahead: the reader works mostly outside of the interpreter's lock
    why_skipped  why a file of this format that was found in a folder is not ingested; None: it is
    parts        the files of a recording, to one of which a path leads; the first is the one that is opened.
                 None: each file is a recording
    """

    name: str
    title: str
    sniff: Callable[[bytes], int]
    reader: str = ""
    locate: str = ""
    event_times: str = ""
    in_captures: bool = False
    read_ahead: bool = False
    why_skipped: Callable[[Path], str | None] = lambda path: None
    parts: Callable[[Path], tuple[Path, ...]] | None = None

    def load_reader(self) -> Reader:
        """Import the reader."""
        reader: Reader = pkgutil.resolve_name(self.reader)
        return reader

    def load_locate(self) -> Locate:
        """Import what finds its events."""
        locate: Locate = pkgutil.resolve_name(self.locate or "traceconv.formats.locate:locate_block")
        return locate
