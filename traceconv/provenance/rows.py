"""Find a row by its table's key; if it doesn't exist, suggest the nearest ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import duckdb

from traceconv.base.errors import UsageError, option, printable, suggestion
from traceconv.reports.catalog import reports
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.catalogue import views

#: Tables whose ids are positions of events, all in one range.
EVENT_TABLES = ("task", "api", "range", "marker")
#: The key column of each table.
KEYS = {
    **dict.fromkeys((*EVENT_TABLES, "task_pmu", "event_wait"), "id"),
    "op": "op_id",
    "fusion": "fusion_id",
    "step": "step_id",
    "memory": "block_id",
    "flow": "flow_id",
    "counter": "track_id",
    "track": "track_id",
    "process": "process_id",
    "device": "device_id",
    "run": "run_id",
    "source": "source_id",
}
#: Views of these tables.
_VIEWS_OF = {"slice": ("task", "api", "range"), "thread": ("track",)}
#: Words that users try, and the table that they mean.
_OTHER_WORDS = {"kernel": "task", "kernels": "task", "event": "slice", "events": "slice", "call": "api"}
_SAMPLE = re.compile(r"([0-9]+)[@:](-?[0-9]+)")
_MAX_ROWS = 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows with an id; `id` is the number in their key column."""

    table: str
    id: int
    id_text: str
    rows: list[dict[str, Any]]


def find_rows(connection: duckdb.DuckDBPyConnection, run_id: int, table: str, id_text: str) -> Wanted:
    """Return the rows of a table (or of the views slice and thread) with an id. Raises UsageError if there are none."""
    known = [*KEYS, *_VIEWS_OF]
    if table not in known:
        raise UsageError(_no_table(table, known))
    text = id_text.strip().replace(",", "").replace("_", "")
    ts_ns: int | None = None
    sample = _SAMPLE.fullmatch(text)
    if table == "counter":
        if sample is None:
            raise UsageError("rows of counter have no id; use TRACK_ID@TS_NS")
        text, ts_ns = sample[1], int(sample[2])
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise UsageError(f"'{printable(id_text)}' is not an id; ids are integers")
    number = int(text)
    for one in _VIEWS_OF.get(table, (table,)):
        rows = _rows(connection, run_id, one, number, ts_ns)
        if rows:
            return Wanted(one, number, id_text, rows)
    raise UsageError(_no_row(connection, run_id, table, number, ts_ns))


def fetch(connection: duckdb.DuckDBPyConnection, sql: str, values: list[object]) -> list[dict[str, Any]]:
    """Return the rows of a query, by column."""
    cursor = connection.execute(sql, values)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _rows(
    connection: duckdb.DuckDBPyConnection, run_id: int, table: str, number: int, ts_ns: int | None
) -> list[dict[str, Any]]:
    if not -(2**63) <= number < 2**63:
        return []
    key = quote_identifier(KEYS[table])
    sql = f"SELECT * FROM {quote_identifier(table)} WHERE run_id = ? AND {key} = ?"  # noqa: S608 - quoted names of ours
    values: list[object] = [number if table == "run" else run_id, number]
    if ts_ns is not None:
        sql += " AND ts_ns = ?"
        values.append(ts_ns)
    return fetch(connection, f"{sql} LIMIT {_MAX_ROWS}", values)


def _no_table(table: str, known: list[str]) -> str:
    shown = printable(table)
    if table in ("source_block", "import_log", "import_account"):
        return (
            f"rows of {shown} are written by ingest itself and come from no event; "
            f"byte_offset and byte_count, if any, are in the source. See: traceconv schema {shown}"
        )
    schema = tables().get(table)
    if schema is not None and schema.derived_from:
        made_of = " and ".join(schema.derived_from)
        return f"rows of {shown} are computed from the rows of {made_of} (see traceconv schema {shown})"
    if table in (*views(), *tables(), *reports()):
        return f"rows of {shown} are computed (see traceconv schema {shown}). Specify a row of: {', '.join(known)}"
    near = suggestion(_OTHER_WORDS.get(table.lower(), table), known)
    return f"unknown table '{shown}'.{near} Tables: {', '.join(known)}"


def _no_row(connection: duckdb.DuckDBPyConnection, run_id: int, table: str, number: int, ts_ns: int | None) -> str:
    at = "" if ts_ns is None else f"@{ts_ns}"
    lead = f"run {run_id} has no {table} {number}{at}."
    if not -(2**63) <= number < 2**63:
        return lead
    if table in EVENT_TABLES:
        for other in EVENT_TABLES:
            if other != table and _rows(connection, run_id, other, number, None):
                return f"{lead} It is in {other}; use: traceconv why {other} {number}"
    near: set[str] = set()
    runs: set[int] = set()
    for one in _VIEWS_OF.get(table, (table,)):
        name, key = quote_identifier(one), KEYS[one]
        if ts_ns is None:
            sql = f"SELECT max({key}) FILTER ({key} < ?), min({key}) FILTER ({key} > ?) FROM {name} WHERE run_id = ?"  # noqa: S608
            near |= {str(id_) for id_ in _first(connection, sql, [number, number, run_id])}
        else:
            sql = (
                "SELECT max(ts_ns) FILTER (ts_ns < ?), min(ts_ns) FILTER (ts_ns > ?) FROM counter "
                "WHERE run_id = ? AND track_id = ?"
            )
            near |= {f"{number}@{ns}" for ns in _first(connection, sql, [ts_ns, ts_ns, run_id, number])}
        sql = f"SELECT DISTINCT run_id FROM {name} WHERE {key} = ? AND run_id <> ? ORDER BY 1 LIMIT 5"  # noqa: S608
        runs |= {row[0] for row in connection.execute(sql, [number, run_id]).fetchall()}
    parts = [lead]
    if near:
        parts.append(f"Nearest: {', '.join(sorted(near)[:4])}.")
    if runs and table != "run":
        parts.append(f"Other runs have it; use {option('--run', 'run =')} {' or '.join(map(str, sorted(runs)))}.")
    return " ".join(parts) if near or runs else f"{lead} The table is empty for this run."


def _first(connection: duckdb.DuckDBPyConnection, sql: str, values: list[object]) -> list[Any]:
    """Return the values of the first row that are not NULL."""
    return [value for value in connection.execute(sql, values).fetchall()[0] if value is not None]
