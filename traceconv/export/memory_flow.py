"""Device memory over time as an SVG of bounded size: each block is a rectangle of its addresses and its lifetime.

Blocks are disjoint in time × address, so the picture is exact, except that blocks too small to see are drawn together.
The number of rectangles is bounded, whether a run has a hundred blocks or ten million. If no block of a device has an
address, the sizes in use are stacked over time instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

from traceconv.base.errors import InputError, UsageError
from traceconv.export.memory_flow_blocks import BLOCKS, PURPOSES, blocks, segments
from traceconv.export.memory_flow_panel import (
    CENTER,
    LEFT,
    PANEL_GAP,
    PLOT_WIDTH,
    RIGHT_EDGE,
    STRIP_GAP,
    STRIP_HEIGHT,
    TOP,
    WIDTH,
    Panel,
    step_line,
    temporary_table,
)
from traceconv.export.memory_flow_stack import stack
from traceconv.export.memory_layout import stretches
from traceconv.export.output import CountedFile, open_output
from traceconv.export.registry import Written
from traceconv.reports.catalog import reports
from traceconv.reports.no_rows import why_empty
from traceconv.reports.question import Question
from traceconv.reports.svg import TENTHS, decimal, label, line, rect, ticks, time_unit, words
from traceconv.reports.values import human_bytes
from traceconv.store.catalogue import define

_MAP_HEIGHT = {1: 5_200, 2: 3_600}
_MAP_HEIGHT_OF_MANY = 2_400
#: Width of a character of a label, on average, or a little more.
_CHARACTER = 70
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
    height = max((panel.strip_bottom for panel in panels), default=TOP + STRIP_GAP + STRIP_HEIGHT) + 700
    counts = Counter[str]()
    with open_output(output) as file:
        counted = CountedFile(file)
        for text in _picture(connection, f"{model or run_label} (run {run_id})", height, panels, counts):
            counted.write(text.encode())
    omitted = {"blocks without an address": counts["unplaced"]}
    rows = {"blocks": counts["alone"], "blocks drawn together": counts["merged"], "blocks stacked": counts["stacked"]}
    return Written(rows, counted.size_bytes, omitted)


def _picture(
    connection: duckdb.DuckDBPyConnection, title: str, height: int, panels: list[Panel], counts: Counter[str]
) -> Iterator[str]:
    """Return the complete file. Counts blocks: drawn alone, drawn together (merged), stacked, not drawn (unplaced)."""
    yield _head(words(title), height, with_blocks=any(panel.axis for panel in panels))
    define(connection, "memory_usage")
    for panel in panels:
        yield from _frame(connection, panel)
        if panel.axis:
            yield from blocks(connection, panel, counts)
        [(unplaced,)] = connection.execute(
            f"SELECT count(*) FROM memory WHERE {panel.where} AND kind IS DISTINCT FROM 'segment' AND address IS NULL"
        ).fetchall()
        counts["unplaced" if panel.axis else "stacked"] += unplaced
        with temporary_table(connection, "memory_flow_usage", _usage_sql(panel)):
            if unplaced and not panel.axis:
                yield from stack(connection, panel)
            yield from _strip(connection, panel)
    notes = f"{counts['alone']:,} blocks"
    notes += f", {counts['merged']:,} more drawn together (pale)" if counts["merged"] else ""
    notes += f", {counts['unplaced']:,} without an address not drawn" if counts["unplaced"] else ""
    notes += f", {counts['stacked']:,} without an address stacked by size" if counts["stacked"] else ""
    what = "a block for its op, tensor, size and times" if counts["alone"] else "an area for its name"
    yield label(LEFT, height - 150, f"{notes}. Hover over {what}.", "m")
    yield "</svg>\n"


def _panels(
    connection: duckdb.DuckDBPyConnection, run_id: int, devices: list[int | None], start_ns: int | None
) -> list[Panel]:
    height = _MAP_HEIGHT.get(len(devices), _MAP_HEIGHT_OF_MANY)
    panels, top = [], TOP + 300
    for device in devices:
        panel = Panel(run_id, device, 0, 1, 0, top, height, [])
        [(first, last)] = connection.execute(
            "SELECT least(min(alloc_ns), min(free_ns)), greatest(max(alloc_ns), max(free_ns)) "
            f"FROM memory WHERE {panel.where}"
        ).fetchall()
        if first is None:
            first = last = start_ns or 0
        placed = f"SELECT address, size_bytes FROM memory WHERE {panel.where} AND {BLOCKS}"
        origin = first if start_ns is None else min(start_ns, first)
        axis = stretches(connection, placed, height)
        panels.append(replace(panel, first_ns=first, span_ns=max(1, last - first), origin_ns=origin, axis=axis))
        top = panel.strip_bottom + PANEL_GAP
    return panels


def _head(title: str, height: int, *, with_blocks: bool) -> str:
    size = f'width="{WIDTH // TENTHS}" height="{height // TENTHS}" viewBox="0 0 {WIDTH // TENTHS} {height // TENTHS}"'
    parts = [
        f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" {size}>\n',
        f"<title>Memory of {title}</title>\n<style>{_STYLE}</style>\n",
        label(LEFT, 300, f"Memory of {title}", "h"),
    ]
    if not with_blocks:
        return "".join(parts)
    x = LEFT
    for name, css in [*PURPOSES.items(), ("other", "u")]:
        parts += [rect(x, 460, 120, 120, css), label(x + 170, 565, name)]
        x += 330 + 65 * len(name)
    parts += [rect(x, 460, 120, 120, "r"), label(x + 170, 565, "reserved, not used")]
    parts += [rect(x + 1_500, 460, 120, 120, "g"), label(x + 1_670, 565, "addresses without blocks: not to scale")]
    return "".join(parts)


def _frame(connection: duckdb.DuckDBPyConnection, panel: Panel) -> Iterator[str]:
    """Axes, gaps and segments of the map, with their labels."""
    title = "device" if panel.device_id is None else f"device {panel.device_id}"
    title = "host memory (device −1)" if panel.device_id == -1 else title
    yield label(LEFT, panel.top - 100, title, "h")
    yield rect(LEFT, panel.top, PLOT_WIDTH, panel.height, "f")
    what = "device address (hexadecimal, bytes)" if panel.axis else "bytes in use (placement unknown)"
    yield label(250, panel.top + panel.height // 2, what, anchor="middle", turned=True)
    yield from segments(connection, panel)
    free_below = panel.bottom + 200
    for stretch in panel.axis:
        y = panel.bottom - stretch.bottom
        middle, size = y - stretch.height // 2 + 40, human_bytes(stretch.size_bytes)
        if stretch.gap:
            gap = f"no blocks in {size} from {stretch.first:#x}"
            yield rect(LEFT, y - stretch.height, PLOT_WIDTH, stretch.height, "g", gap)
            if stretch.height >= 120:
                yield label(CENTER, middle, size, "m", anchor="middle")
        elif free_below - y >= 130:
            yield label(LEFT - 60, y, f"{stretch.first:#x}", anchor="end")
            free_below = y
            if stretch.height >= 300:
                yield label(LEFT - 60, middle, size, "m", anchor="end")
    unit, name = time_unit(panel.span_ns)
    first = panel.first_ns - panel.origin_ns
    for tick in ticks(first, first + panel.span_ns, 10):
        x = panel.x(tick + panel.origin_ns)
        yield line(x, panel.top, x, panel.strip_bottom, "t")
        yield label(x, panel.strip_bottom + 180, decimal(tick, unit), anchor="middle")
    yield label(CENTER, panel.strip_bottom + 370, f"time since the start of the run ({name})", anchor="middle")


def _usage_sql(panel: Panel) -> str:
    """Return the SQL of bytes in use and reserved, by pixel from the left edge of the plot: the most, and the last."""
    pixel = f"greatest(0, ts_ns::HUGEINT - {panel.first_ns}) * {PLOT_WIDTH // TENTHS} // {panel.span_ns}"
    return f"""
        SELECT ({pixel})::BIGINT AS x, max(used_bytes) AS most_used, arg_max(used_bytes, ts_ns) AS last_used,
               max(reserved_bytes) AS most_reserved, arg_max(reserved_bytes, ts_ns) AS last_reserved,
               arg_max(ts_ns, (used_bytes, -ts_ns)) AS peak_ns, max(ts_ns) AS last_ns
        FROM memory_usage WHERE level = 'device' AND {panel.where} GROUP BY ALL"""


def _strip(connection: duckdb.DuckDBPyConnection, panel: Panel) -> Iterator[str]:
    """Used and reserved bytes over time below the map, and the peak. Needs the table memory_flow_usage."""
    usage = "memory_flow_usage"
    [(peak, most)] = connection.execute(f"SELECT max(most_used), max(most_reserved) FROM {usage}").fetchall()
    top = panel.bottom + STRIP_GAP
    full = max(peak or 0, most or 0, 1)
    columns = connection.execute(
        f"SELECT x, most_used, last_used, most_reserved, last_reserved FROM {usage} ORDER BY x"
    ).fetchall()  # one for each pixel at most

    def path(values: Sequence[tuple[int, int, int]]) -> str:
        return step_line(values, top, STRIP_HEIGHT, full)

    yield f'<path class="c" d="{path([row[:3] for row in columns])}'
    yield f'V{panel.strip_bottom // TENTHS}Z"><title>bytes in use</title></path>\n'
    if most is not None:
        dashed = path([(row[0], *row[3:]) for row in columns])
        yield f'<path class="v" d="{dashed}"><title>bytes reserved</title></path>\n'
    yield rect(LEFT, top, PLOT_WIDTH, STRIP_HEIGHT, "f")
    yield label(LEFT - 60, top + 110, human_bytes(full), anchor="end")
    yield label(LEFT - 60, panel.strip_bottom, "0 B", anchor="end")
    yield label(250, top + STRIP_HEIGHT // 2, "bytes", anchor="middle", turned=True)
    names = "in use (filled)" + ("" if most is None else " and reserved (dashed)")
    yield label(RIGHT_EDGE, top - 60, names, "m", anchor="end")
    if peak is None:
        return
    [(at_ns,)] = connection.execute(f"SELECT min(peak_ns) FROM {usage} WHERE most_used = ?", [peak]).fetchall()
    x = min(max(panel.x(at_ns), LEFT), RIGHT_EDGE)
    yield line(x, panel.top - 60, x, panel.strip_bottom, "k")
    reserved = "" if most is None else f", {human_bytes(most)} reserved at most"
    text = f"peak: {human_bytes(peak)} in use at {panel.since(at_ns)}{reserved}"
    width = len(text) * _CHARACTER
    late = x + 60 + width > WIDTH
    first = x - 60 - width if late else x + 60
    y = panel.top - 100 if first > LEFT + 900 else panel.top - 260  # not over the device's name
    yield label(x - 60 if late else x + 60, y, text, "p", anchor="end" if late else "")
