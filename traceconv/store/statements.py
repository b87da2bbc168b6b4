"""The SQL statements that create a store: tables, comments, functions and views; the reports add theirs."""

from __future__ import annotations

from importlib import resources

from traceconv._version import __version__
from traceconv.schema import tables
from traceconv.schema.ddl import comments, create_table, quote_identifier, quote_text
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.catalogue import views
from traceconv.store.documented_sql import DocumentedSql, guard_left_joins
from traceconv.store.functions import function_statements

_STORE_INFO = "CREATE TABLE store_info (schema_version BIGINT, writer VARCHAR)"
_STORE_INFO_COMMENTS = """
COMMENT ON TABLE store_info IS 'Version of this store: one row.';
COMMENT ON COLUMN store_info.schema_version IS '[index] Version of the schema of the tables.';
COMMENT ON COLUMN store_info.writer IS '[text] Program and version that created the file.'
"""


def store_statements() -> list[str]:
    """Return the statements that create a store in an empty database, without the reports."""
    writer = quote_text(f"traceconv {__version__}")
    return [
        _STORE_INFO,
        f"INSERT INTO store_info VALUES ({SCHEMA_VERSION}, {writer})",  # noqa: S608 - quoted
        *(create_table(schema) for schema in tables().values()),
        *definition_statements(),
    ]


def definition_statements() -> list[str]:
    """Return the statements that create or replace comments, functions and views."""
    statements = [_STORE_INFO_COMMENTS]
    statements.extend(comment for schema in tables().values() for comment in comments(schema))
    statements.extend(function_statements())
    for name, view in views().items():
        statements.append(f"CREATE OR REPLACE VIEW {quote_identifier(name)} AS\n{view.body}")
        statements.extend(view_comments(view))
    perfetto = (resources.files("traceconv.store") / "perfetto.sql").read_text("utf-8")
    statements.append(guard_left_joins(perfetto, "perfetto"))
    return statements


def view_comments(view: DocumentedSql) -> list[str]:
    """Return COMMENT ON statements for a view and its columns."""
    name = quote_identifier(view.name)
    found = [f"COMMENT ON VIEW {name} IS {quote_text(view.comment)}"]
    for column in view.columns:
        text = quote_text(f"[{column.unit}] {column.doc}")
        found.append(f"COMMENT ON COLUMN {name}.{quote_identifier(column.name)} IS {text}")
    return found
