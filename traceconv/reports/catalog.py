"""The reports, and their macro and view of the same name in a store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import duckdb

from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.catalogue import define
from traceconv.store.database import view_comments
from traceconv.store.documented_sql import DocumentedSql, load_folder, without_order

#: A report that another one reads; it must come first in the alphabet, so that it exists when the other is created.
_CALL = re.compile(r"FROM ([a-z_]+)\(run := run\)")

#: A documented query; its parameters are those of its macro.
Report = DocumentedSql

#: DuckDB resolves the tables of a macro in the caller's database, those of a view in the view's.
_MACRO_HINT = "In an attached store, macros work after USE; the view of the same name always does."


def reports() -> Mapping[str, Report]:
    """Return all reports by name (`op_statistic`), in alphabetical order."""
    return load_folder("traceconv.reports", "sql")


def renamed_reports() -> Mapping[str, Report]:
    """Return the reports that had another name in the last version, by that name, under which they still work."""
    return {
        one.formerly: replace(one, name=one.formerly, doc=f"Old name of {one.name}, which is removed next. {one.doc}")
        for one in reports().values()
        if one.formerly is not None
    }


def install(connection: duckdb.DuckDBPyConnection) -> None:
    """Create or replace the macro and the view of each report in the current database.

    `FROM op_statistic` covers all runs, `FROM op_statistic(run := 2)` one. Parameters are untyped because older DuckDB
    versions can't read others.
    """
    connection.execute(";\n".join(report_statements()))


def report_statements() -> list[str]:
    """Return the statements that create all reports."""
    every = [*reports().values(), *renamed_reports().values()]
    return [statement for report in every for statement in _statements(report)]


def define_report(connection: duckdb.DuckDBPyConnection, report: Report, *, in_order: bool = True) -> None:
    """Create the report's macro, and what it and its `early` places need, for this connection only.

    It hides the macro in the file, which may be outdated. `in_order=False`: its rows are in any order, for a statement
    that sorts them anyway. DuckDB would sort twice.
    """
    for name in dict.fromkeys(_CALL.findall(report.body)):
        if name in reports() and name != report.name:
            define_report(connection, reports()[name])
    define(connection, " ".join([*report.early, report.body]))
    connection.execute(f"CREATE OR REPLACE TEMP MACRO {_macro(report, in_order=in_order)}")


def define_named(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Create the reports, views and functions that a statement names, for this connection only."""
    words = set(re.findall(r"\w+", sql.lower()))
    define(connection, sql.lower())
    for report in [*reports().values(), *renamed_reports().values()]:
        if report.name in words:
            define_report(connection, report)
            name = quote_identifier(report.name)
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {name}()")  # noqa: S608 - our own name


def _macro(report: Report, *, in_order: bool = True) -> str:
    parameters = ", ".join(f"{quote_identifier(parameter.name)} := NULL" for parameter in report.parameters)
    body = report.body if in_order else without_order(report.body)
    return f"{quote_identifier(report.name)}({parameters}) AS TABLE\n{body}"


def _statements(report: Report) -> list[str]:
    name = quote_identifier(report.name)
    return [
        f"CREATE OR REPLACE MACRO {_macro(report)}",
        f"COMMENT ON MACRO TABLE {name} IS {quote_text(f'{report.comment} {_MACRO_HINT}')}",
        f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}()",  # noqa: S608 - our own name, quoted
        *view_comments(report),
    ]
