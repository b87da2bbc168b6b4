"""The areas of memory_flow for blocks without addresses: the sizes in use, stacked over time."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from traceconv.export.memory_flow_panel import LEFT, PLOT_WIDTH, Panel, step_line, temporary_table
from traceconv.reports.svg import TENTHS, label, rect, words
from traceconv.reports.values import human_bytes

#: What blocks without addresses are stacked by: the first that is known, and its SQL on a block `m` and its op `o`.
_STACKED_BY = {"purpose": "m.purpose", "op type": "coalesce(o.op_type, o.name)", "pool": "m.pool"}
#: Maximum number of stacked groups, largest first; the others are one more.
_MAX_GROUPS = 8
#: Columns of their legend, above the areas.
_LEGEND_COLUMNS = 2


def stack(connection: duckdb.DuckDBPyConnection, panel: Panel) -> Iterator[str]:
    """Bytes in use over time, stacked by what is known of the blocks. Needs the table memory_flow_usage."""
    blocks = (
        f"FROM (SELECT * FROM memory WHERE {panel.where} AND kind IS DISTINCT FROM 'segment') AS m "
        f"LEFT JOIN (SELECT op_id, name, op_type FROM op WHERE run_id = {panel.run_id}) AS o USING (op_id)"
    )
    [known] = connection.execute(
        f"SELECT {', '.join(f'count({sql})' for sql in _STACKED_BY.values())} {blocks}"
    ).fetchall()
    title, sql = next((pair for pair, count in zip(_STACKED_BY.items(), known, strict=True) if count), ("", "NULL"))
    # At the highest moment of each pixel, and its last: a sum for each group.
    times = "SELECT unnest([peak_ns, last_ns]) AS at_ns, x, unnest([0, 1]) AS place FROM memory_flow_usage"
    changes = (
        f"SELECT coalesce({sql}, '') AS title, unnest([coalesce(alloc_ns, {panel.first_ns}), free_ns]) AS ts_ns, "
        f"unnest([size_bytes, -size_bytes]) AS change {blocks}"
    )
    sums = (
        "SELECT title, ts_ns, sum(sum(change)) OVER (PARTITION BY title ORDER BY ts_ns) AS used "
        f"FROM ({changes}) WHERE ts_ns IS NOT NULL GROUP BY title, ts_ns"
    )
    with temporary_table(connection, "memory_flow_sums", sums):
        peaks = connection.execute(
            "SELECT title, max(used)::HUGEINT FROM memory_flow_sums GROUP BY title ORDER BY 2 DESC, 1"
        ).fetchall()
        names = [name for name, _ in peaks[:_MAX_GROUPS]]
        rest = len(peaks) - len(names)
        stacked = connection.execute(
            f"SELECT t.x, t.place, list(coalesce(s.used, 0)::HUGEINT ORDER BY g.number) FROM ({times}) AS t "
            "CROSS JOIN (SELECT unnest($names) AS title, unnest(range(len($names))) AS number) AS g "
            "ASOF LEFT JOIN memory_flow_sums AS s ON s.title = g.title AND s.ts_ns <= t.at_ns "
            "GROUP BY t.x, t.place, t.at_ns ORDER BY t.x, t.place",
            {"names": names},
        ).fetchall()  # two for each pixel at most
        totals = connection.execute("SELECT x, most_used, last_used FROM memory_flow_usage ORDER BY x").fetchall()
    full = max((high for _, high, _ in totals), default=0) or 1
    lines = [totals] if rest else []
    for count in range(len(names), 0, -1):
        tops = [sum(values[:count]) for _, _, values in stacked]
        lines.append(list(zip([x for x, _, _ in stacked[::2]], tops[::2], tops[1::2], strict=True)))
    labels = [
        (
            f"q{number}" if name or not title else "n",
            f"{words(name, 60) or f'{title} unknown'.strip()}: {human_bytes(peak)} at most",
        )
        for number, (name, peak) in enumerate(peaks[:_MAX_GROUPS])
    ]
    if rest:
        labels.append(("q8", f"{rest:,} others"))
    legend = 310 + 180 * -(-len(labels) // _LEGEND_COLUMNS)
    for (css, text), values in zip(reversed(labels), lines, strict=True):
        shape = step_line(values, panel.top + legend, panel.height - legend, full)
        yield f'<path class="{css}" d="{shape}V{panel.bottom // TENTHS}Z"><title>{text}</title></path>\n'
    yield label(LEFT - 60, panel.top + legend + 40, human_bytes(full), anchor="end")
    yield label(LEFT - 60, panel.bottom, "0 B", anchor="end")
    by = f", stacked by {title}" if title else ""
    yield label(LEFT + 150, panel.top + 180, f"Blocks without addresses{by}; their placement is unknown.", "m")
    for number, (css, text) in enumerate(labels):
        row, column = divmod(number, _LEGEND_COLUMNS)
        x, y = LEFT + 150 + column * PLOT_WIDTH // _LEGEND_COLUMNS, panel.top + 260 + 180 * row
        yield rect(x, y, 120, 120, css) + label(x + 170, y + 105, text)
