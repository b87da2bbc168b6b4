"""Migrate a store from each schema version to the next: columns to rename and to add, and SQL that fills them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from traceconv.schema import table
from traceconv.schema.ddl import quote_identifier, sql_type
from traceconv.schema.model import OLDER_NAMES, SCHEMA_VERSION
from traceconv.store.table_waits import table_waits


@dataclass(frozen=True, slots=True)
class Migration:
    """Migration to a schema version from the one before.

    renamed     (table, column), which have one of OLDER_NAMES in the older version
    added       columns that the older version lacks, by table
    fill        statements that compute their values
    unfilled    columns that stay NULL because the older version lacks their values …
    filled_for  … except in runs of these source formats, where they are computed or always NULL
    """

    renamed: tuple[tuple[str, str], ...]
    added: Mapping[str, tuple[str, ...]]
    fill: tuple[str, ...]
    unfilled: tuple[str, ...] = ()
    filled_for: frozenset[str] = frozenset()


# traceconv's captures have every type and kind, and no categories, exceptions or vendor tables.
_OWN_FORMATS = frozenset({"npulog", "static"})
_OWN = "run_id IN (SELECT run_id FROM run WHERE source_format IN ('npulog', 'static'))"

#: By target version.
MIGRATIONS: Mapping[int, Migration] = {
    6: Migration(
        renamed=(("import_account", "paired_count"), ("import_account", "used_count"), ("memory", "purpose")),
        added={
            "api": ("category", "source_name"),
            "op": ("op_type_source",),
            "range": ("exception",),
            "step": ("step_source",),
            "task": ("category", "kind_source", "stream_wait_ns"),
            "task_pmu": ("vendor_values",),
        },
        fill=(
            # In version 5, wait_ns was the gap on the task's stream.
            "UPDATE task SET stream_wait_ns = wait_ns",
            table_waits("true"),
            f"UPDATE task SET kind_source = 'recorded' WHERE kind IS NOT NULL AND {_OWN}",  # noqa: S608 - our own words
            f"UPDATE op SET op_type_source = 'recorded' WHERE op_type IS NOT NULL AND {_OWN}",  # noqa: S608
            # A step without an iteration belongs to a truncated recording and has no marks.
            f"UPDATE step SET step_source = 'record' WHERE iteration IS NOT NULL AND {_OWN}",  # noqa: S608
        ),
        unfilled=(
            "api.category",
            "api.source_name",
            "op.op_type_source",
            "range.exception",
            "step.step_source",
            "task.category",
            "task.kind_source",
            "task_pmu.vendor_values",
        ),
        filled_for=_OWN_FORMATS,
    ),
}

#: Stores of this version and all later ones can be migrated.
OLDEST_VERSION = min(MIGRATIONS) - 1


def older_names(version: int) -> Mapping[tuple[str, str], str | None]:
    """Return the columns, as (table, column), that a store of this version has under another name, or lacks (None)."""
    names: dict[tuple[str, str], str | None] = {}
    for later in range(SCHEMA_VERSION, version, -1):
        names |= {renamed: OLDER_NAMES[renamed] for renamed in MIGRATIONS[later].renamed}
        for name, columns in MIGRATIONS[later].added.items():
            names |= dict.fromkeys((name, column) for column in columns)
    return names


def migration_statements(version: int) -> Iterator[str]:
    """Return the statements that rename and add those columns in a store of this version."""
    for later in range(version + 1, SCHEMA_VERSION + 1):
        for name, column in MIGRATIONS[later].renamed:
            names = f"{quote_identifier(OLDER_NAMES[name, column])} TO {quote_identifier(column)}"
            yield f"ALTER TABLE {quote_identifier(name)} RENAME COLUMN {names}"
        for name, columns in MIGRATIONS[later].added.items():
            types = {column.name: sql_type(column) for column in table(name).columns}
            for column in columns:
                yield f"ALTER TABLE {quote_identifier(name)} ADD COLUMN {quote_identifier(column)} {types[column]}"
        yield from MIGRATIONS[later].fill
    yield f"UPDATE store_info SET schema_version = {SCHEMA_VERSION}"  # noqa: S608 - a number of ours


def unfilled_columns(version: int, formats: Set[str]) -> list[str]:
    """Return the columns that stay NULL in a migrated store of this version with runs of these source formats."""
    later = (MIGRATIONS[number] for number in range(version + 1, SCHEMA_VERSION + 1))
    return [column for migration in later if formats - migration.filled_for for column in migration.unfilled]
