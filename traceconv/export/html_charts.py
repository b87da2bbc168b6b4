"""Pictures of where the time of devices goes, for the HTML page: SVG whose size doesn't grow with the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import duckdb
import numpy as np

from traceconv.base.int64 import Int64
from traceconv.export.busy_time import BusyTime
from traceconv.export.load_counters import Timed, in_time_order
from traceconv.reports.catalog import define_report, reports
from traceconv.reports.svg import TENTHS, decimal, label, line, rect, ticks, time_unit
from traceconv.reports.svg import place as pixels
from traceconv.reports.values import human_duration

#: What the time of a device is divided into, as in breakdown: CSS class, column, and what it is called.
_PARTS = (
    ("c0", "compute_ns", "compute"),
    ("c1", "exposed_collective_ns", "exposed communication"),
    ("c2", "exposed_copy_ns", "exposed copies"),
    ("c3", "other_ns", "other"),
    ("c4", "idle_ns", "idle"),
)
_BUSY_PARTS = _PARTS[:-1]
#: Devices with a bar, and those that the other pictures show.
MOST_BARS, MOST_DEVICES = 32, 8
#: Columns of a picture over time, and over steps.
_MOMENTS, MOST_STEPS = 240, 120

# In tenths of a pixel.
_LEFT, _PLOT, _ROW, _BAR = 1_000, 8_600, 260, 180
_WIDTH = _LEFT + _PLOT + 200
_PLOT_HEIGHT, _AXIS = 900, 200
#: Width of a percentage.
_LABEL = 500

LEGEND = "".join(f'<span class="key {css}"></span>{name} ' for css, _, name in _PARTS)


@dataclass(frozen=True, slots=True)
class Spent:
    """How the time of a device, or of one of its steps, is divided.

    name      of the device or step
    parts_ns  of each of _PARTS
    """

    device_id: int | None
    name: str
    start_ns: int
    end_ns: int
    parts_ns: tuple[int, ...]

    @property
    def dur_ns(self) -> int:
        """end_ns − start_ns."""
        return self.end_ns - self.start_ns


def spent_by_device(connection: duckdb.DuckDBPyConnection, run_id: int) -> list[Spent]:
    """Return the rows of breakdown with a window."""
    define_report(connection, reports()["breakdown"])
    rows = connection.execute(
        f"SELECT device_id, start_ns, end_ns, {_columns()} FROM breakdown(run := ?) WHERE window_ns > 0 ORDER BY 1",
        [run_id],
    ).fetchall()
    return [Spent(device, _device(device), start_ns, end_ns, tuple(parts)) for device, start_ns, end_ns, *parts in rows]


def spent_by_step(connection: duckdb.DuckDBPyConnection, run_id: int) -> list[Spent]:
    """Return rows of step_breakdown: of up to MOST_STEPS groups of consecutive steps of each device, the longest."""
    define_report(connection, reports()["step_breakdown"])
    rows = connection.execute(
        f"""
        WITH numbered AS (
          SELECT *, row_number() OVER (PARTITION BY device_id ORDER BY start_ns, step_id) - 1 AS place,
                 count(*) OVER (PARTITION BY device_id) AS steps
          FROM step_breakdown(run := $run)
          WHERE window_ns > 0
        )
        SELECT device_id, step_id, start_ns, end_ns, {_columns()}
        FROM numbered
        QUALIFY row_number() OVER (
          PARTITION BY device_id, place // ((steps + $most - 1) // $most) ORDER BY window_ns DESC, step_id
        ) = 1
        ORDER BY device_id, start_ns, step_id
        """,
        {"run": run_id, "most": MOST_STEPS},
    ).fetchall()
    return [
        Spent(device, f"step {step}", start_ns, end_ns, tuple(parts)) for device, step, start_ns, end_ns, *parts in rows
    ]


def bars(devices: Sequence[Spent]) -> str:
    """Draw a bar per device, divided by what its time was spent on."""
    shown = devices[:MOST_BARS]
    drawn = []
    for row, one in enumerate(shown):
        top = row * _ROW
        drawn.append(label(_LEFT - 80, top + 140, one.name, anchor="end"))
        passed_ns = 0
        for (css, _, name), part_ns in zip(_PARTS, one.parts_ns, strict=True):
            x, end = (_LEFT + ns * _PLOT // one.dur_ns for ns in (passed_ns, passed_ns + part_ns))
            passed_ns += part_ns
            if end > x:
                drawn.append(rect(x, top, end - x, _BAR, css, _amount(name, part_ns, one.dur_ns)))
                if end - x > _LABEL:
                    percent = f"{100 * part_ns / one.dur_ns:.1f} %"
                    drawn.append(label((x + end) // 2, top + 130, percent, f"l {css}", anchor="middle"))
    return _svg("".join(drawn), len(shown) * _ROW, "Time of each device")


def over_time(connection: duckdb.DuckDBPyConnection, run_id: int, devices: Sequence[Spent]) -> str:
    """Draw what each device does over time: the share of each moment's time, stacked."""
    shown = devices[:MOST_DEVICES]
    first_ns, last_ns = min(one.start_ns for one in shown), max(one.end_ns for one in shown)
    span_ns = last_ns - first_ns
    width_ns = -(-span_ns // _MOMENTS)
    moments = np.array([*(first_ns + passed for passed in range(0, span_ns, width_ns)), last_ns], np.int64)
    drawn = []
    for row, one in enumerate(shown):
        bottom = row * (_PLOT_HEIGHT + 150) + _PLOT_HEIGHT
        drawn.append(label(_LEFT - 80, bottom - _PLOT_HEIGHT // 2, one.name, anchor="end"))
        drawn.append(rect(_LEFT, bottom - _PLOT_HEIGHT, _PLOT, _PLOT_HEIGHT, "c4"))
        lengths = np.diff(moments).tolist()
        heights = [
            [busy_ns * _PLOT_HEIGHT // length for busy_ns, length in zip(np.diff(busy).tolist(), lengths, strict=True)]
            for busy in _busy(connection, run_id, one, moments)
        ]
        lower = [[0] * len(lengths), *heights]
        for (css, _, name), tops, under in reversed(list(zip(_BUSY_PARTS, heights, lower, strict=False))):
            if tops == under:  # no such time
                continue
            path = "".join(
                f"V{pixels(bottom - top)}H{pixels(_LEFT + (end - first_ns) * _PLOT // span_ns)}"
                for end, top in zip(moments[1:].tolist(), tops, strict=True)
            )
            start = f"M{pixels(_LEFT)} {pixels(bottom)}"
            drawn.append(f'<path class="{css}" d="{start}{path}V{pixels(bottom)}Z"><title>{name}</title></path>')
    bottom = len(shown) * (_PLOT_HEIGHT + 150)
    unit, unit_name = time_unit(span_ns)
    for tick in ticks(0, span_ns, 8):
        x = _LEFT + tick * _PLOT // span_ns
        drawn.append(line(x, 0, x, bottom - 50, "t"))
        drawn.append(label(x, bottom + 120, f"{decimal(tick, unit)} {unit_name}", anchor="middle"))
    return _svg("".join(drawn), bottom + _AXIS, "Activity of each device over time")


def columns(steps: Sequence[Spent]) -> str:
    """Draw a column per step, divided by what the time of the device was spent on."""
    by_device = [(device, list(rows)) for device, rows in groupby(steps, lambda one: one.device_id)][:MOST_DEVICES]
    drawn = []
    for row, (device, rows) in enumerate(by_device):
        bottom = row * (_PLOT_HEIGHT + 400) + _PLOT_HEIGHT + 100
        longest_ns = max(one.dur_ns for one in rows)
        drawn.append(label(_LEFT - 80, bottom - _PLOT_HEIGHT // 2, _device(device), anchor="end"))
        drawn.append(label(_LEFT - 80, bottom - _PLOT_HEIGHT + 80, human_duration(longest_ns), "m", anchor="end"))
        drawn.append(line(_LEFT, bottom, _LEFT + _PLOT, bottom, "t"))
        width = min(_PLOT // len(rows), 800)
        for place, one in enumerate(rows):
            passed_ns = 0
            for (css, _, name), part_ns in zip(_PARTS, one.parts_ns, strict=True):
                low, high = (ns * _PLOT_HEIGHT // longest_ns for ns in (passed_ns, passed_ns + part_ns))
                passed_ns += part_ns
                if high > low:
                    title = f"{one.name}: {human_duration(one.dur_ns)}&#10;{_amount(name, part_ns, one.dur_ns)}"
                    drawn.append(
                        rect(_LEFT + place * width, bottom - high, max(width * 9 // 10, 10), high - low, css, title)
                    )
        for place in {0, len(rows) - 1}:
            x = _LEFT + place * width + width // 2
            drawn.append(label(x, bottom + 150, rows[place].name, "m", anchor="middle"))
    return _svg("".join(drawn), len(by_device) * (_PLOT_HEIGHT + 400), "Steps")


def _busy(connection: duckdb.DuckDBPyConnection, run_id: int, device: Spent, moments: Int64) -> Iterator[Int64]:
    """Yield the time before each moment in which the device computes, computes or communicates, and so on."""
    of = "IS NULL" if device.device_id is None else f"= {device.device_id:d}"
    source = (
        f"(SELECT start_ns, TRY(start_ns + dur_ns) AS end_ns, kind FROM task WHERE run_id = {run_id:d} "
        f"AND device_id {of} AND kind IS DISTINCT FROM 'sync' AND dur_ns > 0 AND TRY(start_ns + dur_ns) IS NOT NULL)"
    )
    place = "CASE kind WHEN 'compute' THEN 0 WHEN 'collective' THEN 1 WHEN 'copy' THEN 2 ELSE 3 END"
    busy = [BusyTime(moments) for _ in _BUSY_PARTS]
    for starts, ends, places in in_time_order(connection, [Timed(source, "start_ns", ("end_ns", place))]):
        for most, one in enumerate(busy):
            counts = places <= most
            one.add(starts[counts], ends[counts])
    yield from (one.before_ns for one in busy)


def _columns() -> str:
    return ", ".join(column for _, column, _ in _PARTS)


def _device(device_id: int | None) -> str:
    return "device -" if device_id is None else f"device {device_id}"


def _amount(name: str, part_ns: int, whole_ns: int) -> str:
    return f"{name}: {human_duration(part_ns)}, {100 * part_ns / whole_ns:.1f} %"


def _svg(drawn: str, height: int, title: str) -> str:
    size = f'viewBox="0 0 {_WIDTH // TENTHS} {max(height, TENTHS) // TENTHS}"'
    return f'<svg {size} role="img" aria-label="{title}">{drawn}</svg>' if drawn else ""
