"""Copy runs with all their rows from an attached database with the tables of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from traceconv.base.diagnostics import Code
from traceconv.pipeline.run_import import insert_log_entry
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.writer import StoreWriter

#: Runs that seem to come from the same recording in different files, such as compressed and plain.
_SAME_CONTENT = """
WITH accounts AS (
    SELECT run_id, list((record, record_count, row_count, lost_count) ORDER BY record) AS account
    FROM import_account GROUP BY run_id
)
SELECT run.run_id, min(other.run_id)
FROM run
JOIN accounts USING (run_id)
JOIN run AS other ON other.run_id < run.run_id AND other.start_ns = run.start_ns AND other.end_ns = run.end_ns
    AND other.rank IS NOT DISTINCT FROM run.rank AND other.host IS NOT DISTINCT FROM run.host
JOIN accounts AS others ON others.run_id = other.run_id AND others.account = accounts.account
WHERE list_contains($runs, run.run_id)
GROUP BY run.run_id
ORDER BY run.run_id
"""


def copy_rows(writer: StoreWriter, name: str, numbers: Mapping[int, int], *, derived: bool = True) -> None:
    """Copy the rows of runs: ID in the attached store `name` → new ID.

    derived  also those of tables that are computed from others
    """
    if not numbers:
        return
    pairs = ", ".join(f"({old:d}::BIGINT, {new:d}::BIGINT)" for old, new in numbers.items())
    for table, schema in tables().items():
        if schema.derived_from and not derived:
            continue
        columns = ", ".join(quote_identifier(column.name) for column in schema.columns if column.name != "run_id")
        # The entries about other runs with the same content are made for the merged store.
        code = quote_text(Code.SAME_CONTENT.text)
        where = f"WHERE code IS DISTINCT FROM {code}" if table == "import_log" else ""
        target = quote_identifier(table)
        sql = (
            f"INSERT INTO {target} (run_id, {columns}) SELECT new_id, {columns} FROM {name}.main.{target} "  # noqa: S608 - our schemas
            f"JOIN (VALUES {pairs}) AS numbers(old_id, new_id) ON run_id = old_id {where}"
        )
        writer.run_sql(sql)


def note_same_content(writer: StoreWriter, run_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return (run, earlier run) for those of `run_ids` with the times and counts of an earlier run of the same rank.

    Both are kept, with an entry in the import log.
    """
    if len(writer.known_runs()) < 2:  # the query takes longer than a small recording
        return []
    found = [(int(run_id), int(other)) for run_id, other in writer.fetch(_SAME_CONTENT, {"runs": list(run_ids)})]
    for run_id, other in found:
        message = f"has the same times and counts as run {other}: probably the same recording; both are kept"
        insert_log_entry(writer, run_id, Code.SAME_CONTENT, message)
    return found
