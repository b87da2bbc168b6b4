"""Device memory over time as an SVG of bounded size: each block is a rectangle of its addresses and its lifetime.

Blocks are disjoint in time × address, so the picture is exact, except that blocks too small to see are drawn together.
The number of rectangles is bounded, whether a run has a hundred blocks or ten million. If no block of a device has an
address, the sizes in use are stacked over time instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from traceconv.base.errors import InputError, UsageError
from traceconv.export.memory_layout import Stretch, as_values, position_of, stretches
from traceconv.export.output import CountedFile, open_output
from traceconv.export.registry import Written
from traceconv.reports.catalog import reports
from traceconv.reports.no_rows import why_empty
from traceconv.reports.run import Question
from traceconv.reports.svg import TENTHS, decimal, label, line, rect, ticks, time_unit, words
from traceconv.reports.values import human_bytes, human_duration
from traceconv.store.catalogue import define

#: Maximum number of blocks with their own rectangle, largest first, and of boxes for several blocks.
_MAX_BLOCKS = 1_100
_MAX_BOXES = 700
#: Smaller blocks (in tenths of a pixel) are drawn together with their neighbours.
_LEAST_WIDTH, _LEAST_HEIGHT = 20, 12
#: Maximum number of segment backgrounds.
_MAX_SEGMENTS = 150

# The picture, in tenths of a pixel.
_WIDTH = 12_800
_LEFT, _RIGHT, _TOP = 1_500, 300, 800
_MAP_HEIGHT = {1: 5_200, 2: 3_600}
_MAP_HEIGHT_OF_MANY = 2_400
_STRIP_HEIGHT, _STRIP_GAP, _PANEL_GAP = 900, 300, 1_000
_PLOT_WIDTH = _WIDTH - _LEFT - _RIGHT
#: Width of a character of a label, on average, or a little more.
_CHARACTER = 70
_CENTER, _RIGHT_EDGE = _LEFT + _PLOT_WIDTH // 2, _LEFT + _PLOT_WIDTH

#: Purpose of a block → CSS class of its color.
_PURPOSES = {
    "weight": "w",
    "input": "i",
    "output": "o",
    "activation": "a",
    "workspace": "s",
}
_STYLE = """
svg{background:#fff}text{font:12px sans-serif;fill:#333}.h{font-size:16px;font-weight:bold}.m{fill:#777}.p{fill:#b00020}
rect:hover{stroke:#000;stroke-width:1.5}.f{fill:none;stroke:#999}.t{stroke:#ddd}.k{stroke:#b00020;stroke-dasharray:4 3}
.g{fill:#f3f3f3;stroke:#ccc;stroke-dasharray:3 3}.r{fill:#eef2f7;stroke:#c9d3e0;stroke-width:.5}
.w,.i,.o,.a,.s,.u{stroke:#fff;stroke-width:.3}.w{fill:#4e79a7}.i{fill:#59a14f}.o{fill:#e15759}.a{fill:#f28e2b}
.s{fill:#b07aa1}.u{fill:#9c9c9c}.x{opacity:.55;stroke-dasharray:1 1}.c{fill:#4e79a755;stroke:#4e79a7}
.v{fill:none;stroke:#777;stroke-dasharray:5 3}
.q0{fill:#4e79a7}.q1{fill:#f28e2b}.q2{fill:#59a14f}.q3{fill:#b07aa1}.q4{fill:#e15759}.q5{fill:#76b7b2}.q6{fill:#edc948}
.q7{fill:#9c755f}.q8{fill:#9c9c9c}.n{fill:#cfd6de}
"""
#: What blocks without addresses are stacked by: the first that is known, and its SQL on a block `m` and its op `o`.
_STACKED_BY = {"purpose": "m.purpose", "op type": "coalesce(o.op_type, o.name)", "pool": "m.pool"}
#: Maximum number of stacked groups, largest first; the others are one more.
_MAX_GROUPS = 8
#: Columns of their legend, above the areas.
_LEGEND_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class _Panel:
    """One device in the picture: its axes and its position. `top` and `height` are the map's."""

    run_id: int
    device_id: int | None
    first_ns: int
    span_ns: int
    origin_ns: int
    top: int
    height: int
    axis: list[Stretch]

    @property
    def where(self) -> str:
        """SQL condition on the rows of `memory`."""
        device = "NULL" if self.device_id is None else str(self.device_id)
        return f"run_id = {self.run_id} AND device_id IS NOT DISTINCT FROM {device}"

    @property
    def bottom(self) -> int:
        return self.top + self.height

    @property
    def strip_bottom(self) -> int:
        """Bottom of the strip below the map."""
        return self.bottom + _STRIP_GAP + _STRIP_HEIGHT

    def x(self, ns: int) -> int:
        return _LEFT + (ns - self.first_ns) * _PLOT_WIDTH // self.span_ns

    def since(self, ns: int | None) -> str:
        """Return a timestamp in the unit of the axis."""
        unit, name = time_unit(self.span_ns)
        return "?" if ns is None else f"{decimal(ns - self.origin_ns, unit)} {name}"


def export_memory_flow(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    output: Path | None,
    *,
    device: int | None = None,
    may_be_empty: bool = False,
) -> Written:
    """Draw the memory of a run's devices, or of one, to `output` (None: standard output; compressed if it ends in .gz).

    Raises InputError if the run has no memory log, unless the picture may be empty, UsageError if the device has none,
    OutputError if the file can't be written.
    """
    found = connection.execute("SELECT DISTINCT device_id FROM memory WHERE run_id = ? ORDER BY 1", [run_id]).fetchall()
    devices = [row[0] for row in found]
    if not devices and not may_be_empty:
        peaks = Question(reports()["memory_peak"], {"run": run_id}, ())
        raise InputError(why_empty(connection, peaks).removeprefix("memory-peak: "))
    if device is not None and device not in devices:
        known = ", ".join(str(one) for one in devices if one is not None) or "none"
        raise UsageError(f"run {run_id} has no memory log of device {device}; devices with one: {known}")
    [(run_label, model, start_ns)] = connection.execute(
        "SELECT label, model_name, start_ns FROM run WHERE run_id = ?", [run_id]
    ).fetchall() or [(f"run {run_id}", None, None)]
    panels = _panels(connection, run_id, devices if device is None else [device], start_ns)
    height = max((panel.strip_bottom for panel in panels), default=_TOP + _STRIP_GAP + _STRIP_HEIGHT) + 700
    counts = Counter[str]()
    with open_output(output) as file:
        counted = CountedFile(file)
        for text in _picture(connection, f"{model or run_label} (run {run_id})", height, panels, counts):
            counted.write(text.encode())
    omitted = {"blocks without an address": counts["unplaced"]}
    rows = {"blocks": counts["alone"], "blocks drawn together": counts["merged"], "blocks stacked": counts["stacked"]}
    return Written(rows, counted.size_bytes, omitted)


def _picture(
    connection: duckdb.DuckDBPyConnection, title: str, height: int, panels: list[_Panel], counts: Counter[str]
) -> Iterator[str]:
    """Return the complete file. Counts blocks: drawn alone, drawn together (merged), stacked, not drawn (unplaced)."""
    yield _head(words(title), height, with_blocks=any(panel.axis for panel in panels))
    define(connection, "memory_usage")
    for panel in panels:
        yield from _frame(connection, panel)
        if panel.axis:
            with (
                _temporary(connection, "memory_flow_blocks", _placed_sql(panel)),
                _temporary(connection, "memory_flow_alone", _ALONE),
            ):
                yield from _boxes(connection, panel, counts)
                yield from _blocks(connection, panel, counts)
        [(unplaced,)] = connection.execute(
            f"SELECT count(*) FROM memory WHERE {panel.where} AND kind IS DISTINCT FROM 'segment' AND address IS NULL"
        ).fetchall()
        counts["unplaced" if panel.axis else "stacked"] += unplaced
        with _temporary(connection, "memory_flow_usage", _usage_sql(panel)):
            if unplaced and not panel.axis:
                yield from _stack(connection, panel)
            yield from _strip(connection, panel)
    notes = f"{counts['alone']:,} blocks"
    notes += f", {counts['merged']:,} more drawn together (pale)" if counts["merged"] else ""
    notes += f", {counts['unplaced']:,} without an address not drawn" if counts["unplaced"] else ""
    notes += f", {counts['stacked']:,} without an address stacked by size" if counts["stacked"] else ""
    what = "a block for its op, tensor, size and times" if counts["alone"] else "an area for its name"
    yield label(_LEFT, height - 150, f"{notes}. Hover over {what}.", "m")
    yield "</svg>\n"


def _panels(
    connection: duckdb.DuckDBPyConnection, run_id: int, devices: list[int | None], start_ns: int | None
) -> list[_Panel]:
    height = _MAP_HEIGHT.get(len(devices), _MAP_HEIGHT_OF_MANY)
    panels, top = [], _TOP + 300
    for device in devices:
        panel = _Panel(run_id, device, 0, 1, 0, top, height, [])
        [(first, last)] = connection.execute(
            "SELECT least(min(alloc_ns), min(free_ns)), greatest(max(alloc_ns), max(free_ns)) "
            f"FROM memory WHERE {panel.where}"
        ).fetchall()
        if first is None:
            first = last = start_ns or 0
        blocks = f"SELECT address, size_bytes FROM memory WHERE {panel.where} AND {_BLOCKS}"
        origin = first if start_ns is None else min(start_ns, first)
        axis = stretches(connection, blocks, height)
        panels.append(replace(panel, first_ns=first, span_ns=max(1, last - first), origin_ns=origin, axis=axis))
        top = panel.strip_bottom + _PANEL_GAP
    return panels


_BLOCKS = "kind IS DISTINCT FROM 'segment' AND address IS NOT NULL"


def _head(title: str, height: int, *, with_blocks: bool) -> str:
    size = f'width="{_WIDTH // TENTHS}" height="{height // TENTHS}" viewBox="0 0 {_WIDTH // TENTHS} {height // TENTHS}"'
    parts = [
        f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" {size}>\n',
        f"<title>Memory of {title}</title>\n<style>{_STYLE}</style>\n",
        label(_LEFT, 300, f"Memory of {title}", "h"),
    ]
    if not with_blocks:
        return "".join(parts)
    x = _LEFT
    for name, css in [*_PURPOSES.items(), ("other", "u")]:
        parts += [rect(x, 460, 120, 120, css), label(x + 170, 565, name)]
        x += 330 + 65 * len(name)
    parts += [rect(x, 460, 120, 120, "r"), label(x + 170, 565, "reserved, not used")]
    parts += [rect(x + 1_500, 460, 120, 120, "g"), label(x + 1_670, 565, "addresses without blocks: not to scale")]
    return "".join(parts)


def _frame(connection: duckdb.DuckDBPyConnection, panel: _Panel) -> Iterator[str]:
    """Axes, gaps and segments of the map, with their labels."""
    title = "device" if panel.device_id is None else f"device {panel.device_id}"
    title = "host memory (device −1)" if panel.device_id == -1 else title
    yield label(_LEFT, panel.top - 100, title, "h")
    yield rect(_LEFT, panel.top, _PLOT_WIDTH, panel.height, "f")
    what = "device address (hexadecimal, bytes)" if panel.axis else "bytes in use (placement unknown)"
    yield label(250, panel.top + panel.height // 2, what, anchor="middle", turned=True)
    yield from _segments(connection, panel)
    free_below = panel.bottom + 200
    for stretch in panel.axis:
        y = panel.bottom - stretch.bottom
        middle, size = y - stretch.height // 2 + 40, human_bytes(stretch.size_bytes)
        if stretch.gap:
            gap = f"no blocks in {size} from {stretch.first:#x}"
            yield rect(_LEFT, y - stretch.height, _PLOT_WIDTH, stretch.height, "g", gap)
            if stretch.height >= 120:
                yield label(_CENTER, middle, size, "m", anchor="middle")
        elif free_below - y >= 130:
            yield label(_LEFT - 60, y, f"{stretch.first:#x}", anchor="end")
            free_below = y
            if stretch.height >= 300:
                yield label(_LEFT - 60, middle, size, "m", anchor="end")
    unit, name = time_unit(panel.span_ns)
    first = panel.first_ns - panel.origin_ns
    for tick in ticks(first, first + panel.span_ns, 10):
        x = panel.x(tick + panel.origin_ns)
        yield line(x, panel.top, x, panel.strip_bottom, "t")
        yield label(x, panel.strip_bottom + 180, decimal(tick, unit), anchor="middle")
    yield label(_CENTER, panel.strip_bottom + 370, f"time since the start of the run ({name})", anchor="middle")


def _segments(connection: duckdb.DuckDBPyConnection, panel: _Panel) -> Iterator[str]:
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


def _placed_sql(panel: _Panel) -> str:
    """Return the SQL of the blocks: positions from the left and the bottom in tenths of a pixel.

    Names are joined later, to the few blocks that need them: a million would take most of the memory.
    """
    last_ns = panel.first_ns + panel.span_ns
    return f"""
        SELECT block_id, m.size_bytes, alloc_ns, end_ns, has_purpose, has_name,
               greatest(1, (end_ns::HUGEINT - begin_ns) * {_PLOT_WIDTH} // {panel.span_ns})::INTEGER AS width,
               ((begin_ns::HUGEINT - {panel.first_ns}) * {_PLOT_WIDTH} // {panel.span_ns})::INTEGER AS x0,
               (axis.bottom + (m.first - axis.first) * axis.height // axis.size_bytes)::INTEGER AS y0,
               greatest(1, greatest(m.size_bytes, 1)::HUGEINT * axis.height // axis.size_bytes)::INTEGER AS high
        FROM (
          SELECT block_id, address::HUGEINT AS first, size_bytes, alloc_ns,
                 coalesce(alloc_ns, {panel.first_ns}) AS begin_ns,
                 CASE WHEN free_ns >= coalesce(alloc_ns, free_ns) THEN free_ns ELSE {last_ns} END AS end_ns,
                 purpose IS NOT NULL AS has_purpose, tensor_name IS NOT NULL AS has_name
          FROM memory WHERE {panel.where} AND {_BLOCKS}) AS m
        ASOF JOIN {as_values(panel.axis)} ON m.first >= axis.first"""


#: The blocks with the largest areas, which get their own rectangle.
_ALONE = f"""
    SELECT block_id FROM memory_flow_blocks WHERE width >= {_LEAST_WIDTH} AND high >= {_LEAST_HEIGHT}
    ORDER BY width::BIGINT * high DESC, block_id LIMIT {_MAX_BLOCKS}"""


def _blocks(connection: duckdb.DuckDBPyConnection, panel: _Panel, counts: Counter[str]) -> Iterator[str]:
    """Blocks with their own rectangle, above those drawn together."""
    rows = connection.execute(
        "SELECT b.x0, b.y0, b.width, b.high, block_id, m.address::HUGEINT, m.size_bytes, m.alloc_ns, m.free_ns, "
        "m.purpose, m.tensor_name, m.pool, o.name, o.op_type "
        "FROM memory_flow_alone JOIN memory_flow_blocks AS b USING (block_id) "
        f"JOIN (FROM memory WHERE {panel.where} AND {_BLOCKS}) AS m USING (block_id) "
        f"LEFT JOIN (SELECT op_id, name, op_type FROM op WHERE run_id = {panel.run_id}) AS o USING (op_id) "
        f"ORDER BY coalesce(m.alloc_ns, {panel.first_ns}), block_id"
    )
    for row in rows.fetchall():  # at most _MAX_BLOCKS
        counts["alone"] += 1
        yield _block(panel, row)


def _block(panel: _Panel, row: tuple[Any, ...]) -> str:
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
    css = _PURPOSES.get(purpose, "u")
    return rect(_LEFT + x0, panel.bottom - y0 - high, width, high, css, "&#10;".join(parts))


def _boxes(connection: duckdb.DuckDBPyConnection, panel: _Panel, counts: Counter[str]) -> Iterator[str]:
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
    named = f"(SELECT block_id, purpose, tensor_name FROM memory WHERE {panel.where} AND {_BLOCKS})"
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
        css = f"{_PURPOSES.get(purpose, 'u')} x"
        yield rect(_LEFT + x0, panel.bottom - y0 - high, width, max(high, 5), css, title)


@contextmanager
def _temporary(connection: duckdb.DuckDBPyConnection, name: str, query: str) -> Iterator[None]:
    """Provide the rows of a query as a temporary table."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
    try:
        yield
    finally:
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def _usage_sql(panel: _Panel) -> str:
    """Return the SQL of bytes in use and reserved, by pixel from the left edge of the plot: the most, and the last."""
    pixel = f"greatest(0, ts_ns::HUGEINT - {panel.first_ns}) * {_PLOT_WIDTH // TENTHS} // {panel.span_ns}"
    return f"""
        SELECT ({pixel})::BIGINT AS x, max(used_bytes) AS most_used, arg_max(used_bytes, ts_ns) AS last_used,
               max(reserved_bytes) AS most_reserved, arg_max(reserved_bytes, ts_ns) AS last_reserved,
               arg_max(ts_ns, (used_bytes, -ts_ns)) AS peak_ns, max(ts_ns) AS last_ns
        FROM memory_usage WHERE level = 'device' AND {panel.where} GROUP BY ALL"""


def _path(values: Sequence[tuple[int, int, int]], top: int, height: int, full: int) -> str:
    """Return a line of steps up to the right edge: the pixel, and the highest and the last value there."""
    found, last = [f"M{_LEFT // TENTHS} {(top + height) // TENTHS}"], 0
    for x, high, end in values:
        found.append(f"H{_LEFT // TENTHS + x}")
        for value in (high, end):
            if value != last:
                tenths = top + height - value * height // full
                found.append(f"V{tenths // TENTHS}.{tenths % TENTHS}")
            last = value
    return "".join([*found, f"H{_RIGHT_EDGE // TENTHS}"])


def _stack(connection: duckdb.DuckDBPyConnection, panel: _Panel) -> Iterator[str]:
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
    with _temporary(connection, "memory_flow_sums", sums):
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
        shape = _path(values, panel.top + legend, panel.height - legend, full)
        yield f'<path class="{css}" d="{shape}V{panel.bottom // TENTHS}Z"><title>{text}</title></path>\n'
    yield label(_LEFT - 60, panel.top + legend + 40, human_bytes(full), anchor="end")
    yield label(_LEFT - 60, panel.bottom, "0 B", anchor="end")
    by = f", stacked by {title}" if title else ""
    yield label(_LEFT + 150, panel.top + 180, f"Blocks without addresses{by}; their placement is unknown.", "m")
    for number, (css, text) in enumerate(labels):
        row, column = divmod(number, _LEGEND_COLUMNS)
        x, y = _LEFT + 150 + column * _PLOT_WIDTH // _LEGEND_COLUMNS, panel.top + 260 + 180 * row
        yield rect(x, y, 120, 120, css) + label(x + 170, y + 105, text)


def _strip(connection: duckdb.DuckDBPyConnection, panel: _Panel) -> Iterator[str]:
    """Used and reserved bytes over time below the map, and the peak. Needs the table memory_flow_usage."""
    usage = "memory_flow_usage"
    [(peak, most)] = connection.execute(f"SELECT max(most_used), max(most_reserved) FROM {usage}").fetchall()
    top = panel.bottom + _STRIP_GAP
    full = max(peak or 0, most or 0, 1)
    columns = connection.execute(
        f"SELECT x, most_used, last_used, most_reserved, last_reserved FROM {usage} ORDER BY x"
    ).fetchall()  # one for each pixel at most

    def path(values: Sequence[tuple[int, int, int]]) -> str:
        return _path(values, top, _STRIP_HEIGHT, full)

    yield f'<path class="c" d="{path([row[:3] for row in columns])}'
    yield f'V{panel.strip_bottom // TENTHS}Z"><title>bytes in use</title></path>\n'
    if most is not None:
        dashed = path([(row[0], *row[3:]) for row in columns])
        yield f'<path class="v" d="{dashed}"><title>bytes reserved</title></path>\n'
    yield rect(_LEFT, top, _PLOT_WIDTH, _STRIP_HEIGHT, "f")
    yield label(_LEFT - 60, top + 110, human_bytes(full), anchor="end")
    yield label(_LEFT - 60, panel.strip_bottom, "0 B", anchor="end")
    yield label(250, top + _STRIP_HEIGHT // 2, "bytes", anchor="middle", turned=True)
    names = "in use (filled)" + ("" if most is None else " and reserved (dashed)")
    yield label(_RIGHT_EDGE, top - 60, names, "m", anchor="end")
    if peak is None:
        return
    [(at_ns,)] = connection.execute(f"SELECT min(peak_ns) FROM {usage} WHERE most_used = ?", [peak]).fetchall()
    x = min(max(panel.x(at_ns), _LEFT), _RIGHT_EDGE)
    yield line(x, panel.top - 60, x, panel.strip_bottom, "k")
    reserved = "" if most is None else f", {human_bytes(most)} reserved at most"
    text = f"peak: {human_bytes(peak)} in use at {panel.since(at_ns)}{reserved}"
    width = len(text) * _CHARACTER
    late = x + 60 + width > _WIDTH
    first = x - 60 - width if late else x + 60
    y = panel.top - 100 if first > _LEFT + 900 else panel.top - 260  # not over the device's name
    yield label(x - 60 if late else x + 60, y, text, "p", anchor="end" if late else "")
