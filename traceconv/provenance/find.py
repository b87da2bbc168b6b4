"""A table and an id → the bytes of the sources that the row came from, and how the rest of it was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb

from traceconv.base.errors import InputError, UsageError
from traceconv.provenance.derivations import notes_of
from traceconv.provenance.evidence import MAX_PIECES, Answer, Evidence, RowRef
from traceconv.provenance.files import SourceFile, Sources
from traceconv.provenance.raw_rows import RawRows
from traceconv.provenance.rows import EVENT_TABLES, find_rows
from traceconv.provenance.trace_rows import TraceRows
from traceconv.reports.run import choose_run, reading

#: How much of a file is shown when the file itself is asked for.
_HEAD_BYTES = 64


def why(
    connection: duckdb.DuckDBPyConnection,
    store_path: Path,
    table: str,
    row_id: str,
    *,
    run: str | None = None,
    source: Path | None = None,
) -> Answer:
    """Where a row came from.

    table   name of a table, or of the views slice and thread
    row_id  number of the row in its key column; of counter TRACK_ID@TS_NS
    run     number or label of the run; None: the latest
    source  where the source of the run lies now, if it was moved

    Raises UsageError when there is no such row, StoreError when the store is damaged. Sources that are gone or were
    changed are `problems` of the answer.
    """
    with reading():
        return _why(connection, store_path, table, row_id, run, source)


def _why(
    connection: duckdb.DuckDBPyConnection,
    store_path: Path,
    table: str,
    row_id: str,
    run: str | None,
    source: Path | None,
) -> Answer:
    choice = choose_run(connection, run)
    if table == "run" and choice.run_id is not None and run is None and row_id.strip().isdigit():
        choice = choose_run(connection, row_id.strip())
    run_id = _one_run(choice.run_id)
    wanted = find_rows(connection, run_id, table, row_id)
    sources = Sources(connection, run_id, store_path, source)
    evidence: list[Evidence] = []
    refs: list[RowRef] = []
    problems: list[str] = []
    if table == "source":
        try:
            evidence.append(_whole(sources.file(wanted.id)))
        except InputError as error:
            problems.append(str(error))
    elif sources.reader != "static":
        rows: RawRows | TraceRows = (
            RawRows(connection, sources) if sources.reader == "npulog" else TraceRows(connection, sources)
        )
        for row in wanted.rows:
            try:
                found, made_of = rows.of(wanted.table, row)
                evidence += found
                refs += [ref for ref in made_of if ref not in refs]
            except InputError as error:
                problems.append(str(error))
        evidence += _of_refs(rows, connection, refs, wanted.table, problems)
    notes = notes_of(sources.reader, wanted.table)
    if not evidence and not problems and not notes:
        notes = [("", "computed from other rows: no single event of the source says it")]
    return Answer(
        wanted.table,
        wanted.id_text,
        run_id,
        str(sources.run["label"]),
        wanted.rows,
        _distinct(evidence)[:MAX_PIECES],
        refs,
        notes,
        list(dict.fromkeys(problems)),
    )


def _whole(source: SourceFile) -> Evidence:
    """A source itself: where it lies, and how it begins."""
    size = source.path.stat().st_size
    with source.path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    role = "the file, as it was when it was ingested"
    place = (0, size, "plain", f"its first {len(head)} bytes")
    return Evidence(
        role, source.source_id, source.name, str(source.path), source.format, *place, data=head, is_text=False
    )


def _one_run(run_id: int | None) -> int:
    if run_id is None:
        raise UsageError("a row is of one run; name it by its number or its label")
    return run_id


def _of_refs(
    rows: RawRows | TraceRows,
    connection: duckdb.DuckDBPyConnection,
    refs: list[RowRef],
    table: str,
    problems: list[str],
) -> list[Evidence]:
    """The first event of each row that this one was made of."""
    found: list[Evidence] = []
    for ref in refs[:4]:
        if ref.table not in EVENT_TABLES:
            continue
        cursor = connection.execute(f'SELECT * FROM "{ref.table}" WHERE id = ? AND run_id = ?', [ref.id, rows.run_id])  # noqa: S608
        names = [column[0] for column in cursor.description or ()]
        for cells in cursor.fetchall():
            try:
                pieces, _ = rows.of(ref.table, dict(zip(names, cells, strict=True)))
            except InputError as error:
                problems.append(str(error))
                continue
            for piece in pieces if table == "task_pmu" else pieces[:1]:
                role = f"{ref.role} ({ref.table} {ref.id})"
                found.append(replace(piece, role=role if piece is pieces[0] else piece.role))
    return found


def _distinct(pieces: list[Evidence]) -> list[Evidence]:
    """Each place once: the first role counts."""
    seen: dict[tuple[object, ...], Evidence] = {}
    for one in pieces:
        seen.setdefault((one.source_id, one.byte_offset, one.byte_count, one.where), one)
    return list(seen.values())
