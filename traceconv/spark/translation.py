"""Translate a report's SQL from DuckDB to Spark, such that both return the same rows to the last digit.

sqlglot parses the report, resolves its columns and their types, and prints Spark's syntax. It passes on what it doesn't
know, and some functions mean something else in Spark. So each construct is either known in `constructs` to be the same
in both engines, or rewritten there; any other is refused by name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.transforms import move_ctes_to_top_level

from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.schema.ddl import sql_type
from traceconv.spark.constructs import TRY, TYPES, Node, NotPortableError, rewrite
from traceconv.store.catalogue import views
from traceconv.store.documented_sql import DocumentedSql
from traceconv.store.functions import function_body, function_names

_MACRO = re.compile(r"\s*(\w+)\(([^)]*)\) AS( TABLE)?\s(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """A report for Spark. Its named parameters (`:run`) are the report's.

    tables  those of a store that it reads
    shared  name → query, of which the later ones and `sql` read the rows several times
    """

    sql: str
    tables: frozenset[str]
    shared: Mapping[str, str]


@cache
def spark_query(name: str) -> SparkQuery:
    """Return a report as a query for Spark. Raises NotPortableError."""
    return translated(reports()[name])


def translated(report: DocumentedSql) -> SparkQuery:
    """Translate a documented query. Raises NotPortableError, with the construct that may give other rows."""
    try:
        tree = _parsed(report.query)
        _inline(tree)
        tree = _with_parameters(tree, {one.name: one.type for one in report.parameters})
        _mark(tree)
        schema: dict[str, object] = {
            name: {column.name: sql_type(column) for column in table.columns} for name, table in tables().items()
        }
        tree = qualify(tree, schema=schema, dialect="duckdb", identify=False)
        tree = annotate_types(tree, schema=schema, dialect="duckdb", expression_metadata=TYPES)
        rewrite(tree)
        read = frozenset(place.name for place in tree.find_all(exp.Table)) & tables().keys()
        _rename_inner_tables(tree)
        _declare(tree, report)
        tree = move_ctes_to_top_level(tree)
        shared = {name: _text(query) for name, query in _take_shared(tree).items()}
        return SparkQuery(_text(tree), read, shared)
    except NotPortableError as error:
        raise NotPortableError(f"{report.name} can't run on Spark: {error}") from None
    except SqlglotError as error:
        first = str(error).splitlines()[0]
        raise NotPortableError(f"{report.name} can't run on Spark: it can't be parsed ({first})") from None


def _parsed(sql: str) -> Node:
    return sqlglot.parse_one(sql, dialect="duckdb")


def _mark(tree: Node) -> None:
    """Replace TRY(x) by (x), of which sqlglot knows the type, with a mark in `meta`."""
    for node in list(tree.find_all(exp.Try)):
        paren = exp.paren(node.this.copy())
        paren.meta[TRY] = True
        node.replace(paren)


# -- views, macros and parameters --


def _inline(tree: Node) -> None:
    """Replace the views and macros of a store by their definitions."""
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name in function_names() and not isinstance(call.parent, exp.Table):
            body, is_table = _macro(call.name, call.expressions)
            if is_table:
                raise NotPortableError(f"it uses the table function {call.name} as a value")
            body = exp.paren(body)
            _inline(body)
            call.replace(body)
    known = {cte.alias for cte in tree.find_all(exp.CTE)}
    for place in list(tree.find_all(exp.Table)):
        if isinstance(place.this, exp.Anonymous):
            if place.this.name not in function_names():
                raise NotPortableError(f"it reads {place.this.name}()")
            query, _ = _macro(place.this.name, place.this.expressions)
        elif place.name in views() and place.name not in known:
            query = _parsed(views()[place.name].query)
        else:
            continue
        _inline(query)
        place.replace(exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(place.alias_or_name))))


def _macro(name: str, arguments: list[Node]) -> tuple[Node, bool]:
    """Return a macro's definition with its arguments, and whether it is a table."""
    match = _MACRO.fullmatch(function_body(name))
    if match is None:
        raise NotPortableError(f"it uses the function {name}")
    try:
        body = _parsed(match[4])
    except SqlglotError:
        raise NotPortableError(f"it uses the function {name}") from None
    values = dict(zip((one.strip() for one in match[2].split(",")), arguments, strict=True))
    return _substituted(body, lambda column: exp.paren(values[column].copy()) if column in values else None), bool(
        match[3]
    )


def _with_parameters(tree: Node, types: Mapping[str, str]) -> Node:
    def parameter(name: str) -> Node:
        return exp.cast(exp.Placeholder(this=name), types[name], dialect="duckdb") if name in types else None

    return _substituted(tree, parameter)


def _substituted(tree: Node, value: Callable[[str], Node]) -> Node:
    """Replace unqualified columns by values, as DuckDB's macros do."""

    def replaced(node: Node) -> Node:
        found = value(node.name) if isinstance(node, exp.Column) and not node.table else None
        return node if found is None else found

    return tree.transform(replaced)


def _rename_inner_tables(tree: Node) -> None:
    """Give each CTE a name of its own: sqlglot moves nested ones to the outermost query."""
    taken: set[str] = set()
    for inner in list(tree.find_all(exp.With)):
        query = inner.parent
        for cte in inner.expressions:
            name = cte.alias
            while name in taken:
                name += "_"
            taken.add(name)
            if name != cte.alias and query is not None:
                for place in query.find_all(exp.Table):
                    if place.name == cte.alias:
                        place.set("this", exp.to_identifier(name))
                cte.args["alias"].set("this", exp.to_identifier(name))


def _take_shared(tree: Node) -> dict[str, Node]:
    """Replace each CTE that joins something and is read several times by a table; return their queries by name.

    Spark would compute such a CTE for each reader, and its CTEs for each reader of theirs: collectives had 321 scans.
    """
    ctes = [] if tree.args.get("with_") is None else list(tree.args["with_"].expressions)
    readers = Counter(place.name for place in tree.find_all(exp.Table))
    scans: dict[str, int] = {}
    shared: dict[str, Node] = {}
    for cte in ctes:
        name = cte.alias
        scans[name] = sum(scans.get(place.name, 1) for place in cte.find_all(exp.Table))
        if scans[name] > 1 and readers[name] > 1:
            scans[name] = 1
            shared[f"shared_{name}"] = cte.this
            for place in tree.find_all(exp.Table):
                if place.name == name:
                    place.set("this", exp.to_identifier(f"shared_{name}"))
    plain = {cte.alias: cte for cte in ctes if f"shared_{cte.alias}" not in shared}
    for query in (*shared.values(), tree):
        query.set("with_", None)
        needed = _needed(query, plain)
        if needed:
            query.set("with_", exp.With(expressions=[cte.copy() for name, cte in plain.items() if name in needed]))
    return shared


def _needed(query: Node, ctes: Mapping[str, Node]) -> set[str]:
    """Return the names of the CTEs that a query reads, also through others."""
    found: set[str] = set()
    unseen = [query]
    while unseen:
        names = {place.name for place in unseen.pop().find_all(exp.Table)} & ctes.keys() - found
        found |= names
        unseen += [ctes[name] for name in names]
    return found


def _text(tree: Node) -> str:
    return str(tree.sql("spark", pretty=True, comments=False))


def _declare(tree: Node, report: DocumentedSql) -> None:
    """Cast the columns of the result to those that the report declares."""
    if not isinstance(tree, exp.Select):
        raise NotPortableError("its outermost query is a union")
    found = [column.alias_or_name for column in tree.expressions]
    wanted = [column.name for column in report.columns]
    if found != wanted:
        raise NotPortableError("its columns are not those of its header")
    for column, declared in zip(list(tree.expressions), report.columns, strict=True):
        if not declared.type.endswith("[]"):
            value = exp.cast(column.unalias().copy(), declared.type, dialect="duckdb")
            column.replace(exp.alias_(value, declared.name))
