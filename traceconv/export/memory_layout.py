"""The address axis of a memory picture: unused address ranges are compressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from traceconv.reports.svg import TENTHS

#: Maximum number of compressed gaps, widest first; the others are drawn to scale.
_MAX_GAPS = 300
#: Gaps narrower than 1/200 of the used memory are not marked.
_LEAST_GAP_PART = 200
_GAP_PIXELS = 14
#: All gaps together take at most a third of the height.
_GAPS_PART = 3
#: Minimum height of a stretch of used memory, if there is room.
_MIN_PIXELS = 4


@dataclass(frozen=True, slots=True)
class Stretch:
    """Addresses from `first` on, `size_bytes` long, drawn between `bottom` and `bottom + height` (tenths of a pixel,
    counted upwards); `gap`: no block was ever in this range.
    """

    first: int
    size_bytes: int
    bottom: int
    height: int
    gap: bool


def stretches(connection: duckdb.DuckDBPyConnection, blocks: str, height: int) -> list[Stretch]:
    """Return the address axis: used stretches and the gaps between them, over `height` tenths of a pixel.

    `blocks` is SQL with columns `address` and `size_bytes` of every block.
    """
    islands = f"""
        SELECT min(first)::HUGEINT AS first, max(last)::HUGEINT AS last FROM (
          SELECT first, last, sum(new) OVER (ORDER BY first, last) AS island FROM (
            SELECT first, last, CASE WHEN first > max(last) OVER (
              ORDER BY first, last ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) THEN 1 ELSE 0 END AS new
            FROM (SELECT DISTINCT address::HUGEINT AS first, address::HUGEINT + greatest(size_bytes, 1) AS last
                  FROM ({blocks}))))
        GROUP BY island"""
    [(low, high, used)] = connection.execute(
        f"SELECT min(first), max(last), sum(last - first) FROM ({islands})"
    ).fetchall()
    if low is None:
        return []
    gaps = connection.execute(
        f"SELECT last, next - last FROM (SELECT last, lead(first) OVER (ORDER BY first) AS next FROM ({islands})) "
        f"WHERE (next - last) * {_LEAST_GAP_PART} > ? ORDER BY next - last DESC, last LIMIT {_MAX_GAPS}",
        [int(used)],
    ).fetchall()
    return _placed(int(low), int(high), sorted((int(first), int(size)) for first, size in gaps), height)


def _placed(low: int, high: int, gaps: Sequence[tuple[int, int]], height: int) -> list[Stretch]:
    gap_height = min(_GAP_PIXELS * TENTHS, height // _GAPS_PART // max(1, len(gaps)))
    rest = height - gap_height * len(gaps)
    minimum = min(_MIN_PIXELS * TENTHS, rest // (len(gaps) + 1))
    shared = rest - minimum * (len(gaps) + 1)
    used = high - low - sum(size for _, size in gaps)
    found: list[Stretch] = []
    first, bottom, before = low, 0, 0
    for gap_first, gap_size in [*gaps, (high, 0)]:
        size = gap_first - first
        # From the sums, so that rounding errors don't accumulate.
        top = (len(found) // 2 + 1) * minimum + shared * (before + size) // used + gap_height * (len(found) // 2)
        found.append(Stretch(first, size, bottom, top - bottom, gap=False))
        before += size
        bottom = top
        if gap_size:
            found.append(Stretch(gap_first, gap_size, bottom, gap_height, gap=True))
            bottom += gap_height
        first = gap_first + gap_size
    return found


def position_of(found: Sequence[Stretch], address: int) -> int:
    """Return the position of an address in tenths of a pixel from the bottom; beyond the axis, its end."""
    for stretch in found:
        if address < stretch.first:
            return stretch.bottom
        if address <= stretch.first + stretch.size_bytes:
            return stretch.bottom + (address - stretch.first) * stretch.height // stretch.size_bytes
    return found[-1].bottom + found[-1].height


def as_values(found: Sequence[Stretch]) -> str:
    """Return the axis as SQL rows: first, size_bytes, bottom, height."""
    rows = (f"({s.first}::HUGEINT, {s.size_bytes}::HUGEINT, {s.bottom}, {s.height})" for s in found)
    return f"(VALUES {', '.join(rows)}) AS axis(first, size_bytes, bottom, height)"
