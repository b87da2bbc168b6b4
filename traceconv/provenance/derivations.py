"""Columns that are not copied from the source: a sentence for each on how it was derived."""

from __future__ import annotations

from traceconv.formats.registry import format_of

_NESTED = (
    ("depth, parent_id", "from the slices of its track that enclose it"),
    ("self_ns", "dur_ns minus the durations of the slices directly inside it"),
)
_WAITS = (
    ("wait_ns", "its start minus the end of the row before it in op_summary on its device, not below 0"),
    ("stream_wait_ns", "its start minus the end of the task before it on its stream"),
)
_HOST = ("start_ns", "host_ns of its start, plus the recorded offset between the host's clock and the epoch")
_DEVICE = ("start_ns", "ticks of its start, mapped to the host's clock by the sync records around it")
_US = ("start_ns", "ts of its event, converted to ns exactly")

_RAW: dict[str, tuple[tuple[str, str], ...]] = {
    "api": (_HOST, ("dur_ns", "host_ns of its end minus that of its start"), *_NESTED),
    "range": (("start_ns", "from its records, on the run's clock"), ("dur_ns", "its end minus its start"), *_NESTED),
    "task": (
        _DEVICE,
        ("dur_ns", "its end minus its start, both on the host's clock"),
        ("submit_ns, api_id, call_ns", "from the call with the same correlation_id"),
        *_WAITS,
        ("name", "that of its op (op_index), if the record has none"),
        ("kind, core_type", "by its task_type"),
    ),
    "task_pmu": (("id", "the task with the same task_id on the device"),),
    "event_wait": (("id, event_id", "the tasks with these task_ids on the device"),),
    "memory": (("alloc_ns, free_ns", "host_ns of its records, on the run's clock"),),
    "counter": (("ts_ns", "the record's time, on the run's clock"),),
    "step": (("start_ns … end_ns", "ticks of its marks, mapped to the host's clock by the sync records"),),
    "flow": (("", "computed: a call and the task with the same correlation_id"),),
    "process": (("", "from the records of its threads"),),
    "track": (("", "from the record of its thread or stream, and the events on it"),),
    "device": (("clock_error_ns", "computed from the sync records alone"),),
    "run": (("start_ns, end_ns", "the earliest and the latest time of all events"),),
}
_TRACE: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("api", "range"), (_US, *_NESTED, ("step_id", "the step that contains it"))),
    "task": (
        _US,
        *_NESTED,
        ("table, kind, stream_id …", "by the rules for its writer, from category, name and args"),
        *_WAITS,
        ("step_id", "the step in which it was launched, or which contains it"),
    ),
    "flow": (
        ("", "computed: flow events matched in order of timestamp; src_id and dst_id are the slices around them"),
    ),
    "op": (("", "computed: one row for each distinct op of tasks and calls"),),
    "step": (("", "computed: from slices whose names number iterations"),),
    "track": (("", "computed: from the pid, tid or id of the events on it"),),
    "process": (("", "computed: from the pid of its events, and metadata"),),
    "device": (("", "computed: from the tasks on it, and the keys around the events"),),
    "run": (("", "computed: from all events, and the keys around them (options)"),),
}


def notes_of(reader: str, table: str) -> list[tuple[str, str]]:
    """Return (column, how it was derived) for the rows of a table that a reader filled."""
    if reader == "static":
        return [("", "computed by the cost model (traceconv model) without a source file")]
    known = format_of(reader)
    if known is not None and known.in_captures:
        return list(_RAW.get(table, ()))
    found = list(_TRACE.get(table, ()))
    own = ("start_ns, dur_ns", known.event_times) if known is not None and known.event_times else _US
    return [own if note is _US else note for note in found]
