"""The progress line of an ingest: how much was read, how fast, and the remaining time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from traceconv.base.errors import printable
from traceconv.pipeline.result import Observer

if TYPE_CHECKING:
    from rich.progress import Progress

#: How often the line is updated.
_SECONDS_BETWEEN = 0.1
_MEGA = 1e6


@contextmanager
def ingest_progress() -> Iterator[Observer | None]:
    """Show a progress line if stderr is a terminal, else None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=3)),
        BarColumn(bar_width=None, table_column=Column(ratio=2, min_width=6)),
        TaskProgressColumn(),
        TextColumn("{task.fields[numbers]}", markup=False, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as progress:
        yield IngestProgress(progress)


class IngestProgress(Observer):
    """Updates a rich progress line.

    If a file is read first and stored afterwards, each phase counts for half. Storing is measured in rows per event
    read, since there are about as many.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, numbers="")
        self._started = time.monotonic()
        self._shown = 0.0
        self._runs = self._finished_runs = 0
        self._total_bytes = self._finished_bytes = 0
        self._all_read = self._all_events = 0
        self._label, self._phase, self._passes = "", "", 1
        self._size = self._read = self._events = self._rows = 0

    def plan(self, run_count: int, total_bytes: int) -> None:
        """Set the number of runs and their total size."""
        self._runs, self._total_bytes = run_count, total_bytes
        self._show(at_once=True)

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None:
        """Start reading a run, or restart it from its beginning."""
        self._label, self._phase, self._passes = printable(label, 60), "reading", passes
        self._all_read -= self._read
        self._all_events -= self._events
        self._size, self._read, self._events, self._rows = total_bytes, 0, 0, 0
        self._show(at_once=self._runs == 1)

    def advance(self, byte_count: int) -> None:
        """Add bytes read since the last call."""
        self._read += byte_count
        self._all_read += byte_count
        self._show()

    def counted(self, event_count: int) -> None:
        """Add events read since the last call."""
        self._events += event_count
        self._all_events += event_count

    def storing(self) -> None:
        """Start storing: all events of the run are read."""
        self._phase = "storing"
        self._show(at_once=self._runs == 1)

    def stored(self, row_count: int) -> None:
        """Add rows stored since the last call."""
        self._rows += row_count
        self._show()

    def done(self) -> None:
        """Finish the run, stored or not."""
        self._finished_runs += 1
        self._finished_bytes += self._size
        self._size = self._read = self._events = self._rows = 0
        self._show()

    def _show(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if not at_once and now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        part = min(1.0, self._read / self._size) if self._size else 0.0
        if self._passes == 2:
            stored = min(1.0, self._rows / self._events) if self._events else 0.0
            part = (part + stored) / 2
        seconds = now - self._started
        rate = f", {self._all_events / seconds:,.0f} events/s" if self._all_events and seconds > 0.2 else ""
        place = f"{min(self._finished_runs + 1, self._runs):,}/{self._runs:,} " if self._runs > 1 else ""
        # The size of standard input is unknown.
        total = f"/{self._total_bytes / _MEGA:,.1f}" if self._total_bytes else ""
        self._progress.update(
            self._task,
            description=f"{place}{self._phase} {self._label}".strip(),
            total=self._total_bytes or None,
            completed=self._finished_bytes + part * self._size,
            numbers=f"{self._all_read / _MEGA:,.1f}{total} MB{rate}",
        )
