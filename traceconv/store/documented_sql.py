"""SQL files with their documentation: a checked header comment in TOML, followed by the query.

    -- title = "Operators by type"
    -- doc = "Which types of operators take the most device time?"
    -- needs = ["task", "op"]
    -- order = ["run_id", "total_ns DESC"]
    -- selects = { run = true, steps = "tasks", time = "tasks that start, with their full duration" }
    -- [parameters]
    -- peak_tflops = { type = "DOUBLE", doc = "Peak of the devices." }
    -- [columns]
    -- device_id = { type = "BIGINT", unit = "id", doc = "Device." }
    SELECT run_id, device_id …

`selects` has the parameters that many reports share: run and device, `steps` for step, first_step and last_step, and
`time` for from_ns and to_ns; each with its doc, or with what the rows are. The first column is always run_id.
A line {{NAME}} in the query is replaced by the query of another file in the folder, whose parameters it shares. With
{{NAME(run)}}, only the parameter run selects the rows of that query.
{{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}} is the condition that the parameters of `selects` select a
row: run by the column run_id, device by device_id, those of `steps` by step_id, those of `time` by another expression.
Comments in the store, --help, reference pages and checks are generated from the header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import tomli

from traceconv.schema.ddl import sql_type

if TYPE_CHECKING:
    from importlib.abc import Traversable

    from traceconv.schema import TableSchema

T = TypeVar("T")

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TYPE = re.compile(r"(BIGINT|INTEGER|UBIGINT|DOUBLE|VARCHAR|BOOLEAN|DECIMAL\(\d+,\d+\))(\[\])?")
_UNITS = frozenset(
    {"id", "index", "count", "byte", "ns", "us²", "cycle", "hz", "flop", "GiB/s", "flop/s", "byte/s", "flop/byte"}
    | {"ratio", "percent", "text", "json", "enum", "flag"}
)
_INCLUDE = re.compile(r"^ *\{\{([a-z][a-z0-9_]*)(?:\(([a-z_]+)\))?\}\}$", re.MULTILINE)
_SELECTED = re.compile(r"\{\{selected\((.+?)\)\}\}")
#: How parameters are compared with a column; those of a time window with any other expression.
_COMPARED = {
    "run_id": {"run": "="},
    "device_id": {"device": "="},
    "step_id": {"step": "=", "first_step": ">=", "last_step": "<="},
}
_COMPARED_WITH_TIME = {"from_ns": ">=", "to_ns": "<"}
_LEFT_JOIN = re.compile(r"\bLEFT\s+JOIN\s+(?:(?P<place>[\w.\"]+)\s+AS\b)?")
#: A query with optional joins.
_JOINED = re.compile(
    r"SELECT (?P<items>(?s:.+?))\nFROM (?P<place>\w+) AS (?P<alias>\w+)\n"
    r"(?P<joins>(LEFT JOIN .+\n)+)(?P<where>WHERE (?s:.+))"
)
_ORDER_TERM = re.compile(r"([a-z][a-z0-9_]*)( DESC)?")
#: Conversions to msprof's output: see reports/msprof_csv.py.
_CONVERSIONS = frozenset({"plain", "us", "short_us", "kb", "ratio", "flag", "shapes", "model"})
#: Messages that list these: hundreds of columns are checked at each start.
_NO_UNIT = f"needs a unit, one of {', '.join(sorted(_UNITS))}"
_NO_CONVERSION = f"msprof_as must go with msprof and be one of {', '.join(sorted(_CONVERSIONS))}"

_COLUMN_KEYS = frozenset({"type", "unit", "doc", "msprof", "msprof_as", "timestamp", "group"})
_KEYS = frozenset(
    {"title", "doc", "formerly", "needs", "when_empty", "when_single", "compares_runs", "order", "measure", "shown"}
    | {"optional_joins", "top_from", "msprof_constants", "selects", "parameters", "columns"}
)
_SELECTS = frozenset({"run", "device", "steps", "time"})
#: What the rows of a time window are, and what is to be added.
_TIMED = re.compile(r"(?P<rows>[^,(]*[^,( ])(?P<note>.*)")


class HeaderError(ValueError):
    """An invalid header: a programming error."""


class Parameter(NamedTuple):
    """A parameter of a report's macro; its default, NULL, selects all rows."""

    name: str
    type: str
    doc: str


class SqlColumn(NamedTuple):
    """A column of a query. `msprof` is msprof's label, `msprof_as` the conversion to msprof's output.

    Columns of unit ns are durations unless `timestamp` is set. `group` is the metric group of the column's
    counters, `any` for a column of every group; msprof has the columns of recorded groups.
    """

    name: str
    type: str
    unit: str
    doc: str
    msprof: str | None = None
    msprof_as: str = "plain"
    timestamp: bool = False
    group: str | None = None


def table_columns(schema: TableSchema) -> tuple[SqlColumn, ...]:
    """Return the columns of a table of the store."""
    return tuple(SqlColumn(one.name, sql_type(one), one.unit, one.doc) for one in schema.columns)


_RUN_ID = SqlColumn("run_id", "BIGINT", "id", "Run of the row.")


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of the report trust.

    count      what its count counts
    reports    reports that it affects
    total      what its total_count counts; None: unknown
    affected   what its affected_ns is; None: it has none
    heuristic  whether it may be wrong
    """

    name: str
    doc: str
    count: str
    reports: str
    total: str | None
    affected: str | None
    heuristic: bool


class OrderTerm(NamedTuple):
    """A sort key; NULLs come last."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class OptionalJoin:
    """A LEFT JOIN with at most one row of the same run_id. `group`: the metric group of the rows, if it names one."""

    place: str
    alias: str
    condition: str
    group: str | None


@dataclass(frozen=True, slots=True)
class JoinedQuery:
    """A query in parts: SELECT items FROM place AS alias, joins, WHERE.

    items  expressions by name of their column
    """

    items: Mapping[str, str]
    place: str
    alias: str
    joins: tuple[OptionalJoin, ...]
    where: str

    def columns_of(self, place: str) -> set[str]:
        """Return the columns that are those of the same name of a joined table."""
        aliases = [join.alias for join in self.joins if join.place == place]
        return {name for name, item in self.items.items() if item.strip() in [f"{alias}.{name}" for alias in aliases]}


@dataclass(frozen=True, slots=True)
class DocumentedSql:
    """A query and its header.

    needs       tables that must have rows; when_empty explains how to get them; when_single, if any, why a run of
                single operators never has them
    compares_runs  whether it is on all runs by default, instead of the latest
    order       the total order of the rows
    measure     column that `--top` selects by; None: no such column
    shown       columns of the table in a terminal
    formerly    the report's old name, which still works; None if it has none
    joined      the query in parts, if each LEFT JOIN finds at most one row, so that it is only needed for its columns
    top_from    a table that has the same rows (run_id, id) of all runs of which it has any: the first rows are found
                faster there
    query       the SQL of the file
    body        the SQL for DuckDB: see guard_left_joins
    findings    of the report trust
    """

    name: str
    title: str
    doc: str
    needs: tuple[str, ...]
    when_empty: str
    when_single: str | None
    compares_runs: bool
    order: tuple[OrderTerm, ...]
    measure: str | None
    shown: tuple[str, ...]
    formerly: str | None
    joined: JoinedQuery | None
    top_from: str | None
    parameters: tuple[Parameter, ...]
    columns: tuple[SqlColumn, ...]
    msprof_constants: tuple[tuple[str, str], ...]
    query: str
    body: str
    findings: tuple[Finding, ...] = ()

    @property
    def comment(self) -> str:
        return f"{self.title}. {self.doc}"

    @property
    def order_text(self) -> str:
        """The order for people: `total_ns descending, name`."""
        return ", ".join(f"{term.column} descending" if term.descending else term.column for term in self.order)

    @property
    def is_listed(self) -> bool:
        """Whether rows only make sense in their own order, that of the column position, such as those of a tree."""
        return any(column.name == "position" for column in self.columns)

    def column(self, name: str) -> SqlColumn:
        """Return the column `name`. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def without_order(query: str) -> str:
    """Return one of our queries without its order, the last clause, which costs a sort."""
    return query.rpartition("\nORDER BY ")[0] or query


class SqlFolder(Mapping[str, T], Generic[T]):
    """The SQL files of a folder by name, in alphabetical order. `parse` gets name and text when one is first used."""

    def __init__(self, folder: Traversable, parse: Callable[[str, str], T]) -> None:
        self._parse = parse
        self._files = {
            file.name.removesuffix(".sql"): file
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
            if file.name.endswith(".sql")
        }
        self._parsed: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._parsed:
            self._parsed[name] = self._parse(name, self._text(name))
        return self._parsed[name]

    def _text(self, name: str, by: str | None = None) -> str:
        text = _INCLUDE.sub(lambda match: self._query(match[1], match[2]), self._files[name].read_text("utf-8"))
        return _SELECTED.sub(lambda match: _selected(match[1], by), text)

    def _query(self, name: str, by: str | None) -> str:
        """Return a query to include in another, without its order. `by`: the only parameter that selects its rows."""
        lines = self._text(name, by).splitlines()
        query = "\n".join(dropwhile(lambda line: line.startswith("--"), lines))
        return without_order(query)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _selected(expressions: str, by: str | None) -> str:
    conditions = (
        f"({parameter} IS NULL OR {expression} {operator} {parameter})"
        for expression in map(str.strip, _items(expressions))
        for parameter, operator in _COMPARED.get(expression.rpartition(".")[2], _COMPARED_WITH_TIME).items()
        if by in (None, parameter)
    )
    return " AND ".join(conditions) or "true"


def parse(name: str, text: str) -> DocumentedSql:
    """Parse a documented query. Raises HeaderError for an invalid header."""
    raw, query = header_and_query(name, text, _KEYS)
    columns = tuple(_column(key, entry, name) for key, entry in raw.get("columns", {}).items())
    _require(columns, name, "no [columns] in the header, which ends at the first line without --")
    if columns[0].name != "run_id":
        columns = (_RUN_ID, *columns)
    known = {column.name for column in columns}
    compares_runs = raw.get("compares_runs") is True
    parameters = (
        *_selecting(raw.get("selects", {}), name, compares_runs=compares_runs),
        *(_parameter(key, entry, name) for key, entry in raw.get("parameters", {}).items()),
    )
    # In a macro's body a parameter shadows a column with the same name.
    for parameter in parameters:
        _require(parameter.name not in known, name, f"{parameter.name} is both a parameter and a column")
    order = tuple(_order_term(term, known, name) for term in raw.get("order", []))
    measure = required_text(raw, "measure", name) if "measure" in raw else None
    _require(measure is None or measure in known, name, f"measure: no column {measure!r}")
    shown = tuple(raw.get("shown", []))
    for column in shown:
        _require(column in known, name, f"shown: no column {column!r}")
    constants = tuple((str(label), str(value)) for label, value in raw.get("msprof_constants", {}).items())
    return DocumentedSql(
        name=name,
        title=required_text(raw, "title", name),
        doc=required_sentence(raw, "doc", name),
        needs=tuple(raw.get("needs", [])),
        when_empty=required_sentence(raw, "when_empty", name) if raw.get("needs") else "",
        when_single=required_sentence(raw, "when_single", name) if "when_single" in raw else None,
        compares_runs=compares_runs,
        order=order,
        measure=measure,
        shown=shown or tuple(column.name for column in columns),
        formerly=required_text(raw, "formerly", name) if "formerly" in raw else None,
        joined=_joined(query, columns, name) if raw.get("optional_joins") is True else None,
        top_from=raw.get("top_from"),
        parameters=parameters,
        columns=columns,
        msprof_constants=constants,
        query=query,
        body=guard_left_joins(query, name),
    )


def header_and_query(name: str, text: str, keys: frozenset[str]) -> tuple[Mapping[str, Any], str]:
    """Divide a file into its header, which may have these keys, and its query. Raises HeaderError."""
    lines = text.splitlines()
    count = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = "\n".join(line[2:].removeprefix(" ") for line in lines[:count])
    query = "\n".join(lines[count:]).strip().removesuffix(";")
    try:
        raw: Mapping[str, Any] = tomli.loads(header)
    except tomli.TOMLDecodeError as error:
        raise HeaderError(f"{name}: {error}") from None
    check_keys(raw, keys, name)
    _require(query, name, "no query after the header")
    return raw, query


def _joined(query: str, columns: Sequence[SqlColumn], name: str) -> JoinedQuery:
    """Divide a query with optional joins. Raises HeaderError unless each item is a column and each join a line."""
    found = _JOINED.fullmatch(without_order(re.sub(r"\n *--.*", "", query)))
    if not found:
        raise HeaderError(f"{name}: optional_joins needs a line with FROM … AS …, a line per LEFT JOIN, and WHERE")
    items = {re.split(r"[.\s]", item)[-1]: item for item in _items(found["items"])}
    _require(list(items) == [column.name for column in columns], name, "the columns are not those of the header")
    optional = re.compile(
        rf"LEFT JOIN (?P<place>\w+) AS (?P<alias>\w+) ON (?P=alias)\.run_id = {found['alias']}\.run_id"
        r"(?P<condition> AND .+?(metric_group = '(?P<group>\w+)')?)"
    )
    joins = [match for line in found["joins"].splitlines() if (match := optional.fullmatch(line))]
    _require(len(joins) == query.count("JOIN"), name, "needs a line per join: LEFT JOIN … AS x ON x.run_id = … AND …")
    return JoinedQuery(
        items, found["place"], found["alias"], tuple(OptionalJoin(**join.groupdict()) for join in joins), found["where"]
    )


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


def guard_left_joins(sql: str, name: str) -> str:
    """Return SQL in which the optimizer can't know that the right side of a LEFT JOIN is empty.

    DuckDB 2.0.0 treats such a join as empty and drops every LIMIT above it, also in users' queries, but it does not
    look through a union. Filters are still pushed into both sides of the union, and the second one costs nothing.
    Raises HeaderError for a join with an unnamed table.
    """

    def guarded(match: re.Match[str]) -> str:
        if not match["place"]:
            raise HeaderError(f"{name}: a LEFT JOIN must be with a named table, view or CTE: … LEFT JOIN op AS o")
        return f"LEFT JOIN (FROM {match['place']} UNION ALL BY NAME SELECT NULL::BIGINT AS run_id WHERE false) AS"

    return _LEFT_JOIN.sub(guarded, sql)


def _column(name: str, entry: object, where: str) -> SqlColumn:
    where = f"{where}.{name}"
    if not _NAME.fullmatch(name) or not isinstance(entry, Mapping):
        raise HeaderError(f"{where}: is not a column")
    check_keys(entry, _COLUMN_KEYS, where)
    kind = required_text(entry, "type", where)
    _require(_TYPE.fullmatch(kind), where, f"unknown type {kind!r}")
    _require(entry.get("unit") in _UNITS, where, _NO_UNIT)
    conversion, label = entry.get("msprof_as", "plain"), entry.get("msprof")
    _require(
        conversion in _CONVERSIONS and ("msprof_as" not in entry or "msprof" in entry),
        where,
        _NO_CONVERSION,
    )
    timestamp = entry.get("timestamp") is True
    group = required_text(entry, "group", where) if "group" in entry else None
    return SqlColumn(
        name, kind, entry["unit"], required_sentence(entry, "doc", where), label, conversion, timestamp, group
    )


def _selecting(selects: Mapping[str, Any], where: str, *, compares_runs: bool) -> Iterator[Parameter]:
    """Yield the parameters of `selects`, which select rows."""
    where = f"{where}: selects"
    check_keys(selects, _SELECTS, where)
    run, device, steps, time = (selects.get(key) for key in ("run", "device", "steps", "time"))
    docs: dict[str, str] = {}
    if run:
        every = "NULL, the default: all runs, as comparisons need" if compares_runs else "NULL: all runs"
        docs["run"] = f"Only this run; {every}." if run is True else run
    if device:
        docs["device"] = "Only this device; NULL: all devices." if device is True else device
    if steps is True:
        docs["step"] = "Only this step (step.step_id); NULL: all steps."
    elif steps:
        is_doc = steps.endswith(".")
        docs["step"] = steps if is_doc else f"Only {steps} of this step (step.step_id); NULL: all {steps}."
    if steps:
        docs["first_step"] = "Only steps from this one on; NULL: no limit."
        docs["last_step"] = "Only steps up to this one; NULL: no limit."
    if isinstance(time, list):
        docs["from_ns"], docs["to_ns"] = time
    elif time and (found := _TIMED.fullmatch(time)):
        docs["from_ns"] = f"Only {found['rows']} at this time or later{found['note']}; NULL: no limit."
        docs["to_ns"] = f"Only {found['rows']} before this time{found['note']}; NULL: no limit."
    for key in docs:
        yield Parameter(key, "BIGINT", required_sentence(docs, key, where))


def _parameter(name: str, entry: object, where: str) -> Parameter:
    where = f"{where}({name})"
    if not _NAME.fullmatch(name) or not isinstance(entry, Mapping):
        raise HeaderError(f"{where}: is not a parameter")
    check_keys(entry, frozenset({"type", "doc"}), where)
    return Parameter(name, required_text(entry, "type", where), required_sentence(entry, "doc", where))


def _order_term(term: object, known: set[str], where: str) -> OrderTerm:
    match = _ORDER_TERM.fullmatch(term) if isinstance(term, str) else None
    if not match or match[1] not in known:
        raise HeaderError(f"{where}: order by {term!r}: no such column")
    return OrderTerm(match[1], match[2] is not None)


def required_text(entry: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text of a header. Raises HeaderError if it is missing."""
    value = entry.get(key)
    _require(isinstance(value, str) and value, where, f"needs {key}")
    return str(value)


def required_sentence(entry: Mapping[str, Any], key: str, where: str) -> str:
    """Return a sentence of a header. Raises HeaderError if it is missing."""
    value = required_text(entry, key, where)
    _require(value.endswith((".", "?", "!")), where, f"{key} must be a sentence")
    return value


def check_keys(entry: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    """Raise HeaderError for an unknown key."""
    if not entry.keys() <= known:
        unknown, keys = ", ".join(sorted(entry.keys() - known)), ", ".join(sorted(known))
        raise HeaderError(f"{where}: unknown {unknown}; known keys: {keys}")


def _require(condition: object, where: str, problem: str) -> None:
    if not condition:
        raise HeaderError(f"{where}: {problem}")
