"""Find the bytes that a row came from, by its table and id, and how its other values were made."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import duckdb

from traceconv.base.errors import InputError
from traceconv.formats.locate import Evidence, SourceFile
from traceconv.formats.registry import parts_of
from traceconv.provenance.answer import MAX_PIECES, Answer, RowRef
from traceconv.provenance.derivations import notes_of
from traceconv.provenance.files import Sources
from traceconv.provenance.raw_rows import RawRows
from traceconv.provenance.rows import EVENT_TABLES, find_rows
from traceconv.provenance.trace_rows import TraceRows
from traceconv.reports.fetch import reading
from traceconv.reports.run_choice import one_run

#: Bytes shown for a row of the table source.
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
    """Find where a row came from.

    table   name of a table, or of the views slice and thread
    row_id  number of the row in its key column; for `counter`, TRACK_ID@TS_NS
    run     number or label of the run; None: the latest
    source  where the source of the run is now, if it was moved

    Raises UsageError for a row that does not exist, StoreError for a damaged store. Sources that are missing or have
    changed are `problems` of the answer.
    """
    with reading():
        if table == "run" and run is None and row_id.strip().isdigit():
            run = row_id.strip()
        run_id, _ = one_run(connection, run, "the origin of a row")
        wanted = find_rows(connection, run_id, table, row_id)
        sources = Sources(connection, run_id, store_path, source)
        evidence: list[Evidence] = []
        refs: list[RowRef] = []
        problems: list[str] = []
        if table == "source":
            try:
                evidence.append(_beginning(sources.file(wanted.id)))
            except InputError as error:
                problems.append(str(error))
        elif sources.reader != "static":
            rows = RawRows(sources) if sources.in_captures else TraceRows(sources)
            for row in wanted.rows:
                try:
                    found, made_of = rows.of(wanted.table, row)
                    evidence += found
                    refs += [ref for ref in made_of if ref not in refs]
                except InputError as error:
                    problems.append(str(error))
            evidence += _of_refs(rows, sources, refs, wanted.table, problems)
        notes = notes_of(sources.reader, wanted.table)
        if not evidence and not problems and not notes:
            notes = [("", "computed from other rows: no single event of the source contains it")]
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


def _beginning(source: SourceFile) -> Evidence:
    """Return a source's path and its first bytes; of a folder that is read as one, its files."""
    if os.path.isdir(source.path):
        sizes = {str(file.relative_to(source.path)): file.stat().st_size for file in parts_of(source.path)}
        return Evidence(source, "the folder, as it was at ingest", where="sizes of its files in bytes", fields=sizes)
    size = source.path.stat().st_size
    with source.path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    where = f"its first {len(head)} bytes"
    # The bytes of the file, not of its decompressed text.
    source = source._replace(container="plain")
    return Evidence(source, "the file, as it was at ingest", 0, size, where, data=head, is_text=False)


def _of_refs(
    rows: RawRows | TraceRows, sources: Sources, refs: list[RowRef], table: str, problems: list[str]
) -> list[Evidence]:
    """Return the first event of each row that this one was made from."""
    found: list[Evidence] = []
    for ref in refs[:4]:
        row = sources.row(ref.table, "id", ref.id) if ref.table in EVENT_TABLES else {}
        try:
            pieces = rows.of(ref.table, row)[0] if row else []
        except InputError as error:
            problems.append(str(error))
            continue
        for piece in pieces if table == "task_pmu" else pieces[:1]:
            role = f"{ref.role} ({ref.table} {ref.id})"
            found.append(replace(piece, role=role if piece is pieces[0] else piece.role))
    return found


def _distinct(pieces: list[Evidence]) -> list[Evidence]:
    """Return each piece once, in its first role."""
    seen: dict[tuple[object, ...], Evidence] = {}
    for one in pieces:
        seen.setdefault((one.source.source_id, one.byte_offset, one.byte_count, one.where), one)
    return list(seen.values())
