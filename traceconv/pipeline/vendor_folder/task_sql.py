"""Match records of a vendor's CSV files with tasks of the timeline and complete them; other records become tasks.

All of it is SQL over `vendor_task`, a temporary table with one row per record (`TASK_COLUMNS`). A record matches a task
that starts in the same nanosecond and has the same name; or, where times are rounded, starts less than `NEAR_NS` away;
or has the same number instead of the name. Device, stream and number must be equal if both sides have them: files
recorded at a low level lack them, and so do single rows. Matches are one to one. Identical records match identical
tasks in order. A record that matches several different tasks is not used: the timeline already has its task.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceconv.normalize.trace.classify import OP_COLUMNS
from traceconv.pipeline.run_sql import RunSql
from traceconv.schema import table
from traceconv.store.wait_sql import stream_waits

#: Start times of one task in two files differ by less: microseconds since 1970 in a double have an error of 0.25 µs.
NEAR_NS = 1000

_OP_FACTS = ("model_id", "name", "op_type", "state", *OP_COLUMNS[1:])
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
_IDENTITY = ("device_id", "stream_id", "source_task_id")
_SAME_STREAM, _COMPATIBLE = (
    "t.run_id = $run AND "
    + " AND ".join(f"(t.{name} IS NULL OR v.{name} IS NULL OR t.{name} = v.{name})" for name in names)
    for names in (_IDENTITY[:2], _IDENTITY)
)
_TASK_IS_FREE = "NOT EXISTS (FROM temp.vendor_match AS m WHERE m.task_id = t.id)"
#: The record has no match and is not unclear.
_ALONE = (
    "NOT EXISTS (FROM temp.vendor_match AS m WHERE m.vendor_id = v.id) "
    "AND NOT EXISTS (FROM temp.vendor_unclear AS u WHERE u.vendor_id = v.id)"
)
#: If a name occurs more often than this at about the same time, its records are unclear without comparing pairs.
_MAX_ALIKE = 1000
#: Rounds of taking the best matches. One is enough unless records of one name start less than NEAR_NS apart.
_MAX_ROUNDS = 100

#: The kind of a task by its type and name in msprof. A task that is named after its type executes no op.
_KIND = """CASE
    WHEN regexp_matches(coalesce(v.task_type, ''), '^(HCCL|COMMUNICATION|HCCL_AI_CPU)', 'i')
      OR regexp_matches(coalesce(v.name, ''), '^hcom_', 'i') THEN 'collective'
    WHEN regexp_matches(coalesce(v.task_type, ''), '^(AI[_ ]|AI(C|V|CORE|CPU)$|MIX_|DSA|KERNEL_|DVPP|VPC|JPEG)', 'i')
      THEN 'compute'
    WHEN regexp_matches(coalesce(v.task_type, '') || ' ' || coalesce(v.name, ''),
                        '(memcpy|sdma|pcie_dma|reduce_async|rdma_send)', 'i') THEN 'copy'
    WHEN v.name = v.task_type
      OR regexp_matches(coalesce(v.task_type, ''), '^(event|notify|profiling|place.holder|model|write|end.graph)', 'i')
      THEN 'sync'
    ELSE 'compute' END"""


#: The track of a new task; without streams it depends only on whether the task is a collective.
_TRACK = (
    "CASE WHEN v.stream_id IS NOT NULL THEN 'Stream ' || v.stream_id "
    "WHEN v.kind = 'collective' THEN 'Communication' ELSE 'Stream not recorded' END"
)


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
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE vendor_label AS SELECT process_id, number::BIGINT AS device_id FROM ("
        "SELECT k.process_id, min(regexp_extract(m.args->>'labels', '^NPU (\\d{1,9})$', 1)) AS number FROM marker AS m "
        "JOIN track AS k USING (run_id, track_id) WHERE m.run_id = $run AND m.name = 'process_labels' "
        "GROUP BY k.process_id HAVING count(DISTINCT m.args->>'labels') = 1) WHERE number <> ''"
    )
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE vendor_device AS "
        "SELECT k.track_id, l.device_id FROM track AS k JOIN temp.vendor_label AS l USING (process_id) "
        "WHERE k.run_id = $run AND k.kind = 'stream' AND k.device_id IS NULL"
    )
    _spread_devices(target)
    target.run_sql(
        "UPDATE step SET device_id = found.device_id FROM (SELECT r.step_id, min(l.device_id) AS device_id "
        "FROM range AS r JOIN track AS k USING (run_id, track_id) JOIN temp.vendor_label AS l USING (process_id) "
        "WHERE r.run_id = $run AND r.step_id IS NOT NULL GROUP BY r.step_id HAVING count(DISTINCT l.device_id) = 1) "
        "AS found WHERE step.run_id = $run AND step.step_id = found.step_id AND step.device_id IS NULL "
        "AND step.step_source = 'slice'"
    )


def match_tasks(target: RunSql) -> Matched:
    """Fill `vendor_match` (vendor_id, task_id) and `vendor_unclear` from `vendor_task` and the tasks of the run.

    A record without a name is named after its type, like such tasks in timelines.
    """
    target.run_sql(
        "UPDATE temp.vendor_task SET dur_ns = TRY(end_ns - start_ns) WHERE dur_ns IS NULL AND end_ns >= start_ns"
    )
    target.run_sql("UPDATE temp.vendor_task SET name = task_type WHERE name IS NULL")
    _start_matching(target)
    target.run_sql(
        "INSERT INTO temp.vendor_unclear SELECT v.id FROM temp.vendor_task AS v WHERE EXISTS (FROM ("  # noqa: S608
        "SELECT name, bucket, count(*) FILTER (ours) AS tasks, count(*) FILTER (NOT ours) AS records FROM ("
        f"SELECT name, start_ns // {NEAR_NS} AS bucket, true AS ours FROM task WHERE run_id = $run "
        f"UNION ALL SELECT name, start_ns // {NEAR_NS}, false FROM temp.vendor_task) GROUP BY name, bucket) AS many "
        f"WHERE tasks > 0 AND records > 0 AND greatest(tasks, records) > {_MAX_ALIKE} "
        f"AND many.name = v.name AND many.bucket = v.start_ns // {NEAR_NS})"
    )
    around = "CROSS JOIN (VALUES (-1), (0), (1)) AS step(around)"
    near = (
        f"t.start_ns // {NEAR_NS} = v.start_ns // {NEAR_NS} + step.around "
        f"AND abs(TRY(t.start_ns - v.start_ns)) < {NEAR_NS} AND t.name = v.name"
    )
    exact, exact_in_order = _add_matches(target, "", "t.start_ns = v.start_ns AND t.name = v.name")
    close, close_in_order = _add_matches(target, around, near)
    number, number_in_order = _add_matches(
        target, "", "t.start_ns = v.start_ns AND t.source_task_id = v.source_task_id"
    )
    same = "t.start_ns = v.start_ns AND t.name = v.name AND t.dur_ns = v.dur_ns"
    renumbered, renumbered_in_order = _add_matches(target, "", same, _SAME_STREAM)
    number += renumbered
    spanning = _add_spanning(target)
    target.run_sql("DELETE FROM temp.vendor_unclear WHERE vendor_id IN (SELECT vendor_id FROM temp.vendor_match)")
    apart, unclear, records = target.fetch(
        "SELECT coalesce((SELECT max(apart_ns) FROM temp.vendor_match), 0), "
        "(SELECT count(DISTINCT vendor_id) FROM temp.vendor_unclear), (SELECT count(*) FROM temp.vendor_task)"
    )[0]
    in_order = exact_in_order + close_in_order + number_in_order + renumbered_in_order
    unmatched = records - exact - close - number - spanning - unclear
    return Matched(exact, close, number, spanning, in_order, int(apart), int(unclear), int(unmatched))


def _start_matching(target: RunSql) -> None:
    target.run_sql("CREATE OR REPLACE TEMP TABLE vendor_match (vendor_id BIGINT, task_id BIGINT, apart_ns BIGINT)")
    target.run_sql("CREATE OR REPLACE TEMP TABLE vendor_unclear (vendor_id BIGINT)")


def _add_matches(target: RunSql, around: str, condition: str, compatible: str = _COMPATIBLE) -> tuple[int, int]:
    """Match the best free pairs until none is left; return the number of matches and of those in order.

    Pairs are ranked by how many of device, stream and number are equal, then by duration, then by start.
    """
    equal = " + ".join(f"coalesce(t.{name} = v.{name}, false)::INTEGER" for name in _IDENTITY)
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE vendor_pair AS SELECT v.id AS vendor_id, t.id AS task_id, "  # noqa: S608 - ours
        f"abs(TRY(t.start_ns - v.start_ns)) AS apart_ns, {equal} AS equal, "
        "coalesce(abs(t.dur_ns - v.dur_ns) > 1, (t.dur_ns IS NULL) <> (v.dur_ns IS NULL)) AS differs "
        f"FROM temp.vendor_task AS v {around} JOIN task AS t ON {condition} AND {compatible} "
        f"WHERE {_TASK_IS_FREE} AND {_ALONE}"
    )
    found = in_order = 0
    for _ in range(_MAX_ROUNDS):
        target.run_sql(
            "CREATE OR REPLACE TEMP TABLE vendor_best AS SELECT *, "
            "count(*) OVER of_record AS tasks, count(*) OVER of_task AS records, "
            "row_number() OVER (PARTITION BY vendor_id ORDER BY task_id) AS place, "
            "row_number() OVER (PARTITION BY task_id ORDER BY vendor_id) AS turn FROM ("
            "SELECT * FROM temp.vendor_pair QUALIFY "
            "rank() OVER (PARTITION BY vendor_id ORDER BY equal DESC, differs, apart_ns) = 1 "
            "AND rank() OVER (PARTITION BY task_id ORDER BY equal DESC, differs, apart_ns) = 1) "
            "WINDOW of_record AS (PARTITION BY vendor_id), of_task AS (PARTITION BY task_id)"
        )
        target.run_sql("DELETE FROM temp.vendor_best WHERE place <> turn OR (differs AND (tasks > 1 OR records > 1))")
        count, alike = target.fetch(
            "SELECT count(*), count(*) FILTER (tasks > 1 OR records > 1) FROM temp.vendor_best"
        )[0]
        if not count:
            break
        found, in_order = found + count, in_order + alike
        target.run_sql("INSERT INTO temp.vendor_match SELECT vendor_id, task_id, apart_ns FROM temp.vendor_best")
        target.run_sql(
            "DELETE FROM temp.vendor_pair WHERE vendor_id IN (SELECT vendor_id FROM temp.vendor_best) "
            "OR task_id IN (SELECT task_id FROM temp.vendor_best)"
        )
    target.run_sql("INSERT INTO temp.vendor_unclear SELECT DISTINCT vendor_id FROM temp.vendor_pair")
    return found, in_order


def _add_spanning(target: RunSql) -> int:
    """Match records with the first free task of their name, stream and number that is within them."""
    found = 0
    same = "t.name = v.name AND t.stream_id = v.stream_id AND t.source_task_id = v.source_task_id"
    for on, of_record, of_task in (
        (f"{same} AND t.device_id = v.device_id", "true", "true"),
        (same, "v.device_id IS NULL", "true"),
        (same, "true", "t.device_id IS NULL"),
    ):
        found += target.number(
            "INSERT INTO temp.vendor_match SELECT v.id, t.id, NULL "  # noqa: S608 - our own words
            f"FROM (FROM temp.vendor_task AS v WHERE {of_record} AND {_ALONE}) AS v "
            f"ASOF JOIN (FROM task AS t WHERE t.run_id = $run AND {of_task} AND {_TASK_IS_FREE}) AS t "
            f"ON {on} AND t.start_ns >= v.start_ns WHERE t.start_ns + t.dur_ns <= v.start_ns + v.dur_ns "
            "QUALIFY row_number() OVER (PARTITION BY t.id ORDER BY v.start_ns DESC, v.id) = 1"
        )
    return found


def complete_tasks(target: RunSql, file_key: str, metric_group: str | None, *, has_ops: bool) -> int:
    """Complete tasks with their records, and add a task for each other record; return the number of new steps.

    file_key      key in args for cells that have no column
    metric_group  group of the counters
    has_ops       the records describe ops, with type, shapes and so on
    """
    _add_tracks(target)
    target.run_sql(
        "INSERT INTO task (run_id, id, track_id, device_id, stream_id, source_task_id, name, task_type, core_type, "  # noqa: S608
        f"kind, kind_source, start_ns, dur_ns, depth, self_ns) "
        f"SELECT $run, v.id, k.track_id, v.device_id, v.stream_id, v.source_task_id, v.name, v.task_type, "
        f"CASE WHEN kind = 'compute' THEN v.task_type END, kind, "
        "CASE WHEN v.task_type IS NULL THEN 'name' ELSE 'recorded' END, v.start_ns, v.dur_ns, 0, v.dur_ns "
        f"FROM (SELECT *, {_KIND} AS kind FROM temp.vendor_task AS v) AS v JOIN temp.vendor_track AS k "
        "ON k.stream_id IS NOT DISTINCT FROM v.stream_id AND k.device_id IS NOT DISTINCT FROM v.device_id "
        f"AND k.name = {_TRACK} WHERE {_ALONE}"
    )
    target.run_sql(
        f"INSERT INTO temp.vendor_match SELECT v.id, v.id, NULL FROM temp.vendor_task AS v WHERE {_ALONE}"  # noqa: S608
    )
    if has_ops:
        _number_ops(target)
    _fill(target, file_key, has_ops=has_ops)
    steps = _add_steps(target)
    _add_counters(target, metric_group)
    _settle_devices(target)
    target.run_sql(stream_waits("run_id = $run AND track_id IN (SELECT track_id FROM temp.vendor_track)", "track_id"))
    return steps


def attach(target: RunSql, file_key: str) -> tuple[int, int]:
    """Add the args of records to tasks with the same stream, number and name; return how many are paired, and not.

    Tasks of records without a number start at most NEAR_NS apart from them.
    """
    _start_matching(target)
    found = target.number(
        "INSERT INTO temp.vendor_match SELECT v.id, t.id, NULL FROM temp.vendor_task AS v "  # noqa: S608 - our own words
        "JOIN task AS t ON t.name = v.name AND (t.source_task_id = v.source_task_id "
        f"OR v.source_task_id IS NULL AND t.start_ns BETWEEN v.start_ns - {NEAR_NS} AND v.start_ns + {NEAR_NS}) "
        f"AND {_COMPATIBLE} QUALIFY count(*) OVER (PARTITION BY v.id) = 1 AND count(*) OVER (PARTITION BY t.id) = 1"
    )
    _fill(target, file_key, has_ops=False)
    return found, target.number("SELECT count(*) FROM temp.vendor_task") - found


def _add_tracks(target: RunSql) -> None:
    """Fill `vendor_track` with the track of each stream that gets new tasks, and add missing tracks."""
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE vendor_track AS WITH wanted AS ("  # noqa: S608 - our own words
        f"SELECT DISTINCT device_id, stream_id, {_TRACK} AS name FROM (SELECT *, {_KIND} AS kind "
        f"FROM temp.vendor_task AS v) AS v WHERE {_ALONE}) "
        "SELECT w.device_id, w.stream_id, w.name, (SELECT min(k.track_id) FROM track AS k WHERE k.run_id = $run "
        "AND k.kind = 'stream' AND k.stream_id IS NOT DISTINCT FROM w.stream_id "
        "AND (w.stream_id IS NOT NULL OR k.name = w.name) "
        "AND (k.device_id IS NULL OR w.device_id IS NULL OR k.device_id = w.device_id)) AS track_id, "
        "false AS made FROM wanted AS w"
    )
    target.run_sql(
        "UPDATE temp.vendor_track SET made = true, track_id = fresh.track_id FROM ("
        "SELECT device_id, name, (SELECT coalesce(max(track_id), 0) FROM track WHERE run_id = $run) "
        "+ row_number() OVER (ORDER BY device_id, stream_id, name) AS track_id FROM temp.vendor_track "
        "WHERE track_id IS NULL) AS fresh "
        "WHERE vendor_track.device_id IS NOT DISTINCT FROM fresh.device_id AND vendor_track.name = fresh.name"
    )
    target.run_sql(
        "INSERT INTO track (run_id, track_id, kind, device_id, stream_id, name) "
        "SELECT $run, track_id, 'stream', device_id, stream_id, name FROM temp.vendor_track WHERE made"
    )


def _number_ops(target: RunSql) -> None:
    """Number the distinct ops of records, and delete ops without rows.

    Facts that the records lack, such as the type at a low level, come from the timeline's op.
    """
    facts = ", ".join(_OP_FACTS)
    known = ", ".join(f"coalesce(v.{fact}, o.{fact}) AS {fact}" for fact in _OP_FACTS)
    target.run_sql(
        f"CREATE OR REPLACE TEMP TABLE vendor_op AS SELECT id AS vendor_id, (SELECT coalesce(max(op_id), 0) FROM op "  # noqa: S608
        f"WHERE run_id = $run) + dense_rank() OVER (ORDER BY {facts}, op_type_source) AS op_id, {facts}, "
        f"op_type_source FROM (SELECT v.id, {known}, "
        "CASE WHEN v.op_type IS NULL THEN o.op_type_source ELSE 'recorded' END AS op_type_source "
        "FROM temp.vendor_task AS v JOIN temp.vendor_match AS m ON m.vendor_id = v.id "
        "JOIN task AS t ON t.run_id = $run AND t.id = m.task_id "
        "LEFT JOIN op AS o ON o.run_id = $run AND o.op_id = t.op_id "
        f"WHERE t.kind <> 'collective' AND {_KIND} = 'compute')"
    )
    # Reuse ops of earlier files of the recording.
    same = " AND ".join(f"o.{fact} IS NOT DISTINCT FROM v.{fact}" for fact in (*_OP_FACTS, "op_type_source"))
    target.run_sql(
        "UPDATE temp.vendor_op AS v SET op_id = o.op_id FROM op AS o "  # noqa: S608
        f"WHERE o.run_id = $run AND o.fusion_id IS NULL AND {same}"
    )
    target.run_sql(
        f"INSERT INTO op (run_id, op_id, {facts}, op_type_source) SELECT DISTINCT $run, op_id, "  # noqa: S608
        f"{facts}, op_type_source FROM temp.vendor_op AS v "
        "WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.op_id = v.op_id)"
    )
    target.run_sql(
        "UPDATE task SET op_id = v.op_id FROM temp.vendor_match AS m JOIN temp.vendor_op AS v USING (vendor_id) "
        "WHERE task.run_id = $run AND task.id = m.task_id"
    )
    target.run_sql(
        "DELETE FROM op WHERE run_id = $run AND fusion_id IS NULL AND NOT EXISTS ("
        "SELECT 1 FROM task AS t WHERE t.run_id = $run AND t.op_id = op.op_id) AND NOT EXISTS ("
        "SELECT 1 FROM api AS a WHERE a.run_id = $run AND a.op_id = op.op_id) AND NOT EXISTS ("
        "SELECT 1 FROM range AS r WHERE r.run_id = $run AND r.op_id = op.op_id) AND NOT EXISTS ("
        "SELECT 1 FROM memory AS b WHERE b.run_id = $run AND b.op_id = op.op_id)"
    )


def _fill(target: RunSql, file_key: str, *, has_ops: bool) -> None:
    """Fill in values that the timeline lacks; step, and facts about ops, are taken from the records.

    A timeline may use AI_CORE for every core, and its rules recognise kernels by their names.
    """
    core = (
        f"kind = CASE WHEN task.kind = 'collective' OR v.task_type IS NULL THEN task.kind ELSE {_KIND} END, "
        "kind_source = CASE WHEN task.kind = 'collective' OR v.task_type IS NULL THEN task.kind_source "
        "ELSE 'recorded' END, "
        "task_type = coalesce(v.task_type, task.task_type), "
        f"core_type = CASE WHEN task.kind <> 'collective' AND {_KIND} = 'compute' "
        "THEN coalesce(v.task_type, task.core_type) ELSE task.core_type END, "
        if has_ops
        else ""
    )
    filled = ", ".join(f"{name} = coalesce(task.{name}, v.{name})" for name in _FILLED)
    target.run_sql(
        f"UPDATE task SET {core}{filled}, "  # noqa: S608
        "step_id = coalesce(v.step_id, task.step_id), "
        "args = CASE WHEN v.args IS NULL THEN task.args::VARCHAR "
        "WHEN coalesce(task.args::VARCHAR, '{}') = '{}' THEN '{' || to_json($key)::VARCHAR || ':' || v.args || '}' "
        "ELSE left(task.args::VARCHAR, length(task.args::VARCHAR) - 1) || ',' || to_json($key)::VARCHAR || ':' "
        "|| v.args || '}' END "
        "FROM temp.vendor_match AS m JOIN temp.vendor_task AS v ON v.id = m.vendor_id "
        "WHERE task.run_id = $run AND task.id = m.task_id",
        key=file_key,
    )


def _add_steps(target: RunSql) -> int:
    """Add steps that only the records have, from the start of their first task to the end of their last."""
    return target.number(
        "INSERT INTO step (run_id, step_id, device_id, iteration, step_source, start_ns, end_ns) "
        "SELECT $run, v.step_id, t.device_id, v.step_id, 'csv', min(t.start_ns), "
        "max(t.start_ns + coalesce(t.dur_ns, 0)) "
        "FROM temp.vendor_task AS v JOIN temp.vendor_match AS m ON m.vendor_id = v.id "
        "JOIN task AS t ON t.run_id = $run AND t.id = m.task_id "
        "WHERE v.step_id IS NOT NULL AND NOT EXISTS (FROM step AS s WHERE s.run_id = $run "
        "AND s.step_id = v.step_id AND (s.device_id IS NULL OR t.device_id IS NULL OR s.device_id = t.device_id)) "
        "GROUP BY v.step_id, t.device_id"
    )


def _add_counters(target: RunSql, metric_group: str | None) -> None:
    counters = ", ".join(f"v.pmu_{name}" for name in _PMU)
    target.run_sql(
        f"INSERT INTO task_pmu (run_id, id, metric_group, vendor_values, {', '.join(_PMU)}) "  # noqa: S608
        f"SELECT $run, m.task_id, $grp, v.vendor_values, {counters} FROM temp.vendor_match AS m "
        f"JOIN temp.vendor_task AS v ON v.id = m.vendor_id WHERE (coalesce({counters}) IS NOT NULL "
        "OR v.vendor_values IS NOT NULL) "
        "AND NOT EXISTS (FROM task_pmu AS p WHERE p.run_id = $run AND p.id = m.task_id)",
        grp=metric_group,
    )


def _settle_devices(target: RunSql) -> None:
    """Set the device of a track, and of its tasks without one, if its other tasks have a single device."""
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE vendor_device AS SELECT track_id, min(device_id) AS device_id FROM task "
        "WHERE run_id = $run AND device_id IS NOT NULL GROUP BY track_id HAVING count(DISTINCT device_id) = 1"
    )
    _spread_devices(target)


def _spread_devices(target: RunSql) -> None:
    target.run_sql(
        "UPDATE track SET device_id = d.device_id FROM temp.vendor_device AS d "
        "WHERE track.run_id = $run AND track.track_id = d.track_id AND track.device_id IS NULL"
    )
    target.run_sql(
        "UPDATE task SET device_id = d.device_id FROM temp.vendor_device AS d "
        "WHERE task.run_id = $run AND task.track_id = d.track_id AND task.device_id IS NULL"
    )
    target.run_sql(
        "INSERT INTO device (run_id, device_id, kind) SELECT DISTINCT $run, device_id, 'NPU' "
        "FROM temp.vendor_device AS d "
        "WHERE NOT EXISTS (FROM device AS k WHERE k.run_id = $run AND k.device_id = d.device_id)"
    )
