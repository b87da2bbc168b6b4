"""Import the runs of a lake into a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from traceconv.base.diagnostics import Account, Accounts, Code, LogEntry
from traceconv.base.errors import InputError, printable
from traceconv.lake.entries import Entry, damaged_file, read_lake
from traceconv.lake.folder import lake_folder
from traceconv.lake.views import attach_lake
from traceconv.pipeline.result import IngestedRun, Problem
from traceconv.pipeline.run_copy import copy_rows
from traceconv.store.writer import StoreWriter


def import_lake(
    path: Path, database: str, writer: StoreWriter, *, replace: bool
) -> tuple[list[IngestedRun], list[Problem]]:
    """Copy the runs of a lake into the open store; return them, and why others can't be used.

    database  a name for the lake in the writer's connection

    All files of a run are compared with their digests before its rows are copied.
    """
    started = time.perf_counter()
    try:
        lake = read_lake(lake_folder(path))
    except InputError as error:
        return [], [Problem(path, str(error))]
    problems = [Problem(path, line) for line in lake.problems]
    results: dict[int, IngestedRun] = {}
    numbers: dict[int, int] = {}
    for lake_id, entry in enumerate(lake.entries, start=1):
        digest = entry.run["source_digest"]
        known = writer.run_of(str(digest)) if digest is not None else None
        label, source_path = str(entry.run["label"]), str(entry.run["source_path"])
        if known is not None and (not replace or known[0] in numbers.values()):
            lossy = writer.lossy(known[0])
            results[lake_id] = IngestedRun(known[0], known[1], source_path, "kept", was_lossy=lossy, given_label=label)
            continue
        if (name := damaged_file(lake.folder, entry)) is not None:
            problems.append(Problem(path, f"{lake.folder.shown}: {printable(name)} is damaged; its run is omitted"))
            continue
        if known is not None:
            writer.delete_run(known[0])
        run_id = writer.reserve_run(label, None if digest is None else str(digest), known[0] if known else None)
        numbers[lake_id] = run_id
        results[lake_id] = IngestedRun(run_id, label, source_path, "ingested" if known is None else "replaced")
    if numbers:
        writer.make_room(max(lake.entries[lake_id - 1].longest_text_bytes for lake_id in numbers))
        writer.attach_by(lambda connection: attach_lake(connection, lake, database))
        copy_rows(writer, database, numbers)
        seconds = (time.perf_counter() - started) / len(numbers)
        for lake_id, run_id in numbers.items():
            results[lake_id] = _imported(writer, results[lake_id], lake.entries[lake_id - 1], run_id, seconds)
    return list(results.values()), problems


def _imported(writer: StoreWriter, run: IngestedRun, entry: Entry, run_id: int, seconds: float) -> IngestedRun:
    """The result for a copied run, with its accounting and losses."""
    of = {"run": run_id}
    accounts = Accounts()
    for record, *counts in writer.fetch(
        "SELECT record, record_count, row_count, paired_count, used_count, lost_count FROM import_account "
        "WHERE run_id = $run",
        of,
    ):
        accounts.by_record[record] = Account(*counts)
    log: Sequence[LogEntry] = [
        LogEntry(Code[code.upper()], message, source_id, *numbers)
        for code, message, source_id, *numbers in writer.fetch(
            "SELECT code, message, source_id, byte_offset, byte_count, event_count FROM import_log "
            "WHERE run_id = $run AND list_contains($codes, code) ORDER BY ALL",
            {**of, "codes": [code.text for code in Code]},
        )
    ]
    names = dict(writer.fetch("SELECT source_id, path FROM source WHERE run_id = $run", of))
    rank, host, group = (entry.run[name] for name in ("rank", "host", "group_label"))
    return IngestedRun(
        run_id,
        run.label,
        run.source_path,
        run.action,
        seconds,
        sum(file.size_bytes for file in entry.files),
        bool(entry.run["complete"]),
        accounts,
        tuple(log),
        names,
        was_lossy=writer.lossy(run_id),
        rank=None if rank is None else int(rank),
        host=None if host is None else str(host),
        group_label=None if group is None else str(group),
    )
