"""Import the runs of a lake into a store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path

from traceconv.base.diagnostics import Account, Accounts, Code, LogEntry
from traceconv.base.errors import InputError, printable
from traceconv.lake.entries import Entry, Lake, damaged_file, read_lake
from traceconv.lake.folder import lake_folder
from traceconv.lake.views import attach_lake
from traceconv.pipeline.result import IngestedRun, Problem
from traceconv.pipeline.run_copy import copy_rows
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.database import MEMORY_LIMIT
from traceconv.store.memory_limit import limit_changed
from traceconv.store.text_sizes import TextSizes, mean_in_store, sizes_of_longest
from traceconv.store.writer import StoreWriter

#: Rows and texts of a page in a lake's files.
_PAGE_ROWS, _PAGE_BYTES = 122_880, 64 << 20


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
    results: list[IngestedRun] = []
    # Without the others, whose files may be damaged.
    copied = Lake(lake.folder)
    new_ids: list[int] = []
    #: Those of the copied runs in `results`.
    places: list[int] = []
    for entry in lake.entries:
        digest = None if entry.run["source_digest"] is None else str(entry.run["source_digest"])
        known = writer.run_of(digest)
        label, source_path = str(entry.run["label"]), str(entry.run["source_path"])
        if known is not None and (not replace or known[0] in new_ids):
            lossy = writer.lossy(known[0])
            results.append(IngestedRun(known[0], known[1], source_path, "kept", was_lossy=lossy, given_label=label))
            continue
        if (name := damaged_file(lake.folder, entry)) is not None:
            problems.append(Problem(path, f"{lake.folder.shown}: {printable(name)} is damaged; its run is omitted"))
            continue
        if known is not None:
            writer.delete_run(known[0])
        run_id = writer.reserve_run(label, digest, known[0] if known else None)
        new_ids.append(run_id)
        copied.entries.append(entry)
        places.append(len(results))
        results.append(IngestedRun(run_id, label, source_path, "ingested" if known is None else "replaced"))
    if copied.entries:
        writer.prepare_for(sizes_of_longest(max(entry.longest_text_bytes for entry in copied.entries)))
        with writer.cursor() as cursor:
            attach_lake(cursor, copied, database)
            with limit_changed(cursor, lambda _: MEMORY_LIMIT):
                mean_bytes = mean_in_store(cursor, database)
        # A page of Parquet, which is in memory, has the texts of a group of rows.
        writer.prepare_for(TextSizes(vector_bytes=min(mean_bytes * _PAGE_ROWS, _PAGE_BYTES), mean_bytes=mean_bytes))
        numbers = dict(enumerate(new_ids, start=1))
        # More tables may be computed since then.
        older = {n: numbers[n] for n, one in enumerate(copied.entries, start=1) if one.schema_version < SCHEMA_VERSION}
        copy_rows(writer, database, {n: run_id for n, run_id in numbers.items() if n not in older})
        copy_rows(writer, database, older, derived=False)
        writer.derive(older.values())
        seconds = (time.perf_counter() - started) / len(new_ids)
        for place, entry in zip(places, copied.entries, strict=True):
            results[place] = _imported(writer, results[place], entry, seconds)
    return results, problems


def _imported(writer: StoreWriter, run: IngestedRun, entry: Entry, seconds: float) -> IngestedRun:
    """The result for a copied run, with its accounting and losses."""
    of = {"run": run.run_id}
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
    return changed(
        run,
        seconds=seconds,
        size_bytes=sum(file.size_bytes for file in entry.files),
        complete=bool(entry.run["complete"]),
        accounts=accounts,
        log=tuple(log),
        source_names=names,
        was_lossy=writer.lossy(run.run_id),
        rank=None if rank is None else int(rank),
        host=None if host is None else str(host),
        group_label=None if group is None else str(group),
    )
