"""Match records of a vendor's CSV files with tasks of the timeline and complete them; other records become tasks.

All of it is SQL (`task_sql.sql`) over `vendor_task`, a temporary table with one row per record (`TASK_COLUMNS`). A
record matches a task that starts in the same nanosecond and has the same name; or, where times are rounded, starts less
than `NEAR_NS` away; or has the same number instead of the name. Device, stream and number must be equal if both sides
have them: files recorded at a low level lack them, and so do single rows. Matches are one to one. Identical records
match identical tasks in order. A record that matches several different tasks is not used: the timeline already has its
task.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceconv.normalize.trace.classify import OP_COLUMNS
from traceconv.pipeline.run_sql import RunSql
from traceconv.schema import table
from traceconv.store.sections import section
from traceconv.store.wait_sql import stream_waits

#: Start times of one task in two files differ by less: microseconds since 1970 in a double have an error of 0.25 µs.
NEAR_NS = 1000
#: If a name occurs more often than this at about the same time, its records are unclear without comparing pairs.
_MAX_ALIKE = 1000
#: Rounds of taking the best matches. One is enough unless records of one name start less than NEAR_NS apart.
_MAX_ROUNDS = 100

_OP_FACTS = ("model_id", "name", *OP_COLUMNS)
_NO_COUNTERS = ("run_id", "id", "metric_group", "vendor_values")
_PMU = tuple(column.name for column in table("task_pmu").columns if column.name not in _NO_COUNTERS)
_TEXTS = (*(fact for fact in _OP_FACTS if fact != "model_id"), "task_type", "args", "vendor_values")
_NUMBERS = (
    "id",
    "device_id",
    "model_id",
    "step_id",
    "source_task_id",
    "stream_id",
    "context_id",
    "start_ns",
    "dur_ns",
    "end_ns",
    "vendor_wait_ns",
    "block_count",
    "mix_block_count",
)
TASK_COLUMNS = {
    **dict.fromkeys(_NUMBERS, "BIGINT"),
    **dict.fromkeys(_TEXTS, "VARCHAR"),
    "hf32_eligible": "BOOLEAN",
    **{f"pmu_{name}": "BIGINT" for name in _PMU},
}

#: Columns of tasks that records fill in.
_FILLED = ("device_id", "source_task_id", "context_id", "block_count", "mix_block_count", "hf32_eligible")
#: What the SQL contains besides its own text.
_WORDS = {
    "near_ns": NEAR_NS,
    "max_alike": _MAX_ALIKE,
    "facts": ", ".join(_OP_FACTS),
    "known_facts": ", ".join(f"coalesce(v.{fact}, o.{fact}) AS {fact}" for fact in _OP_FACTS),
    "same_facts": " AND ".join(f"o.{fact} IS NOT DISTINCT FROM v.{fact}" for fact in _OP_FACTS),
    "filled": ", ".join(f"{name} = coalesce(task.{name}, v.{name})" for name in _FILLED),
    "counters": ", ".join(_PMU),
    "record_counters": ", ".join(f"v.pmu_{name}" for name in _PMU),
}


@dataclass(frozen=True, slots=True)
class Matched:
    """How many records of a file match a task.

    exact      by start and name
    near       by a start less than NEAR_NS away
    by_number  by start and number instead of the name, or by everything but the number
    spanning   by name, stream and number; the record starts before the task and ends after it
    in_order   of these, identical records with identical tasks
    apart_ns   maximum distance of starts that are near
    unclear    records that match several different tasks
    unmatched  other records without a task
    """

    exact: int
    near: int
    by_number: int
    spanning: int
    in_order: int
    apart_ns: int
    unclear: int
    unmatched: int


def settle_labelled_devices(target: RunSql) -> None:
    """Set the device of tasks, tracks and iterations in processes whose label names an NPU.

    Leaves the table `vendor_label` (process_id, device_id).
    """
    _run(target, "labels", "labelled_devices")
    _spread_devices(target)
    _run(target, "labelled_steps")


def match_tasks(target: RunSql) -> Matched:
    """Fill `vendor_match` (vendor_id, task_id) and `vendor_unclear` from `vendor_task` and the tasks of the run.

    A record without a name is named after its type, like such tasks in timelines.
    """
    _run(target, "durations", "names")
    _start_matching(target)
    _run(target, "many_alike")
    exact, exact_in_order = _add_matches(target, "exact")
    near, near_in_order = _add_matches(target, "near")
    same_number, same_in_order = _add_matches(target, "same_number")
    other_number, other_in_order = _add_matches(target, "other_number")
    spanning = _add_spanning(target)
    _run(target, "matched_are_clear")
    ((apart_ns, unclear, records),) = target.fetch(_sql("counts"))
    by_number = same_number + other_number
    in_order = exact_in_order + near_in_order + same_in_order + other_in_order
    unmatched = records - exact - near - by_number - spanning - unclear
    return Matched(exact, near, by_number, spanning, in_order, apart_ns, unclear, unmatched)


def _start_matching(target: RunSql) -> None:
    _run(target, "match", "unclear", "may_equal", "kind", "free", "alone")


def _add_matches(target: RunSql, alike: str) -> tuple[int, int]:
    """Match the best free pairs until none is left; return the number of matches and of those in order.

    alike  section of the SQL with the join of records and tasks

    Pairs are ranked by how many of device, stream and number are equal, then by duration, then by start.
    """
    target.run_sql(_sql("pairs", alike=_sql(alike)))
    found = in_order = 0
    for _ in range(_MAX_ROUNDS):
        _run(target, "best", "only_in_order")
        ((count, identical),) = target.fetch(_sql("best_counts"))
        if not count:
            break
        found, in_order = found + count, in_order + identical
        _run(target, "take_best", "leave_best")
    _run(target, "rest_is_unclear")
    return found, in_order


def _add_spanning(target: RunSql) -> int:
    """Match records with the first free task of their name, stream and number that is within them."""
    sides = (
        ("t.device_id = v.device_id", "true", "true"),
        ("true", "v.device_id IS NULL", "true"),
        ("true", "true", "t.device_id IS NULL"),
    )
    return sum(
        target.number(_sql("spanning", more=more, of_record=of_record, of_task=of_task))
        for more, of_record, of_task in sides
    )


def complete_tasks(target: RunSql, file_key: str, metric_group: str | None, *, has_ops: bool) -> int:
    """Complete tasks with their records, and add a task for each other record; return the number of new steps.

    file_key      key in args for cells that have no column
    metric_group  group of the counters
    has_ops       the records describe ops, with type, shapes and so on; facts that they lack, such as the type at a low
                  level, come from the timeline's op
    """
    _run(target, "tracks", "number_tracks", "add_tracks", "add_tasks", "match_added")
    if has_ops:
        _run(target, "ops", "known_ops", "add_ops", "ops_of_tasks", "unused_ops")
    _fill(target, file_key, has_ops=has_ops)
    steps = target.number(_sql("add_steps"))
    target.run_sql(_sql("add_counters"), grp=metric_group)
    _run(target, "devices_of_tracks")
    _spread_devices(target)
    target.run_sql(stream_waits("run_id = $run AND track_id IN (SELECT track_id FROM temp.vendor_track)", "track_id"))
    return steps


def attach(target: RunSql, file_key: str) -> tuple[int, int]:
    """Add the args of records to tasks with the same stream, number and name; return how many are paired, and not.

    Tasks of records without a number start at most NEAR_NS apart from them.
    """
    _start_matching(target)
    found = target.number(_sql("attach"))
    _fill(target, file_key, has_ops=False)
    return found, target.number("SELECT count(*) FROM temp.vendor_task") - found


def _fill(target: RunSql, file_key: str, *, has_ops: bool) -> None:
    """Fill in values that the timeline lacks; step, and facts about ops, are taken from the records."""
    target.run_sql(_sql("fill", kinds=_sql("kinds") if has_ops else ""), key=file_key)


def _spread_devices(target: RunSql) -> None:
    """Set the devices in `vendor_device` for their tracks, and for those of their tasks that have none."""
    _run(target, "set_devices_of_tracks", "set_devices_of_tasks", "add_devices")


def _run(target: RunSql, *names: str) -> None:
    """Execute sections of the SQL."""
    for name in names:
        target.run_sql(_sql(name))


def _sql(name: str, **words: str) -> str:
    return section(__name__, name, **_WORDS, **words)
