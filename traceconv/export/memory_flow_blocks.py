"""The map of memory_flow: segments and blocks as rectangles, small ones together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb

from traceconv.export.memory_flow_panel import LEFT, PLOT_WIDTH, Panel, temporary_table
from traceconv.export.memory_layout import as_values, position_of
from traceconv.reports.svg import rect, words
from traceconv.reports.values import human_bytes, human_duration

#: Maximum number of blocks with their own rectangle, largest first, and of boxes for several blocks.
_MAX_BLOCKS = 1_100
_MAX_BOXES = 700
#: Smaller blocks (in tenths of a pixel) are drawn together with their neighbours.
_LEAST_WIDTH, _LEAST_HEIGHT = 20, 12
#: Maximum number of segment backgrounds.
_MAX_SEGMENTS = 150

#: Purpose of a block → CSS class of its color.
PURPOSES = {
    "weight": "w",
    "input": "i",
    "output": "o",
    "activation": "a",
    "workspace": "s",
}
#: SQL condition on the blocks of the map.
BLOCKS = "kind IS DISTINCT FROM 'segment' AND address IS NOT NULL"


def segments(connection: duckdb.DuckDBPyConnection, panel: Panel) -> Iterator[str]:
    if not panel.axis:
        return
    rows = connection.execute(
        "SELECT address::HUGEINT, size_bytes, alloc_ns, free_ns, pool FROM memory "
        f"WHERE {panel.where} AND kind = 'segment' AND address IS NOT NULL "
        f"ORDER BY size_bytes DESC, block_id LIMIT {_MAX_SEGMENTS}"
    ).fetchall()
    for address, size, alloc_ns, free_ns, pool in rows:
        x0 = panel.x(panel.first_ns if alloc_ns is None else alloc_ns)
        x1 = panel.x(panel.first_ns + panel.span_ns if free_ns is None or free_ns < (alloc_ns or 0) else free_ns)
        y0, y1 = position_of(panel.axis, address), position_of(panel.axis, address + size)
        title = f"segment of pool {words(pool or '?')}: {human_bytes(size)} reserved at {address:#x}"
        yield rect(x0, panel.bottom - y1, max(1, x1 - x0), max(1, y1 - y0), "r", title)


def blocks(connection: duckdb.DuckDBPyConnection, panel: Panel, counts: Counter[str]) -> Iterator[str]:
    """Rectangles of the blocks. Counts those drawn alone, and those drawn together (merged)."""
    with (
        temporary_table(connection, "memory_flow_blocks", _placed_sql(panel)),
        temporary_table(connection, "memory_flow_alone", _ALONE),
    ):
        yield from _boxes(connection, panel, counts)
        yield from _blocks(connection, panel, counts)


def _placed_sql(panel: Panel) -> str:
    """Return the SQL of the blocks: positions from the left and the bottom in tenths of a pixel.

    Names are joined later, to the few blocks that need them: a million would take most of the memory.
    """
    last_ns = panel.first_ns + panel.span_ns
    return f"""
        SELECT block_id, m.size_bytes, alloc_ns, end_ns, has_purpose, has_name,
               greatest(1, (end_ns::HUGEINT - begin_ns) * {PLOT_WIDTH} // {panel.span_ns})::INTEGER AS width,
               ((begin_ns::HUGEINT - {panel.first_ns}) * {PLOT_WIDTH} // {panel.span_ns})::INTEGER AS x0,
               (axis.bottom + (m.first - axis.first) * axis.height // axis.size_bytes)::INTEGER AS y0,
               greatest(1, greatest(m.size_bytes, 1)::HUGEINT * axis.height // axis.size_bytes)::INTEGER AS high
        FROM (
          SELECT block_id, address::HUGEINT AS first, size_bytes, alloc_ns,
                 coalesce(alloc_ns, {panel.first_ns}) AS begin_ns,
                 CASE WHEN free_ns >= coalesce(alloc_ns, free_ns) THEN free_ns ELSE {last_ns} END AS end_ns,
                 purpose IS NOT NULL AS has_purpose, tensor_name IS NOT NULL AS has_name
          FROM memory WHERE {panel.where} AND {BLOCKS}) AS m
        ASOF JOIN {as_values(panel.axis)} ON m.first >= axis.first"""


#: The blocks with the largest areas, which get their own rectangle.
_ALONE = f"""
    SELECT block_id FROM memory_flow_blocks WHERE width >= {_LEAST_WIDTH} AND high >= {_LEAST_HEIGHT}
    ORDER BY width::BIGINT * high DESC, block_id LIMIT {_MAX_BLOCKS}"""


def _blocks(connection: duckdb.DuckDBPyConnection, panel: Panel, counts: Counter[str]) -> Iterator[str]:
    """Blocks with their own rectangle, above those drawn together."""
    rows = connection.execute(
        "SELECT b.x0, b.y0, b.width, b.high, block_id, m.address::HUGEINT, m.size_bytes, m.alloc_ns, m.free_ns, "
        "m.purpose, m.tensor_name, m.pool, o.name, o.op_type "
        "FROM memory_flow_alone JOIN memory_flow_blocks AS b USING (block_id) "
        f"JOIN (FROM memory WHERE {panel.where} AND {BLOCKS}) AS m USING (block_id) "
        f"LEFT JOIN (SELECT op_id, name, op_type FROM op WHERE run_id = {panel.run_id}) AS o USING (op_id) "
        f"ORDER BY coalesce(m.alloc_ns, {panel.first_ns}), block_id"
    )
    for row in rows.fetchall():  # at most _MAX_BLOCKS
        counts["alone"] += 1
        yield _block(panel, row)


def _block(panel: Panel, row: tuple[Any, ...]) -> str:
    x0, y0, width, high, number, first, size, alloc_ns, free_ns, purpose, tensor, pool, op_name, op_type = row
    parts = [words(tensor) if tensor else f"block {number}"]
    if op_name:
        parts.append(f"op {words(op_name)}" + (f" ({words(op_type, 60)})" if op_type else ""))
    parts.append(f"{words(purpose or 'unknown purpose')}, pool {words(pool or '?', 60)}")
    parts.append(f"{human_bytes(size)} ({size} bytes) at {first:#x}")
    freed = free_ns is not None and (alloc_ns is None or free_ns >= alloc_ns)
    begin = "before the recording" if alloc_ns is None else f"at {panel.since(alloc_ns)}"
    end = f"freed at {panel.since(free_ns)}" if freed else "not freed"
    lifetime = f", lifetime {human_duration(free_ns - alloc_ns)}" if freed and alloc_ns is not None else ""
    parts.append(f"allocated {begin}, {end}{lifetime}")
    css = PURPOSES.get(purpose, "u")
    return rect(LEFT + x0, panel.bottom - y0 - high, width, high, css, "&#10;".join(parts))


def _boxes(connection: duckdb.DuckDBPyConnection, panel: Panel, counts: Counter[str]) -> Iterator[str]:
    """Blocks that are too small or exceed the number of rectangles: neighbours share a box."""
    row_height = 20
    while True:
        boxes = f"""
            WITH small AS (
              -- Blocks that begin at one position of a line are in one box.
              SELECT (y0 + high // 2) // {row_height} AS line, x0, max(x0 + width) AS x1, min(y0) AS y0,
                     max(y0 + high) AS y1, count(*) AS count, sum(size_bytes) AS total, max(size_bytes) AS largest,
                     max((size_bytes, -block_id)) FILTER (WHERE has_purpose) AS purpose,
                     max((size_bytes, -block_id)) FILTER (WHERE has_name) AS name,
                     min(alloc_ns) AS alloc_ns, max(end_ns) AS end_ns
              FROM memory_flow_blocks ANTI JOIN memory_flow_alone USING (block_id)
              GROUP BY line, x0
            ), split AS (
              SELECT *, CASE WHEN x0 > {row_height} + max(x1) OVER (
                PARTITION BY line ORDER BY x0 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
              ) THEN 1 ELSE 0 END AS new FROM small
            ), numbered AS (
              SELECT *, sum(new) OVER (PARTITION BY line ORDER BY x0) AS box FROM split
            )
            SELECT min(x0) AS x0, min(y0) AS y0, max(x1) - min(x0) AS width, max(y1) - min(y0) AS high,
                   sum(count)::BIGINT AS count, sum(total)::HUGEINT AS total, max(largest) AS largest,
                   -max(purpose)[2] AS of_purpose, -max(name)[2] AS of_name, min(alloc_ns) AS alloc_ns,
                   max(end_ns) AS end_ns
            FROM numbered GROUP BY line, box"""
        [(found,)] = connection.execute(f"SELECT count(*) FROM ({boxes})").fetchall()
        if found <= _MAX_BOXES:
            break
        row_height *= 2
    named = f"(SELECT block_id, purpose, tensor_name FROM memory WHERE {panel.where} AND {BLOCKS})"
    for x0, y0, width, high, count, total, largest, purpose, tensor, alloc_ns, end_ns in connection.execute(
        "SELECT x0, y0, width, high, count, total, largest, p.purpose, n.tensor_name, alloc_ns, end_ns "
        f"FROM ({boxes}) LEFT JOIN {named} AS p ON p.block_id = of_purpose "
        f"LEFT JOIN {named} AS n ON n.block_id = of_name ORDER BY 1, 2, 3, 4"
    ).fetchall():
        counts["merged"] += count
        title = (
            f"{count:,} block{'s' * (count != 1)}, too small to draw separately&#10;"
            f"{human_bytes(total)} in total, not necessarily at the same time&#10;"
            f"the largest: {words(tensor or purpose or '?')}, {human_bytes(largest)}&#10;"
            f"from {panel.since(alloc_ns)} to {panel.since(end_ns)}"
        )
        css = f"{PURPOSES.get(purpose, 'u')} x"
        yield rect(LEFT + x0, panel.bottom - y0 - high, width, max(high, 5), css, title)
