"""The events of a Chrome trace: a query for the columns of each table, and the template of its events.

Every event starts with a comma and a line break, so that events can be concatenated. `export_thread` has the threads of
the layout, `export_op` the ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.export.chrome_layout import Layout, Thread
from traceconv.export.json_sql import double, json_text
from traceconv.export.load_counters import LoadCounter, allocations, in_batches, running_sums
from traceconv.export.record_kinds import JSON_KINDS, Kind
from traceconv.export.row_arrays import selected_column
from traceconv.export.row_lookup import Rows
from traceconv.export.templates import Template
from traceconv.export.timeline import device_memory
from traceconv.normalize.trace.own_columns import NO_NAME, OP_MEMBERS, ROW_TABLES, SHOWN_CATEGORY, TASK_TABLES
from traceconv.schema import table

#: Text beyond this many ops is joined to their tasks, not kept in memory.
_MOST_OPS = 100_000


@dataclass(frozen=True, slots=True)
class Shared:
    """What events share.

    base_ns  what timestamps are relative to
    lists    the first members of an event by thread ID (`head`), the names of threads (`label`), and, unless there are
             too many ops, the members that describe each op (`op`)
    """

    base_ns: int
    lists: Mapping[str, pa.Array]

    def template(self) -> Template:
        """Return the start of an event of the thread in the column `_tid`."""
        return Template(self.lists).lookup("_tid", "head")

    def at(self, event: Template, column: str) -> Template:
        """Append a timestamp."""
        return event.put(Kind.MICROSECONDS, column, '","ts":', number=self.base_ns)


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a table.

    source    FROM clause of the rows, `s` in the query
    time      column of `source` to split into windows; rows without it are not written
    columns   SELECT list
    joins     tables joined to the rows
    order     columns of the query that order the events: those of `slice_order` for slices. Empty: any order
    template  an event
    """

    table: str
    source: str
    time: str
    columns: str
    joins: str
    order: tuple[str, ...]
    template: Template

    def query(self, where: str = "true") -> str:
        """Return the SELECT of the columns, for the rows that match a condition."""
        return f"SELECT {self.columns} FROM {self.source} AS s {self.joins} WHERE {where}"


def make_shared(connection: duckdb.DuckDBPyConnection, run_id: int, layout: Layout, base_ns: int) -> Shared:
    """Create the temporary tables that the queries refer to."""
    columns = ([getattr(thread, name) for thread in layout.threads] for name in ("source", "track_id", "lane", "tid"))
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE export_thread AS SELECT unnest($1::VARCHAR[]) AS source, "
        "unnest($2::BIGINT[]) AS track_id, unnest($3::INTEGER[]) AS lane, unnest($4::BIGINT[]) AS tid",
        list(columns),
    )
    heads: list[str | None] = [None] * (max(thread.tid for thread in layout.threads) + 1)
    labels = heads.copy()
    for thread in layout.threads:
        heads[thread.tid] = f',\n{{"pid":{thread.pid},"tid":{thread.tid},"ph":"'
        labels[thread.tid] = json_text(thread.name)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE export_op AS {_op_query(run_id)}")
    [(ops,)] = connection.execute("SELECT count(*) FROM export_op").fetchall()
    lists = {"head": pa.array(heads, pa.string()), "label": pa.array(labels, pa.string())}
    if ops <= _MOST_OPS:
        found = connection.sql(f"SELECT unnest([{', '.join(_OP_TEXTS)}]) FROM (FROM export_op ORDER BY place)")
        column = found.to_arrow_table().column(0)
        lists["op"] = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.string())
    return Shared(base_ns, lists)


def slice_events(
    connection: duckdb.DuckDBPyConnection, name: str, source: str, shared: Shared, *, args: bool
) -> Events:
    """Tasks, calls and ranges: complete events; begin events if the duration is unknown."""
    event = shared.template()
    event.when_null("dur_ns", Template().literal("B")).unless_null("dur_ns", Template().literal("X"))
    shared.at(event, "start_ns").put(Kind.MICROSECONDS, "dur_ns", ',"dur":')
    columns = _titles(event, name)
    joins = _join_thread(connection, name, "track_id", "id")
    if args:
        event.literal(',"args":{')
        columns += _args(event, name, {"track_id", "name", "start_ns", "dur_ns", "category"})
        if name in _SHOWN_OPS:
            joins += " LEFT JOIN export_op AS o ON o.op_id = s.op_id"
            named, unnamed = _SHOWN_OPS[name]
            is_named = "CASE WHEN s.name IS DISTINCT FROM o.name THEN"
            if "op" in shared.lists:
                places = (_OP_TEXTS.index(one) for one in (named, unnamed))
                of_op = "{} {} ELSE {} END".format(is_named, *places)
                columns.append(f"o.place * {len(_OP_TEXTS)} + {of_op} AS _op")
                event.lookup("_op", "op")
            else:
                columns.append(f"{is_named} o.{named} ELSE o.{unnamed} END AS _op")
                event.put(Kind.RAW, "_op")
        event.literal("}")
    chosen = ["t.tid AS _tid", "s.start_ns", "s.dur_ns", "s.depth AS _depth", "s.id AS _id", *columns]
    order = ("start_ns", "dur_ns", "_depth", "_id")
    return Events(name, source, "start_ns", ", ".join(chosen), joins, order, event.literal("}"))


def step_events(connection: duckdb.DuckDBPyConnection, source: str, shared: Shared, *, args: bool) -> Events:
    """Steps: slices on the Step Trace of their device; instants if the start is unknown."""
    start = "coalesce(s.start_ns, s.fp_start_ns)"
    length = f"TRY_CAST(s.end_ns::HUGEINT - {start} AS BIGINT)"
    is_slice = f"({start} IS NOT NULL AND coalesce(s.end_ns >= {start}, true))"
    phase = f"CASE WHEN NOT {is_slice} THEN 'i\",\"s\":\"t' WHEN {length} IS NULL THEN 'B' ELSE 'X' END"
    event = shared.template().put(Kind.RAW, "_phase")
    shared.at(event, "at_ns").put(Kind.MICROSECONDS, "_dur_ns", ',"dur":')
    event.literal(',"name":"Iteration ').put(Kind.RAW, "_iteration").literal('","cat":"step"')
    columns = [
        f"{phase} AS _phase", "s.at_ns", f"CASE WHEN {is_slice} THEN {length} END AS _dur_ns",
        "s.iteration::VARCHAR AS _iteration",
    ]  # fmt: skip
    if args:
        event.literal(',"args":{')
        columns += _args(event, "step", {"device_id"})
        event.literal("}")
    joins = _join_thread(connection, "step", "device_id", "step_id")
    chosen = ", ".join(["t.tid AS _tid", *columns, "s.step_id AS _step_id"])
    order = ("at_ns", "_dur_ns", "_step_id", "_step_id")
    return Events("step", step_source(source, shared.base_ns), "at_ns", chosen, joins, order, event.literal("}"))


def step_source(source: str, base_ns: int) -> str:
    """Return the steps with `at_ns`: their start, or the first known time."""
    first = f"coalesce(start_ns, fp_start_ns, bp_end_ns, end_ns, {base_ns})"
    return f"(SELECT *, {first} AS at_ns FROM {source})"


def marker_events(connection: duckdb.DuckDBPyConnection, source: str, shared: Shared, *, args: bool) -> Events:
    """Markers with a timestamp: instants."""
    source = f"(SELECT * FROM {source} WHERE ts_ns IS NOT NULL)"
    event = shared.template().literal('i","s":"').put(Kind.RAW, "_scope")
    shared.at(event, "ts_ns")
    scope = "CASE s.scope WHEN 'process' THEN 'p' WHEN 'global' THEN 'g' ELSE 't' END AS _scope"
    columns = [scope, "s.ts_ns", *_titles(event, "marker")]
    if args:
        event.literal(',"args":{')
        columns += _args(event, "marker", {"track_id", "ts_ns", "category", "name"})
        event.literal("}")
    joins = _join_thread(connection, "marker", "track_id")
    chosen = ", ".join(["t.tid AS _tid", *columns])
    return Events("marker", source, "ts_ns", chosen, joins, (), event.literal("}"))


def table_sources(run_id: int, sources: Mapping[str, str], *, filtered: bool) -> dict[str, str]:
    """Return the FROM clauses of the ROW_TABLES. `sources`: those of the timeline, `filtered`: not all rows."""
    found = {name: f'(SELECT * FROM "{name}" WHERE run_id = {run_id})' for name in ROW_TABLES}
    if filtered:
        tasks = f"(SELECT id FROM {sources['task']})"
        found |= {name: f"(SELECT * FROM {found[name]} WHERE id IN {tasks})" for name in TASK_TABLES}
    return found


def counter_events(connection: duckdb.DuckDBPyConnection, source: str, shared: Shared) -> Events:
    """Counters: the number is in args under the name of its series, or `value`.

    Integers are written exactly; `value` is added next to args if the table's value is a different number.
    """
    number = f"coalesce({double('s.value')}, 'null')"
    differs = "s.value_int IS NOT NULL AND s.value IS DISTINCT FROM s.value_int::DOUBLE"
    event = shared.template().literal("C")
    shared.at(event, "ts_ns").literal(',"name":').lookup("_tid", "label").literal(',"args":{')
    event.put(Kind.STRING, "series").when_null("series", Template().literal('"value"')).literal(":")
    event.put(Kind.INTEGER, "value_int", number=1).put(Kind.RAW, "_value").literal("}")
    event.put(Kind.RAW, "_other", ',"value":').unless_null("_is_value", Template().literal(',"series":"value"'))
    columns = (
        "t.tid AS _tid, s.ts_ns, s.series, s.value_int, "
        f"CASE WHEN s.value_int IS NULL THEN {number} END AS _value, CASE WHEN {differs} THEN {number} END AS _other, "
        "CASE WHEN s.series = 'value' THEN 1::BIGINT END AS _is_value"
    )
    joins = _join_thread(connection, "counter", "track_id")
    return Events("counter", source, "ts_ns", columns, joins, (), event.literal("}"))


def memory_events(connection: duckdb.DuckDBPyConnection, source: str, shared: Shared, *, args: bool) -> Events:
    """Memory blocks: an instant for the allocation, or `held` if before the recording, and one for the free."""
    columns = [
        f"coalesce(s.alloc_ns, {shared.base_ns}) AS at_ns", "s.free_ns AS _free_ns",
        "CASE WHEN s.alloc_ns IS NULL THEN 1::BIGINT END AS _is_held",
    ]  # fmt: skip
    event = shared.at(shared.template().literal('i","s":"t'), "at_ns").literal(',"name":"')
    event.when_null("_is_held", Template().literal("alloc")).unless_null("_is_held", Template().literal("held"))
    event.literal('","cat":"memory"')
    free = shared.at(shared.template().literal('i","s":"t'), "_free_ns").literal(',"name":"free","cat":"memory"')
    if args:
        columns += _members(event.literal(',"args":{'), "memory", _MEMORY_PLACED)
        event.literal("}")
        free.put(Kind.INTEGER, "block_id", ',"args":{"block_id":').literal("}")
    event.literal("}").unless_null("_free_ns", free.literal("}"))
    joins = _join_thread(connection, "memory", "device_id")
    chosen = ", ".join(["t.tid AS _tid", *columns])
    return Events("memory", source, "block_id", chosen, joins, (), event)


#: Columns of memory that need no member.
_MEMORY_PLACED = frozenset({"run_id", "device_id", "alloc_ns"})


def memory_counter_events(
    connection: duckdb.DuckDBPyConnection, run_id: int, source: str, shared: Shared, layout: Layout
) -> Iterator[tuple[Template, pa.RecordBatch]]:
    """Yield the bytes in blocks and segments of each device at every change, with their template.

    Memory allocated before the recording counts from the start. Without segments the series `reserved` is omitted, and
    devices whose source has these counters itself are skipped. Raises StoreError if a sum exceeds 64 bits.
    """
    memory = device_memory(run_id, source)
    threads = {thread.track_id: thread for thread in layout.threads if thread.source == "memory"}
    found = connection.execute(f"SELECT device_id, list(DISTINCT kind) FROM {memory} GROUP BY 1 ORDER BY 1").fetchall()
    for device, kinds in found:
        shown = {title: kind for title, kind in (("used", "block"), ("reserved", "segment")) if kind in kinds}
        event = _counter_event(threads[device], shared, "Memory (byte)")
        for title in shown:
            event.put(Kind.INTEGER, title, f',"{title}":', number=1)
        event.literal("}}")
        sizes = tuple(f"CASE WHEN kind = '{kind}' THEN size_bytes ELSE 0 END" for kind in shown.values())
        own = f"(SELECT * FROM {memory} WHERE device_id {'IS NULL' if device is None else f'= {device}'})"
        for times, *sums in running_sums(connection, allocations(own, sizes, str(shared.base_ns))):
            batches = in_batches({"ts_ns": times, **dict(zip(shown, sums, strict=True))})
            yield from ((event, batch) for batch in batches)


def load_counter_event(counter: LoadCounter, thread: Thread, shared: Shared) -> Template:
    """Return the template of the samples of a counter, on a thread of its device; doubles are text."""
    event = _counter_event(thread, shared, f"{counter.name} ({counter.unit})")
    return event.put(Kind.INTEGER if counter.is_whole else Kind.RAW, "value", ',"value":', number=1).literal("}}")


def _counter_event(thread: Thread, shared: Shared, name: str) -> Template:
    """Return the template of the samples of a counter on a thread, up to its values."""
    event = Template().literal(f',\n{{"pid":{thread.pid},"tid":{thread.tid},"ph":"C')
    return shared.at(event, "ts_ns").literal(f',"name":{json_text(name)},"args":{{')


def flow_events(shared: Shared, source: str, *, args: bool) -> Events:
    """Flows: a start and a finish event.

    The columns START_TID and FINISH_TID are added to the query's: the threads of its ends. A flow without a known end
    has no finish. Viewers drop arrows that lead back in time, so such a flow (`_reversed`) is written from its end to
    its start, as its args note.
    """
    columns = [
        "s.src_id AS _src_id", "s.dst_id AS _dst_id", "s.at_ns", "s.dst_ns", "s.flow_id AS _flow_id",
        "CASE WHEN s.dst_ns < s.src_ns THEN 1::BIGINT END AS _reversed",
        "CASE WHEN s.dst_ns < s.src_ns THEN s.src_ns ELSE s.dst_ns END AS _finish_ns",
        "coalesce(s.category, s.kind, 'flow') AS _category", "coalesce(s.name, s.kind, 'flow') AS _name",
    ]  # fmt: skip
    titles = Template().put(Kind.STRING, "_category", ',"cat":').put(Kind.STRING, "_name", ',"name":')
    titles.put(Kind.INTEGER, "_flow_id", ',"id":')
    event = Template(shared.lists).lookup(START_TID, "head").literal("s")
    shared.at(event, "at_ns").extend(titles)
    if args:
        event.literal(',"args":{')
        columns += _members(event, "flow", {"run_id", "src_ns", "dst_ns"})
        event.unless_null("_reversed", Template().literal(',"reversed":true'))
        event.unless_null("_no_start", Template().literal(',"src_ns":null')).literal("}")
        columns += ["CASE WHEN s.src_ns IS NULL THEN 1::BIGINT END AS _no_start"]
    finish = Template(shared.lists).lookup(FINISH_TID, "head").literal('f","bp":"e')
    shared.at(finish, "_finish_ns").extend(titles).literal("}")
    event.literal("}").unless_null("dst_ns", finish)
    at_ns = f"coalesce(least(src_ns, dst_ns), src_ns, dst_ns, {shared.base_ns})"
    source = f"(SELECT *, {at_ns} AS at_ns FROM {source})"
    return Events("flow", source, "flow_id", ", ".join(columns), "", (), event)


#: The columns that `with_ends` adds.
START_TID, FINISH_TID = "_start_tid", "_finish_tid"


def with_ends(batch: pa.RecordBatch, source_tid: Int64, target_tid: Int64, loose: int) -> pa.RecordBatch:
    """Add the threads of the ends of flows; `loose` is that of unknown ends, which are 0."""
    is_reversed = batch.column("_reversed").is_valid().to_numpy(zero_copy_only=False)
    ends = [np.where(found == 0, loose, found) for found in (source_tid, target_tid)]
    for name, tids in ((START_TID, np.where(is_reversed, *ends[::-1])), (FINISH_TID, np.where(is_reversed, *ends))):
        batch = batch.append_column(name, pa.array(tids, pa.int64()))
    return batch


class EndThreads:
    """The threads of slices and markers with some IDs."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str], ids: pa.Array | pa.ChunkedArray
    ) -> None:
        slices = " UNION ALL ".join(
            f"SELECT '{name}' AS source, track_id, id FROM {sources[name]}"
            for name in ("task", "api", "range", "marker")
        )

        def select(condition: str) -> str:
            return (
                f"SELECT s.id, t.tid FROM (SELECT * FROM ({slices}) WHERE {condition}) AS s "
                "LEFT JOIN export_lane AS l ON l.source = s.source AND l.id = s.id "
                "JOIN export_thread AS t ON t.source = s.source AND t.track_id = s.track_id "
                "AND t.lane = coalesce(l.lane, 0)"
            )

        self._rows = Rows(connection, select, ids.drop_null().to_numpy())

    def of(self, ids: pa.Array) -> tuple[Int64, NDArray[np.bool_]]:
        """Return the thread of each of the IDs, or of some of them, 0 if not in the trace, and which are known."""
        known = ids.is_valid().to_numpy(zero_copy_only=False)
        tids = np.zeros(len(known), np.int64)
        _, [tids[known]] = self._rows.of(ids.drop_null().to_numpy())
        return tids, known


#: Columns of `export_op` with the op's name, all its members, or those but the name.
_OP_TEXTS = ("named", "described", "unnamed", "nothing")
#: What a slice has of its op: if its name is another, and if it is the same.
_SHOWN_OPS = {"task": ("described", "unnamed"), "api": ("named", "nothing")}


def _op_query(run_id: int) -> str:
    """Return the SELECT of op_id, name, a place from 0 on, and the members that describe the op.

    The type is omitted if it is the name.
    """
    named = """',"op_name":' || to_json(o.name)::VARCHAR"""
    op_type = (
        """CASE WHEN o.op_type <> o.name OR o.name IS NULL THEN ',"op_type":' || to_json(o.op_type)::VARCHAR END"""
    )
    others = ", ".join([op_type, *(f"""',"{name}":' || to_json(o.{name})::VARCHAR""" for name in OP_MEMBERS[2:])])
    return (
        f"SELECT o.op_id, o.name, row_number() OVER () - 1 AS place, {named} AS named, "
        f"concat({named}, {others}) AS described, concat({others}) AS unnamed, NULL::VARCHAR AS nothing "
        f"FROM op AS o WHERE o.run_id = {run_id}"
    )


def _titles(event: Template, name: str) -> list[str]:
    """Append the name and the category; return their columns."""
    shown = SHOWN_CATEGORY.get(name)
    event.put(Kind.STRING, "name", ',"name":')
    event.when_null("name", Template().literal(f',"name":{json_text(NO_NAME)}'))
    event.put(Kind.STRING, "_category", ',"cat":')
    return ["s.name", f"{f'coalesce(s.category, s.{shown})' if shown else 's.category'} AS _category"]


def _args(event: Template, name: str, placed: Iterable[str]) -> list[str]:
    """Append every column that is not elsewhere in the event; return the columns."""
    placed = {"run_id", *placed}
    columns = _members(event, name, placed)
    if "name" in placed:
        event.when_null("name", Template().literal(',"name":null'))
    shown = SHOWN_CATEGORY.get(name)
    if shown is not None:
        event.unless_null("_no_category", Template().literal(',"category":null'))
        columns.append(f"CASE WHEN s.category IS NULL AND s.{shown} IS NOT NULL THEN 1::BIGINT END AS _no_category")
    return columns


def _members(event: Template, name: str, placed: Iterable[str]) -> list[str]:
    """Append the columns of a table but those in `placed`; return the columns."""
    columns = []
    for column in table(name).columns:
        if column.name not in placed:
            columns.append(selected_column(column.name, column.type))
            event.put(JSON_KINDS[column.type], column.name, f',"{column.name}":')
    return columns


def _join_thread(connection: duckdb.DuckDBPyConnection, source: str, track: str, id_: str | None = None) -> str:
    """Return the JOIN of each row's thread as `t`, by lane if the table has slices in other lanes."""
    [(moved,)] = connection.execute("SELECT count(*) FROM export_lane WHERE source = ?", [source]).fetchall()
    # The device of a step or a block may be unknown.
    same = "IS NOT DISTINCT FROM" if track == "device_id" else "="
    thread = f"JOIN export_thread AS t ON t.source = '{source}' AND t.track_id {same} s.{track} AND t.lane = "
    if not moved or id_ is None:
        return f"{thread}0"
    return (
        f"LEFT JOIN export_lane AS l ON l.source = '{source}' AND l.track_id {same} s.{track} AND l.id = s.{id_} "
        f"{thread}coalesce(l.lane, 0)"
    )
