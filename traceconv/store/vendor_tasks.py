"""Tasks from a vendor's CSV: matched with those of the timeline, which they complete; the others become tasks.

All of it is SQL over `vendor_task`, a temporary table with one row a record of the file (`TASK_COLUMNS`). A record and
a task belong together when they begin in the same nanosecond on the same stream and have one name; or, where the
timeline's times are rounded, when they are alike but for less than `NEAR_NS`; or by their number in place of the
name. Each belongs to one other at most: what could belong to several belongs to none.
"""

from __future__ import annotations

from dataclasses import dataclass

from traceconv.schema import table
from traceconv.store.writer import StoreWriter

#: Start times of one task in two files differ by less: microseconds since 1970 as a double are off by 0.25 µs at most.
NEAR_NS = 1000

_OP_FACTS = (
    "model_id",
    "name",
    "op_type",
    "state",
    "input_shapes",
    "input_dtypes",
    "input_formats",
    "output_shapes",
    "output_dtypes",
    "output_formats",
)
_PMU = tuple(column.name for column in table("task_pmu").columns if column.name not in ("run_id", "id", "metric_group"))
_TEXTS = (*(fact for fact in _OP_FACTS if fact != "model_id"), "task_type", "args")
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

_SAME_PLACE = (
    "t.run_id = $run AND t.stream_id IS NOT DISTINCT FROM v.stream_id "
    "AND (t.device_id IS NULL OR v.device_id IS NULL OR t.device_id = v.device_id)"
)
_SAME_NUMBER = "(t.source_task_id IS NULL OR v.source_task_id IS NULL OR t.source_task_id = v.source_task_id)"
_FREE = (
    "NOT EXISTS (FROM temp.vendor_match AS m WHERE m.vendor_id = v.id) "
    "AND NOT EXISTS (FROM temp.vendor_match AS m WHERE m.task_id = t.id)"
)
_ONE_TO_ONE = "QUALIFY count(*) OVER (PARTITION BY v.id) = 1 AND count(*) OVER (PARTITION BY t.id) = 1"

#: What kind of work a task is, by the words of msprof.
_KIND = """CASE
    WHEN regexp_matches(coalesce(v.task_type, ''), '^(HCCL|COMMUNICATION|HCCL_AI_CPU)', 'i')
      OR regexp_matches(coalesce(v.name, ''), '^hcom_', 'i') THEN 'collective'
    WHEN regexp_matches(coalesce(v.task_type, '') || ' ' || coalesce(v.name, ''),
                        '(memcpy|sdma|pcie_dma|reduce_async)', 'i') THEN 'copy'
    WHEN regexp_matches(coalesce(v.task_type, ''), '^(event|notify|profiling|place.holder|model|write|end.graph)', 'i')
      THEN 'sync'
    ELSE 'compute' END"""


@dataclass(frozen=True, slots=True)
class Matched:
    """How the records of a file found their tasks.

    exact      by the same start and name
    near       by a start less than NEAR_NS away
    by_number  by the same start and the number in place of the name
    apart_ns   by how much starts that are near differ at most
    unmatched  records without a task
    """

    exact: int
    near: int
    by_number: int
    apart_ns: int
    unmatched: int


def match_tasks(writer: StoreWriter, run_id: int) -> Matched:
    """Fills `vendor_match` (vendor_id, task_id) from `vendor_task` and the tasks of the run."""
    run: dict[str, object] = {"run": run_id}
    writer.run_sql("UPDATE temp.vendor_task SET dur_ns = end_ns - start_ns WHERE dur_ns IS NULL AND end_ns >= start_ns")
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_match")
    writer.run_sql("CREATE TEMP TABLE vendor_match (vendor_id BIGINT, task_id BIGINT, apart_ns BIGINT)")
    counts = [
        _add_matches(writer, run, f"t.start_ns = v.start_ns AND t.name = v.name AND {_SAME_PLACE} AND {_SAME_NUMBER}"),
        _add_matches(
            writer,
            run,
            f"t.start_ns // {NEAR_NS} = v.start_ns // {NEAR_NS} + step.around "
            f"AND abs(t.start_ns - v.start_ns) < {NEAR_NS} AND t.name = v.name AND {_SAME_PLACE} AND {_SAME_NUMBER}",
        ),
        _add_matches(writer, run, f"t.start_ns = v.start_ns AND t.source_task_id = v.source_task_id AND {_SAME_PLACE}"),
    ]
    apart, unmatched = writer.fetch(
        "SELECT coalesce((SELECT max(apart_ns) FROM temp.vendor_match), 0), "
        "(SELECT count(*) FROM temp.vendor_task) - (SELECT count(*) FROM temp.vendor_match)"
    )[0]
    return Matched(counts[0], counts[1], counts[2], int(apart), int(unmatched))


def _add_matches(writer: StoreWriter, run: dict[str, object], condition: str) -> int:
    before = writer.fetch("SELECT count(*) FROM temp.vendor_match")[0][0]
    around = "CROSS JOIN (VALUES (-1), (0), (1)) AS step(around)" if "step.around" in condition else ""
    writer.run_sql(
        "INSERT INTO temp.vendor_match SELECT v.id, t.id, abs(t.start_ns - v.start_ns) "  # noqa: S608 - our own words
        f"FROM temp.vendor_task AS v {around} JOIN task AS t ON {condition} WHERE {_FREE} {_ONE_TO_ONE}",
        run,
    )
    return int(writer.fetch("SELECT count(*) FROM temp.vendor_match")[0][0]) - int(before)


def complete_tasks(writer: StoreWriter, run_id: int, file_key: str, metric_group: str | None, *, has_ops: bool) -> None:
    """What the records say goes into their tasks, and into new tasks for those that have none.

    file_key      key in args under which cells stand that no column holds
    metric_group  group of the counters
    has_ops       the records are of ops: they say type, shapes and so on
    """
    values: dict[str, object] = {"run": run_id}
    _add_tracks(writer, values)
    writer.run_sql(
        "INSERT INTO task (run_id, id, track_id, device_id, stream_id, source_task_id, name, task_type, core_type, "  # noqa: S608
        f"kind, start_ns, dur_ns, depth, self_ns) "
        f"SELECT $run, v.id, k.track_id, v.device_id, v.stream_id, v.source_task_id, v.name, v.task_type, "
        f"CASE WHEN kind = 'compute' THEN v.task_type END, kind, v.start_ns, v.dur_ns, 0, v.dur_ns "
        f"FROM (SELECT *, {_KIND} AS kind FROM temp.vendor_task AS v) AS v JOIN temp.vendor_track AS k "
        "ON k.stream_id IS NOT DISTINCT FROM v.stream_id AND k.device_id IS NOT DISTINCT FROM v.device_id "
        "WHERE NOT EXISTS (FROM temp.vendor_match AS m WHERE m.vendor_id = v.id)",
        values,
    )
    writer.run_sql(
        "INSERT INTO temp.vendor_match SELECT v.id, v.id, NULL FROM temp.vendor_task AS v "
        "WHERE NOT EXISTS (FROM temp.vendor_match AS m WHERE m.vendor_id = v.id)"
    )
    if has_ops:
        _number_ops(writer, values)
    _fill(writer, {**values, "key": file_key}, has_ops=has_ops)
    _add_counters(writer, {**values, "grp": metric_group})
    _settle_devices(writer, values)
    writer.run_sql(
        "UPDATE task SET wait_ns = found.wait_ns FROM ("
        "SELECT id, CASE WHEN lag(id) OVER before IS NULL THEN 0 "
        "ELSE start_ns - lag(start_ns + dur_ns) OVER before END AS wait_ns "
        "FROM task WHERE run_id = $run AND track_id IN (SELECT track_id FROM temp.vendor_track) "
        "WINDOW before AS (PARTITION BY track_id ORDER BY start_ns, id)"
        ") AS found WHERE task.run_id = $run AND task.id = found.id",
        values,
    )


def attach(writer: StoreWriter, run_id: int, file_key: str) -> tuple[int, int]:
    """Puts the args of records into tasks with the same stream, number and name; (records found, records not)."""
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_match")
    writer.run_sql("CREATE TEMP TABLE vendor_match (vendor_id BIGINT, task_id BIGINT, apart_ns BIGINT)")
    found = _add_matches(
        writer,
        {"run": run_id},
        f"t.name = v.name AND t.source_task_id = v.source_task_id AND {_SAME_PLACE}",
    )
    _fill(writer, {"run": run_id, "key": file_key}, has_ops=False)
    return found, int(writer.fetch("SELECT count(*) FROM temp.vendor_task")[0][0]) - found


def _add_tracks(writer: StoreWriter, values: dict[str, object]) -> None:
    """`vendor_track`: the track of each stream on which there will be new tasks; made where there is none."""
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_track")
    writer.run_sql(
        "CREATE TEMP TABLE vendor_track AS WITH wanted AS ("
        "SELECT DISTINCT device_id, stream_id FROM temp.vendor_task AS v "
        "WHERE NOT EXISTS (FROM temp.vendor_match AS m WHERE m.vendor_id = v.id)) "
        "SELECT w.device_id, w.stream_id, (SELECT min(k.track_id) FROM track AS k WHERE k.run_id = $run "
        "AND k.kind = 'stream' AND k.stream_id = w.stream_id "
        "AND (k.device_id IS NULL OR w.device_id IS NULL OR k.device_id = w.device_id)) AS track_id, "
        "false AS made FROM wanted AS w",
        values,
    )
    writer.run_sql(
        "UPDATE temp.vendor_track SET made = true, track_id = fresh.track_id FROM ("
        "SELECT device_id, stream_id, (SELECT coalesce(max(track_id), 0) FROM track WHERE run_id = $run) "
        "+ row_number() OVER (ORDER BY device_id, stream_id) AS track_id FROM temp.vendor_track WHERE track_id IS NULL"
        ") AS fresh WHERE vendor_track.device_id IS NOT DISTINCT FROM fresh.device_id "
        "AND vendor_track.stream_id IS NOT DISTINCT FROM fresh.stream_id",
        values,
    )
    writer.run_sql(
        "INSERT INTO track (run_id, track_id, kind, device_id, stream_id, name) "
        "SELECT $run, track_id, 'stream', device_id, stream_id, "
        "CASE WHEN stream_id IS NULL THEN 'Communication' ELSE 'Stream ' || stream_id END "
        "FROM temp.vendor_track WHERE made",
        values,
    )


def _number_ops(writer: StoreWriter, values: dict[str, object]) -> None:
    """Ops are told apart by all that the records say of them; those that no row has any more are taken out."""
    facts = ", ".join(_OP_FACTS)
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_op")
    writer.run_sql(
        f"CREATE TEMP TABLE vendor_op AS SELECT id AS vendor_id, (SELECT coalesce(max(op_id), 0) FROM op "  # noqa: S608
        f"WHERE run_id = $run) + dense_rank() OVER (ORDER BY {facts}) AS op_id, {facts} "
        f"FROM (SELECT *, {_KIND} AS work FROM temp.vendor_task AS v) WHERE work = 'compute'",
        values,
    )
    # Ops that an earlier file of the same recording made are the same ops.
    same = " AND ".join(f"o.{fact} IS NOT DISTINCT FROM v.{fact}" for fact in _OP_FACTS)
    writer.run_sql(
        "UPDATE temp.vendor_op AS v SET op_id = o.op_id FROM op AS o "  # noqa: S608
        f"WHERE o.run_id = $run AND o.fusion_id IS NULL AND {same}",
        values,
    )
    writer.run_sql(
        f"INSERT INTO op (run_id, op_id, {facts}) SELECT DISTINCT $run, op_id, {facts} FROM temp.vendor_op AS v "  # noqa: S608
        "WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.op_id = v.op_id)",
        values,
    )
    writer.run_sql(
        "UPDATE task SET op_id = v.op_id FROM temp.vendor_match AS m JOIN temp.vendor_op AS v USING (vendor_id) "
        "WHERE task.run_id = $run AND task.id = m.task_id",
        values,
    )
    writer.run_sql(
        "DELETE FROM op WHERE run_id = $run AND fusion_id IS NULL AND NOT EXISTS ("
        "SELECT 1 FROM task AS t WHERE t.run_id = $run AND t.op_id = op.op_id) AND NOT EXISTS ("
        "SELECT 1 FROM api AS a WHERE a.run_id = $run AND a.op_id = op.op_id) AND NOT EXISTS ("
        "SELECT 1 FROM range AS r WHERE r.run_id = $run AND r.op_id = op.op_id) AND NOT EXISTS ("
        "SELECT 1 FROM memory AS b WHERE b.run_id = $run AND b.op_id = op.op_id)",
        values,
    )


def _fill(writer: StoreWriter, values: dict[str, object], *, has_ops: bool) -> None:
    """The timeline's own values stay, but for the kind of core: its own say AI_CORE for every core."""
    core = (
        "task_type = coalesce(v.task_type, task.task_type), "
        "core_type = CASE WHEN task.kind = 'compute' THEN coalesce(v.task_type, task.core_type) "
        "ELSE task.core_type END, "
        if has_ops
        else ""
    )
    writer.run_sql(
        f"UPDATE task SET {core}"  # noqa: S608
        "device_id = coalesce(task.device_id, v.device_id), "
        "source_task_id = coalesce(task.source_task_id, v.source_task_id), "
        "context_id = coalesce(task.context_id, v.context_id), "
        "block_count = coalesce(task.block_count, v.block_count), "
        "mix_block_count = coalesce(task.mix_block_count, v.mix_block_count), "
        "hf32_eligible = coalesce(task.hf32_eligible, v.hf32_eligible), "
        "step_id = coalesce(task.step_id, (SELECT min(s.step_id) FROM step AS s WHERE s.run_id = $run "
        "AND s.step_id = v.step_id)), "
        "args = CASE WHEN v.args IS NULL THEN task.args::VARCHAR "
        "WHEN coalesce(task.args::VARCHAR, '{}') = '{}' THEN '{' || to_json($key)::VARCHAR || ':' || v.args || '}' "
        "ELSE left(task.args::VARCHAR, length(task.args::VARCHAR) - 1) || ',' || to_json($key)::VARCHAR || ':' "
        "|| v.args || '}' END "
        "FROM temp.vendor_match AS m JOIN temp.vendor_task AS v ON v.id = m.vendor_id "
        "WHERE task.run_id = $run AND task.id = m.task_id",
        values,
    )


def _add_counters(writer: StoreWriter, values: dict[str, object]) -> None:
    counters = ", ".join(f"v.pmu_{name}" for name in _PMU)
    writer.run_sql(
        f"INSERT INTO task_pmu (run_id, id, metric_group, {', '.join(_PMU)}) "  # noqa: S608
        f"SELECT $run, m.task_id, $grp, {counters} FROM temp.vendor_match AS m "
        f"JOIN temp.vendor_task AS v ON v.id = m.vendor_id WHERE coalesce({counters}) IS NOT NULL "
        "AND NOT EXISTS (FROM task_pmu AS p WHERE p.run_id = $run AND p.id = m.task_id)",
        values,
    )


def _settle_devices(writer: StoreWriter, values: dict[str, object]) -> None:
    """A stream is of one device: where tasks of a track say which, the track and its other tasks are of it too."""
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_device")
    writer.run_sql(
        "CREATE TEMP TABLE vendor_device AS SELECT track_id, min(device_id) AS device_id FROM task "
        "WHERE run_id = $run AND device_id IS NOT NULL GROUP BY track_id HAVING count(DISTINCT device_id) = 1",
        values,
    )
    writer.run_sql(
        "UPDATE track SET device_id = d.device_id FROM temp.vendor_device AS d "
        "WHERE track.run_id = $run AND track.track_id = d.track_id AND track.device_id IS NULL",
        values,
    )
    writer.run_sql(
        "UPDATE task SET device_id = d.device_id FROM temp.vendor_device AS d "
        "WHERE task.run_id = $run AND task.track_id = d.track_id AND task.device_id IS NULL",
        values,
    )
    writer.run_sql(
        "INSERT INTO device (run_id, device_id, kind) SELECT DISTINCT $run, device_id, 'NPU' "
        "FROM temp.vendor_device AS d "
        "WHERE NOT EXISTS (FROM device AS k WHERE k.run_id = $run AND k.device_id = d.device_id)",
        values,
    )
