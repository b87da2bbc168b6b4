"""Read one trace file, from before the store is open: modules for that are imported while a thread reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from traceconv.base.diagnostics import Accounts, ImportLog
from traceconv.base.errors import InputError
from traceconv.base.prefetch import ReadAhead, prefetch
from traceconv.events.trace import TraceBatch
from traceconv.formats.common.files import file_size
from traceconv.formats.common.limits import Limits
from traceconv.formats.format import ReadRequest
from traceconv.formats.registry import format_of, open_source
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import SMALL_BYTES

if TYPE_CHECKING:
    from traceconv.events.items import Items
    from traceconv.normalize.trace.classify import RuleSet
    from traceconv.pipeline.discover import TraceFile

#: Batches of some 4 MB of text that a thread reads before the store is open.
_EARLY_BATCHES = 16
#: After how long threads switch while modules are imported. With Python's 5 ms, the thread that reads would wait that
#: long after each step outside of the interpreter's lock.
_SWITCH_S = 0.0002


class TraceOptions(NamedTuple):
    """How trace files are read. `rules` are tried before the built-in ones."""

    limits: Limits = Limits()
    rules: tuple[RuleSet, ...] = ()

    @property
    def items(self) -> tuple[Items, ...]:
        """Where JSON documents have items, by the first rules that define them."""
        return next((one.items for one in self.rules if one.items), ())


class TraceReading:
    """The batches of a trace file, once, and what its reader notes. Close it."""

    def __init__(self, path: Path, format_name: str, options: TraceOptions, *, early: bool = False) -> None:
        """`early`: a thread reads while this one imports modules. Raises InputError for a file that can't be read."""
        self.path = path
        self.log, self.accounts = ImportLog(), Accounts()
        #: Called with each batch, by the thread that reads.
        self.prepare: Callable[[TraceBatch], None] | None = None
        self._observer: Observer | None = None
        self._unreported = 0
        self._reporting = Lock()
        self.batches: Generator[TraceBatch, None, None] | ReadAhead[TraceBatch]
        request = ReadRequest(path, self.log, self.accounts, options.limits, self._advance, options.items)
        self.reader = open_source(format_name, request)
        self._switching = ExitStack()
        if early and "duckdb" not in sys.modules:  # else there is little to import
            self._switching.enter_context(_frequent_switches())
        self.batches = self._prepared()
        if early:
            self.batches = ReadAhead(self.batches, 1, _EARLY_BATCHES)
        elif _reads_ahead(path, format_name):
            self.batches = prefetch(self.batches)

    def follow(self, observer: Observer) -> None:
        """Report the bytes that were read, and will be."""
        self._switching.close()
        with self._reporting:
            self._observer = observer
        self._advance(0)

    def _advance(self, byte_count: int) -> None:
        with self._reporting:
            self._unreported += byte_count
            if self._observer is not None:
                self._observer.advance(self._unreported)
                self._unreported = 0

    def _prepared(self) -> Generator[TraceBatch, None, None]:
        for batch in self.reader.batches():
            if self.prepare is not None:
                self.prepare(batch)
            yield batch

    def close(self) -> None:
        """Stop reading."""
        self._switching.close()
        self.batches.close()


def begin_reading(trace: TraceFile, options: TraceOptions, end: ExitStack) -> TraceReading | None:
    """Let a thread read a large trace until `end` is closed; None if no thread can."""
    if not _reads_ahead(trace.path, trace.reader):
        return None
    with suppress(InputError):  # which is raised when the file is opened to be ingested
        return end.enter_context(closing(TraceReading(trace.path, trace.reader, options, early=True)))
    return None


def _reads_ahead(path: Path, format_name: str) -> bool:
    found = format_of(format_name)
    # A read that waits for a pipe could not be interrupted.
    return found is not None and found.read_ahead and os.path.isfile(path) and file_size(path) >= SMALL_BYTES


@contextmanager
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
