"""What makes a store of each schema version one of the next: columns that are added, and SQL that fills them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier, sql_type
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.table_waits import table_waits


@dataclass(frozen=True, slots=True)
class Migration:
    """To one schema version from the one before.

    added       columns that the older version does not have, by table
    fill        statements that compute what they contain, after they were added
    unfilled    columns that stay NULL, since the older version did not keep them …
    filled_for  … but in runs of these source formats, where they are known or NULL anyway
    """

    added: Mapping[str, tuple[str, ...]]
    fill: tuple[str, ...]
    unfilled: tuple[str, ...] = ()
    filled_for: frozenset[str] = frozenset()


# The program's own logs give every type and kind, and have no categories, exceptions or tables of a vendor.
_OWN_FORMATS = frozenset({"npulog", "static"})
_OWN = "run_id IN (SELECT run_id FROM run WHERE source_format IN ('npulog', 'static'))"

#: By the version that it leads to.
MIGRATIONS: Mapping[int, Migration] = {
    6: Migration(
        added={
            "api": ("category", "source_name"),
            "op": ("op_type_source",),
            "range": ("exception",),
            "step": ("source",),
            "task": ("category", "kind_source", "stream_wait_ns"),
            "task_pmu": ("recorded",),
        },
        fill=(
            # What was the wait on the task's stream is now the one among the rows of its device.
            "UPDATE task SET stream_wait_ns = wait_ns",
            table_waits("true"),
            f"UPDATE task SET kind_source = 'recorded' WHERE kind IS NOT NULL AND {_OWN}",  # noqa: S608 - our own words
            f"UPDATE op SET op_type_source = 'recorded' WHERE op_type IS NOT NULL AND {_OWN}",  # noqa: S608
            # Without an iteration it is a step of a recording that was cut off, which has no marks.
            f"UPDATE step SET source = 'record' WHERE iteration IS NOT NULL AND {_OWN}",  # noqa: S608
        ),
        unfilled=(
            "api.category",
            "api.source_name",
            "op.op_type_source",
            "range.exception",
            "step.source",
            "task.category",
            "task.kind_source",
            "task_pmu.recorded",
        ),
        filled_for=_OWN_FORMATS,
    ),
}

#: Stores of this version and all later ones can be migrated.
OLDEST_VERSION = min(MIGRATIONS) - 1


def columns_since(version: int) -> frozenset[tuple[str, str]]:
    """The columns, as (table, column), that a store of this version does not have."""
    return frozenset(
        (name, column)
        for later in range(version + 1, SCHEMA_VERSION + 1)
        for name, columns in MIGRATIONS[later].added.items()
        for column in columns
    )


def migration_statements(version: int) -> Iterator[str]:
    """The statements that give the tables of a store of this version those columns."""
    for later in range(version + 1, SCHEMA_VERSION + 1):
        for name, columns in MIGRATIONS[later].added.items():
            types = {column.name: sql_type(column) for column in table(name).columns}
            for column in columns:
                yield f"ALTER TABLE {quote_identifier(name)} ADD COLUMN {quote_identifier(column)} {types[column]}"
        yield from MIGRATIONS[later].fill
    yield f"UPDATE store_info SET schema_version = {SCHEMA_VERSION}"  # noqa: S608 - a number of ours


def unfilled_columns(version: int, formats: Set[str]) -> list[str]:
    """The columns that stay NULL in a migrated store of this version with runs of these source formats."""
    later = (MIGRATIONS[number] for number in range(version + 1, SCHEMA_VERSION + 1))
    return [column for migration in later if formats - migration.filled_for for column in migration.unfilled]
