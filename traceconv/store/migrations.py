"""Migrate a store from each schema version to the next: columns to rename and to add, and SQL that fills them.

Which columns those are is in `schemas/tables`: `since` and `older_name`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from traceconv.schema import tables
from traceconv.schema.ddl import create_table, quote_identifier, sql_type
from traceconv.schema.model import SCHEMA_VERSION, Column
from traceconv.store.wait_sql import op_summary_waits


class Migration(NamedTuple):
    """How the columns that a schema version adds get their values; other columns stay NULL.

    fill        statements that compute values
    filled      columns, as table.column, that have a value in every row that can have one
    filled_for  source formats whose runs need none of the others: computed too, or always NULL
    """

    fill: tuple[str, ...] = ()
    filled: frozenset[str] = frozenset()
    filled_for: frozenset[str] = frozenset()


# traceconv's captures have every type and kind, and no categories, exceptions or vendor tables.
_OWN_FORMATS = frozenset({"npulog", "static"})
_OWN = "run_id IN (SELECT run_id FROM run WHERE source_format IN ('npulog', 'static'))"
# The end of such a type.
_SEVERAL = " x([1-9][0-9]{0,17})$"

#: Finds the calls of tasks. Calls of several layers may have the same ID and start: one of them is used.
LINK_CALLS = (
    "UPDATE task SET api_id = a.api_id, call_ns = a.call_ns FROM ("
    "SELECT run_id, correlation_id, start_ns, min(id) AS api_id, arg_min_null(dur_ns, id) AS call_ns FROM api "
    "WHERE correlation_id IS NOT NULL GROUP BY run_id, correlation_id, start_ns) AS a "
    "WHERE task.run_id = a.run_id AND task.correlation_id = a.correlation_id AND task.submit_ns = a.start_ns"
)

#: By target version.
MIGRATIONS: Mapping[int, Migration] = {
    6: Migration(
        fill=(
            # In version 5, wait_ns was the gap on the task's stream.
            "UPDATE task SET stream_wait_ns = wait_ns",
            op_summary_waits("true"),
            f"UPDATE task SET kind_source = 'recorded' WHERE kind IS NOT NULL AND {_OWN}",  # noqa: S608 - our own words
            f"UPDATE op SET op_type_source = 'recorded' WHERE op_type IS NOT NULL AND {_OWN}",  # noqa: S608
            # A step without an iteration belongs to a truncated recording and has no marks.
            f"UPDATE step SET step_source = 'record' WHERE iteration IS NOT NULL AND {_OWN}",  # noqa: S608
        ),
        filled=frozenset({"task.stream_wait_ns"}),
        filled_for=_OWN_FORMATS,
    ),
    # Captures before version 7 don't tell when the host clock stopped: importing them again would not help.
    7: Migration(filled=frozenset({"range.wall_start_ns", "range.wall_dur_ns"})),
    8: Migration(
        fill=(
            "DROP MACRO IF EXISTS perfetto._is_field",
            # The number of executions in a task was part of the type, as it is in captures.
            f"UPDATE op SET executions_per_task = TRY_CAST(regexp_extract(op_type, '{_SEVERAL}', 1) AS BIGINT), "  # noqa: S608
            f"op_type = regexp_replace(op_type, '{_SEVERAL}', '') "
            f"WHERE regexp_matches(op_type, '.{_SEVERAL}') AND {_OWN}",
        ),
        filled=frozenset({"op.executions_per_task"}),
        # Only Perfetto's traces in protobuf specify more of tracks and processes.
        filled_for=_OWN_FORMATS | {"chrome_json", "json_items", "nsys", "rocprofv3", "speedscope"},
    ),
    9: Migration(
        fill=(LINK_CALLS,),
        filled=frozenset({"task.api_id", "task.call_ns"}),
    ),
    10: Migration(),
    11: Migration(),
    12: Migration(),
}

#: Stores of this version and all later ones can be migrated.
OLDEST_VERSION = min(MIGRATIONS) - 1


def _columns_since(version: int) -> list[tuple[str, Column]]:
    return [(name, column) for name, table in tables().items() for column in table.columns if column.since == version]


def older_names(version: int) -> Mapping[tuple[str, str], str | None]:
    """Return the columns, as (table, column), that a store of this version has under another name, or lacks (None)."""
    older: dict[tuple[str, str], str | None] = {
        (name, column.name): column.older_name
        for later in range(version + 1, SCHEMA_VERSION + 1)
        for name, column in _columns_since(later)
    }
    for table in tables().values():
        if table.since > version:
            older |= dict.fromkeys(((table.name, column.name) for column in table.columns), None)
    return older


def migration_statements(version: int) -> Iterator[str]:
    """Return the statements that create the tables, and rename, add and fill the columns, that this version lacks."""
    for table in tables().values():
        if table.since > version:
            yield create_table(table)
    for later in range(version + 1, SCHEMA_VERSION + 1):
        for name, column in _columns_since(later):
            if tables()[name].since > version:
                continue
            change = f"ADD COLUMN {quote_identifier(column.name)} {sql_type(column)}"
            if column.older_name is not None:
                change = f"RENAME COLUMN {quote_identifier(column.older_name)} TO {quote_identifier(column.name)}"
            yield f"ALTER TABLE {quote_identifier(name)} {change}"
        yield from MIGRATIONS[later].fill
    yield f"UPDATE store_info SET schema_version = {SCHEMA_VERSION}"  # noqa: S608 - a number of ours


def unfilled_columns(version: int, formats: Set[str]) -> list[str]:
    """Return the columns that stay NULL in a migrated store of this version with runs of these source formats.

    Tables that are computed from others are filled again.
    """
    later = (number for number in range(version + 1, SCHEMA_VERSION + 1) if formats - MIGRATIONS[number].filled_for)
    added = {
        f"{name}.{column.name}": number
        for number in later
        for name, column in _columns_since(number)
        if column.older_name is None and not tables()[name].derived_from
    }
    return [column for column, number in added.items() if column not in MIGRATIONS[number].filled]
