"""Fill the tables range_path and range_path_time from the ranges, calls and tasks of stored runs."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST
from traceconv.base.prefetch import prefetch
from traceconv.normalize import range_paths
from traceconv.normalize.range_paths import (
    CALL,
    HOST,
    KIND_SHIFT,
    NULL,
    OPERATOR,
    OTHER_NAMES,
    OTHER_RANGE,
    PATH_DTYPE,
    SUM_DTYPE,
)
from traceconv.normalize.sort.spool import Spool
from traceconv.schema.ddl import quote_text
from traceconv.store.arrow_rows import execute_with
from traceconv.store.sections import section
from traceconv.store.time_chunks import time_chunks

#: Slices and tasks that are read at once.
_CHUNK_ROWS, _BATCH_ROWS = 120_000, 1 << 15
#: Sums that are kept in memory, and slices that are open at once or whose parent is not found.
_MOST_SUMS, _MOST_OPEN, _MOST_MISSING = 1 << 18, 1 << 20, 1 << 18
#: Chains of names of a run, from which on new names inside the same chain are summed as one.
_MOST_PATHS = 1 << 16
#: Ranges of the runs that a pass reads, if there are several.
_PASS_RANGES = 1 << 20
#: Numbers of runs are positive.
_NO_RUN = "0"
#: The start of a range of time, conditions for its rows, and its slices.
_Window = tuple[int, dict[str, object], Iterable[list[Int64]]]
_ALL_TIMES = (-LARGEST, LARGEST + 1)

#: Name of a range `r` in a chain.
PATH_NAME = (
    "CASE WHEN starts_with(r.name, 'ProfilerStep#') "
    "THEN regexp_replace(r.name, '^ProfilerStep#[0-9]+$', 'ProfilerStep*') ELSE coalesce(r.name, '') END"
)
#: Slices by which a writer repeats others are not in their chains.
_IS_SUMMARY = "coalesce(r.kind = 'summary', false)"
_sql = partial(
    section, __name__, path_name=PATH_NAME, is_summary=_IS_SUMMARY, null="(-9223372036854775807 - 1)",
    operator=OPERATOR, other_range=OTHER_RANGE, host=HOST, call=CALL, other_names=OTHER_NAMES,
)  # fmt: skip
_NONE_LINKED = "CREATE OR REPLACE TEMP TABLE linked (run_id BIGINT, id BIGINT, range_id BIGINT)"
_PLACE_NAMES = ["run_id", "id", "path", "class"]
_TEMPORARY = ("range_place", "call_place", "path_name", "execution_range")


def link_tasks(connection: duckdb.DuckDBPyConnection, runs: Collection[int]) -> None:
    """Create the temporary table linked: tasks to which flows lead, and the first range that is the source of one.

    runs  those that may have tasks with flows from ranges
    """
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    connection.execute(_sql("linked", runs=chosen) if runs else _NONE_LINKED)


def fill_paths(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> None:
    """Insert the rows of runs that have none, after link_tasks."""
    for group in _groups(connection, sorted(runs)):
        chosen = ", ".join(f"{run_id:d}" for run_id, _ in group)
        with_ranges = ", ".join(f"{run_id:d}" for run_id, count in group if count) or _NO_RUN
        # No reader makes slices that start after the end of those around them.
        if not _Pass(connection, chosen, with_ranges).insert():
            _Pass(connection, chosen, with_ranges).insert(at_once=True)
        for name in _TEMPORARY:
            connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def _groups(connection: duckdb.DuckDBPyConnection, runs: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Yield the runs, each with its number of ranges, in groups for one pass each, so that its memory is bounded."""
    counts = dict(connection.execute("SELECT run_id, count(*) FROM range GROUP BY run_id").fetchall())
    group: list[tuple[int, int]] = []
    ranges = 0
    for run_id in runs:
        group.append((run_id, counts.get(run_id, 0)))
        ranges += group[-1][1]
        if ranges >= _PASS_RANGES:
            yield group
            group, ranges = [], 0
    if group:
        yield group


class _Pass:
    """One pass over slices and tasks, range of time by range of time.

    runs, with_ranges  the runs, and those with ranges, for conditions of SQL
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, runs: str, with_ranges: str) -> None:
        self._connection = connection
        # Statements without rows take longer than a small run.
        self._has_ranges = with_ranges != _NO_RUN
        self._has_tasks = bool(connection.execute(f"SELECT 1 FROM task WHERE run_id IN ({runs}) LIMIT 1").fetchall())  # noqa: S608
        self._within: dict[str, object] = {"runs": runs, "with_ranges": with_ranges}
        kinds = connection.execute(_sql("kinds", **self._within)).fetchall() if self._has_ranges else []
        self._kinds = [kind for (kind,) in kinds]
        cases = " ".join(f"WHEN {quote_text(kind)} THEN {_bits(kind, n)}" for n, kind in enumerate(self._kinds, 1))
        self._within |= {"kinds": cases or "WHEN '' THEN 0", "name": f"hash({PATH_NAME}, {_IS_SUMMARY})"}
        self._within["join_names"] = ""
        self._has_linked = bool(connection.execute("FROM temp.linked LIMIT 1").fetchall())
        self._has_executions = self._has_tasks and "execution" in self._kinds
        self._within["if_alone"] = " AND r.execution_id IS NULL" if self._has_executions else ""
        self._paths = native.Paths() if native.AVAILABLE else range_paths.Paths()
        self._paths.limit(_MOST_PATHS)
        self._sums = Spool(SUM_DTYPE)

    def insert(self, *, at_once: bool = False) -> bool:
        """Insert the rows of both tables; return False, and insert none, if a slice was forgotten too early.

        at_once  keep all slices in memory: none is forgotten
        """
        try:
            if self._has_ranges and self._connection.execute(_sql("collision", **self._within)).fetchall():
                self._connection.execute(_sql("numbers_of_names", **self._within))
                self._within["name"] = "n.number"
                on = f"n.name = {PATH_NAME} AND n.is_summary = {_IS_SUMMARY}"
                self._within["join_names"] = f"JOIN temp.path_name AS n ON {on}"
            is_complete = self._read(at_once=at_once) or at_once
            if is_complete:
                self._insert()
        finally:
            self._sums.close()
        return is_complete

    def _read(self, *, at_once: bool) -> bool:
        """Read all rows; return whether the places of all slices are found."""
        if self._has_linked or self._has_executions:
            self._connection.execute(_sql("places"))
        if self._has_executions:
            self._connection.execute(_sql("executions", **self._within))
        chunks = [] if at_once else time_chunks(self._connection, _sql("times", **self._within), _CHUNK_ROWS)
        windows = self._windows(chunks or [_ALL_TIMES])
        if chunks and not self._has_tasks:  # slices are all that is read meanwhile
            windows = prefetch((start, within, list(slices)) for start, within, slices in windows)
        with closing(windows):
            if not self._take_all(windows, at_once=at_once):
                return False
        for has_some, of in ((self._has_linked, "linked_tasks"), (self._has_executions, "execution_tasks")):
            if has_some:
                self._take_linked(_sql(of, **self._within))
        self._spill()
        return not self._has_missing()

    def _windows(self, chunks: Iterable[tuple[int, int]]) -> Generator[_Window, None, None]:
        """Yield the start of each range of time, conditions for its rows, and its slices."""
        for number, (start, end) in enumerate(chunks):
            times: dict[str, object] = {
                name: f"{column} BETWEEN {start} AND {end - 1}"
                if number
                else f"({column} IS NULL OR {column} <= {end - 1})"
                for name, column in (("started", "r.start_ns"), ("submitted", "r.submit_ns"))
            }
            within = self._within | times
            yield max(start, -LARGEST), within, self._batches(_sql("slices", **within)) if self._has_ranges else ()

    def _take_all(self, windows: Iterable[_Window], *, at_once: bool) -> bool:
        """Take all rows; return False if too many slices wait for others."""
        for window in windows:
            self._take(*window)
            slices, _, sums, missing = self._paths.counts
            if not at_once and (slices > _MOST_OPEN + 2 * _CHUNK_ROWS or missing > _MOST_MISSING):
                return False
            if sums > _MOST_SUMS:
                self._spill()
        return True

    def _take(self, start: int, within: dict[str, object], slices: Iterable[list[Int64]]) -> None:
        """Take the slices and tasks of a range of time."""
        for columns in slices:
            self._paths.feed(*columns)
        self._paths.place(start)
        if not self._has_tasks:
            return
        if self._has_executions:
            self._keep("range_place", _sql("execution_ranges", **within))
        tasks = f"({_sql('tasks', **within)}) AS r"
        if self._has_linked:
            self._keep("range_place", _sql("linked_ranges", **within))
            self._keep("call_place", _sql("linked_calls", tasks=tasks))
            tasks += " ANTI JOIN temp.linked AS l ON l.run_id = r.run_id AND l.id = r.id"
        for run_ids, ids, *numbers in self._batches(_sql("task_numbers", tasks=tasks)):
            self._paths.add(self._look_up(run_ids, ids)[0], *numbers)

    def _keep(self, table: str, sql: str) -> None:
        """Keep the places of slices, given as run, ID to keep them by, and ID of the slice."""
        places = []
        for run_ids, ids, slices in self._batches(sql):
            paths, classes = self._look_up(run_ids, slices)
            known = classes >= 0
            arrays = [pa.array(column[known]) for column in (run_ids, ids, paths, classes)]
            places.append(pa.RecordBatch.from_arrays(arrays, _PLACE_NAMES))
        if places:
            of_all = pa.Table.from_batches(places)
            execute_with(self._connection, f"INSERT INTO temp.{table} FROM places", "places", of_all)

    def _take_linked(self, tasks: str) -> None:
        for run_ids, *numbers, paths in self._batches(tasks):
            roots, _ = self._look_up(run_ids, np.full(len(run_ids), NULL))
            self._paths.add(np.where(paths == NULL, roots, paths), *numbers)

    def _has_missing(self) -> bool:
        """Whether one of the slices that were not found exists."""
        missing = np.frombuffer(self._paths.missing(), np.int64).reshape(-1, 2)
        if not len(missing):
            return False
        self._connection.register("missing_slices", pa.table({"run_id": missing[:, 0], "id": missing[:, 1]}))
        found = self._connection.execute(_sql("existing")).fetchall()
        self._connection.unregister("missing_slices")
        return bool(found)

    def _insert(self) -> None:
        paths = np.frombuffer(self._paths.paths(), PATH_DTYPE)
        ids = paths["first_id"]
        # Chains on tracks of devices have no ID.
        of_host = paths[(ids != NULL) & (paths["depth"] >= 0)]
        kinds = pa.array([*self._kinds, None], pa.string())
        numbers = np.where(of_host["kind"] == NULL, len(self._kinds), of_host["kind"] - 1)
        columns = {name: pa.array(of_host[name]) for name in ("run_id", "depth")}
        columns["path_id"] = pa.array(of_host["first_id"])
        columns["parent_path_id"] = pa.array(ids[of_host["parent"]], mask=of_host["depth"] == 0)
        columns["kind"] = kinds.take(pa.array(numbers))
        columns["is_other"] = pa.array(of_host["name"] == OTHER_NAMES)
        if len(of_host):
            execute_with(self._connection, _sql("insert_paths"), "new_paths", pa.table(columns))
        for sums in self._sums:
            columns = {name: pa.array(sums[name]) for name in (SUM_DTYPE.names or ())[1:]}
            columns |= {"run_id": pa.array(paths["run_id"][sums["path"]]), "path_id": pa.array(ids[sums["path"]])}
            execute_with(self._connection, _sql("insert_times"), "new_times", pa.table(columns))

    def _spill(self) -> None:
        self._sums.append(np.frombuffer(self._paths.sums(), SUM_DTYPE))

    def _look_up(self, run_ids: Int64, ids: Int64) -> tuple[Int64, Int64]:
        """Return the path and class of each slice; without a range, the root of the run and -1."""
        found = np.frombuffer(self._paths.look_up(run_ids, ids), np.int64)
        return found[: len(ids)], found[len(ids) :]

    def _batches(self, sql: str) -> Iterator[list[Int64]]:
        """Yield the columns of batches of rows without NULL."""
        for batch in self._connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
            yield [column.to_numpy().view(np.int64) for column in batch.columns]


def _bits(kind: str, number: int) -> int:
    """A kind as paths.c gets it."""
    bits = OPERATOR if kind == "host_op" else 0 if kind == "frame" else OTHER_RANGE
    return bits | number << KIND_SHIFT
