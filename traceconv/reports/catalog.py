"""The reports there are, and how they come into a store: a macro and a view of the same name for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import duckdb

from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.catalogue import define
from traceconv.store.database import view_comments
from traceconv.store.documented_sql import DocumentedSql, load_folder

#: A report is a documented query whose parameters are those of its macro.
Report = DocumentedSql

#: DuckDB looks up the tables of a macro from where it is called; those of a view, from where the view is.
_MACRO_HINT = "In an attached store, macros work after USE; the view of the same name always does."


def reports() -> Mapping[str, Report]:
    """All reports by name (`op_statistic`), in alphabetical order."""
    return MappingProxyType(load_folder("traceconv.reports", "sql"))


def install(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the macro and the view of each report in the current database, in place of older ones.

    `FROM op_statistic` is the report on all runs, `FROM op_statistic(run := 2)` on one. Parameters are
    left untyped: older DuckDB versions can't read others.
    """
    connection.execute(";\n".join(report_statements()))


def report_statements() -> list[str]:
    """The statements that create all reports."""
    return [statement for report in reports().values() for statement in _statements(report)]


def define_report(connection: duckdb.DuckDBPyConnection, report: Report) -> None:
    """Makes the report's macro, and what it and its `early` places need, for this connection alone.

    It hides the one in the file, which may be an older one, or anything.
    """
    define(connection, " ".join([*report.early, report.body]))
    connection.execute(f"CREATE OR REPLACE TEMP MACRO {_macro(report)}")


def _macro(report: Report) -> str:
    parameters = ", ".join(f"{quote_identifier(parameter.name)} := NULL" for parameter in report.parameters)
    return f"{quote_identifier(report.name)}({parameters}) AS TABLE\n{report.body}"


def _statements(report: Report) -> list[str]:
    name = quote_identifier(report.name)
    return [
        f"CREATE OR REPLACE MACRO {_macro(report)}",
        f"COMMENT ON MACRO TABLE {name} IS {quote_text(f'{report.comment} {_MACRO_HINT}')}",
        f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}()",  # noqa: S608 - our own name, quoted
        *view_comments(report),
    ]
