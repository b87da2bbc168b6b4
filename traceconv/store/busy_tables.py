"""Fill the tables device_busy, device_total and stream_busy from the tasks and steps of stored runs; find gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST
from traceconv.normalize.busy_points import KIND_BITS, DevicePoints, Places, StreamPoints, Tasks
from traceconv.normalize.sort.spool import Spool
from traceconv.store.gap_tables import GAP

_BATCH_ROWS = 32_768
_COUNTS = (
    "SELECT run_id, device_id, count(start_ns + dur_ns), count(*), min(start_ns) FILTER (dur_ns IS NOT NULL), "
    "max(start_ns + dur_ns), coalesce(sum(dur_ns) FILTER (start_ns IS NOT NULL), 0) FROM task "
    "WHERE run_id IN ({runs}) AND kind IS DISTINCT FROM 'sync' GROUP BY ALL HAVING count(start_ns) > 0 ORDER BY ALL"
)
_BOUNDS = (
    "SELECT DISTINCT run_id, device_id, unnest([coalesce(start_ns, fp_start_ns), end_ns]) AS ts_ns FROM step "
    "WHERE run_id IN ({runs}) ORDER BY ts_ns"
)
_TASKS = (
    "SELECT run_id, device_id, stream_id, (CASE kind {bits} ELSE 0 END)::BIGINT AS kinds, start_ns, "
    "start_ns + dur_ns AS end_ns, submit_ns FROM task "
    "WHERE run_id IN ({runs}) AND kind IS DISTINCT FROM 'sync' AND start_ns IS NOT NULL AND dur_ns IS NOT NULL "
    "ORDER BY run_id, device_id, start_ns, end_ns, submit_ns"
)

#: A run and a device, which may be unknown.
_Device: TypeAlias = "tuple[int, int | None]"
#: Columns of device_total.
_Totals: TypeAlias = "dict[str, int | None]"


def busy_rows(
    connection: duckdb.DuckDBPyConnection, runs: Iterable[int], gaps: Spool
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Return rows of the three tables for runs that have none, each batch with its table.

    gaps  gets the gaps of devices, of dtype GAP

    The tasks are read before the first row is returned.
    """
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    totals: dict[_Device, _Totals] = {}
    counts = connection.execute(_COUNTS.format(runs=chosen)).fetchall() if chosen else []
    for run_id, device_id, ended, started, start_ns, end_ns, sum_ns in counts:
        totals[run_id, device_id] = {
            "run_id": run_id, "device_id": device_id, "task_count": ended, "unfinished_count": started - ended,
            "start_ns": start_ns, "end_ns": end_ns, "sum_ns": sum_ns, **DevicePoints(np.zeros(0, np.int64)).lengths(),
        }  # fmt: skip
    if not totals:
        return iter(())
    bounds: dict[_Device, list[int]] = {}
    for run_id, device_id, ts_ns in connection.execute(_BOUNDS.format(runs=chosen)).fetchall():
        if ts_ns is not None:
            bounds.setdefault((run_id, device_id), []).append(ts_ns)
    kinds = " ".join(f"WHEN '{kind}' THEN {bit}" for kind, bit in KIND_BITS.items())
    tasks = connection.sql(_TASKS.format(bits=kinds, runs=chosen)).to_arrow_reader(_BATCH_ROWS)
    points = list(_points(tasks, bounds, gaps, totals))
    return chain(points, _total_rows(totals.values()))


def _points(
    batches: Iterable[pa.RecordBatch],
    bounds: dict[_Device, list[int]],
    gaps: Spool,
    totals: dict[_Device, _Totals],
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the points, spool the gaps, and complete the totals."""
    current: _Device | None = None
    device = DevicePoints(np.zeros(0, np.int64))
    streams: dict[int | None, StreamPoints] = {}
    for batch in batches:
        for of, part in _groups(batch):
            if of != current:
                if current is not None:
                    yield from _rows("device_busy", current, device.rest())
                    totals[current].update(device.lengths())
                current, streams = of, {}
                # Steps of unknown devices are steps of all.
                times = {*bounds.get(of, ()), *bounds.get((of[0], None), ())}
                device = DevicePoints(np.array(sorted(times), np.int64))
            tasks = _tasks(part)
            starts, ends = device.gaps(tasks)
            found = np.zeros(len(starts), GAP)
            found["run_id"], found["device_id"], found["known"] = of[0], of[1] or 0, of[1] is not None
            found["start_ns"], found["end_ns"] = starts, ends
            gaps.append(found)
            yield from _rows("device_busy", of, device.take(tasks))
            for stream_id, rows in _by_stream(part):
                points = streams.setdefault(stream_id, StreamPoints())
                yield from _rows("stream_busy", of, points.take(tasks[rows]), stream_id=stream_id)
    if current is not None:
        yield from _rows("device_busy", current, device.rest())
        totals[current].update(device.lengths())


def _total_rows(totals: Iterable[_Totals]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the totals of runs in which all fit in 64 bits."""
    rows: list[_Totals] = []
    for _, devices in groupby(totals, key=itemgetter("run_id")):
        of_run = list(devices)
        if all(value is None or value <= LARGEST for row in of_run for value in row.values()):
            rows += of_run
    if rows:
        columns = {name: pa.array([row[name] for row in rows], pa.int64()) for name in rows[0]}
        yield "device_total", pa.RecordBatch.from_pydict(columns)


def _rows(
    table: str, of: _Device, columns: dict[str, pa.Array], **ids: int | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    if columns and (count := len(columns["ts_ns"])):
        ids = {"run_id": of[0], "device_id": of[1], **ids}
        known = {name: pa.array([value] * count, pa.int64()) for name, value in ids.items()}
        yield table, pa.RecordBatch.from_pydict({**known, **columns})


def _groups(batch: pa.RecordBatch) -> Iterator[tuple[_Device, pa.RecordBatch]]:
    """Yield the rows of each run and device, which follow each other."""
    runs, _ = _numbers(batch, "run_id")
    devices, known = _numbers(batch, "device_id")
    changes = (np.diff(runs) != 0) | (np.diff(devices) != 0) | (np.diff(known.astype(np.int8)) != 0)
    borders = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
    for first, end in pairwise(borders):
        device_id = int(devices[first]) if known[first] else None
        yield (int(runs[first]), device_id), batch.slice(first, end - first)


def _by_stream(batch: pa.RecordBatch) -> Iterator[tuple[int | None, Places]]:
    """Yield each stream and the places of its rows, in their order."""
    ids, known = _numbers(batch, "stream_id")
    low, high = int(ids.min()), int(ids.max())
    # Small integers are sorted in linear time.
    keys = (ids - low).astype(np.int16) if high - low < 1 << 15 else np.unique(ids, return_inverse=True)[1]
    keys[~known] = -1
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        yield int(ids[rows[0]]) if known[rows[0]] else None, rows


def _numbers(batch: pa.RecordBatch, name: str) -> tuple[Int64, Mask]:
    """Return the numbers of a column, 0 for NULL, and which are not NULL."""
    column = batch.column(name)
    if not column.null_count:
        return column.to_numpy(), np.ones(len(column), np.bool_)
    return column.fill_null(0).to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False)


def _tasks(batch: pa.RecordBatch) -> Tasks:
    submit_ns, is_submitted = _numbers(batch, "submit_ns")
    kinds, start_ns, end_ns = (_numbers(batch, name)[0] for name in ("kinds", "start_ns", "end_ns"))
    return Tasks(kinds, start_ns, end_ns, submit_ns, is_submitted)
