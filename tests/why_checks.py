"""Compare the output of `traceconv why` with the rows of a store, for any format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

import duckdb

from traceconv.formats.locate import Evidence
from traceconv.provenance.answer import Answer
from traceconv.provenance.find import why
from traceconv.provenance.rows import EVENT_TABLES, KEYS
from traceconv.store.database import open_store

#: Tables whose rows must all be traced to bytes.
WITH_BYTES = (*EVENT_TABLES, "task_pmu", "event_wait", "flow", "counter", "memory")


def check_store(path: Path, per_table: int = 4) -> dict[str, int]:
    """Check some rows of each table; return the number of rows by table."""
    asked: dict[str, int] = {}
    with open_store(path) as connection:
        for run_id, reader in connection.execute("SELECT run_id, source_format FROM run").fetchall():
            for table in KEYS:
                for row_id in _sample(connection, run_id, table, per_table):
                    answer = why(connection, path, table, row_id, run=str(run_id))
                    check(answer, reader)
                    asked[table] = asked.get(table, 0) + 1
    return asked


def _sample(connection: duckdb.DuckDBPyConnection, run_id: int, table: str, count: int) -> list[str]:
    key = KEYS[table]
    if table == "counter":
        sql = "SELECT DISTINCT track_id || '@' || ts_ns FROM counter WHERE run_id = ? AND ts_ns IS NOT NULL ORDER BY 1"
    else:
        sql = f'SELECT DISTINCT {key} FROM "{table}" WHERE run_id = ? ORDER BY 1'
    found = [str(row[0]) for row in connection.execute(sql, [run_id]).fetchall()]
    step = max(1, len(found) // count)
    return [*found[::step][: count - 1], *found[-1:]] if len(found) > count else found


def check(answer: Answer, reader: str) -> None:
    """Check that the evidence matches the row."""
    context = f"{reader}: {answer.table} {answer.id}"
    assert answer.problems == [], context
    assert answer.evidence or answer.notes or answer.made_of, context
    for piece in answer.evidence:
        _check_piece(piece, context)
    if answer.table in EVENT_TABLES:
        _check_event(answer, reader, context)
    elif answer.table in WITH_BYTES:
        assert answer.evidence, context
    if answer.table == "counter":
        values = {str(row["value_int"] if row["value_int"] is not None else row["value"]) for row in answer.rows}
        shown = set().union(*(values_in(piece) for piece in answer.evidence))
        assert values & {text for one in shown for text in _number_texts(one)}, (context, values, shown)


def _check_piece(piece: Evidence, context: str) -> None:
    """Check that the bytes are in the file at their offset."""
    if piece.source.container == "plain" and piece.byte_offset is not None and piece.data:
        with piece.source.path.open("rb") as file:
            file.seek(piece.byte_offset)
            assert file.read(len(piece.data)) == piece.data, context


def _check_event(answer: Answer, reader: str, context: str) -> None:
    (row,) = answer.rows
    assert answer.evidence, context
    first = answer.evidence[0]
    assert "among these" not in first.role, context
    if reader == "speedscope" and first.role == "the first of its samples":
        return
    values = values_in(first)
    name = row.get("source_name") or row["name"]
    if reader not in ("speedscope", "megengine_static", "rocprofv3") and name is not None:
        assert any(str(name) == text or text in str(name) for text in values if text), (context, values)
    times = {ns for text in values for ns in _as_ns(text)}
    start = row.get("start_ns", row.get("ts_ns"))
    if reader == "npulog":
        offset = _raw_offset(answer)
        assert offset is None or offset == 0, context
    elif start is not None:
        assert start in times, (context, start, sorted(values)[:40])
    if row.get("dur_ns") is not None and reader in ("chrome_json", "vendor_folder"):
        ends = {ns for piece in answer.evidence for text in values_in(piece) for ns in _as_ns(text)}
        assert start + row["dur_ns"] in ends or row["dur_ns"] in ends, (context, row["dur_ns"])


def _raw_offset(answer: Answer) -> int | None:
    """The difference between the duration in the records and in the row, ns; None for device times."""
    (row,) = answer.rows
    hosts = [piece.fields.get("host_ns") for piece in answer.evidence]
    if row["dur_ns"] is None or len(hosts) < 2 or not all(isinstance(ns, int) for ns in hosts):
        return None
    start, end = (int(str(ns)) for ns in hosts[:2])
    return end - start - int(row["dur_ns"])


def values_in(piece: Evidence) -> set[str]:
    """All scalar values in a piece, as text."""
    found = {str(value) for value in piece.fields.values() if value is not None}
    if piece.is_text and piece.data and not piece.cut:
        try:
            found |= set(_scalars(json.loads(piece.data, parse_float=str, parse_int=str)))
        except ValueError:
            found |= set(piece.data.decode("utf-8", "replace").replace('"', " ").split())
    return found


def _scalars(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _scalars(one)
    elif isinstance(value, list):
        for one in value:
            yield from _scalars(one)
    elif value is not None:
        yield str(value)


def _as_ns(text: str) -> Iterator[int]:
    """A number as ns, if its unit is ns, µs or s."""
    try:
        number = Decimal(text.strip())
    except ArithmeticError:
        return
    if not number.is_finite() or abs(number) > Decimal(10) ** 20:
        return
    for factor in (1, 1000, 10**9):
        yield int((number * factor).to_integral_value(ROUND_HALF_EVEN))


def _number_texts(text: str) -> set[str]:
    try:
        number = float(text)
    except ValueError:
        return {text}
    return {text, str(number), str(int(number)) if number == number and abs(number) < 1e18 else text}
