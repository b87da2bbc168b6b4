"""The reports, and their macro and view of the same name in a store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace
from functools import cache
from importlib import resources

import duckdb

from traceconv.reports.findings import findings_query, trust_findings
from traceconv.schema.ddl import quote_identifier, quote_text
from traceconv.store.catalogue import define, views
from traceconv.store.documented_sql import (
    DocumentedSql,
    JoinedQuery,
    SqlFolder,
    guard_left_joins,
    parse,
    without_order,
)
from traceconv.store.statements import view_comments

#: A report that another one reads; it must come first in the alphabet, so that it exists when the other is created.
_CALL = re.compile(r"FROM ([a-z_]+)\(run := run\b")

#: A line that is replaced by the query of all findings.
_FINDINGS = "{{trust/*}}"

#: A documented query; its parameters are those of its macro.
Report = DocumentedSql

#: DuckDB resolves the tables of a macro in the caller's database, those of a view in the view's.
_MACRO_HINT = "In an attached store, macros work after USE; the view of the same name always does."


@cache
def reports() -> Mapping[str, Report]:
    """Return all reports by name (`op_statistic`), in alphabetical order."""
    return SqlFolder(resources.files("traceconv.reports") / "sql", _parse)


def _parse(name: str, text: str) -> Report:
    if _FINDINGS not in text:
        return parse(name, text)
    return replace(parse(name, text.replace(_FINDINGS, findings_query())), findings=trust_findings())


def renamed_reports() -> Mapping[str, Report]:
    """Return the reports that had another name in the last version, by that name, under which they still work."""
    return {
        one.formerly: replace(one, name=one.formerly, doc=f"Old name of {one.name}, which is removed next. {one.doc}")
        for one in reports().values()
        if one.formerly is not None
    }


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
    query = report.joined
    body = _assembled(query, _needed(query, columns)) if query else without_order(report.query)
    return _define_part(connection, report, "part", body)


def define_known_part(
    connection: duckdb.DuckDBPyConnection,
    report: Report,
    columns: Set[str],
    known: str,
    groups: Mapping[str, bool],
    device: Mapping[str, int | None],
) -> tuple[str, bool] | None:
    """Create such a macro for a single run, without the rows in which a column is NULL because its join finds no row.

    known   the column
    groups  metric groups of that run, and whether they have vendor_values: counters of others are NULL
    device  columns of the device, if it is the same for all tasks of the run

    Returns its name, and whether the column needs the joined table only. None if the column doesn't come from one
    optional join.
    """
    query = report.joined
    if query is None:
        return None
    constants: dict[str, str] = {}
    if query.place in views() and (view := views()[query.place].joined):
        for name in view.columns_of("device") & device.keys():
            constants[rf"{query.alias}\.{name}"] = f"{'NULL' if device[name] is None else device[name]}::BIGINT"
    for join in query.joins:
        if join.group and not groups.get(join.group):
            column = "vendor_values" if join.group in groups else r"\w+"
            constants[rf"{join.alias}\.{column}"] = "NULL"
    items = _needed(query, columns)
    for column, value in constants.items():
        items = {name: re.sub(rf"\b{column}\b", value, item) for name, item in items.items()}
    sources = _aliases(items[known])
    joined = sources & {join.alias for join in query.joins}
    if len(joined) != 1:
        return None
    return _define_part(connection, report, "known_part", _assembled(query, items, joined)), sources == joined


def _define_part(connection: duckdb.DuckDBPyConnection, report: Report, kind: str, body: str) -> str:
    part = replace(report, name=f"{kind}_of_{report.name}", body=guard_left_joins(body, report.name))
    define_report(connection, part)
    return part.name


def _needed(query: JoinedQuery, columns: Set[str]) -> dict[str, str]:
    return {name: item for name, item in query.items.items() if name in columns}


def _aliases(sql: str) -> set[str]:
    return set(re.findall(r"\b(\w+)\.\w", sql))


def _assembled(query: JoinedQuery, items: Mapping[str, str], inner: Set[str] | None = None) -> str:
    """Return a query with these items, without the joins that they don't need.

    DuckDB would make all joins, because it doesn't know that they find at most one row. In a query of a single run,
    for which `inner` is not None, those of `inner` must find one.
    """
    rest = [query.where]
    # The single run's ID is not a part of the key: DuckDB joins on one number faster.
    run = f"{query.alias}.run_id" if inner is None else "run"
    for join in reversed(query.joins):
        if join.alias in _aliases("\n".join([*items.values(), *rest])):
            kind = "JOIN" if join.alias in (inner or ()) else "LEFT JOIN"
            rest.insert(0, f"{kind} {join.place} AS {join.alias} ON {join.alias}.run_id = {run}{join.condition}")
    place = query.place
    if place in views() and (view := views()[place].joined):
        used = re.findall(rf"\b{query.alias}\.(\w+)", "\n".join([*items.values(), *rest]))
        place = f"(\n{_assembled(view, _needed(view, set(used)), None if inner is None else frozenset())}\n)"
    return "\n".join([f"SELECT {', '.join(items.values())}", f"FROM {place} AS {query.alias}", *rest])


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
    # Parameters are untyped because older DuckDB versions can't read others.
    parameters = ", ".join(f"{quote_identifier(parameter.name)} := NULL" for parameter in report.parameters)
    return f"{quote_identifier(report.name)}({parameters}) AS TABLE\n{report.body}"


def creating(report: Report) -> list[str]:
    """Return the statements that create a report in a store."""
    name = quote_identifier(report.name)
    return [
        f"CREATE OR REPLACE MACRO {_macro(report)}",
        f"COMMENT ON MACRO TABLE {name} IS {quote_text(f'{report.comment} {_MACRO_HINT}')}",
        f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}()",  # noqa: S608 - our own name, quoted
        *view_comments(report),
    ]
