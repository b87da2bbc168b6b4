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
from traceconv.export.one_clock import PlacedRun
from traceconv.reports.catalog import define_report, reports
from traceconv.reports.svg import (
    chart,
    decimal,
    label,
    legend_entry,
    line,
    percent,
    place,
    rect,
    ticks,
    time_unit,
    words,
)
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
_ROW, _BAR, _PLOT_HEIGHT, _GAP, _AXIS = 260, 180, 900, 150, 200
#: Units of the path of a picture over time, which is stretched to the width of the page.
_PATH_WIDTH = 10_000
#: Least part of the width for a percentage, and most for a step: 1 of these.
_LABEL, _WIDEST_STEP = 16, 6

LEGEND = "".join(legend_entry(css, name) for css, _, name in _PARTS)


@dataclass(frozen=True, slots=True)
class Spent:
    """How the time of a device, or of one of its steps, is divided.

    device    the name of the device; `name`: that, or that of the step
    parts_ns  of each of _PARTS
    """

    run: PlacedRun
    device_id: int | None
    device: str
    name: str
    start_ns: int
    end_ns: int
    parts_ns: tuple[int, ...]

    @property
    def dur_ns(self) -> int:
        """end_ns − start_ns."""
        return self.end_ns - self.start_ns


def spent_by_device(connection: duckdb.DuckDBPyConnection, runs: Sequence[PlacedRun]) -> list[Spent]:
    """Return the rows of breakdown with a window, of runs in turn."""
    define_report(connection, reports()["breakdown"])
    query = f"SELECT device_id, start_ns, end_ns, {_columns()} FROM breakdown(run := ?) WHERE window_ns > 0 ORDER BY 1"
    return [
        Spent(run, device, name := _device(run, device), name, start_ns, end_ns, tuple(parts))
        for run in runs
        for device, start_ns, end_ns, *parts in connection.execute(query, [run.run_id]).fetchall()
    ]


def spent_by_step(connection: duckdb.DuckDBPyConnection, runs: Sequence[PlacedRun]) -> list[Spent]:
    """Return rows of step_breakdown: of up to MOST_STEPS groups of consecutive steps of each device, the longest.

    They are those of up to MOST_DEVICES runs.
    """
    define_report(connection, reports()["step_breakdown"])
    return [one for run in runs[:MOST_DEVICES] for one in _steps_of_run(connection, run)]


def _steps_of_run(connection: duckdb.DuckDBPyConnection, run: PlacedRun) -> list[Spent]:
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
        {"run": run.run_id, "most": MOST_STEPS},
    ).fetchall()
    return [
        Spent(run, device, _device(run, device), f"step {step}", start_ns, end_ns, tuple(parts))
        for device, step, start_ns, end_ns, *parts in rows
    ]


def bars(devices: Sequence[Spent]) -> str:
    """Draw a bar per device, divided by what its time was spent on."""
    return chart(((one.name, _bar(one), _ROW) for one in devices[:MOST_BARS]), "Time of each device")


def _bar(one: Spent) -> str:
    drawn, passed_ns = [], 0
    for (css, _, name), part_ns in zip(_PARTS, one.parts_ns, strict=True):
        if part_ns:
            x, width = percent(passed_ns, one.dur_ns), percent(part_ns, one.dur_ns)
            drawn.append(rect(x, 0, width, _BAR, css, _amount(name, part_ns, one.dur_ns)))
            if part_ns * _LABEL > one.dur_ns:
                middle = percent(2 * passed_ns + part_ns, 2 * one.dur_ns)
                share = f"{100 * part_ns / one.dur_ns:.1f} %"
                drawn.append(label(middle, 130, share, f"l {css}", anchor="middle"))
        passed_ns += part_ns
    return "".join(drawn)


def over_time(connection: duckdb.DuckDBPyConnection, devices: Sequence[Spent]) -> str:
    """Draw what each device does over time, on one clock: the share of each moment's time, stacked."""
    shown = devices[:MOST_DEVICES]
    first_ns = min(one.start_ns + one.run.offset_ns for one in shown)
    last_ns = max(one.end_ns + one.run.offset_ns for one in shown)
    span_ns = last_ns - first_ns
    width_ns = -(-span_ns // _MOMENTS)
    moments = np.array([*(first_ns + passed for passed in range(0, span_ns, width_ns)), last_ns], np.int64)
    places = [(end - first_ns) * _PATH_WIDTH // span_ns for end in moments[1:].tolist()]
    unit, unit_name = time_unit(span_ns)
    marks = [(percent(tick, span_ns), f"{decimal(tick, unit)} {unit_name}") for tick in ticks(0, span_ns, 6)]
    grid = "".join(line(x, 0, x, _PLOT_HEIGHT + _GAP, "t") for x, _ in marks)
    stretched = f'<svg viewBox="0 0 {_PATH_WIDTH} {place(_PLOT_HEIGHT)}" preserveAspectRatio="none"'
    rows = []
    for one in shown:
        drawn = [rect(0, 0, "100%", _PLOT_HEIGHT, "c4"), f'{stretched} height="{place(_PLOT_HEIGHT)}">']
        lengths = np.diff(moments).tolist()
        heights = [
            [busy_ns * _PLOT_HEIGHT // length for busy_ns, length in zip(np.diff(busy).tolist(), lengths, strict=True)]
            for busy in _busy(connection, one, moments - one.run.offset_ns)
        ]
        lower = [[0] * len(lengths), *heights]
        for (css, _, name), tops, under in reversed(list(zip(_BUSY_PARTS, heights, lower, strict=False))):
            if tops == under:  # no such time
                continue
            path = "".join(f"V{place(_PLOT_HEIGHT - top)}H{x}" for x, top in zip(places, tops, strict=True))
            bottom = place(_PLOT_HEIGHT)
            drawn.append(f'<path class="{css}" d="M0 {bottom}{path}V{bottom}Z"><title>{name}</title></path>')
        rows.append((one.name, f"{''.join(drawn)}</svg>{grid}", _PLOT_HEIGHT + _GAP))
    # On a narrow page, half of the first label would be outside.
    axis = "".join(label(x, 120, name, anchor="middle" if i else "start") for i, (x, name) in enumerate(marks))
    return chart([*rows, ("", axis, _AXIS)], "Activity of each device over time")


def columns(steps: Sequence[Spent]) -> str:
    """Draw a column per step, divided by what the time of the device was spent on."""
    by_device = [list(rows) for _, rows in groupby(steps, lambda one: (one.run.run_id, one.device_id))]
    pictures = []
    for rows in by_device[:MOST_DEVICES]:
        longest_ns = max(one.dur_ns for one in rows)
        drawn = [line(0, _PLOT_HEIGHT, "100%", _PLOT_HEIGHT, "t")]
        whole = 20 * max(len(rows), _WIDEST_STEP)  # a column is 18 of it wide, and 2 from the next
        for number, one in enumerate(rows):
            passed_ns = 0
            for (css, _, name), part_ns in zip(_PARTS, one.parts_ns, strict=True):
                low, high = (ns * _PLOT_HEIGHT // longest_ns for ns in (passed_ns, passed_ns + part_ns))
                passed_ns += part_ns
                if high > low:
                    title = f"{one.name}: {human_duration(one.dur_ns)}&#10;{_amount(name, part_ns, one.dur_ns)}"
                    x, width = percent(20 * number, whole), percent(18, whole)
                    drawn.append(rect(x, _PLOT_HEIGHT - high, width, high - low, css, title))
        for number in sorted({0, len(rows) - 1}):
            x = percent(20 * number + 9, whole)
            drawn.append(label(x, _PLOT_HEIGHT + 150, rows[number].name, "m", anchor="middle"))
        name = f"{rows[0].device}<br><small>longest: {human_duration(longest_ns)}</small>"
        pictures.append((name, "".join(drawn), _PLOT_HEIGHT + _AXIS))
    return chart(pictures, "Steps")


def _busy(connection: duckdb.DuckDBPyConnection, device: Spent, moments: Int64) -> Iterator[Int64]:
    """Yield the time before each moment in which the device computes, computes or communicates, and so on."""
    of = "IS NULL" if device.device_id is None else f"= {device.device_id:d}"
    source = (
        f"(SELECT start_ns, TRY(start_ns + dur_ns) AS end_ns, kind FROM task "
        f"WHERE run_id = {device.run.run_id:d} "
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


def _device(run: PlacedRun, device_id: int | None) -> str:
    """Return the name of a device, as HTML."""
    device = "device -" if device_id is None else f"device {device_id}"
    return f"{words(run.title)} · {device}" if run.title else device


def _amount(name: str, part_ns: int, whole_ns: int) -> str:
    return f"{name}: {human_duration(part_ns)}, {100 * part_ns / whole_ns:.1f} %"
