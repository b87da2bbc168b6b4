"""SQL that returns the events of a Chrome trace as JSON text, one function per table.

Every text starts with a comma and a line break, so that texts can be concatenated. `export_thread` has the head of an
event (pid and tid) for each thread of the layout, `export_op` the members of an op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from traceconv.base.errors import StoreError, option
from traceconv.export.chrome_layout import Thread
from traceconv.export.json_sql import Concat, Facts, collect_facts, double, json_text, microseconds, text
from traceconv.export.load_counters import LoadCounter
from traceconv.export.lookup import Lookup, make_lookup
from traceconv.export.timeline import device_memory, memory_changes
from traceconv.normalize.trace.own_columns import NO_NAME, OP_MEMBERS, ROW_TABLES, SHOWN_CATEGORY
from traceconv.schema import table


@dataclass(frozen=True, slots=True)
class Clock:
    """Formats timestamps as microseconds since `base_ns` with three decimals."""

    base_ns: int
    wide: bool

    @property
    def cast(self) -> str:
        """The cast that makes the difference of two times fit."""
        return "::HUGEINT" if self.wide else ""

    def at(self, time: str) -> str:
        """Return the text of a timestamp."""
        return microseconds(f"{time}{self.cast} - ({self.base_ns})", wide=self.wide)

    def length(self, duration: str) -> str:
        """Return the text of a duration."""
        return microseconds(duration, wide=self.wide)


@dataclass(frozen=True, slots=True)
class Events:
    """The parts of a query for events.

    table   their table
    source  FROM clause of the rows, `s` in the query
    time    column of `source` to split into windows; None: a single query
    joins   tables joined to it; `t` is the thread of an event
    order   ORDER BY
    text    the event as JSON text
    """

    table: str
    source: str
    time: str | None
    joins: str
    order: str
    text: str

    def query(self, where: str = "true") -> str:
        """Return the SELECT of the texts, in order, for the rows that match a condition."""
        return f"SELECT {self.text} AS text FROM {self.source} AS s {self.joins} WHERE {where} ORDER BY {self.order}"


def slice_events(connection: duckdb.DuckDBPyConnection, name: str, source: str, clock: Clock, *, args: bool) -> Events:
    """Tasks, calls and ranges: complete events; begin events if the duration is unknown."""
    facts = collect_facts(connection, source, table(name))
    joins = _join_thread(connection, name, "track_id", "id")
    op = {"task": "described", "api": "named", "range": None}[name] if args else None
    if op:
        joins += " LEFT JOIN export_op AS o ON o.op_id = s.op_id"
    joined = _slice_text(name, facts, clock, "t.head", op and f"o.{op}", args)
    order = "t.tid, s.start_ns, s.dur_ns DESC NULLS FIRST, s.depth, s.id"
    events = Events(name, source, "start_ns", joins, order, joined)
    heads = _heads_by_track(connection, name, facts)
    if heads is None:
        return events
    listed = None
    # Lookups instead of joins.
    if op:
        ops = make_lookup(connection, f"export_{name}_op", f"SELECT op_id AS key, {op} AS value FROM export_op")
        if ops is None:
            return events
        listed = ops.of("s.op_id")
    order = "s.track_id, s.start_ns, s.dur_ns DESC NULLS FIRST, s.depth, s.id"
    joined = _slice_text(name, facts, clock, heads.of("s.track_id"), listed, args)
    return Events(name, source, "start_ns", "", order, joined)


def _heads_by_track(connection: duckdb.DuckDBPyConnection, name: str, facts: Mapping[str, Facts]) -> Lookup | None:
    """Return the heads of a table's threads by track; None if a track has several, or a row has none."""
    [(moved,)] = connection.execute("SELECT count(*) FROM export_lane WHERE source = ?", [name]).fetchall()
    if moved or facts["track_id"].some_null:
        return None
    query = f"SELECT track_id AS key, head AS value FROM export_thread WHERE source = '{name}'"
    return make_lookup(connection, f"export_{name}_head", query)


def _slice_text(name: str, facts: Mapping[str, Facts], clock: Clock, head: str, op: str | None, args: bool) -> str:
    """Return the text of a slice. `head` and `op` are SQL for the head of its thread and the members of its op."""
    event = Concat().sql(head)
    if facts["dur_ns"].some_null:
        event.sql("CASE WHEN s.dur_ns IS NULL THEN 'B' ELSE 'X' END").literal('","ts":')
    else:
        event.literal('X","ts":')
    event.sql(clock.at("s.start_ns"))
    if facts["dur_ns"].some_null:
        event.sql(f"""',"dur":' || {clock.length("s.dur_ns")}""")
    else:
        event.literal(',"dur":').sql(clock.length("s.dur_ns"))
    _titles(event, name, facts)
    if args:
        _args(event, name, {"track_id", "name", "start_ns", "dur_ns", "category"}, facts)
        (event.sql(op) if op else event).literal("}")
    return event.literal("}").build()


def step_events(connection: duckdb.DuckDBPyConnection, source: str, clock: Clock, *, args: bool) -> Events:
    """Steps: slices on the Step Trace of their device; instants if the start is unknown."""
    facts = collect_facts(connection, source, table("step"))
    start = "coalesce(s.start_ns, s.fp_start_ns)"
    is_slice = f"({start} IS NOT NULL AND coalesce(s.end_ns >= {start}, true))"
    event = Concat().sql("t.head")
    event.sql(f"CASE WHEN NOT {is_slice} THEN 'i\",\"s\":\"t' WHEN s.end_ns IS NULL THEN 'B' ELSE 'X' END")
    event.literal('","ts":').sql(clock.at("s.at_ns"))
    event.sql(f"""CASE WHEN {is_slice} THEN ',"dur":' || {clock.length(f"s.end_ns{clock.cast} - {start}")} END""")
    event.literal(',"name":"Iteration ').sql("s.iteration").literal('","cat":"step"')
    if args:
        _args(event, "step", {"device_id"}, facts).literal("}")
    event.literal("}")
    joins = _join_thread(connection, "step", "device_id", "step_id")
    order = "t.tid, s.at_ns, s.end_ns DESC NULLS FIRST, s.step_id"
    return Events("step", step_source(source, clock), "at_ns", joins, order, event.build())


def step_source(source: str, clock: Clock) -> str:
    """Return the steps with `at_ns`: their start, or the first known time."""
    first = f"coalesce(start_ns, fp_start_ns, bp_end_ns, end_ns, {clock.base_ns})"
    return f"(SELECT *, {first} AS at_ns FROM {source})"


def marker_events(connection: duckdb.DuckDBPyConnection, source: str, clock: Clock, *, args: bool) -> Events:
    """Markers with a timestamp: instants."""
    source = f"(SELECT * FROM {source} WHERE ts_ns IS NOT NULL)"
    facts = collect_facts(connection, source, table("marker"))
    event = Concat().sql("t.head").literal('i","s":"')
    event.sql("CASE s.scope WHEN 'process' THEN 'p' WHEN 'global' THEN 'g' ELSE 't' END")
    event.literal('","ts":').sql(clock.at("s.ts_ns"))
    _titles(event, "marker", facts)
    if args:
        _args(event, "marker", {"track_id", "ts_ns", "category", "name"}, facts).literal("}")
    event.literal("}")
    joins = _join_thread(connection, "marker", "track_id")
    return Events("marker", source, "ts_ns", joins, "t.tid, s.ts_ns, s.id", event.build())


def table_sources(run_id: int, sources: Mapping[str, str]) -> dict[str, str]:
    """Return the FROM clauses of the ROW_TABLES. `sources`: those of the timeline, by table."""
    found = {name: f'(SELECT * FROM "{name}" WHERE run_id = {run_id})' for name in ROW_TABLES}
    found["task_pmu"] = f"(SELECT * FROM {found['task_pmu']} WHERE id IN (SELECT id FROM {sources['task']}))"
    return found


def row_events(connection: duckdb.DuckDBPyConnection, name: str, source: str) -> str | None:
    """Return the SELECT of a table's rows as metadata events, which viewers ignore; None if there are none."""
    found = row_texts(connection, name, source, f',\n{{"pid":1,"ph":"M","name":"{name}","args":', "}")
    return found and f"{found} ORDER BY ALL"


def row_texts(
    connection: duckdb.DuckDBPyConnection, name: str, source: str, before: str, after: str = ""
) -> str | None:
    """Return the SELECT of a table's rows as JSON objects with text around each; None if there are none."""
    facts = collect_facts(connection, source, table(name))
    if facts["run_id"].all_null:
        return None
    event = Concat().literal(before + "{")
    event.members(table(name).columns[:1], "s", facts, first=True).members(table(name).columns[1:], "s", facts)
    return f"SELECT {event.literal('}' + after).build()} AS text FROM {source} AS s"


def counter_events(connection: duckdb.DuckDBPyConnection, source: str, clock: Clock) -> Events:
    """Counters: the number is in args under the name of its series, or `value`.

    Integers are written exactly; `value` is added next to args if the table's value is a different number.
    """
    differs = "s.value_int IS NOT NULL AND s.value IS DISTINCT FROM s.value_int::DOUBLE"
    event = Concat().sql("t.head").literal('C","ts":').sql(clock.at("s.ts_ns"))
    event.literal(',"name":').sql("t.label").literal(',"args":{')
    event.sql(f"coalesce({text('s.series')}, '\"value\"')").literal(":")
    event.sql(f"coalesce(s.value_int::VARCHAR, {double('s.value')}, 'null')").literal("}")
    event.sql(f"""CASE WHEN {differs} THEN ',"value":' || coalesce({double("s.value")}, 'null') END""")
    event.sql("""CASE WHEN s.series = 'value' THEN ',"series":"value"' END""").literal("}")
    joins = _join_thread(connection, "counter", "track_id")
    return Events("counter", source, "ts_ns", joins, "t.tid, s.ts_ns, s.series", event.build())


def memory_events(connection: duckdb.DuckDBPyConnection, source: str, clock: Clock, *, args: bool) -> Events:
    """Memory blocks: an instant for the allocation, or `held` if before the recording, and one for the free."""
    facts = collect_facts(connection, source, table("memory"))
    names = {column.name: column for column in table("memory").columns}
    instants = (
        f"(SELECT *, coalesce(alloc_ns, {clock.base_ns}) AS at_ns, false AS is_free FROM {source} "
        f"UNION ALL SELECT *, free_ns AS at_ns, true AS is_free FROM {source} WHERE free_ns IS NOT NULL)"
    )
    event = Concat().sql("t.head").literal('i","s":"t","ts":').sql(clock.at("s.at_ns")).literal(',"name":"')
    event.sql("CASE WHEN s.is_free THEN 'free' WHEN s.alloc_ns IS NULL THEN 'held' ELSE 'alloc' END")
    event.literal('","cat":"memory"')
    if args:
        _args(event, "memory", set(names) - {"block_id"}, facts)
        others = [column for name, column in names.items() if name not in _MEMORY_PLACED]
        event.sql(f"CASE WHEN NOT s.is_free THEN {Concat().members(others, 's', facts).build()} END").literal("}")
    event.literal("}")
    joins = _join_thread(connection, "memory", "device_id")
    order = "t.tid, s.at_ns, s.is_free DESC, s.block_id"
    return Events("memory", instants, "at_ns", joins, order, event.build())


#: Columns of memory that need no member, or are in both events of a block.
_MEMORY_PLACED = frozenset({"run_id", "block_id", "device_id", "alloc_ns"})


def memory_counter_events(connection: duckdb.DuckDBPyConnection, run_id: int, source: str, clock: Clock) -> Events:
    """Bytes in blocks (`used`) and segments (`reserved`) of each device, at every change.

    Memory allocated before the recording counts from the start. Without segments the series `reserved` is omitted, and
    devices whose source has these counters itself are skipped.
    """
    series = ", ".join(
        f"sum(change) FILTER (kind = '{kind}') AS {name}" for kind, name in (("block", "used"), ("segment", "reserved"))
    )
    running = ", ".join(
        f"sum({name}) OVER (PARTITION BY device_id ORDER BY ts_ns) AS {name}" for name in ("used", "reserved")
    )
    totals = (
        f"(SELECT device_id, ts_ns, {running} FROM (SELECT device_id, ts_ns, {series} FROM "
        f"({memory_changes(device_memory(run_id, source), str(clock.base_ns))}) GROUP BY device_id, ts_ns))"
    )
    event = Concat().sql("t.head").literal('C","ts":').sql(clock.at("s.ts_ns"))
    event.literal(',"name":"Memory (byte)","args":{')
    event.sql("""concat_ws(',', '"used":' || s.used::VARCHAR, '"reserved":' || s.reserved::VARCHAR)""")
    joins = _join_thread(connection, "memory", "device_id")
    return Events("memory", totals, None, joins, "t.tid, s.ts_ns", event.literal("}}").build())


def load_counter_query(counter: LoadCounter, thread: Thread, clock: Clock) -> str:
    """Return the SELECT of the samples of a counter, on a thread of its device."""
    event = Concat().literal(f',\n{{"pid":{thread.pid},"tid":{thread.tid},"ph":"C","ts":').sql(clock.at("s.ts_ns"))
    event.literal(f',"name":{json_text(f"{counter.name} ({counter.unit})")},"args":{{"value":')
    event.sql("s.value::VARCHAR" if counter.is_whole else double("s.value")).literal("}}")
    return f"SELECT {event.build()} AS text FROM ({counter.sql}) AS s ORDER BY s.ts_ns"


def flow_query(connection: duckdb.DuckDBPyConnection, source: str, clock: Clock, *, args: bool) -> str:
    """Return the SELECT of each flow of the temporary table `export_flow`: a start and a finish event.

    Its columns start_tid and finish_tid are the threads of its ends; NULL is an unknown event, which goes to
    the thread of unbound flows, and sets the second column. A flow without a known end has no finish. Viewers drop
    arrows that lead back in time, so such a flow (`reversed`) is written from its end to its start, as its args note.
    """
    facts = collect_facts(connection, source, table("flow"))
    heads = make_lookup(
        connection, "export_head", "SELECT tid AS key, any_value(head) AS value FROM export_thread GROUP BY tid"
    )
    [(loose,)] = connection.execute("SELECT tid FROM export_thread WHERE source = 'flow'").fetchall()
    if heads is None:
        raise StoreError(
            f"{loose} threads exceed the limit of a Chrome trace; "
            f"select one device with {option('--device N', 'device=N')}"
        )
    titles = _flow_titles(facts)
    event = Concat().sql(heads.of(f"coalesce(s.start_tid, {loose})")).literal('s","ts":').sql(clock.at("s.at_ns"))
    event.extend(titles)
    if args:
        _args(event, "flow", {"src_ns", "dst_ns"}, facts)
        event.sql("CASE WHEN s.reversed THEN ',\"reversed\":true' END")
        if facts["src_ns"].some_null:
            event.sql("CASE WHEN s.src_ns IS NULL THEN ',\"src_ns\":null' END")
        event.literal("}")
    event.literal("}")
    if not facts["dst_ns"].all_null:
        finish = Concat().sql(heads.of(f"coalesce(s.finish_tid, {loose})")).literal('f","bp":"e","ts":')
        finish.sql(clock.at("s.finish_ns")).extend(titles).literal("}")
        if facts["dst_ns"].some_null:
            event.sql(f"CASE WHEN s.dst_ns IS NOT NULL THEN {finish.build()} END")
        else:
            event.extend(finish)
    unbound = "s.start_tid IS NULL OR (s.dst_ns IS NOT NULL AND s.finish_tid IS NULL)"
    return f"SELECT {event.build()} AS text, {unbound} AS unbound FROM export_flow AS s"


def _flow_titles(facts: Mapping[str, Facts]) -> Concat:
    """Return the members that both events of a flow share: cat, name and id."""
    columns = table("flow")
    titles = Concat()
    for key, column in (("cat", "category"), ("name", "name")):
        if facts[column].all_null and not facts["kind"].some_null:
            titles.member(key, columns.column("kind"), "s", facts["kind"])
        elif facts[column].some_null:
            titles.literal(f',"{key}":').sql(text(f"coalesce(s.{column}, s.kind, 'flow')"))
        else:
            titles.member(key, columns.column(column), "s", facts[column])
    return titles.member("id", columns.column("flow_id"), "s", facts["flow_id"])


def flow_source(source: str, clock: Clock) -> str:
    """Return the flows with `at_ns`, the time of their start event, and `reversed`: whether that is their later end."""
    return (
        "(SELECT *, dst_ns < src_ns IS TRUE AS reversed, "
        f"coalesce(least(src_ns, dst_ns), src_ns, dst_ns, {clock.base_ns}) AS at_ns FROM {source})"
    )


def flow_end_query(sources: Mapping[str, str]) -> str:
    """Return the SELECT of the ends of the flows in `export_flow_window` that are in the trace: id and thread."""
    slices = " UNION ALL ".join(
        f"SELECT '{name}' AS source, track_id, id FROM {sources[name]}" for name in ("task", "api", "range", "marker")
    )
    ends = "SELECT src_id FROM export_flow_window UNION ALL SELECT dst_id FROM export_flow_window"
    return (
        f"SELECT s.id, t.tid FROM (SELECT * FROM ({slices}) WHERE id IN ({ends})) AS s "
        "LEFT JOIN export_lane AS l ON l.source = s.source AND l.id = s.id "
        "JOIN export_thread AS t ON t.source = s.source AND t.track_id = s.track_id "
        "AND t.lane = coalesce(l.lane, 0)"
    )


def op_query(run_id: int) -> str:
    """Return the SELECT of op_id and the members that describe the op, for `export_op`."""
    named = """',"op_name":' || to_json(o.name)::VARCHAR"""
    others = [f"""',"{name}":' || to_json(o.{name})::VARCHAR""" for name in OP_MEMBERS[1:]]
    return (
        f"SELECT o.op_id, {named} AS named, concat({', '.join([named, *others])}) AS described "
        f"FROM op AS o WHERE o.run_id = {run_id}"
    )


def _titles(event: Concat, name: str, facts: Mapping[str, Facts]) -> None:
    columns = table(name)
    if facts["name"].some_null:
        event.literal(',"name":').sql(f"coalesce({text('s.name')}, '{json_text(NO_NAME)}')")
    else:
        event.member("name", columns.column("name"), "s", facts["name"])
    shown, category = SHOWN_CATEGORY.get(name), facts["category"]
    if shown is None or not category.some_null:
        event.member("cat", columns.column("category"), "s", category)
    elif category.all_null:
        event.member("cat", columns.column(shown), "s", facts[shown])
    else:
        event.sql(f"""',"cat":' || {text(f"coalesce(s.category, s.{shown})")}""")


def _args(event: Concat, name: str, placed: Iterable[str], facts: Mapping[str, Facts]) -> Concat:
    """Add the start of args: the run, and every column that is not elsewhere in the event."""
    event.literal(',"args":{').members(table(name).columns[:1], "s", facts, first=True)
    if "name" in placed and facts["name"].some_null:
        event.sql("CASE WHEN s.name IS NULL THEN ',\"name\":null' END")
    shown = SHOWN_CATEGORY.get(name)
    if shown is not None and facts["category"].some_null and not facts[shown].all_null:
        event.sql(f"CASE WHEN s.category IS NULL AND s.{shown} IS NOT NULL THEN ',\"category\":null' END")
    return event.members([column for column in table(name).columns[1:] if column.name not in placed], "s", facts)


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
