"""Migrate a store from an older schema version: tables and columns to add, and SQL that fills them.

Which those are is in `schemas/tables`: `since`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from traceconv.schema import tables
from traceconv.schema.ddl import create_table, quote_identifier, sql_type
from traceconv.schema.model import SCHEMA_VERSION

#: Stores and runs of lakes of this version and all later ones are read.
OLDEST_VERSION = 9

#: Statements that compute the values of an added column, by table.column. Columns without one stay NULL, and tables
#: that are computed from others are filled again.
FILLS: Mapping[str, str] = {}


def columns_since(version: int) -> Set[tuple[str, str]]:
    """Return the columns, as (table, column), that stores of this version lack, in the order of the tables."""
    return dict.fromkeys(
        (name, column.name)
        for name, table in tables().items()
        for column in table.columns
        if max(table.since, column.since) > version
    ).keys()


def migration_statements(version: int) -> Iterator[str]:
    """Return the statements that create the tables, and add and fill the columns, that this version lacks."""
    for table in tables().values():
        if table.since > version:
            yield create_table(table)
    for name, column in columns_since(version):
        table = tables()[name]
        if table.since <= version:
            added = f"{quote_identifier(column)} {sql_type(table.column(column))}"
            yield f"ALTER TABLE {quote_identifier(name)} ADD COLUMN {added}"
            if fill := FILLS.get(f"{name}.{column}"):
                yield fill
    yield f"UPDATE store_info SET schema_version = {SCHEMA_VERSION}"  # noqa: S608 - a number of ours


def unfilled_columns(version: int, formats: Set[str]) -> list[str]:
    """Return the columns that stay NULL in a migrated store of this version with runs of these source formats."""
    return [
        f"{name}.{column}"
        for name, column in columns_since(version)
        if tables()[name].since <= version
        if f"{name}.{column}" not in FILLS and not formats.isdisjoint(tables()[name].filled_by)
    ]
