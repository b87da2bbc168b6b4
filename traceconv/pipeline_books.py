"""What every ingest stores of a run beside its events: the run, its sources, what was lost, and the books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceconv.diagnostics import Accounts, ImportLog
from traceconv.normalize.rows import rows_from_tuples
from traceconv.schema import table
from traceconv.store.writer import StoreWriter

#: Columns of the table source, behind the run's.
Source = tuple[int, str, str, "int | None", "str | None"]
#: Likewise of source_block.
Block = tuple[int, int, int, "int | None", "int | None"]


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


def path_text(path: object) -> str:
    """A path as text: bytes that are no UTF-8 are spelled out."""
    return str(path).encode("utf-8", "backslashreplace").decode()
