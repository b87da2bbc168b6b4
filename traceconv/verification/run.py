"""Verify: a vendor's output folder is ingested into a store of its own, and the vendor's tables are computed again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Account, Code, ImportLog, LogEntry, Severity
from traceconv.base.errors import InputError, printable
from traceconv.events.npu import ORDINAL_BITS
from traceconv.formats.common.files import TextSource
from traceconv.formats.common.identity import Naming, names_of
from traceconv.formats.vendor_folder.discover import VendorFolder, slice_number
from traceconv.formats.vendor_folder.records import CsvRecords
from traceconv.normalize.vendor_csv.spec import FileKind, Layout, plain, spec
from traceconv.normalize.vendor_csv.typed import Odd, typed
from traceconv.pipeline.discover import vendor_folders
from traceconv.pipeline.result import Observer, SilentObserver
from traceconv.pipeline.run_import import import_run
from traceconv.pipeline.trace_file import TraceOptions
from traceconv.pipeline.vendor_folder.folder import FolderRecording
from traceconv.pipeline.vendor_folder.task_sql import TASK_COLUMNS, match_tasks
from traceconv.reports.catalog import report_statements
from traceconv.store.writer import StoreWriter
from traceconv.verification.cells import Difference, Tally
from traceconv.verification.checks import (
    Cells,
    Columns,
    Evidence,
    Kernels,
    LastRows,
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

#: The number of a part of a task, where a slice of the timeline is all of it.
_NO_SUBTASK = 2**32 - 1
#: Files that can't be checked, and why.
_LIMITS_OF_CHECKS = {
    "l2_cache": "no other file tells of what it holds",
    "memory_record": "no other file tells of what it holds",
    "npu_module_mem": "no other file tells of what it holds",
    "npu_mem": "no other file tells of what it holds",
    "operator_details": "it has durations without their times",
}


@dataclass(slots=True)
class Verdict:
    """What came of one recording.

    left    files that are not read at all, and why
    losses  what could not be read, as `traceconv ingest` says it
    """

    folder: str
    tallies: list[Tally] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    @property
    def differences(self) -> list[Difference]:
        return [difference for tally in self.tallies for difference in tally.differences]

    @property
    def cells(self) -> int:
        return sum(tally.cells for tally in self.tallies)

    @property
    def differing(self) -> int:
        return sum(tally.differing for tally in self.tallies)


def verify(path: Path, *, exact: bool = False, observer: Observer | None = None) -> list[Verdict]:
    """Checks the tables of every output folder at or below `path` against its timeline and against each other.

    exact  a cell must be the same number; else it may differ by what rounding explains

    Nothing is kept: each folder goes into a temporary store. Raises InputError when there is no such folder.
    """
    folders = vendor_folders(path)
    if not folders:
        shown = printable(str(path))
        if not os.path.exists(path):
            raise InputError(f"{shown}: there is no such file or folder")
        raise InputError(
            f"{shown}: no output folder of msprof or torch_npu in it (looked for trace_view.json, msprof_*.json and "
            "tables such as op_summary_*.csv or kernel_details.csv)"
        )
    verdicts: list[Verdict] = []
    for folder in folders:
        try:
            verdicts.append(_verify(folder, exact, observer or SilentObserver()))
        except InputError as error:  # one that can't be used doesn't keep the others from being checked
            if len(folders) == 1:
                raise
            verdicts.append(Verdict(str(folder.path), losses=[str(error)]))
    return verdicts


def _verify(folder: VendorFolder, exact: bool, observer: Observer) -> Verdict:
    verdict = Verdict(str(folder.path), left=[(folder.name_of(file), why) for file, why in folder.left])
    with (
        tempfile.TemporaryDirectory(prefix="traceconv-verify-") as scratch,
        StoreWriter(Path(scratch) / "verify.duckdb", report_statements) as writer,
    ):
        names = names_of([(folder.path, None)], Naming())[0]
        run = import_run(FolderRecording(folder, TraceOptions()), names, writer, observer)
        verdict.losses = [entry.message for entry in run.log if entry.severity is not Severity.INFO]
        verdict.tallies = _FolderCheck(folder, writer, run.run_id, exact, run.log).tallies()
    return verdict


@dataclass(slots=True)
class _FolderCheck:
    folder: VendorFolder
    writer: StoreWriter
    run_id: int
    exact: bool
    log: Sequence[LogEntry]
    kernels: Kernels = field(default_factory=Kernels)
    last_rows: dict[str, LastRows] = field(default_factory=dict)
    has_kernels: bool = False
    has_steps: bool = False

    def tallies(self) -> list[Tally]:
        """One for each table, those that others are checked with first."""
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
        if kind.becomes == "task":
            self._tasks(tally, rows)
        elif kind.kind in ("op_statistic", "communication_statistic"):
            of_ops = kind.kind == "op_statistic"
            groups = self.kernels.computing if of_ops else self.kernels.communication
            if not self.has_kernels:
                tally.reason = "no table of kernels beside it says of what type each kernel is"
            else:
                check_sums(tally, list(rows), groups, by_core=of_ops)
        elif kind.kind == "api_statistic":
            calls = self._calls()
            if not calls:
                tally.reason = "there is no timeline with calls beside it"
            else:
                check_calls(tally, list(rows), calls)
        elif kind.kind == "step_trace":
            check_steps(tally, list(rows), self._steps())
        elif kind.kind == "step_trace_time":
            check_step_times(tally, list(rows), self._step_times())
        elif kind.kind == "operator_memory":
            check_blocks(tally, rows)
        elif kind.kind == "fusion_op":
            check_fusions(tally, rows)

    # -- tasks --

    def _tasks(self, tally: Tally, rows: _Rows) -> None:
        """The rows with their tasks of the timeline, which are found anew, as ingest found them.

        task_time has whole tasks. Where the timeline shows a part of one, which it numbers, the row may span that part.
        """
        self.writer.stage("vendor_task", rows.typed(), TASK_COLUMNS)
        match_tasks(self.writer, self.run_id)
        last = len(self.folder.timelines) + 1 << ORDINAL_BITS
        whole = rows.layout.kind.kind == "task_time"
        found = {
            vendor_id: Evidence(name, None if spans else start_ns, None if spans else dur_ns, source_task_id)
            for vendor_id, name, start_ns, dur_ns, source_task_id, spans in self.writer.fetch(
                "SELECT m.vendor_id, t.name, t.start_ns, t.dur_ns, t.source_task_id, coalesce($whole "
                "AND TRY_CAST(t.args->>'Subtask Id' AS BIGINT) <> $no_subtask AND v.start_ns <= t.start_ns "
                "AND v.start_ns + v.dur_ns >= t.start_ns + t.dur_ns, false) FROM temp.vendor_match AS m "
                "JOIN temp.vendor_task AS v ON v.id = m.vendor_id "
                "JOIN task AS t ON t.run_id = $run AND t.id = m.task_id WHERE t.id < $last",
                {"run": self.run_id, "last": last, "whole": whole, "no_subtask": _NO_SUBTASK},
            )
        }
        heading = rows.heading
        columns = Columns(
            name=heading("name") or "",
            start=heading("start_ns") or "",
            dur=heading("dur_ns") or "",
            wait=heading("vendor_wait_ns"),
            end=heading("end_ns"),
            device=heading("device_id"),
            task=heading("source_task_id"),
            stream=heading("stream_id"),
            op_type=heading("op_type"),
            core=heading("task_type"),
        )
        if columns.op_type is not None and not self.has_kernels:
            self.has_kernels = True
            self.writer.run_sql("CREATE TEMP TABLE vendor_told AS SELECT task_id FROM temp.vendor_match")
        pairs = ((cells, found.get(rows.first_id + ordinal)) for ordinal, cells in enumerate(rows))
        slack = start_slack(cells[columns.start] for cells in rows)
        before = self.last_rows.setdefault(rows.layout.kind.kind, {})
        timeline = bool(self.folder.timelines)
        check_tasks(tally, pairs, columns, self.kernels, before, timeline=timeline, start_slack_ns=slack)

    # -- what the store says --

    def _calls(self) -> dict[tuple[str, str], list[int]]:
        """Durations by (level, name)."""
        calls: dict[tuple[str, str], list[int]] = {}
        for level, name, durs in self.writer.fetch(
            "SELECT coalesce(level, ''), coalesce(name, ''), list(dur_ns) "
            "FROM api WHERE run_id = $run AND dur_ns IS NOT NULL GROUP BY ALL",
            {"run": self.run_id},
        ):
            calls[level, name] = durs
        return calls

    def _steps(self) -> dict[int, tuple[int | None, int | None, int | None]]:
        """Iterations as the timeline has them: what came from the table itself is no evidence."""
        if not self.folder.timelines:
            return {}
        rows = self.writer.fetch(
            "SELECT iteration, end_ns FROM step WHERE run_id = $run AND iteration IS NOT NULL AND start_ns IS NOT NULL",
            {"run": self.run_id},
        )
        return {iteration: (None, None, end_ns) for iteration, end_ns in rows}

    def _step_times(self) -> Mapping[tuple[str, str], StepTimes]:
        """Busy times by device and step: by the timeline's own Overlap Analysis where it has one."""
        slices = self.writer.fetch(
            "SELECT coalesce(l.device_id::VARCHAR, ''), s.name, s.start_ns, s.dur_ns FROM slice AS s "
            "JOIN track AS k USING (run_id, track_id) JOIN process AS p ON p.run_id = k.run_id "
            "AND p.process_id = k.process_id LEFT JOIN temp.vendor_label AS l ON l.process_id = p.process_id "
            "WHERE s.run_id = $run AND s.dur_ns IS NOT NULL "
            "AND (p.name = 'Overlap Analysis' OR starts_with(s.name, $receive)) ORDER BY s.start_ns",
            {"run": self.run_id, "receive": RECEIVE},
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
        """Steps of the host with what they launched. Where calls wait in a queue, what counts is who put them there."""
        steps = self.writer.fetch(
            "SELECT DISTINCT step_id::VARCHAR, start_ns, end_ns FROM step WHERE run_id = $run "
            "AND step_source = 'annotation' AND start_ns IS NOT NULL AND end_ns IS NOT NULL",
            {"run": self.run_id},
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
        found = self.writer.fetch(
            launches.format(asked="e.start_ns", number="e.correlation_id", queue=queued), {"run": self.run_id}
        ) or self.writer.fetch(launches.format(asked="f.src_ns", number="f.src_ns", queue=""), {"run": self.run_id})
        return host_steps(steps, found) if found else []

    def _busy_tasks(self) -> list[tuple[int | None, str, int, int]]:
        # Where a kernel table says which tasks are kernels, other tasks on a core are none.
        told = "t.id IN (SELECT task_id FROM temp.vendor_told)" if self.has_kernels else "true"
        return self.writer.fetch(
            "SELECT step_id, CASE kind WHEN 'compute' THEN 'Computing' ELSE 'Communication' END, start_ns, dur_ns "  # noqa: S608
            "FROM task AS t WHERE run_id = $run AND dur_ns IS NOT NULL AND kind IN ('compute', 'collective') "
            f"AND {told} ORDER BY start_ns",
            {"run": self.run_id},
        )


def _times(spans: _Spans) -> StepTimes:
    everything = sorted(span for some in spans.values() for span in some)
    computing, communication = spans.get(COMPUTING, []), spans.get(COMMUNICATION, [])
    stage = max(end for _, end in everything) - everything[0][0]
    computed, communicated, busy = _union(computing), _union(communication), _union(everything)
    overlapped = computed + communicated - busy
    return StepTimes(computed, communicated, overlapped, stage - busy, stage, None, bubble=0, slack_ns=len(everything))


class _Rows:
    """The records of a file, as often as they are asked for: cells by plain heading."""

    #: Ids behind those of all files of the run.
    first_id = 1 << 60

    def __init__(self, path: Path, kind: FileKind) -> None:
        self._path = path
        self.header: Sequence[str] = self._open().open()
        self.layout: Layout = spec().layout(kind, self.header)
        self._names = [plain(name) for name in self.header]

    def _open(self) -> CsvRecords:
        log = ImportLog()
        source = TextSource(self._path, log, TraceOptions().limits, lambda _: None)
        return CsvRecords(source.chunks(), log, Account(), self._path.name)

    def heading(self, column: str) -> str | None:
        """The heading of one of our columns; None when the file has it not."""
        place = self.layout.places.get(column)
        return None if place is None else self._names[place]

    def __iter__(self) -> Iterator[Cells]:
        records = self._open()
        records.open()
        seen: dict[str, int] = {}
        names = []
        for name in self._names:  # of headings that come again, as those of reduces do, each has a name of its own
            seen[name] = seen.get(name, 0) + 1
            names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
        for batch in records.batches():
            for row in batch.rows:
                yield dict(zip(names, row, strict=True))

    def typed(self) -> Iterator[pa.RecordBatch]:
        """Batches as ingest takes them."""
        records = self._open()
        records.open()
        for batch in records.batches():
            first = self.first_id + batch.first_ordinal
            rows = typed(self.layout, batch.rows, np.arange(first, first + len(batch.rows), dtype=np.int64), Odd())
            yield rows.select([name for name in rows.schema.names if name in TASK_COLUMNS])


def _union(spans: Sequence[tuple[int, int]]) -> int:
    """Time covered by intervals, which are sorted by their start."""
    total, reached = 0, None
    for start, end in spans:
        if reached is None or start > reached:
            total += max(0, end - start)
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total
