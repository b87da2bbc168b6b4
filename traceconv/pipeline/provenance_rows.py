"""What every ingest stores of a run beside its events: the run, its sources, what was lost, and the books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceconv.base.diagnostics import Accounts, Code, ImportLog
from traceconv.normalize.rows import rows_from_tuples
from traceconv.schema import table
from traceconv.store.writer import StoreWriter

#: Columns of the table source, behind the run's.
Source = tuple[int, str, str, "int | None", "str | None"]
#: Likewise of source_block.
Block = tuple[int, int, int, "int | None", "int | None"]

_SAME_CONTENT = """
WITH books AS (
    SELECT run_id, list((record, record_count, row_count, lost_count) ORDER BY record) AS book
    FROM import_account GROUP BY run_id
)
SELECT run.run_id, min(other.run_id)
FROM run
JOIN books USING (run_id)
JOIN run AS other ON other.run_id < run.run_id AND other.start_ns = run.start_ns AND other.end_ns = run.end_ns
    AND other.rank IS NOT DISTINCT FROM run.rank AND other.host IS NOT DISTINCT FROM run.host
JOIN books AS others ON others.run_id = other.run_id AND others.book = books.book
WHERE list_contains($runs, run.run_id)
GROUP BY run.run_id
ORDER BY run.run_id
"""


def insert_run(writer: StoreWriter, run_id: int, row: Mapping[str, object]) -> None:
    """The row of the table run, column by column."""
    writer.insert("run", run_id, iter([rows_from_tuples("run", tuple(row), [tuple(row.values())])]))


def insert_provenance(
    writer: StoreWriter,
    run_id: int,
    sources: Sequence[Source],
    blocks: Sequence[Block],
    log: ImportLog,
    accounts: Accounts,
) -> None:
    """Where the rows came from, what was lost on the way, and the books."""
    entries = [
        (e.source_id, e.severity.value, e.code.text, e.byte_offset, e.byte_count, e.event_count, e.message) for e in log
    ]
    books = [(name, a.records, a.rows, a.merged, a.consumed, a.lost) for name, a in sorted(accounts.by_record.items())]
    contents: tuple[tuple[str, Sequence[tuple[object, ...]]], ...] = (
        ("source", sources),
        ("source_block", blocks),
        ("import_log", entries),
        ("import_account", books),
    )
    for name, rows in contents:
        columns = tuple(column.name for column in table(name).columns if column.name != "run_id")
        writer.insert(name, run_id, iter([rows_from_tuples(name, columns, rows)]))


def same_content(writer: StoreWriter, run_ids: Sequence[int]) -> list[tuple[int, int]]:
    """(run, earlier run) for those of `run_ids` that have the same times and books as another of the same rank.

    Packed and plain, or under another reader, one recording is two files: their bytes don't tell. Both are kept, and
    the import log says so.
    """
    found = writer.fetch(_SAME_CONTENT, {"runs": list(run_ids)})
    for run_id, other in found:
        message = f"has the times and counts of run {other}: the same recording, it seems; both are kept"
        entry = (None, Code.SAME_CONTENT.severity.value, Code.SAME_CONTENT.text, None, None, None, message)
        columns = tuple(column.name for column in table("import_log").columns if column.name != "run_id")
        writer.insert("import_log", run_id, iter([rows_from_tuples("import_log", columns, [entry])]))
    return [(int(run_id), int(other)) for run_id, other in found]


def path_text(path: object) -> str:
    """A path as text: bytes that are no UTF-8 are spelled out."""
    return str(path).encode("utf-8", "backslashreplace").decode()
