"""Fill the tables memory_interval and task_memory from the blocks and tasks of stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.integers import LARGEST
from traceconv.normalize.memory_points import Changes, MemoryAtTasks, MemoryInUse
from traceconv.store.catalogue import define
from traceconv.store.sections import section
from traceconv.store.time_chunks import time_chunks

#: Changes and tasks that are sorted at once.
_CHUNK_ROWS = 500_000
_TIMES = "SELECT ts_ns FROM ({rows})"
_WITHIN = "SELECT * FROM ({rows}) WHERE ts_ns BETWEEN {start} AND {last}"

#: Table, and rows.
_Rows: TypeAlias = "tuple[str, pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class _Device:
    """A device of a run. first_ns: when blocks appear whose allocation is unknown; exact: whether sums fit."""

    run_id: int
    device_id: int | None
    first_ns: int
    has_segments: bool
    has_pools: bool
    exact: bool

    @property
    def condition(self) -> str:
        device = "IS NULL" if self.device_id is None else f"= {self.device_id:d}"
        return f"run_id = {self.run_id:d} AND device_id {device}"

    def intervals(self, level: str, pool: str | None, columns: dict[str, pa.Array]) -> Iterator[_Rows]:
        """Yield rows of memory_interval, if there are any."""
        if count := len(columns["start_ns"]):
            ids = {
                "run_id": pa.array(np.full(count, self.run_id)),
                "device_id": pa.array([self.device_id] * count, pa.int64()),
                "level": pa.array([level] * count),
                "pool": pa.array([pool] * count, pa.string()),
                "has_segments": pa.array([self.has_segments] * count),
            }
            yield "memory_interval", pa.RecordBatch.from_pydict({**ids, **self._known(columns)})

    def tasks(self, rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> Iterator[_Rows]:
        """Yield rows of task_memory, if there are any."""
        if count := rows.num_rows:
            ids = {
                "run_id": pa.array(np.full(count, self.run_id)),
                "id": rows.column("id"),
                "device_id": pa.array([self.device_id] * count, pa.int64()),
                "step_id": rows.column("step_id"),
            }
            yield "task_memory", pa.RecordBatch.from_pydict({**ids, **self._known(columns)})

    def _known(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        if self.has_segments:
            return columns
        return {name: column for name, column in columns.items() if "reserved" not in name}


def memory_rows(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> Iterator[_Rows]:
    """Yield rows of memory_interval and task_memory for runs that have none. Rows may be inserted in between."""
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    for found in connection.execute(section(__name__, "devices", runs=chosen, largest=LARGEST)).fetchall():
        device = _Device(*found)
        changes = section(
            __name__,
            "changes",
            of=device.condition,
            first_ns=device.first_ns,
            allocated=section(__name__, "sizes", sign=""),
            freed=section(__name__, "sizes", sign="-"),
        )
        tasks = section(__name__, "tasks", of=device.condition)
        if device.exact:
            yield from _exact_rows(connection, device, changes, tasks)
        else:
            yield from _bare_intervals(connection, device, changes)
            if device.device_id is not None:
                define(connection, "memory_usage")
                of = {"run": device.run_id, "device": device.device_id, "of": device.condition}
                connection.execute(section(__name__, "inexact_tasks", tasks=tasks, **of))


def _exact_rows(connection: duckdb.DuckDBPyConnection, device: _Device, changes: str, tasks: str) -> Iterator[_Rows]:
    has_tasks = device.device_id is not None
    times = " UNION ALL ".join(_TIMES.format(rows=rows) for rows in ([changes, tasks] if has_tasks else [changes]))
    in_use: dict[tuple[str, str | None], MemoryInUse] = {("device", None): MemoryInUse()}
    at_tasks = MemoryAtTasks()
    for start, end in time_chunks(connection, times, _CHUNK_ROWS):
        within = {"start": start, "last": end - 1}
        rows = _fetch(connection, _WITHIN.format(rows=changes, **within))
        found = Changes(*(rows.column(name).to_numpy() for name in ("ts_ns", "used", "reserved")))
        order = np.argsort(found.ts_ns, kind="stable")
        after = in_use["device", None].take(found[order])
        if device.has_pools:
            for pool, places in _by_pool(rows.column("pool"), order):
                in_use.setdefault(("pool", pool), MemoryInUse()).take(found[places])
        for (level, pool), one in in_use.items():
            yield from device.intervals(level, pool, one.intervals())
        if has_tasks:
            rows = _fetch(connection, _WITHIN.format(rows=tasks, **within))
            order, columns = at_tasks.take(after, rows.column("id").to_numpy(), rows.column("ts_ns").to_numpy())
            yield from device.tasks(rows.take(pa.array(order)), columns)
    for (level, pool), one in in_use.items():
        yield from device.intervals(level, pool, one.rest())


def _bare_intervals(connection: duckdb.DuckDBPyConnection, device: _Device, changes: str) -> Iterator[_Rows]:
    """Yield an interval per pool, and one of the device, with their times alone."""
    pools = connection.execute(f"SELECT pool, min(ts_ns), max(ts_ns) FROM ({changes}) GROUP BY pool").fetchall()  # noqa: S608 - ours
    _, starts, ends = zip(*pools, strict=True)
    levels = [("device", None, min(starts), max(ends))]
    levels += [("pool", pool, start, end) for pool, start, end in pools if device.has_pools]
    for level, pool, start, end in levels:
        yield from device.intervals(level, pool, {"start_ns": pa.array([start]), "end_ns": pa.array([end])})


def _fetch(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatch:
    table = connection.sql(sql).to_arrow_table()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def _by_pool(pools: pa.Array, order: NDArray[np.intp]) -> Iterator[tuple[str | None, NDArray[np.intp]]]:
    """Yield each pool and the places of its rows, in this order."""
    encoded = pools.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy()[order]
    for code in np.unique(codes).tolist():
        yield None if code < 0 else encoded.dictionary[code].as_py(), order[codes == code]
