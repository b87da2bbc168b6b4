"""The events of msprof's timeline, with msprof's keys in msprof's order: queries of columns and templates.

Timestamps are strings of microseconds with three decimals, durations are numbers; both are exact. Every event starts
with a comma and a line break. SQL builds the text of the few events of steps and of Overlap Analysis, whose rows have
the members `pid` and `tid` of their thread as `head`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from traceconv.export.json_sql import double, json_object, microseconds
from traceconv.export.msprof_layout import OVERLAPS
from traceconv.export.record_kinds import Kind
from traceconv.export.templates import Template

#: msprof's names of the levels of calls.
_LAYERS = {
    "acl": "AscendCL", "model": "Model", "node": "Node", "runtime": "Runtime", "communication": "Communication",
    "hccl": "Hccl",
}  # fmt: skip
#: Categories of msprof's step trace, whose slices are written from the table step.
STEP_CATEGORIES = ("Iteration Time", "FP_BP Time", "Iteration Refresh", "Reduce")
STEP_FLOW = "Data_aug Bound"
#: Replaces unknown texts. Unknown numbers are omitted.
_NO_VALUE = "N/A"
_NO_MODEL = _NO_CONTEXT = 2**32 - 1


def _stamp(ns: str) -> str:
    """A timestamp: a JSON string."""
    return f"""('"' || {microseconds(ns, wide=True)} || '"')"""


def _number(ns: str) -> str:
    """A duration: a JSON number, with the digits of a double if these are exact."""
    return (
        f"(CASE WHEN {ns} BETWEEN -999999999999999 AND 999999999999999 THEN ({ns} / 1000)::VARCHAR "
        f"ELSE {microseconds(ns, wide=True)}::VARCHAR END)"
    )


def _object(members: Mapping[str, str]) -> str:
    """An object of these members, without those whose value is NULL."""
    texts = ", ".join(f"""'"{key}":' || {value}""" for key, value in members.items())
    return f"concat('{{', concat_ws(',', {texts}), '}}')"


def _event(name: str, start: str, length: str, *rest: str) -> str:
    """A slice: `length` is the text between its timestamp and `rest`, the SQL of its last members."""
    parts = ("',\n{\"name\":'", name, "s.head", "',\"ts\":'", _stamp(start), length, *rest, "'}'")
    return f"concat({', '.join(parts)})"


def _length(dur: str) -> str:
    """The duration and the phase; a slice without a known end is a begin event."""
    return f"""coalesce(',"dur":' || {_number(dur)} || ',"ph":"X"', ',"ph":"B"')"""


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a table: the columns of a query of its rows `s`, with their ops `o`, and the template of an event.

    The template refers to the lists `head`, the members of each thread, and `label`, the names of counters.
    """

    columns: tuple[str, ...]
    template: Template


def _slice(lists: Mapping[str, pa.Array], time: str, name: Template, length: Template) -> Template:
    """Return the start of an event: its name, thread, timestamp, and what follows that."""
    event = Template(lists).literal(',\n{"name":').extend(name).lookup("place", "head")
    return event.put(Kind.MICROSECONDS, time, ',"ts":"').literal('"').extend(length)


def _named() -> Template:
    return Template().put(Kind.STRING, "_name")


def _lasting() -> Template:
    """The duration and the phase; a slice without a known end is a begin event."""
    length = Template().put(Kind.SHORT_MICROSECONDS, "dur_ns", ',"dur":')
    length.unless_null("dur_ns", Template().literal(',"ph":"X"'))
    return length.when_null("dur_ns", Template().literal(',"ph":"B"'))


def _put_args(event: Template, members: Template) -> Template:
    """Append the source's own args, `_args`, or these members and then the source's, `_more` or `_invalid`."""
    members = Template().literal("{").extend(members).put(Kind.RAW, "_more", ",")
    members.put(Kind.STRING, "_invalid", ',"args":').literal("}")
    event.literal(',"args":').put(Kind.RAW, "_args").when_null("_args", members)
    return event.literal("}")


def _own_args(has_all: str) -> tuple[str, ...]:
    """Return the columns with args of the source; `has_all`: the condition that they have all members."""
    own = json_object("s.args")
    inner = "nullif(trim(substr(s.args, 2, length(s.args) - 2)), '')"
    return (
        f"CASE WHEN {has_all} THEN {own} END AS _args",
        f"CASE WHEN {own} IS NOT NULL THEN {inner} END AS _more",
        f"CASE WHEN {own} IS NULL THEN s.args END AS _invalid",
    )


def _integer(template: Template, member: str, column: str) -> Template:
    return template.put(Kind.INTEGER, column, f',"{member}":', number=1)


def task_events(lists: Mapping[str, pa.Array]) -> Events:
    """Tasks on streams, and collectives."""
    on_stream = _integer(Template(), "Model Id", "model_id").put(Kind.STRING, "_type", ',"Task Type":')
    for member, column in (
        ("Physic Stream Id", "stream_id"), ("Task Id", "source_task_id"), ("Subtask Id", "_context"),
        ("connection_id", "correlation_id"), ("size(B)", "_copy_bytes"),
    ):  # fmt: skip
        _integer(on_stream, member, column)
    collective = Template()
    for member, column in (("connection_id", "correlation_id"), ("model id", "_model"), ("size(Byte)", "size_bytes")):
        _integer(collective, member, column)
    members = Template().unless_null("_is_collective", collective).when_null("_is_collective", on_stream)
    has_all = "contains(s.args, CASE WHEN s.kind = 'collective' THEN '\"model id\"' ELSE '\"Task Type\"' END)"
    columns = (
        # As in the tables: tasks of several trips of a loop have the name of their op.
        f"coalesce(o.name, s.name, s.task_type, '{_NO_VALUE}') AS _name", "s.start_ns", "s.dur_ns", "o.model_id",
        f"coalesce(s.task_type, '{_NO_VALUE}') AS _type", "s.stream_id", "s.source_task_id",
        f"coalesce(s.context_id, {_NO_CONTEXT}) AS _context", "s.correlation_id", "s.size_bytes",
        "CASE WHEN s.kind = 'copy' THEN s.size_bytes END AS _copy_bytes",
        f"coalesce(o.model_id, {_NO_MODEL}) AS _model",
        "CASE WHEN s.kind = 'collective' THEN 1::BIGINT END AS _is_collective", *_own_args(has_all),
    )  # fmt: skip
    return Events(columns, _put_args(_slice(lists, "start_ns", _named(), _lasting()), members))


def api_events(lists: Mapping[str, pa.Array]) -> Events:
    """Calls: LAYER@NAME, unless the source has the name in this form."""
    layers = " ".join(f"WHEN '{level}' THEN '{layer}@'" for level, layer in _LAYERS.items())
    plain = f"coalesce(s.name, '{_NO_VALUE}')"
    layer = f"CASE WHEN s.made THEN CASE s.level {layers} ELSE '' END ELSE '' END"
    members = _integer(Template(), "Thread Id", "tid").put(Kind.STRING, "_plain", ',"Mode":')
    members.put(Kind.STRING, "level", ',"level":').put(Kind.STRING, "_plain", ',"id":')
    _integer(members.put(Kind.STRING, "_item", ',"item_id":'), "connection_id", "correlation_id")
    columns = (
        f"coalesce(s.source_name, {layer} || {plain}) AS _name", "s.start_ns", "s.dur_ns", "s.tid",
        f"{plain} AS _plain", "s.level", "coalesce(o.name, '0') AS _item", "s.correlation_id",
        *_own_args("contains(s.args, '\"level\"')"),
    )  # fmt: skip
    return Events(columns, _put_args(_slice(lists, "start_ns", _named(), _lasting()), members))


def range_events(lists: Mapping[str, pa.Array]) -> Events:
    """Ranges of the program, and the source's slices in msprof's layout that are in no other table."""
    event = _slice(lists, "start_ns", _named(), _lasting()).put(Kind.STRING, "category", ',"cat":')
    own = json_object("s.args")
    columns = (
        f"coalesce(s.name, '{_NO_VALUE}') AS _name", "s.start_ns", "s.dur_ns", "s.category",
        "CASE WHEN s.made AND s.args IS NULL THEN 1::BIGINT END AS _is_made", f"{own} AS _args",
        "NULL::VARCHAR AS _more", f"CASE WHEN {own} IS NULL THEN s.args END AS _invalid",
    )  # fmt: skip
    pushed = Template().literal(',"event_type":"push/pop"')
    return Events(columns, _put_args(event, Template().unless_null("_is_made", pushed)))


def marker_events(lists: Mapping[str, pa.Array]) -> Events:
    """Markers with a time: slices without a duration, as msprof has them."""
    rest = Template().literal(',"dur":0.0,"ph":"X","args":{"event_type":"marker"}}')
    return Events((f"coalesce(s.name, '{_NO_VALUE}') AS _name", "s.ts_ns"), _slice(lists, "ts_ns", _named(), rest))


def counter_events(lists: Mapping[str, pa.Array]) -> Events:
    """Samples: the number is in args under its series or unit."""
    value = f"CASE WHEN s.value_int IS NULL THEN coalesce({double('s.value')}, 'null') END AS _value"
    args = Template().literal(',"ph":"C","args":{').put(Kind.STRING, "_series").literal(":")
    args.put(Kind.INTEGER, "value_int", number=1).put(Kind.RAW, "_value").literal("}}")
    columns = ("s.ts_ns", "coalesce(s.series, s.unit, 'value') AS _series", "s.value_int", value)
    return Events(columns, _slice(lists, "ts_ns", Template().lookup("place", "label"), args))


#: Columns of a flow's query for the places of its ends.
SOURCE_PLACE, TARGET_PLACE = "_source_place", "_target_place"


def flow_events(lists: Mapping[str, pa.Array]) -> Events:
    """Both events of a flow `s` between the threads at SOURCE_PLACE and TARGET_PLACE. Its ID is unique in the run."""
    columns = (
        "s.src_id", "s.dst_id", "s.src_ns", "s.dst_ns", "s.flow_id",
        "CASE WHEN s.kind = 'launch' THEN 1::BIGINT END AS _is_launch",
        "CASE WHEN s.kind IS DISTINCT FROM 'launch' THEN coalesce(s.name, s.category, s.kind) END AS _name",
        "CASE WHEN s.kind IS DISTINCT FROM 'launch' THEN coalesce(s.category, s.kind) END AS _category",
    )  # fmt: skip
    launch = Template().literal('"HostToDevice').put(Kind.INTEGER, "flow_id", number=1).literal('"')
    event = Template(lists)
    for place, phase, time, last in ((SOURCE_PLACE, "s", "src_ns", "}"), (TARGET_PLACE, "f", "dst_ns", ',"bp":"e"}')):
        event.literal(',\n{"name":').unless_null("_is_launch", launch).put(Kind.STRING, "_name").lookup(place, "head")
        event.literal(f',"ph":"{phase}","cat":').unless_null("_is_launch", Template().literal('"HostToDevice"'))
        event.put(Kind.STRING, "_category").put(Kind.INTEGER, "flow_id", ',"id":"', number=1)
        event.put(Kind.MICROSECONDS, time, '","ts":"').literal(f'"{last}')
    return Events(columns, event)


def step_events() -> str:
    """The slices of a row of step_trace, and the arrow to it from the end of the previous step."""
    start, fp, bp, end = "coalesce(s.start_ns, s.fp_start_ns)", "s.fp_start_ns", "s.bp_end_ns", "s.end_ns"
    times = {key: f"coalesce({_stamp(ns)}, '\"{_NO_VALUE}\"')" for key, ns in (
        ("FP Start", fp), ("BP End", bp), ("Iteration End", end))}  # fmt: skip
    slices = []
    for title, category, at, dur, keys, spent in (
        ("Iteration", STEP_CATEGORIES[0], start, f"TRY({end} - {start})", list(times), "iteration_time_ns"),
        ("FP_BP Time", STEP_CATEGORIES[1], fp, "s.fp_to_bp_ns", list(times)[:2], "fp_to_bp_ns"),
        ("Iteration Refresh", STEP_CATEGORIES[2], bp, "s.refresh_ns", list(times)[1:], "refresh_ns"),
    ):
        label = category if category.endswith("Time") else title
        args = {
            "Iteration ID": "s.iteration",
            **{key: times[key] for key in keys},
            f"{label}(us)": _number(f"s.{spent}"),
        }
        event = _event(f"'\"{title} ' || s.iteration || '\"'", at, _length(dur), f"',\"cat\":\"{category}\",\"args\":'",
                       _object(args))  # fmt: skip
        slices.append(f"CASE WHEN {at} IS NOT NULL AND {dur} >= 0 THEN {event} END")
    at, dur, place = "s.reduce_start_ns[place]", "s.reduce_dur_ns[place]", "(place - 1)"
    reduce = _event(
        f"'\"Reduce_' || s.iteration || '_' || {place} || '\"'", at, _length(dur),
        f"""',"cat":"{STEP_CATEGORIES[3]}","args":{{"Iteration ID":' || s.iteration || ',"Reduce Start ' || {place}""",
        "'\":'", _stamp(at), f"""',"Reduce End ' || {place} || '":' || {_stamp(f"({at} + {dur})")}""", "'}'",
    )  # fmt: skip
    slices.append(f"array_to_string([{reduce} for place in range(1, len(s.reduce_start_ns) + 1)], '')")
    arrow = []
    for phase, ns, args in (
        ("s", f"({fp} - s.data_aug_bound_ns)", {f"{STEP_FLOW}(us)": _number("s.data_aug_bound_ns")}),
        ("t", fp, {"Iteration ID": "s.iteration"}),
    ):
        arrow += [f"',\n{{\"name\":\"{STEP_FLOW} ' || s.iteration || '\"'", "s.head", f'\',"ph":"{phase}"\'']
        arrow += [f'\',"cat":"{STEP_FLOW}","id":"{STEP_FLOW} \' || s.number || \'","ts":\'', _stamp(ns)]
        arrow += ["',\"args\":'", _object(args), "'}'"]
    slices.append(f"CASE WHEN s.data_aug_bound_ns >= 0 THEN concat({', '.join(arrow)}) END")
    return f"concat({', '.join(slices)})"


def overlap_events() -> str:
    """The slices of Overlap Analysis."""
    names = ", ".join(f"'\"{name}\"'" for name in OVERLAPS)
    return _event(f"[{names}][s.place + 1]", "s.start_ns", _length("s.dur_ns"), "',\"args\":{}'")


def overlap_query(run_id: int) -> str:
    """Return the SELECT of Overlap Analysis, from the tasks: device_id, place (of OVERLAPS), start_ns, dur_ns.

    Computing and communication are unions of intervals; free is the time in neither, up to the end of the last task.
    """
    return f"""WITH busy_task AS (
      SELECT device_id, CASE kind WHEN 'compute' THEN 0 ELSE 1 END AS place, start_ns,
        TRY(start_ns + dur_ns) AS end_ns
      FROM task WHERE run_id = {run_id:d} AND kind IN ('compute', 'collective') AND dur_ns >= 0
    ), in_order AS (
      SELECT *, max(end_ns) OVER (PARTITION BY device_id, place ORDER BY start_ns, end_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached_ns
      FROM (FROM busy_task UNION ALL SELECT device_id, 3, start_ns, end_ns FROM busy_task)
    ), numbered AS (
      -- count() with FILTER is quadratic in such a window.
      SELECT *, sum((reached_ns IS NULL OR start_ns > reached_ns)::INTEGER) OVER (
        PARTITION BY device_id, place ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
      FROM in_order
    ), busy AS (
      SELECT device_id, place, min(start_ns) AS start_ns, max(end_ns) AS end_ns
      FROM numbered GROUP BY device_id, place, island
    ), edge AS (
      SELECT device_id, at_ns, sum(step) FILTER (place = 0) AS computing, sum(step) FILTER (place = 1) AS communication
      FROM (SELECT device_id, place, unnest([start_ns, end_ns]) AS at_ns, unnest([1, -1]) AS step
        FROM busy WHERE place < 2) GROUP BY device_id, at_ns
    ), piece AS (
      SELECT device_id, at_ns AS start_ns, lead(at_ns) OVER by_time AS end_ns,
        sum(computing) OVER by_time AS computing, sum(communication) OVER by_time AS communication
      FROM edge WINDOW by_time AS (PARTITION BY device_id ORDER BY at_ns)
    )
    SELECT device_id, place, start_ns, TRY(end_ns - start_ns) AS dur_ns FROM busy WHERE place < 2
    UNION ALL SELECT device_id, 2, start_ns, end_ns - start_ns FROM piece
      WHERE communication > 0 AND coalesce(computing, 0) = 0
    UNION ALL SELECT device_id, 3, end_ns, next_ns - end_ns FROM (
      SELECT *, lead(start_ns) OVER (PARTITION BY device_id ORDER BY start_ns) AS next_ns FROM busy WHERE place = 3)
    WHERE next_ns IS NOT NULL"""
