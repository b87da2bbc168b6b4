"""The progress of an ingest and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traceconv.base.diagnostics import Accounts, LogEntry, Severity
from traceconv.base.display import TextDisplay
from traceconv.base.errors import InputError


class Observer:
    """Follows the progress of an ingest; this one ignores it."""

    def plan(self, run_count: int, total_bytes: int) -> None:
        """All runs to be read, and the bytes of all of them together."""

    def of_run(self) -> Observer:
        """Return the observer of one run, of which the following calls are; several runs may be read at once."""
        return self

    def start(self, label: str, total_bytes: int, passes: int = 1) -> None:
        """A run begins. `passes` 2: its rows are stored after all of it was read."""

    def advance(self, byte_count: int) -> None:
        """Bytes read since the last call."""

    def counted(self, event_count: int) -> None:
        """Events read since the last call."""

    def storing(self) -> None:
        """All events of the run were read; its rows are stored next."""

    def stored(self, row_count: int) -> None:
        """Rows sent to the store since the last call."""

    def done(self) -> None:
        """The run is stored or can't be used."""

    def remote(self, done: int, failed: int) -> None:
        """Of the runs that Spark's executors read: how many are done, and how many of these can't be used."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A file or folder without a run, and the reason in one line."""

    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class IngestedRun:
    """The result for one source.

    action     ingested, replaced, or kept (it was already in the store)
    seconds    wall time of reading it; the commit of all runs comes later
    was_lossy  a run that was kept had losses when it was ingested
    rank, host, group_label  as in the table run; None: unknown
    given_label  the label that a run of this source would have; a kept run may be of another file with its content
    """

    run_id: int
    label: str
    source_path: str
    action: str
    seconds: float = 0.0
    size_bytes: int = 0
    complete: bool = True
    accounts: Accounts = field(default_factory=Accounts)
    log: tuple[LogEntry, ...] = ()
    source_names: Mapping[int, str] = field(default_factory=dict)
    was_lossy: bool = False
    rank: int | None = None
    host: str | None = None
    group_label: str | None = None
    given_label: str | None = None

    @property
    def record_count(self) -> int:
        """Number of records in the source."""
        return sum(account.records for account in self.accounts.by_record.values())

    @property
    def lossy(self) -> bool:
        """Whether something in the source was lost."""
        return self.was_lossy or any(entry.severity is not Severity.INFO for entry in self.log)


class IngestedRuns(TextDisplay, list[IngestedRun]):
    """The ingested runs, and the files that gave none. Its repr is what the command prints.

    store     path of the store
    seconds   wall time, until everything is stored
    unusable  files and folders that should have given a run
    others    files in folders that are not traces
    same      (run, earlier run that seems to have the same content)
    """

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.store = store
        self.seconds = 0.0
        self.unusable: list[Problem] = []
        self.others: list[Problem] = []
        self.same: list[tuple[int, int]] = []

    @property
    def lossy(self) -> bool:
        """Whether something in the sources was lost."""
        return bool(self.unusable) or any(run.lossy for run in self)

    def lines(self) -> Iterator[str]:
        """Describe the runs."""
        from traceconv.pipeline.ingest_text import lines_of

        return lines_of(self)


class NothingUsable(InputError):
    """None of several files or folders could be used; `problems` has the reasons."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"none of {len(self.problems)} files and folders can be used; nothing was stored")
