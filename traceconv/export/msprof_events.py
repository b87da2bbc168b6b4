"""SQL for the events of msprof's timeline as JSON text, with msprof's keys in msprof's order.

Timestamps are strings of microseconds with three decimals, durations are numbers; both are exact. Rows have the members
`pid` and `tid` of their thread as `head`. Every text starts with a comma and a line break.
"""

from __future__ import annotations

from collections.abc import Mapping

from traceconv.export.json_sql import double, json_object, microseconds, text
from traceconv.export.msprof_layout import OVERLAPS

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


def _object(members: Mapping[str, str], more: str = "NULL") -> str:
    """An object of these members, without those whose value is NULL. `more`: further members as text."""
    texts = ", ".join(f"""'"{key}":' || {value}""" for key, value in members.items())
    return f"concat('{{', concat_ws(',', {', '.join(filter(None, (texts, more)))}), '}}')"


def _args(members: Mapping[str, str], key: str) -> str:
    """The source's own args if they contain `key`, otherwise these members and then the source's."""
    own = json_object("s.args")
    inner = "nullif(trim(substr(s.args, 2, length(s.args) - 2)), '')"
    return (
        f"(CASE WHEN s.args IS NULL THEN {_object(members)} "
        f"WHEN {own} IS NULL THEN {_object({**members, 'args': text('s.args')})} "
        f"WHEN contains(s.args, '\"{key}\"') THEN s.args ELSE {_object(members, inner)} END)"
    )


def _event(name: str, start: str, length: str, *rest: str) -> str:
    """A slice: `length` is the text between its timestamp and `rest`, the SQL of its last members."""
    parts = ("',\n{\"name\":'", name, "s.head", "',\"ts\":'", _stamp(start), length, *rest, "'}'")
    return f"concat({', '.join(parts)})"


def _length(dur: str) -> str:
    """The duration and the phase; a slice without a known end is a begin event."""
    return f"""coalesce(',"dur":' || {_number(dur)} || ',"ph":"X"', ',"ph":"B"')"""


def task_events() -> str:
    """Tasks on streams, and collectives."""
    shared = {"connection_id": "s.correlation_id"}
    on_stream = {
        "Model Id": "o.model_id",
        "Task Type": text(f"coalesce(s.task_type, '{_NO_VALUE}')"),
        "Physic Stream Id": "s.stream_id",
        "Task Id": "s.source_task_id",
        "Subtask Id": f"coalesce(s.context_id, {_NO_CONTEXT})",
        **shared,
        "size(B)": "CASE WHEN s.kind = 'copy' THEN s.size_bytes END",
    }
    collective = {**shared, "model id": f"coalesce(o.model_id, {_NO_MODEL})", "size(Byte)": "s.size_bytes"}
    args = (
        f"CASE WHEN s.kind = 'collective' THEN {_args(collective, 'model id')} ELSE {_args(on_stream, 'Task Type')} END"
    )
    # As in the tables: tasks of several trips of a loop have the name of their op.
    name = text(f"coalesce(o.name, s.name, s.task_type, '{_NO_VALUE}')")
    return _event(name, "s.start_ns", _length("s.dur_ns"), "',\"args\":'", args)


def api_events() -> str:
    """Calls: LAYER@NAME, unless the source has the name in this form."""
    layers = " ".join(f"WHEN '{level}' THEN '{layer}@'" for level, layer in _LAYERS.items())
    plain = f"coalesce(s.name, '{_NO_VALUE}')"
    layer = f"CASE WHEN s.made THEN CASE s.level {layers} ELSE '' END ELSE '' END"
    members = {
        "Thread Id": "s.tid",
        "Mode": text(plain),
        "level": text("s.level"),
        "id": text(plain),
        "item_id": text("coalesce(o.name, '0')"),
        "connection_id": "s.correlation_id",
    }
    name = text(f"coalesce(s.source_name, {layer} || {plain})")
    return _event(name, "s.start_ns", _length("s.dur_ns"), "',\"args\":'", _args(members, "level"))


def range_events() -> str:
    """Ranges of the program, and the source's slices in msprof's layout that are in no other table."""
    built = {"event_type": "CASE WHEN s.made THEN '\"push/pop\"' END"}
    own = f"coalesce({json_object('s.args')}, {_object({'args': text('s.args')})})"
    category = f"""',"cat":' || {text("s.category")}"""
    args = f"CASE WHEN s.args IS NULL THEN {_object(built)} ELSE {own} END"
    name = text(f"coalesce(s.name, '{_NO_VALUE}')")
    return _event(name, "s.start_ns", _length("s.dur_ns"), category, "',\"args\":'", args)


def marker_events() -> str:
    """Markers with a time: slices without a duration, as msprof has them."""
    name = text(f"coalesce(s.name, '{_NO_VALUE}')")
    return _event(name, "s.ts_ns", '\',"dur":0.0,"ph":"X","args":{"event_type":"marker"}\'')


def counter_events() -> str:
    """Samples: the number is in args under its series or unit."""
    value = f"coalesce(s.value_int::VARCHAR, {double('s.value')}, 'null')"
    parts = ('\',"ph":"C","args":{\'', text("coalesce(s.series, s.unit, 'value')"), "':'", value, "'}'")
    return _event(text("s.label"), "s.ts_ns", *parts)


def flow_events() -> str:
    """Both events of a flow `f` between the threads of `a` and `b`. Its ID is unique in the run."""
    name = f"'\"HostToDevice' || f.flow_id || '\"' ELSE {text('coalesce(f.name, f.category, f.kind)')}"
    category = f"'\"HostToDevice\"' ELSE {text('coalesce(f.category, f.kind)')}"
    name, category = (f"CASE WHEN f.kind = 'launch' THEN {value} END" for value in (name, category))
    ends = []
    for end, phase, time, last in (("a", "s", "src_ns", ""), ("b", "f", "dst_ns", ',"bp":"e"')):
        ends += ["',\n{\"name\":'", name, f"{end}.head", f'\',"ph":"{phase}","cat":\'', category]
        ends += ['\',"id":"\'', "f.flow_id", '\'","ts":\'', _stamp(f"f.{time}"), f"'{last}}}'"]
    return f"concat({', '.join(ends)})"


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
