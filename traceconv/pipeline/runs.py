"""Label, delete and merge the runs of stores."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import duckdb

from traceconv.base.diagnostics import Code
from traceconv.base.errors import StoreError, UsageError, option, printable
from traceconv.pipeline.run_copy import copy_rows, note_same_content
from traceconv.reports.current_store import open_current_store
from traceconv.reports.fetch import reading
from traceconv.reports.run_choice import choose_run
from traceconv.reports.statements import report_statements
from traceconv.store.compact import compact
from traceconv.store.database import OlderStoreError
from traceconv.store.text_sizes import TextSizes, sizes_in_store
from traceconv.store.writer import StoreWriter

#: Maximum length of a label, in characters.
_LONGEST_LABEL = 200
#: Labels that --run takes as something else.
_RESERVED = re.compile(r"all|[0-9]+|(rank|host)=.*")
#: Name of the store that runs are merged from, in the connection of the other.
_OTHER = "other"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run of a store; digest: of its source, None if unknown."""

    run_id: int
    label: str
    digest: str | None


@dataclass(frozen=True, slots=True)
class DeletedRuns:
    """The deleted runs, the size of the store's file before and after, and why it did not shrink (None: it did)."""

    runs: tuple[StoredRun, ...]
    bytes_before: int
    bytes_after: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class MergedRun:
    """A run of another store.

    other_id  its ID in that store
    run_id    its ID in the store that it was merged into
    action    merged, replaced, or kept (the store already had it)
    """

    other: Path
    other_id: int
    run_id: int
    label: str
    action: str


def find_runs(store: Path, wanted: Sequence[str]) -> tuple[StoredRun, ...]:
    """Return the runs that the names select, each as for `--run`. Raises UsageError for unknown ones, StoreError."""
    with open_current_store(store) as connection, reading():
        runs = {run.run_id: run for run in _runs_of(connection)}
        if not runs:
            raise UsageError(f"{printable(str(store))} has no runs; ingest one with: traceconv ingest PATH")
        found = [run_id for name in wanted for run_id in choose_run(connection, name).run_ids or runs]
    return tuple(runs[run_id] for run_id in dict.fromkeys(found))


def label_runs(
    store: Path,
    runs: Sequence[StoredRun],
    *,
    label: str | None = None,
    group: str | None = None,
    on_wait: Callable[[], None] = lambda: None,
) -> None:
    """Set the label of a run, or the group label of several; an empty group removes it. None: unchanged.

    Raises UsageError for a label that can't select the run, or that another run has; StoreError.
    """
    if label is None and group is None:
        raise UsageError(f"pass a label, or a group with {option('--group')}")
    changes: dict[str, str | None] = {}
    if label is not None:
        if len(runs) != 1:
            raise UsageError(f"a label is for one run, not for {len(runs)}; use {option('--group')} for several")
        _check_text("label", label)
        if _RESERVED.fullmatch(label):
            raise UsageError(
                f"the label '{printable(label)}' has another meaning for {option('--run')}; choose another"
            )
        changes["label"] = label
    if group is not None:
        if group:
            _check_text("group", group)
        changes["group_label"] = group or None
    with StoreWriter(store, report_statements, on_wait) as writer:
        _check_unchanged(writer, store, runs)
        ids = [run.run_id for run in runs]
        others = "SELECT run_id FROM run WHERE label = $label AND NOT list_contains($runs, run_id) LIMIT 1"
        for (other,) in writer.fetch(others, {"label": label, "runs": ids}):
            raise UsageError(f"run {other} has the label '{printable(label or '')}'; choose another")
        for column, value in changes.items():
            change = f"UPDATE run SET {column} = $value WHERE list_contains($runs, run_id)"  # noqa: S608 - names above
            writer.run_sql(change, {"value": value, "runs": ids})
        writer.commit()


def delete_runs(store: Path, runs: Sequence[StoredRun], on_wait: Callable[[], None] = lambda: None) -> DeletedRuns:
    """Delete runs from all tables in one transaction, then rewrite the file without their space.

    Raises StoreError if the runs can't be deleted or have changed. A file that can't be rewritten is not an error: its
    free space is used by the next ingest.
    """
    with StoreWriter(store, report_statements, on_wait) as writer:
        _check_unchanged(writer, store, runs)
        # Entries about another run with the same content may name a deleted one.
        code = {"code": Code.SAME_CONTENT.text}
        same = [run_id for (run_id,) in writer.fetch("SELECT run_id FROM import_log WHERE code = $code", code)]
        writer.run_sql("DELETE FROM import_log WHERE code = $code", code)
        for run in runs:
            writer.delete_run(run.run_id)
        note_same_content(writer, same)
        size = store.stat().st_size
        writer.commit()
    problem = None
    try:
        compact(store)
    except StoreError as error:
        problem = str(error)
    except KeyboardInterrupt:
        problem = "interrupted"
    return DeletedRuns(tuple(runs), size, store.stat().st_size, problem)


def merge_stores(
    others: Sequence[Path], store: Path, *, replace: bool = False, on_wait: Callable[[], None] = lambda: None
) -> list[MergedRun]:
    """Copy all runs of other stores into a store, which is created if it does not exist, in one transaction.

    replace  replace runs with the same source, instead of keeping them

    Runs get new IDs, after those in the store; IDs of rows are unique in their run and stay. An older store is migrated
    first. Raises UsageError for the store itself, StoreError for a file that is not a valid store.
    """
    _check_distinct(others, store)
    texts = reduce(TextSizes.over, map(_text_sizes, others))
    with StoreWriter(store, report_statements, on_wait) as writer:
        writer.prepare_for(texts)
        merged: list[MergedRun] = []
        for number, other in enumerate(others):
            name = f"{_OTHER}_{number}"
            try:
                writer.attach(other, name)
            except OlderStoreError as error:
                raise StoreError(
                    f"{printable(str(other))} has an older schema version and can't be written; merge a copy of it"
                ) from error
            runs = _numbered(writer, other, name, replace=replace)
            try:
                copy_rows(writer, name, {run.other_id: run.run_id for run in runs if run.action != "kept"})
            except StoreError as error:  # either of the files can be at fault
                raise StoreError(f"can't copy the runs of {printable(str(other))}: {error}") from error
            merged += runs
        changed = [run.run_id for run in merged if run.action != "kept"]
        if changed:
            note_same_content(writer, changed)
            writer.commit()
    return merged


def _runs_of(connection: duckdb.DuckDBPyConnection) -> list[StoredRun]:
    rows = connection.execute("SELECT run_id, label, source_digest FROM run ORDER BY run_id").fetchall()
    return [StoredRun(int(run_id), str(label), digest) for run_id, label, digest in rows]


def _check_unchanged(writer: StoreWriter, store: Path, runs: Sequence[StoredRun]) -> None:
    for run in runs:
        if (run.run_id, run.label, run.digest) not in writer.known_runs():
            raise StoreError(f"run {run.run_id} of {printable(str(store))} has changed in the meantime; try again")


def _check_text(what: str, text: str) -> None:
    """Raise UsageError for a label that can't be shown on a line."""
    if not text.strip() or text != text.strip():
        raise UsageError(f"the {what} '{printable(text)}' is empty, or begins or ends with a space; choose another")
    if not text.isprintable():
        raise UsageError(f"the {what} '{printable(text)}' has control characters; choose another")
    if len(text) > _LONGEST_LABEL:
        raise UsageError(f"the {what} has {len(text):,} characters; the maximum is {_LONGEST_LABEL}")


def _check_distinct(others: Sequence[Path], store: Path) -> None:
    seen = [store] if os.path.exists(store) else []
    for other in others:
        for known in seen:
            if os.path.exists(other) and os.path.exists(known) and other.samefile(known):
                shown = printable(str(other))
                raise UsageError(f"{shown} can't be merged into itself" if known is store else f"duplicate {shown}")
        seen.append(other)


def _text_sizes(path: Path) -> TextSizes:
    """Open a store, which migrates an older one; return the sizes of its texts."""
    with open_current_store(path) as connection:
        try:
            with reading():
                return sizes_in_store(connection)
        except StoreError as error:
            raise StoreError(f"{printable(str(path))}: {error}") from error


def _numbered(writer: StoreWriter, other: Path, name: str, *, replace: bool) -> list[MergedRun]:
    """Give each run of the attached store `name` its ID; delete the runs that they replace."""
    found: list[MergedRun] = []
    rows = writer.fetch(f"SELECT run_id, label, source_digest FROM {name}.main.run ORDER BY run_id")  # noqa: S608 - our name
    for other_id, label, digest in rows:
        known = writer.run_of(digest)
        if known is not None and (not replace or known[0] in {run.run_id for run in found}):
            found.append(MergedRun(other, other_id, known[0], str(label), "kept"))
            continue
        if known is not None:
            writer.delete_run(known[0])
        run_id = writer.reserve_run(str(label), digest, None if known is None else known[0])
        found.append(MergedRun(other, other_id, run_id, str(label), "merged" if known is None else "replaced"))
    return found
