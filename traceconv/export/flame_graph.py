"""Flame graphs of the HTML page: the rows of op-tree as boxes, as wide as their time, each under the one around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import duckdb

from traceconv.reports.catalog import define_report, reports
from traceconv.reports.html_document import text
from traceconv.reports.svg import legend_entry, percent
from traceconv.reports.values import human_duration

#: Boxes of a graph: the widest ones, if there are more. All are at least a 4,000th of its width.
_MOST_BOXES, _LEAST_SHARE = 1_500, 4_000
#: Height of a box, in pixels, and levels with boxes.
_BOX_HEIGHT, _MOST_LEVELS = 18, 150
#: Kind of ranges → CSS class of their boxes; others have c3.
_COLORS = {"module": "c2", "host_op": "c0", "frame": "c5"}

LEGEND = "".join(
    legend_entry(css, name)
    for css, name in (("c2", "module"), ("c0", "operator"), ("c5", "function"), ("c3", "step, annotation, other"))
)


@dataclass(frozen=True, slots=True)
class Node:
    """A row of op-tree: a chain of names.

    depth        number of enclosing nodes; a node follows the one around it
    total_ns     its time, with that of the nodes inside
    title        HTML, shown on hover
    """

    depth: int
    name: str
    kind: str | None
    total_ns: int
    title: str


def device_and_host_nodes(connection: duckdb.DuckDBPyConnection, run_id: int) -> tuple[list[Node], list[Node]]:
    """Return the nodes by the time of their tasks, and those by their own time on the host; without summaries."""
    define_report(connection, reports()["op_tree"])
    rows = connection.execute(
        "SELECT depth, name, kind, count, host_total_ns, host_self_ns, task_count, device_total_ns, device_self_ns "
        "FROM op_tree(run := ?) ORDER BY position",
        [run_id],
    ).fetchall()
    device, host = [], []
    is_summary = False
    for depth, name, kind, count, host_ns, host_self_ns, tasks, device_ns, device_self_ns in rows:
        shown = "(no range)" if name is None else str(name)
        if not depth:
            is_summary = kind == "summary"
        if is_summary:
            continue
        title = "&#10;".join((
            text(shown),
            f"host: {count:,} × in {_duration(host_ns)}, {_duration(host_self_ns)} of it themselves",
            f"devices: {tasks:,} tasks in {_duration(device_ns)}, {_duration(device_self_ns)} launched directly",
        ))  # fmt: skip
        device.append(Node(depth, shown, kind, device_ns or 0, title))
        host.append(Node(depth, shown, kind, host_ns or 0, title))
    return device, host


def flame_graph(nodes: Sequence[Node]) -> str:
    """Draw nodes as boxes; empty if they have no time.

    A box is as wide as its node's time, or as all boxes inside it if these have more time, as the tasks of overlapping
    ranges do. A click on one widens it (page.js).
    """
    widths, starts = _layout(nodes)
    whole = sum(width for node, width in zip(nodes, widths, strict=True) if not node.depth)
    if not whole:
        return ""
    wide = [place for place, width in enumerate(widths) if width * _LEAST_SHARE >= whole]
    shown = sorted(wide, key=lambda place: (-widths[place], nodes[place].depth, place))[:_MOST_BOXES]
    shown = [place for place in shown if nodes[place].depth < _MOST_LEVELS]
    left_out = sum(map(bool, widths)) - len(shown)
    levels = 2 + max((nodes[place].depth for place in shown), default=-1)
    boxes = "".join(_box(nodes[place].depth + 1, starts[place], widths[place], whole, nodes[place]) for place in shown)
    everything = Node(0, f"all: {human_duration(whole)}", None, whole, "")
    note = f"<p><small>{left_out:,} narrower boxes are left out.</small></p>" if left_out else ""
    height = levels * _BOX_HEIGHT
    return f'<div class="flame" style="height:{height}px">{_box(0, 0, whole, whole, everything)}{boxes}</div>{note}'


def _layout(nodes: Sequence[Node]) -> tuple[list[int], list[int]]:
    """Return the width of each node and where it starts, in ns."""
    levels = 2 + max((node.depth for node in nodes), default=0)
    widths = [0] * len(nodes)
    inside = [0] * levels
    for place in reversed(range(len(nodes))):
        depth = nodes[place].depth
        widths[place] = max(nodes[place].total_ns, inside[depth + 1])
        inside[depth + 1] = 0
        inside[depth] += widths[place]
    starts = [0] * len(nodes)
    free = [0] * levels
    for place, node in enumerate(nodes):
        starts[place] = free[node.depth + 1] = free[node.depth]
        free[node.depth] += widths[place]
    return widths, starts


def _box(level: int, start: int, width: int, whole: int, node: Node) -> str:
    place = f"left:{percent(start, whole)};width:{percent(width, whole)};top:{level * _BOX_HEIGHT}px"
    css = _COLORS.get(node.kind or "", "c3") if level else "c4"
    share = f"&#10;{percent(width, whole, 2)} of all" if node.title else ""
    return f'<div class="{css}" style="{place}" title="{node.title}{share}">{text(node.name[:200])}</div>'


def _duration(ns: int | None) -> str:
    return "unknown time" if ns is None else escape(human_duration(ns))
