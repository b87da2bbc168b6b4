"""Table schema → SQL: CREATE TABLE and COMMENT ON statements for DuckDB."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from traceconv.schema.model import Column, TableSchema

_SQL = {
    "i32": "INTEGER",
    "i64": "BIGINT",
    "u64": "UBIGINT",
    "f64": "DOUBLE",
    "str": "VARCHAR",
    "bool": "BOOLEAN",
    "json": "VARCHAR",
}


def sql_type(column: Column) -> str:
    """Return the DuckDB type of a column."""
    return _SQL[column.type]


def quote_identifier(name: str) -> str:
    """Return `name` as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return `text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def create_table(schema: TableSchema, empty: Collection[str] = ()) -> str:
    """Return the CREATE TABLE statement. No keys and no indexes: they slow down loading and reopening.

    empty  columns that have no values: they are generated instead of stored
    """
    columns = []
    for column in schema.columns:
        stored = " USING COMPRESSION zstd" if column.type == "json" else ""
        how = " GENERATED ALWAYS AS (NULL) VIRTUAL" if column.name in empty else stored
        columns.append(f"  {quote_identifier(column.name)} {sql_type(column)}{how}")
    return f"CREATE TABLE {quote_identifier(schema.name)} (\n" + ",\n".join(columns) + "\n)"


def comments(schema: TableSchema) -> Iterator[str]:
    """Yield COMMENT ON statements for the table and its columns; the unit is part of the comment."""
    name = quote_identifier(schema.name)
    yield f"COMMENT ON TABLE {name} IS {quote_text(schema.doc)}"
    for column in schema.columns:
        text = f"[{column.unit}] {column.doc}"
        yield f"COMMENT ON COLUMN {name}.{quote_identifier(column.name)} IS {quote_text(text)}"
