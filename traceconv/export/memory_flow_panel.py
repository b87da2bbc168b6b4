"""One device in the picture of memory_flow: its axes and its position, in tenths of a pixel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from traceconv.export.memory_layout import Stretch
from traceconv.reports.svg import TENTHS, decimal, time_unit

WIDTH = 12_800
LEFT, RIGHT, TOP = 1_500, 300, 800
STRIP_HEIGHT, STRIP_GAP, PANEL_GAP = 900, 300, 1_000
PLOT_WIDTH = WIDTH - LEFT - RIGHT
CENTER, RIGHT_EDGE = LEFT + PLOT_WIDTH // 2, LEFT + PLOT_WIDTH


@dataclass(frozen=True, slots=True)
class Panel:
    """A device's map of addresses, or its areas, at `top`, and the strip below."""

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
        return self.bottom + STRIP_GAP + STRIP_HEIGHT

    def x(self, ns: int) -> int:
        return LEFT + (ns - self.first_ns) * PLOT_WIDTH // self.span_ns

    def since(self, ns: int | None) -> str:
        """Return a timestamp in the unit of the axis."""
        unit, name = time_unit(self.span_ns)
        return "?" if ns is None else f"{decimal(ns - self.origin_ns, unit)} {name}"


@contextmanager
def temporary_table(connection: duckdb.DuckDBPyConnection, name: str, query: str) -> Iterator[None]:
    """Provide the rows of a query as a temporary table."""
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
    try:
        yield
    finally:
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def step_line(values: Sequence[tuple[int, int, int]], top: int, height: int, full: int) -> str:
    """Return a line of steps up to the right edge: the pixel, and the highest and the last value there."""
    found, last = [f"M{LEFT // TENTHS} {(top + height) // TENTHS}"], 0
    for x, high, end in values:
        found.append(f"H{LEFT // TENTHS + x}")
        for value in (high, end):
            if value != last:
                tenths = top + height - value * height // full
                found.append(f"V{tenths // TENTHS}.{tenths % TENTHS}")
            last = value
    return "".join([*found, f"H{RIGHT_EDGE // TENTHS}"])
