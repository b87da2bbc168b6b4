"""Ingest into a lake: each recording into a temporary store, which is exported, here or on Spark's executors.

A run is in the lake once its entry is written. So a killed ingest, a lost executor or a task that Spark runs twice
leave complete runs only, and the same ingest adds what is missing. Runs are numbered in the order of the paths,
whichever is added first.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import TypeAlias

import duckdb

from traceconv.base.errors import InputError, TraceconvError, UsageError, option, printable, reason_of
from traceconv.base.malloc_tuning import limit_arenas
from traceconv.base.temporary_folder import temporary_folder
from traceconv.export.parquet import add_run
from traceconv.formats.common.files import STDIN
from traceconv.formats.common.identity import Naming, RunNames
from traceconv.lake.entries import Entry, Lake, entry_name, key_of, parse_entry, read_lake
from traceconv.lake.folder import LakeFolder, is_s3, lake_folder
from traceconv.lake.views import attach_lake
from traceconv.pipeline.ingest import find_recordings, nothing_usable, reading
from traceconv.pipeline.reader_pool import together
from traceconv.pipeline.result import IngestedRun, IngestedRuns, Observer, Problem
from traceconv.pipeline.run_import import Recording, import_run, path_text
from traceconv.pipeline.trace_file import TraceOptions
from traceconv.reports.question import check_engine
from traceconv.reports.statements import report_statements
from traceconv.store.database import connect_memory, open_own_file, temporary_spill_folder
from traceconv.store.files import remove_database
from traceconv.store.writer import StoreWriter

#: The key of an added or kept run with its result, or why there is none.
Outcome: TypeAlias = "tuple[str, IngestedRun] | Problem"


@dataclass(frozen=True, slots=True)
class _Job:
    """Recordings to add to a lake.

    added_ns  when each is taken to be added, which numbers the runs
    """

    lake: Path
    recordings: Sequence[Recording]
    names: Sequence[RunNames]
    added_ns: Sequence[int]
    replace: bool


def ingest_into_lake(  # noqa: PLR0913 - as on the command line
    paths: Sequence[Path],
    into: Path,
    *,
    replace: bool = False,
    observer: Observer | None = None,
    reader: str | None = None,
    trace_options: TraceOptions | None = None,
    naming: Naming | None = None,
    jobs: int | None = None,
    engine: str = "duckdb",
    master: str = "local[*]",
) -> IngestedRuns:
    """Add all captures, vendors' folders and trace files in `paths` to a lake, which is created if it does not exist.

    Those whose content is in the lake are kept. Files that can't be used are skipped and listed in the result.

    into    the lake: a folder, or s3://BUCKET/FOLDER
    engine  "duckdb": this process; "spark": executors, which need traceconv and access to the paths and to the lake
    master  for "spark": see `spark_session`

    Other parameters are those of `ingest`. Raises UsageError for a lake in `paths`, InputError if a path does not exist
    or nothing can be used, OutputError if the lake can't be written, StoreError if Spark fails.
    """
    started = time.perf_counter()
    check_engine(engine)
    folder = lake_folder(into)
    absolute = [path if path == STDIN or is_s3(path) else path.absolute() for path in paths]
    found = find_recordings(absolute, reader, trace_options, naming, jobs)
    if found.lakes:
        shown = printable(str(found.lakes[0]))
        raise UsageError(f"{shown} is a lake; ingest it into a store, and export that with: traceconv export parquet")
    result = IngestedRuns(into)
    result.unusable = found.unusable
    result.others = [one for one in found.others if not one.path.is_relative_to(into.absolute())]
    observer = observer or Observer()
    observer.plan(len(found.recordings), sum(recording.size_bytes for recording in found.recordings))
    if not found.recordings:
        raise nothing_usable(result)
    with folder.staging():  # before anything is read
        pass
    first_ns = time.time_ns()
    added_ns = range(first_ns, first_ns + len(found.recordings))
    lake_path = into if is_s3(into) else into.absolute()
    job = _Job(lake_path, found.recordings, found.names, added_ns, replace)
    outcomes = _by_spark(job, master, observer) if engine == "spark" else _add(job, found.processes, observer)
    added: list[tuple[str, IngestedRun]] = []
    for outcome, sure in zip(outcomes, found.sure, strict=True):
        if isinstance(outcome, Problem):
            (result.unusable if sure else result.others).append(outcome)
        else:
            added.append(outcome)
    if not added:
        raise nothing_usable(result)
    lake = read_lake(folder)
    result.unusable += [Problem(into, line) for line in lake.problems]
    numbers = {entry.key: number for number, entry in enumerate(lake.entries, start=1)}
    result.extend(changed(run, run_id=numbers[key]) for key, run in added if key in numbers)
    result.seconds = time.perf_counter() - started
    return result


def _add(
    job: _Job, processes: int, observer: Observer, failures: type[TraceconvError] = InputError
) -> Iterator[Outcome]:
    """Add recordings to the lake; yield what became of each.

    processes  as for `reading`
    failures   errors after which the next recording is read
    """
    folder = lake_folder(job.lake)

    def is_wanted(digest: str) -> bool:
        try:
            return job.replace or _entry_of(folder, digest) is None
        except InputError:  # it is reported in its turn
            return False

    with (
        temporary_folder() as scratch,
        reading(job.recordings, job.names, processes, is_wanted, observer, one_store=False) as turns,
    ):
        for (recording, run_observer), names, added_ns in zip(turns, job.names, job.added_ns, strict=True):
            try:
                yield _add_run(recording, names, run_observer, folder, scratch, added_ns, overwrite=job.replace)
            except failures as error:
                yield Problem(recording.path, str(error))
            finally:
                run_observer.done()


def _add_run(
    recording: Recording,
    names: RunNames,
    observer: Observer,
    folder: LakeFolder,
    workplace: Path,
    added_ns: int,
    *,
    overwrite: bool,
) -> tuple[str, IngestedRun]:
    digest = recording.digest()
    known = None if digest is None or overwrite else _entry_of(folder, digest)
    if known is not None:
        return known.key, _kept(recording, names, folder, known)
    store = workplace / "trace.duckdb"
    try:
        with StoreWriter(store, report_statements) as writer:
            run = import_run(recording, names, writer, observer)
            writer.commit()
        with open_own_file(store) as connection:
            entry, added = add_run(connection, run.run_id, folder, overwrite=overwrite, added_ns=added_ns)
    finally:
        remove_database(store)
    if not added:
        return entry.key, _kept(recording, names, folder, entry)
    return entry.key, run


def _kept(recording: Recording, names: RunNames, folder: LakeFolder, entry: Entry) -> IngestedRun:
    label, source_path = str(entry.run["label"]), path_text(recording.path)
    lossy = _is_lossy(folder, entry)
    return IngestedRun(0, label, source_path, "kept", was_lossy=lossy, given_label=names.label)


def _entry_of(folder: LakeFolder, digest: str) -> Entry | None:
    """Return the entry of the run with a digest. Raises InputError for one that can't be used."""
    key = key_of(digest)
    [content] = folder.read([entry_name(key)])
    if isinstance(content, FileNotFoundError):
        return None
    try:
        return parse_entry(key, content)
    except InputError as error:
        raise InputError(
            f"{folder.shown}: the entry {entry_name(key)} {error} ({option('--replace')} replaces it)"
        ) from None


def _is_lossy(folder: LakeFolder, entry: Entry) -> bool:
    """Whether the ingest of a run had losses."""
    logs = [file for file in entry.files if file.table == "import_log"]
    if not logs:
        return False
    try:
        with connect_memory(temporary_spill_folder()) as connection:
            attach_lake(connection, Lake(folder, [changed(entry, files=logs)]), "lake")
            sql = "SELECT count(*) FROM lake.main.import_log WHERE severity <> 'info'"
            [(count,)] = connection.execute(sql).fetchall()
    except duckdb.Error as error:
        raise InputError(f"{folder.shown}: {reason_of(error)} ({option('--replace')} replaces the run)") from error
    return bool(count)


# -- on Spark --


def _by_spark(job: _Job, master: str, observer: Observer) -> list[Outcome]:
    """Add recordings to the lake, small ones together in a task; return what became of each."""
    from traceconv.spark.session import run_tasks

    if any(recording.path == STDIN for recording in job.recordings):
        raise UsageError(
            f"Spark's executors can't read standard input; omit {option('--engine spark', 'engine=spark')}"
        )
    places = list(together(job.recordings))
    tasks = [
        _Job(
            job.lake,
            [job.recordings[place] for place in some],
            [job.names[place] for place in some],
            [job.added_ns[place] for place in some],
            job.replace,
        )
        for some in places
    ]

    def show(notes: Collection[tuple[int, int]]) -> None:
        observer.remote(sum(done for done, _ in notes), sum(failed for _, failed in notes))

    return [outcome for outcomes in run_tasks(_on_executor, tasks, master, _counts, show) for outcome in outcomes]


def _counts(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """Return how many recordings a task has read, and how many of these can't be used."""
    return len(outcomes), sum(isinstance(outcome, Problem) for outcome in outcomes)


def _on_executor(job: _Job) -> list[Outcome]:
    """A task. Another process reads, so that a file for which it has too little memory fails alone."""
    limit_arenas()
    return list(_add(job, 1, Observer(), TraceconvError))
