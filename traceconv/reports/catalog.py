"""The reports, and their macro and view of the same name in a store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace

import duckdb

from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.catalogue import define, views
from traceconv.store.database import view_comments
from traceconv.store.documented_sql import DocumentedSql, load_folder, without_order

#: A report that another one reads; it must come first in the alphabet, so that it exists when the other is created.
_CALL = re.compile(r"FROM ([a-z_]+)\(run := run\)")
_OPTIONAL_JOIN = re.compile(r"LEFT JOIN .* AS (?P<alias>\w+) ON .*?(?:metric_group = '(?P<group>\w+)')?")

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


def define_report(connection: duckdb.DuckDBPyConnection, report: Report) -> None:
    """Create the report's macro, and what it needs, for this connection only.

    It hides the macro in the file, which may be outdated.
    """
    for name in dict.fromkeys(_CALL.findall(report.body)):
        if name in reports() and name != report.name:
            define_report(connection, reports()[name])
    define(connection, report.body)
    connection.execute(f"CREATE OR REPLACE TEMP MACRO {_macro(report)}")


def define_part(connection: duckdb.DuckDBPyConnection, report: Report, columns: Set[str]) -> str:
    """Create a macro with the report's rows in any order, for a statement that sorts them, and return its name.

    columns  those that are needed: others may be missing
    """
    body = without_order(report.body)
    body = _without_joins(body, columns)[0] if report.optional_joins else body
    return _define_part(connection, report, "part", body)


def define_known_part(
    connection: duckdb.DuckDBPyConnection, report: Report, columns: Set[str], known: str, groups: Set[str]
) -> tuple[str, bool] | None:
    """Create such a macro for a single run, without the rows in which a column is NULL because its join finds no row.

    known   the column
    groups  metric groups of that run: counters of others are NULL

    Returns its name, and whether the column needs the joined table only. None if the column doesn't come from one
    optional join.
    """
    body, item = _without_joins(without_order(report.body), columns, known, groups)
    aliases = set(re.findall(r"\b(\w+)\.\w", item))
    joined = aliases & set(re.findall(r"^JOIN .* AS (\w+) ON", body, re.MULTILINE))
    return (_define_part(connection, report, "known_part", body), aliases == joined) if len(joined) == 1 else None


def _define_part(connection: duckdb.DuckDBPyConnection, report: Report, kind: str, body: str) -> str:
    part = replace(report, name=f"{kind}_of_{report.name}", body=body)
    define_report(connection, part)
    return part.name


def _without_joins(body: str, columns: Set[str], known: str = "", groups: Set[str] = frozenset()) -> tuple[str, str]:
    """Return a query with some of its columns, and without the optional joins that only other columns need.

    DuckDB would make these joins, because it doesn't know that they find at most one row. The joins that the column
    `known` needs must find a row; its expression is returned too.
    """
    selected, _, rest = re.sub(r" *--.*", "", body).partition("\nFROM ")
    items = {re.split(r"[.\s]", item)[-1]: item for item in _items(selected.removeprefix("SELECT "))}
    text = ",".join(item for name, item in items.items() if name in columns)
    first, *lines = rest.split("\n")
    kept: list[str] = []
    for line in reversed(lines):
        join = _OPTIONAL_JOIN.fullmatch(line)
        uses = re.compile(rf"\b{join['alias']}\.\w+") if join else None
        if join and uses and known and join["group"] and join["group"] not in groups:
            text, items[known] = uses.sub("NULL", text), uses.sub("NULL", items[known])
        elif not uses or uses.search("\n".join([text, *kept])):
            if uses and known and uses.search(items[known]):
                # The single run's ID is not a part of the key: DuckDB joins on one number faster.
                line = re.sub(r"\bLEFT (JOIN .*\.run_id = )\w+\.run_id\b", r"\1run", line)
            kept.insert(0, line)
    place, alias = first.split(" AS ")
    if place in views() and views()[place].optional_joins:
        used = re.findall(rf"\b{alias}\.(\w+)", "\n".join([text, *kept]))
        place = f"(\n{_without_joins(views()[place].body, set(used))[0]}\n)"
    return "\n".join([f"SELECT {text}", f"FROM {place} AS {alias}", *kept]), items.get(known, "")


def _items(selected: str) -> list[str]:
    """Divide a list of expressions."""
    items, depth = [""], 0
    for token in re.findall(r"'[^']*'|[(),]|[^'(),]+", selected):
        depth += {"(": 1, ")": -1}.get(token, 0)
        if token == "," and depth == 0:
            items.append("")
        else:
            items[-1] += token
    return items


def define_named(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Create the reports, views and functions that a statement names, for this connection only."""
    words = set(re.findall(r"\w+", sql.lower()))
    define(connection, sql.lower())
    for report in [*reports().values(), *renamed_reports().values()]:
        if report.name in words:
            define_report(connection, report)
            name = quote_identifier(report.name)
            connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT * FROM {name}()")  # noqa: S608 - our own name


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
