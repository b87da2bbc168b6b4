"""The progress line of an ingest: how much was read, how fast, and the remaining time; and that of other commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from traceconv.base.errors import printable
from traceconv.pipeline.result import Observer

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable
    from rich.progress import Progress

#: How often the line is updated.
_SECONDS_BETWEEN = 0.1
#: How often a line is printed if stderr is not a terminal.
_SECONDS_BETWEEN_LINES = 10
_MEGA = 1e6


@contextmanager
def ingest_progress(above: ConsoleRenderable | None = None) -> Iterator[Observer]:
    """Show a progress line if stderr is a terminal. `above`: what is shown with it."""
    if not sys.stderr.isatty():
        yield _RemoteProgress()
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
    console = Console(stderr=True)
    console.width -= 2  # room for the ^C that a terminal echoes: on the next line, it would not be erased
    progress = Progress(*columns, console=console, transient=True, expand=True)
    if above is None:
        with progress:
            yield IngestProgress(progress)
        return
    from rich.console import Group
    from rich.live import Live

    with Live(Group(above, progress), console=console, transient=True):
        yield IngestProgress(progress)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show that the program is at work, and on what, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{printable(what, 60)} …")):
        yield


class _RemoteProgress(Observer):
    """Prints a line about the runs that executors read, if there is something new, every few seconds."""

    def __init__(self) -> None:
        self._runs = 0
        self._printed: tuple[float, tuple[int, int]] = (time.monotonic(), (0, 0))

    def plan(self, run_count: int, total_bytes: int) -> None:
        """Set the number of runs."""
        self._runs = run_count

    def remote(self, done: int, failed: int) -> None:
        """Print how many are done, unless that was printed a moment ago."""
        now = time.monotonic()
        if (done, failed) != self._printed[1] and now - self._printed[0] >= _SECONDS_BETWEEN_LINES:
            self._printed = (now, (done, failed))
            sys.stderr.write(_done_text(done, failed, self._runs) + "\n")
            sys.stderr.flush()


def _done_text(done: int, failed: int, runs: int) -> str:
    return f"{done:,}/{runs:,} files" + (f", {failed:,} failed" if failed else "")


class IngestProgress(Observer):
    """Updates a rich progress line, about the run that is stored next and those that are read at the same time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, numbers="")
        self._started = time.monotonic()
        self._shown = 0.0
        self._runs = self._finished_runs = 0
        self._total_bytes = self._finished_bytes = 0
        self._finished_read = self._finished_events = 0
        self._under_way: list[_RunProgress] = []

    def plan(self, run_count: int, total_bytes: int) -> None:
        """Set the number of runs and their total size."""
        self._runs, self._total_bytes = run_count, total_bytes
        self.show(at_once=True)

    def of_run(self) -> Observer:
        """Return the observer of one run."""
        return _RunProgress(self)

    def remote(self, done: int, failed: int) -> None:
        """Show how many of the runs that executors read are done. What they have read of the others is unknown."""
        shown = _done_text(done, failed, self._runs)
        self._progress.update(self._task, description=shown, total=self._runs, completed=done, numbers="")

    def begin(self, run: _RunProgress) -> None:
        """Show a run that begins."""
        if run not in self._under_way:
            self._under_way.append(run)
        self.show(at_once=self._runs == 1)

    def finish(self, run: _RunProgress) -> None:
        """Count a run as done, stored or not."""
        if run in self._under_way:
            self._under_way.remove(run)
        self._finished_runs += 1
        self._finished_bytes += run.size_bytes
        self._finished_read += run.read_bytes
        self._finished_events += run.events
        self.show()

    def show(self, *, at_once: bool = False) -> None:
        """Update the line, unless that was done a moment ago."""
        now = time.monotonic()
        if not at_once and now - self._shown < _SECONDS_BETWEEN:
            return
        self._shown = now
        runs = self._under_way
        seconds = now - self._started
        events = self._finished_events + sum(run.events for run in runs)
        rate = f", {events / seconds:,.0f} events/s" if events and seconds > 0.2 else ""
        place = f"{min(self._finished_runs + 1, self._runs):,}/{self._runs:,} " if self._runs > 1 else ""
        name = f"{runs[0].phase} {runs[0].label}" if runs else ""
        others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        # The size of standard input is unknown.
        total = f"/{self._total_bytes / _MEGA:,.1f}" if self._total_bytes else ""
        read_bytes = self._finished_read + sum(run.read_bytes for run in runs)
        self._progress.update(
            self._task,
            description=f"{place}{name}{others}".strip(),
            total=self._total_bytes or None,
            completed=self._finished_bytes + sum(run.part * run.size_bytes for run in runs),
            numbers=f"{read_bytes / _MEGA:,.1f}{total} MB{rate}",
        )


class _RunProgress(Observer):
    """The progress of one run.

    If a file is read first and stored afterwards, each phase counts for half. Storing is measured in rows per event
    read, since there are about as many.
    """

    def __init__(self, line: IngestProgress) -> None:
        self._line = line
        self._passes = 1
        self._rows = 0
        self.label, self.phase = "", ""
        self.size_bytes = self.read_bytes = self.events = 0

    @property
    def part(self) -> float:
        """How much of it is done, from 0 to 1."""
        part = min(1.0, self.read_bytes / self.size_bytes) if self.size_bytes else 0.0
        if self._passes == 2:
            stored = min(1.0, self._rows / self.events) if self.events else 0.0
            part = (part + stored) / 2
        return part

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None:
        """Start reading a run, or restart it from its beginning."""
        self.label, self.phase, self._passes = printable(label, 60), "reading", passes
        self.size_bytes, self.read_bytes, self.events, self._rows = total_bytes, 0, 0, 0
        self._line.begin(self)

    def advance(self, byte_count: int) -> None:
        """Add bytes read since the last call."""
        self.read_bytes += byte_count
        self._line.show()

    def counted(self, event_count: int) -> None:
        """Add events read since the last call."""
        self.events += event_count

    def storing(self) -> None:
        """Start storing: all events of the run are read."""
        self.phase = "storing"
        self._line.begin(self)

    def stored(self, row_count: int) -> None:
        """Add rows stored since the last call."""
        self._rows += row_count
        self._line.show()

    def done(self) -> None:
        """Finish the run, stored or not."""
        self._line.finish(self)
