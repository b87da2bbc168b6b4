"""Compare two stores: equal rows, with IDs matched and references followed, without run and source columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from traceconv.formats.perfetto_proto.field_numbers import PACKED
from traceconv.schema import table
from traceconv.wire.protobuf import fields

#: Tables with IDs that other rows refer to.
TITLED = ("range", "api", "task", "marker")
#: Tables in an exported timeline (docs/how-to/export-a-timeline.md).
CARRIED = (*TITLED, "step", "counter", "memory", "flow", "op", "fusion", "task_pmu", "event_wait")
CARRIED += ("device", "process", "track")
_REFERENCES = ("parent_id", "src_id", "dst_id", "api_id", "event_id")


def differences(one: Path, other: Path) -> list[str]:
    """Differences, one per line; none if the stores have the same content."""
    found: list[str] = []
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{one}' AS a (READ_ONLY)")
        connection.execute(f"ATTACH '{other}' AS b (READ_ONLY)")
        for store in "ab":
            _match_ids(connection, store)
        for name in CARRIED:
            left, right = (_rows(store, name) for store in "ab")
            for sign, query in (("-", f"{left} EXCEPT ALL {right}"), ("+", f"{right} EXCEPT ALL {left}")):
                rows = connection.execute(query).fetchmany(3)
                found += [f"{name} {sign} {row}" for row in rows]
    return found


def _match_ids(connection: duckdb.DuckDBPyConnection, store: str) -> None:
    """Numbers the rows by what they say, so that the number of a row is the same in both stores; of rows that say
    the same, by their order in the source."""
    parts = []
    for name in TITLED:
        columns = [c.name for c in table(name).columns if c.name not in ("id", "parent_id", "api_id")]
        content = ", ".join(f'"{c}"' for c in columns)
        parts.append(
            f"SELECT run_id, id, '{name}/' || hash(ROW({content})) || '/' || row_number() OVER "
            f'(PARTITION BY {content} ORDER BY id) AS content FROM {store}.main."{name}"'
        )
    connection.execute(f"CREATE TEMP TABLE content_{store} AS {' UNION ALL '.join(parts)}")
    counts = connection.execute(f"SELECT count(*), count(DISTINCT (run_id, id)) FROM content_{store}").fetchone()
    assert counts is not None
    assert counts[0] == counts[1], "ids are unique in a run over task, api, range and marker"


def _rows(store: str, name: str) -> str:
    """SELECT of all columns, with what ids stand for in their place."""
    columns, joins = [], []
    for column in (c.name for c in table(name).columns):
        if column in _REFERENCES or (column == "id" and name in (*TITLED, "task_pmu", "event_wait")):
            joins.append(
                f"LEFT JOIN content_{store} AS {column}_content "
                f"ON {column}_content.run_id = s.run_id AND {column}_content.id = s.{column}"
            )
            columns.append(f"{column}_content.content AS {column}")
            if column in _REFERENCES:  # a reference that leads nowhere is another thing than none
                columns.append(f"s.{column} IS NULL AS no_{column}")
        else:
            columns.append(f's."{column}"')
    return f'SELECT {", ".join(columns)} FROM {store}.main."{name}" AS s {" ".join(joins)}'


def drawn(output: Path) -> Path:
    """A Perfetto trace next to `output`, without the packets that restore the run: what others see in it."""
    path = output.with_name(f"drawn-{output.name}")
    path.write_bytes(b"".join(drawn_packets(output.read_bytes())))
    return path


def drawn_packets(data: bytes) -> Iterator[bytes]:
    """The packets for others, which are not compressed."""
    start = 0
    for _, _, size, at in fields(data, 0, len(data)):
        if PACKED not in {number for number, *_ in fields(data, at, at + size)}:
            yield data[start : at + size]
        start = at + size
