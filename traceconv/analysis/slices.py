"""The slices and dependencies that a store records in consecutive windows of a run, as numpy columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from traceconv.base.errors import InputError, option

#: Slices in memory at a time.
MOST_SLICES = 4_000_000
#: Durations beyond this are ignored, so that no sum exceeds 64 bits.
_LONGEST_NS = 2**60

#: A condition for records of what a call waited for: they are on a stream in the source, but no work on it.
_IS_RECORD = "coalesce(t.category = 'cuda_sync', t.task_type = 'CUDA_SYNC', false)"
_DEPTH = f"coalesce(t.depth, {np.iinfo(np.int32).max}) AS depth"


def _contains(column: str, *texts: str) -> str:
    """Return a condition for one of the texts in a column, in any case: much faster than a regular expression."""
    return "(" + " OR ".join(f"contains(lower({column}), '{text}')" for text in texts) + ")"


_TASKS = f"""
SELECT t.id, {_DEPTH}, coalesce(t.track_id, -1) AS line, t.start_ns AS start, t.start_ns + t.dur_ns AS end,
       CASE t.kind WHEN 'compute' THEN 0 WHEN 'copy' THEN 1 WHEN 'collective' THEN 2 WHEN 'sync' THEN 3
                   ELSE 4 END::TINYINT AS kind,
       coalesce(t.device_id, -1) AS device, coalesce(t.stream_id, -1) AS stream, coalesce(t.step_id, -1) AS step,
       coalesce(t.submit_ns, {np.iinfo(np.int64).min}) AS submit, coalesce(t.api_id, -1) AS api,
       CASE WHEN t.kind <> 'sync' OR t.task_type IS NULL THEN 0
            WHEN {_contains("t.task_type", "event_record", "eventrecord", "notify_record", "notifyrecord")} THEN 1
            WHEN {_contains("t.task_type", "event_wait", "eventwait", "notify_wait", "notifywait")} THEN 2
            ELSE 0 END::TINYINT AS event{{task_names}}{{task_needs}}
FROM task AS t
WHERE {{window}} AND NOT {_IS_RECORD}
"""  # noqa: S608 - our own texts
_HOST = f"""
SELECT s.*
FROM (
  SELECT t.id, {_DEPTH}, t.track_id AS line, t.start_ns AS start, t.start_ns + t.dur_ns AS end,
         coalesce(t.parent_id, -1) AS parent, coalesce(t.step_id, -1) AS step,
         coalesce(t.correlation_id, -1) AS correlation,
         coalesce({_contains("t.name", "synchronise", "synchronize")}, false) AS syncs, coalesce(t.op_id, -1) AS op,
         CASE WHEN t.level IS DISTINCT FROM 'node' AND t.name = 'StreamWaitEvent' THEN 3
              WHEN t.level IS DISTINCT FROM 'node' THEN 0
              WHEN t.name = 'OpDispatch' THEN 1 WHEN t.name = 'launch' THEN 2 ELSE 0 END::TINYINT AS role{{host_names}}
  FROM api AS t
  WHERE {{window}}
  UNION ALL
  SELECT t.id, t.depth, t.track_id, t.start_ns, t.start_ns + t.dur_ns, coalesce(t.parent_id, -1),
         -1, -1, false, -1,
         CASE WHEN t.depth = 0 AND contains(t.name, 'Backward') THEN 4 ELSE 0 END::TINYINT{{host_names}}
  FROM "range" AS t
  WHERE {{window}} AND t.depth IS NOT NULL
) AS s
JOIN track AS k ON k.run_id = {{run}} AND k.track_id = s.line AND k.kind = 'thread'
"""  # noqa: S608 - our own texts
#: Without launches, which not all sources have as flows: tasks have the call that launched them.
_FLOWS = """
SELECT src_id, dst_id, dst_ns, flow_id
FROM flow
WHERE run_id = {run} AND kind IS DISTINCT FROM 'launch' AND src_id IS NOT NULL AND dst_id IS NOT NULL
  AND dst_ns >= {low} AND dst_ns <= {high}
"""
#: CUDA's records: which stream a call synchronised with (wait: false), or which call recorded the event.
_RECORDS = f"""
SELECT t.id, t.start_ns AS start, t.start_ns + t.dur_ns AS end,
       t.correlation_id AS correlation, coalesce(t.stream_id, -1) AS stream, coalesce(t.device_id, -1) AS device,
       coalesce(t.submit_ns, t.start_ns) AS submit, t.name = 'Stream Wait Event' AS waits,
       t.name = 'Stream Sync' AS syncs,
       coalesce(TRY_CAST(t.args ->> '$.wait_on_stream' AS BIGINT), -1) AS event_stream,
       coalesce(TRY_CAST(t.args ->> '$.wait_on_cuda_event_record_corr_id' AS BIGINT), -1) AS event_correlation
FROM task AS t
WHERE {{window}} AND {_IS_RECORD} AND t.correlation_id IS NOT NULL
"""  # noqa: S608 - our own texts
#: Waits of streams with a record of their event.
_EVENTS = """
SELECT id, event_id
FROM event_wait
WHERE run_id = {run} AND id BETWEEN {first} AND {last} AND event_id IS NOT NULL
ORDER BY id
"""
_WINDOW = (
    "t.run_id = {run} AND t.start_ns > {after} AND t.start_ns <= {high} AND t.dur_ns <= {longest} "
    "AND TRY(t.start_ns + t.dur_ns) >= {low}"
)
#: Whether a run has records, and events of waits. Planning a query takes a millisecond or two in each window.
_HAS = f"""
SELECT EXISTS (FROM task AS t WHERE t.run_id = $run AND {_IS_RECORD}),
       EXISTS (FROM event_wait WHERE run_id = $run)
"""
#: Rows that are kept for later windows, and their order.
_KEPT = {
    "host": (_HOST, ("start", "depth", "id")),
    "tasks": (_TASKS, ("start", "depth", "id")),
    "records": (_RECORDS, ("start", "id")),
}
#: Columns for the names of slices. With texts, and a join with the ops for theirs, reading takes almost three times as
#: long.
_HOST_NAMES, _TASK_NAMES = ", {key} AS name_key", ", {key} AS name_key, coalesce(t.op_id, -1) AS op"
#: The size of a task that moves an unknown number of bytes.
NO_SIZE = int(np.iinfo(np.int64).min)
#: Columns for what tasks occupy and move.
_NEEDS = f""",
       coalesce(t.block_count, 0) AS blocks, coalesce(t.mix_block_count, 0) AS mix_blocks,
       CASE t.core_type WHEN 'AI_CORE' THEN 0 WHEN 'MIX_AIC' THEN 1 WHEN 'MIX_AIV' THEN 2 WHEN 'AI_VECTOR_CORE' THEN 3
                        WHEN 'AI_CPU' THEN 4 ELSE 5 END::TINYINT AS core_type,
       coalesce(t.size_bytes, {NO_SIZE}) AS size_bytes"""
#: Whether a run has two names with one hash: DuckDB's has no key, so that a file can be made to.
_COLLISION = """
SELECT 1
FROM ({names})
GROUP BY hash(name)
HAVING count(*) > 1
LIMIT 1
"""


class Columns(dict[str, Any]):
    """Columns of a query as numpy arrays of int64, uint64, int32, bool or int8. None may have NULLs."""

    @classmethod
    def read(cls, connection: duckdb.DuckDBPyConnection, sql: str) -> Columns:
        """Execute a query."""
        rows = connection.sql(sql).to_arrow_table()
        return cls((name, column.to_numpy()) for name, column in zip(rows.column_names, rows.columns, strict=True))

    def __len__(self) -> int:
        return len(next(iter(self.values())))

    def rows(self, chosen: Any) -> Columns:
        """Return chosen rows: a mask or places."""
        if chosen.dtype == np.bool_ and chosen.all():
            return self
        return Columns((name, column[chosen]) for name, column in self.items())

    def in_order(self, first: str, *ties: str) -> Columns:
        """Return the rows in the order of columns. Stores have most tables in order of time already."""
        values = self[first]
        if not (values[1:] >= values[:-1]).all():
            return self.rows(np.argsort(values, kind="stable")).in_order(first, *ties)
        same = np.flatnonzero(values[1:] == values[:-1])
        tied = np.union1d(same, same + 1)
        order = tied[np.lexsort([self[name][tied] for name in (*ties[::-1], first)])]
        if (order == tied).all():
            return self
        rows = np.arange(len(values))
        rows[tied] = order
        return self.rows(rows)

    def followed_by(self, more: Columns) -> Columns:
        if not len(self):
            return more
        return Columns((name, np.concatenate((column, more[name]))) for name, column in self.items())


@dataclass(frozen=True, slots=True)
class Slices:
    """What happened in a window: columns of _HOST and _TASKS in the order of time, and what the source records about
    their dependencies (_FLOWS, _RECORDS, _EVENTS), perhaps with some of others.
    """

    low_ns: int
    high_ns: int
    host: Columns
    tasks: Columns
    records: Columns
    flows: Columns
    events: Columns


def load_slices(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    windows: Sequence[tuple[int, int]],
    *,
    with_names: bool = False,
    with_needs: bool = False,
) -> Iterator[Slices]:
    """Yield the slices of each window that start or end in it. Raises InputError if it has too many.

    with_names  whether `host` and `tasks` have the column `name_key`, which only slices with the same name share, and
                `tasks` has `op`: its op_id, or -1
    with_needs  whether `tasks` has these, and `blocks`, `mix_blocks`, `core_type` (0: AI_CORE, 1: MIX_AIC, 2: MIX_AIV,
                3: AI_VECTOR_CORE, 4: AI_CPU, 5: others) and `size_bytes` (NO_SIZE: unknown)

    Rows that a later window needs, too, are kept, so that each is read once.
    """
    kept: dict[str, Columns] = {}
    [(has_records, has_events)] = connection.execute(_HAS, {"run": run_id}).fetchall()
    events: Columns | None = None
    named = ("task", "api", '"range"') if with_names else ("task",) if with_needs else ()
    names = " UNION ".join(f"SELECT name FROM {table} WHERE run_id = $run" for table in named)  # noqa: S608 - our texts
    collides = named and connection.execute(_COLLISION.format(names=names), {"run": run_id}).fetchall()
    key = "t.id::UBIGINT" if collides else "hash(t.name)"
    more = {
        "host_names": _HOST_NAMES.format(key=key) if with_names else "",
        "task_names": _TASK_NAMES.format(key=key) if named else "",
        "task_needs": _NEEDS if with_needs else "",
    }
    after_ns = -_LONGEST_NS * 4
    for place, (low_ns, high_ns) in enumerate(windows):
        if high_ns - low_ns > _LONGEST_NS:
            raise InputError(
                "the window is longer than 36 years: times in the source are damaged; select steps without them"
            )
        first_ns = min(low for low, _ in windows[place:])
        window = _WINDOW.format(
            run=run_id, after=after_ns, high=min(high_ns, _LONGEST_NS * 4 - 1), low=first_ns, longest=_LONGEST_NS
        )
        more_rows = " + ".join(
            f"(SELECT count(*) FROM {name} AS t WHERE {window})"  # noqa: S608 - our own texts
            for name in ("task", "api", '"range"')
        )
        count = connection.execute(f"SELECT {more_rows}").fetchall()[0][0] + sum(map(len, kept.values()))
        if count > MOST_SLICES:
            raise InputError(
                f"the window has {count:,} slices, of which {MOST_SLICES:,} can be analysed at once; "
                f"select a part of it with {option('--from', 'from_ns')} and {option('--to', 'to_ns')}"
            )
        found = {}
        for name, (sql, order) in _KEPT.items():
            if name not in kept or name != "records" or has_records:
                rows = Columns.read(connection, sql.format(run=run_id, window=window, **more)).in_order(*order)
                kept[name] = kept[name].followed_by(rows) if name in kept else rows
            found[name] = kept[name].rows((kept[name]["start"] <= high_ns) & (kept[name]["end"] >= low_ns))
        after_ns = max(after_ns, high_ns)
        next_ns = min((low for low, _ in windows[place + 1 :]), default=None)
        kept = {name: rows.rows(rows["end"] >= next_ns) for name, rows in kept.items()} if next_ns is not None else {}
        flows = Columns.read(connection, _FLOWS.format(run=run_id, low=low_ns, high=high_ns))
        if events is None or has_events:
            ids = found["tasks"]["id"]
            first, last = ids.min(initial=np.iinfo(np.int64).max), ids.max(initial=-1)
            events = Columns.read(connection, _EVENTS.format(run=run_id, first=first, last=last))
        yield Slices(low_ns, high_ns, flows=flows.in_order("dst_ns", "flow_id"), events=events, **found)
