"""Ingest a vendor's output folder into a temporary store, recompute the vendor's tables and compare them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Account, Code, ImportLog, LogEntry, Severity
from traceconv.base.display import TextDisplay
from traceconv.base.errors import InputError, printable
from traceconv.base.temporary_folder import temporary_folder
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.common.files import TextSource
from traceconv.formats.common.identity import Naming, names_of
from traceconv.formats.vendor_folder.discover import VendorFolder, slice_number
from traceconv.formats.vendor_folder.records import CsvRecords
from traceconv.normalize.vendor_csv.spec import FileKind, Layout, plain, spec
from traceconv.normalize.vendor_csv.typed import CellIssues, typed
from traceconv.pipeline.discover import vendor_folders
from traceconv.pipeline.result import Observer
from traceconv.pipeline.run_import import import_run
from traceconv.pipeline.run_sql import RunSql
from traceconv.pipeline.trace_file import TraceOptions
from traceconv.pipeline.vendor_folder.folder import FolderRecording
from traceconv.pipeline.vendor_folder.task_sql import TASK_COLUMNS, match_tasks
from traceconv.reports.statements import report_statements
from traceconv.store.writer import StoreWriter
from traceconv.verification.cells import Difference, Tally
from traceconv.verification.checks import (
    Cells,
    Kernels,
    LastRows,
    StepEnd,
    TimelineTask,
    check_blocks,
    check_calls,
    check_fusions,
    check_step_times,
    check_steps,
    check_sums,
    check_tasks,
    start_slack,
)
from traceconv.verification.steps import (
    COMMUNICATION,
    COMPUTING,
    RECEIVE,
    HostStep,
    StepTimes,
    host_steps,
    step_times,
)

_Spans: TypeAlias = "dict[str, list[tuple[int, int]]]"

#: The subtask number of slices that are complete tasks.
_NO_SUBTASK = 2**32 - 1
#: Why some files can't be checked.
_LIMITS_OF_CHECKS = {
    "l2_cache": "no other file has its content",
    "memory_record": "no other file has its content",
    "npu_module_mem": "no other file has its content",
    "npu_mem": "no other file has its content",
    "operator_details": "it has durations but no timestamps",
}


@dataclass(slots=True)
class Verdict:
    """The result for one recording.

    folder   path of the folder
    tallies  the result for each file: `file`, `cells` checked, `differing`, and the `differences` themselves
    left    files that were skipped, and why
    losses  lost data, as `traceconv ingest` reports it
    """

    folder: str
    tallies: list[Tally] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    @property
    def differences(self) -> list[Difference]:
        """The cells that differ."""
        return [difference for tally in self.tallies for difference in tally.differences]

    @property
    def cells(self) -> int:
        """Number of cells that were checked."""
        return sum(tally.cells for tally in self.tallies)

    @property
    def differing(self) -> int:
        """Number of cells that differ."""
        return sum(tally.differing for tally in self.tallies)


class Verdicts(TextDisplay, list[Verdict]):
    """The results for all folders below a path. Its repr has a summary of each file and the first differences."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def agree(self) -> bool:
        """Whether all cells agree and nothing was lost."""
        return not any(verdict.differing or verdict.losses for verdict in self)

    @property
    def differences(self) -> list[Difference]:
        """The cells that differ, in all folders."""
        return [difference for verdict in self for difference in verdict.differences]

    def check_any(self) -> None:
        """Raise InputError if no cell could be checked."""
        if not any(verdict.cells for verdict in self):
            raise InputError(f"{printable(str(self.path))}: nothing could be checked")

    def lines(self) -> Iterator[str]:
        """A line for each file, each loss and the total, and the first cells that differ."""
        from traceconv.verification.text import lines_of

        return lines_of(self)


def verify(path: Path, *, exact: bool = False) -> Verdicts:
    """Check the tables of every output folder at or below `path` against its timeline and against each other.

    exact  require exact equality, without differences that rounding explains

    Raises InputError when there is no such folder.
    """
    folders = vendor_folders(path)
    if not folders:
        shown = printable(str(path))
        if not os.path.exists(path):
            raise InputError(f"{shown} does not exist")
        raise InputError(
            f"{shown} contains no output folder of msprof or torch_npu (looked for trace_view.json, msprof_*.json and "
            "tables such as op_summary_*.csv or kernel_details.csv)"
        )
    verdicts = Verdicts(path)
    for folder in folders:
        try:
            verdicts.append(_verify(folder, exact))
        except InputError as error:  # the other folders are still checked
            if len(folders) == 1:
                raise
            verdicts.append(Verdict(str(folder.path), losses=[str(error)]))
    return verdicts


def _verify(folder: VendorFolder, exact: bool) -> Verdict:
    verdict = Verdict(str(folder.path), left=[(folder.name_of(file), why) for file, why in folder.left])
    with (
        temporary_folder() as scratch,
        StoreWriter(scratch / "verify.duckdb", report_statements) as writer,
    ):
        names = names_of([(folder.path, None)], Naming())[0]
        run = import_run(FolderRecording(folder, TraceOptions()), names, writer, Observer())
        verdict.losses = [entry.message for entry in run.log if entry.severity is not Severity.INFO]
        verdict.tallies = _FolderCheck(folder, RunSql(writer, run.run_id), exact, run.log).tallies()
    return verdict


@dataclass(slots=True)
class _FolderCheck:
    folder: VendorFolder
    run: RunSql
    exact: bool
    log: Sequence[LogEntry]
    kernels: Kernels = field(default_factory=Kernels)
    last_rows: dict[str, LastRows] = field(default_factory=dict)
    has_kernels: bool = False

    def tallies(self) -> list[Tally]:
        """Yield a tally for each table, first for those that others are checked against."""
        order = ("kernel_details", "op_summary", "task_time")
        kinds = [(path, kind) for path in self.folder.tables if (kind := spec().kind_of(path.name)) is not None]
        kinds.sort(
            key=lambda one: (
                (order.index(one[1].kind), slice_number(one[0])) if one[1].kind in order else (len(order), 0)
            )
        )
        return [self._tally(path, kind) for path, kind in kinds]

    def _tally(self, path: Path, kind: FileKind) -> Tally:
        tally = Tally(self.folder.name_of(path), self.exact)
        tally.reason = _LIMITS_OF_CHECKS.get(kind.kind)
        if tally.reason is not None:
            return tally
        rows = _Rows(path, kind)
        if rows.layout.missing or not rows.header:
            tally.reason = f"it has no column for {', '.join(rows.layout.missing)}" if rows.header else "it is empty"
            return tally
        try:
            self._check(tally, rows, kind)
        except KeyError as error:
            tally.reason = f"it has no column {error.args[0]!r}"
        return tally

    def _check(self, tally: Tally, rows: _Rows, kind: FileKind) -> None:
        checks: dict[str, Callable[[], None]] = {
            "op_statistic": lambda: self._sums(tally, rows, self.kernels.computing, by_core=True),
            "communication_statistic": lambda: self._sums(tally, rows, self.kernels.communication, by_core=False),
            "api_statistic": lambda: self._calls(tally, rows),
            "step_trace": lambda: check_steps(tally, list(rows), self._step_ends()),
            "step_trace_time": lambda: check_step_times(tally, list(rows), self._step_times()),
            "operator_memory": lambda: check_blocks(tally, rows),
            "fusion_op": lambda: check_fusions(tally, rows),
        }
        if kind.becomes == "task":
            self._tasks(tally, rows)
        elif kind.kind in checks:
            checks[kind.kind]()

    def _sums(
        self, tally: Tally, rows: _Rows, groups: Mapping[tuple[str, str, str], list[int]], *, by_core: bool
    ) -> None:
        if self.has_kernels:
            check_sums(tally, list(rows), groups, by_core=by_core, summarised=self.kernels.summarised)
        else:
            tally.reason = "the folder has no table of kernels with their types"

    def _calls(self, tally: Tally, rows: _Rows) -> None:
        calls: dict[tuple[str, ...], list[int]] = {
            (level, name): durs
            for level, name, durs in self.run.fetch(
                "SELECT coalesce(level, ''), coalesce(name, ''), list(dur_ns) "
                "FROM api WHERE run_id = $run AND dur_ns IS NOT NULL GROUP BY ALL"
            )
        }
        if calls:
            check_calls(tally, list(rows), calls)
        else:
            tally.reason = "the folder has no timeline with calls"

    # -- tasks --

    def _tasks(self, tally: Tally, rows: _Rows) -> None:
        """Check the rows against their tasks in the timeline, matched as ingest matches them.

        task_time has complete tasks: a row may span a slice of the timeline that is a numbered part of its task.
        """
        self.run.writer.stage("vendor_task", rows.typed(), TASK_COLUMNS)
        match_tasks(self.run)
        last = len(self.folder.timelines) + 1 << ORDINAL_BITS
        complete = rows.layout.kind.kind == "task_time"
        found = {
            vendor_id: TimelineTask(name, None if spans else start_ns, None if spans else dur_ns, source_task_id)
            for vendor_id, name, start_ns, dur_ns, source_task_id, spans in self.run.fetch(
                "SELECT m.vendor_id, t.name, t.start_ns, t.dur_ns, t.source_task_id, coalesce($complete "
                "AND TRY_CAST(t.args->>'Subtask Id' AS BIGINT) <> $no_subtask AND v.start_ns <= t.start_ns "
                "AND v.start_ns + v.dur_ns >= t.start_ns + t.dur_ns, false) FROM temp.vendor_match AS m "
                "JOIN temp.vendor_task AS v ON v.id = m.vendor_id "
                "JOIN task AS t ON t.run_id = $run AND t.id = m.task_id WHERE t.id < $last",
                last=last,
                complete=complete,
                no_subtask=_NO_SUBTASK,
            )
        }
        if "op_type" in rows.headings and not self.has_kernels:
            self.has_kernels = True
            self.run.run_sql("CREATE TEMP TABLE vendor_kernel AS SELECT task_id FROM temp.vendor_match")
        pairs = ((cells, found.get(rows.first_id + ordinal)) for ordinal, cells in enumerate(rows))
        slack = start_slack(cells[rows.headings["start_ns"]] for cells in rows)
        before = self.last_rows.setdefault(rows.layout.kind.kind, {})
        timeline = bool(self.folder.timelines)
        check_tasks(tally, pairs, rows.headings, self.kernels, before, timeline=timeline, start_slack_ns=slack)

    # -- what the store contains --

    def _step_ends(self) -> dict[int, list[StepEnd]]:
        """Return the times of iterations in the timeline; those from the table itself would prove nothing."""
        ends: dict[int, list[StepEnd]] = {}
        if self.folder.timelines:
            for iteration, *end in self.run.fetch(
                "SELECT iteration, coalesce(device_id::VARCHAR, ''), coalesce(model_id::VARCHAR, ''), start_ns, end_ns "
                "FROM step WHERE run_id = $run AND iteration IS NOT NULL AND start_ns IS NOT NULL "
                "AND end_ns IS NOT NULL AND step_source <> 'csv'"
            ):
                ends.setdefault(iteration, []).append(StepEnd(*end))
        return ends

    def _step_times(self) -> Mapping[tuple[str, str], StepTimes]:
        """Return busy times by device and step, from the timeline's own Overlap Analysis if it has one."""
        slices = self.run.fetch(
            "SELECT coalesce(l.device_id::VARCHAR, ''), s.name, s.start_ns, s.dur_ns FROM slice AS s "
            "JOIN track AS k USING (run_id, track_id) JOIN process AS p ON p.run_id = k.run_id "
            "AND p.process_id = k.process_id LEFT JOIN temp.vendor_label AS l ON l.process_id = p.process_id "
            "WHERE s.run_id = $run AND s.dur_ns IS NOT NULL "
            "AND (p.name = 'Overlap Analysis' OR starts_with(s.name, $receive)) ORDER BY s.start_ns",
            receive=RECEIVE,
        )
        rounded = any(entry.code is Code.FINE_TIME and entry.message.startswith("dur") for entry in self.log)
        if any(not name.startswith(RECEIVE) for _, name, _, _ in slices):
            return step_times(slices, self._host_steps(), rounded=rounded)
        spans: dict[tuple[str, str], _Spans] = {}
        for step_id, what, start_ns, dur_ns in self._busy_tasks():
            for key in {"" if step_id is None else str(step_id), ""}:
                spans.setdefault(("", key), {}).setdefault(what, []).append((start_ns, start_ns + dur_ns))
        return {key: _times(one) for key, one in spans.items()}

    def _host_steps(self) -> list[HostStep]:
        """Return steps of the host and the tasks they launched. For queued calls, the time of enqueueing counts."""
        steps = self.run.fetch(
            "SELECT DISTINCT step_id::VARCHAR, start_ns, end_ns FROM step WHERE run_id = $run "
            "AND step_source = 'annotation' AND start_ns IS NOT NULL AND end_ns IS NOT NULL"
        )
        launches = (
            "SELECT {asked}, {number}, t.start_ns, t.start_ns + coalesce(t.dur_ns, 0) FROM flow AS f "
            "JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id {queue} "
            "WHERE f.run_id = $run AND f.kind = 'launch' AND f.src_ns IS NOT NULL"
        )
        queued = (
            "JOIN range AS d ON d.run_id = f.run_id AND d.category = 'dequeue' AND d.start_ns <= f.src_ns "
            "AND f.src_ns <= d.start_ns + d.dur_ns JOIN range AS e ON e.run_id = d.run_id "
            "AND e.category = 'enqueue' AND e.correlation_id = d.correlation_id"
        )
        found = self.run.fetch(
            launches.format(asked="e.start_ns", number="e.correlation_id", queue=queued)
        ) or self.run.fetch(launches.format(asked="f.src_ns", number="f.src_ns", queue=""))
        return host_steps(steps, found) if found else []

    def _busy_tasks(self) -> list[tuple[int | None, str, int, int]]:
        # If a kernel table lists the kernels, other tasks on a core are not kernels.
        is_kernel = "t.id IN (SELECT task_id FROM temp.vendor_kernel)" if self.has_kernels else "true"
        return self.run.fetch(
            "SELECT step_id, CASE kind WHEN 'compute' THEN 'Computing' ELSE 'Communication' END, start_ns, dur_ns "  # noqa: S608
            "FROM task AS t WHERE run_id = $run AND dur_ns IS NOT NULL AND kind IN ('compute', 'collective') "
            f"AND {is_kernel} ORDER BY start_ns"
        )


def _times(spans: _Spans) -> StepTimes:
    everything = sorted(span for some in spans.values() for span in some)
    computing, communication = spans.get(COMPUTING, []), spans.get(COMMUNICATION, [])
    stage = max(end for _, end in everything) - everything[0][0]
    computed, communicated, busy = _union(computing), _union(communication), _union(everything)
    overlapped = computed + communicated - busy
    return StepTimes(computed, communicated, overlapped, stage - busy, stage, None, bubble=0, slack_ns=len(everything))


class _Rows:
    """The records of a file, as cells by normalized heading. It can be iterated repeatedly."""

    #: A source id that no file of the run has.
    first_id = 1 << 60

    def __init__(self, path: Path, kind: FileKind) -> None:
        self._path = path
        self.header: Sequence[str] = self._open().open()
        self.layout: Layout = spec().layout(kind, self.header)
        self._names = [plain(name) for name in self.header]
        #: The headings of our columns.
        self.headings = {column: self._names[place] for column, place in self.layout.places.items()}

    def _open(self) -> CsvRecords:
        log = ImportLog()
        source = TextSource(self._path, log, TraceOptions().limits, lambda _: None)
        return CsvRecords(source.chunks(), log, Account(), self._path.name)

    def __iter__(self) -> Iterator[Cells]:
        records = self._open()
        records.open()
        seen: dict[str, int] = {}
        names = []
        for name in self._names:  # repeated headings, such as those of reduces, are numbered
            seen[name] = seen.get(name, 0) + 1
            names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
        for batch in records.batches():
            for row in batch.rows:
                yield dict(zip(names, row, strict=True))

    def typed(self) -> Iterator[pa.RecordBatch]:
        """Yield batches as ingest reads them."""
        records = self._open()
        records.open()
        for batch in records.batches():
            first = self.first_id + batch.first_ordinal
            rows = typed(
                self.layout, batch.rows, np.arange(first, first + len(batch.rows), dtype=np.int64), CellIssues()
            )
            yield rows.select([name for name in rows.schema.names if name in TASK_COLUMNS])


def _union(spans: Sequence[tuple[int, int]]) -> int:
    """Return the time covered by intervals that are sorted by start."""
    total, reached = 0, None
    for start, end in spans:
        if reached is None or start > reached:
            total += max(0, end - start)
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
