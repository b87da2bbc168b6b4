"""Rows from a vendor's CSV that are no tasks: steps, fusions, blocks of memory, counters. SQL over temporary tables."""

from __future__ import annotations

from traceconv.store.writer import StoreWriter

STEP_COLUMNS = dict.fromkeys(
    ("id", "device_id", "model_id", "iteration", "fp_start_ns", "bp_end_ns", "end_ns"), "BIGINT"
)
FUSION_COLUMNS = {
    **dict.fromkeys(("id", "device_id", "model_id"), "BIGINT"),
    **dict.fromkeys(("input_bytes", "output_bytes", "weight_bytes", "workspace_bytes"), "BIGINT"),
    **dict.fromkeys(("model_name", "name", "originals"), "VARCHAR"),
}
MEMORY_COLUMNS = {
    **dict.fromkeys(("id", "device_id", "size_bytes", "alloc_ns", "free_ns"), "BIGINT"),
    "name": "VARCHAR",
}


def add_steps(writer: StoreWriter, run_id: int) -> tuple[int, int]:
    """Steps of `vendor_step`: (those that the timeline has too and that are completed, those that are new).

    Tasks that lie inside of a new step on its device belong to it.
    """
    values = {"run": run_id}
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_same_step")
    writer.run_sql(
        "CREATE TEMP TABLE vendor_same_step AS SELECT v.id, s.step_id, s.device_id FROM temp.vendor_step AS v "
        "JOIN step AS s ON s.run_id = $run AND s.iteration = v.iteration "
        "AND (s.device_id IS NULL OR v.device_id IS NULL OR s.device_id = v.device_id) "
        "AND (s.model_id IS NULL OR v.model_id IS NULL OR s.model_id = v.model_id) "
        "QUALIFY row_number() OVER (PARTITION BY v.id ORDER BY s.device_id, s.step_id) = 1 "
        "AND row_number() OVER (PARTITION BY s.step_id, s.device_id ORDER BY v.id) = 1",
        values,
    )
    writer.run_sql(
        "UPDATE step SET model_id = coalesce(step.model_id, v.model_id), "
        "device_id = coalesce(step.device_id, v.device_id), "
        "fp_start_ns = coalesce(step.fp_start_ns, v.fp_start_ns), "
        "bp_end_ns = coalesce(step.bp_end_ns, v.bp_end_ns), end_ns = coalesce(step.end_ns, v.end_ns) "
        "FROM temp.vendor_same_step AS m JOIN temp.vendor_step AS v USING (id) "
        "WHERE step.run_id = $run AND step.step_id = m.step_id AND step.device_id IS NOT DISTINCT FROM m.device_id",
        values,
    )
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_new_step")
    writer.run_sql(
        "CREATE TEMP TABLE vendor_new_step AS SELECT (SELECT coalesce(max(step_id), 0) FROM step WHERE run_id = $run) "
        "+ row_number() OVER (ORDER BY coalesce(fp_start_ns, end_ns), id) AS step_id, device_id, model_id, iteration, "
        "fp_start_ns, bp_end_ns, end_ns FROM temp.vendor_step AS v "
        "WHERE NOT EXISTS (FROM temp.vendor_same_step AS m WHERE m.id = v.id)",
        values,
    )
    writer.run_sql(
        "INSERT INTO step (run_id, step_id, device_id, model_id, iteration, fp_start_ns, bp_end_ns, end_ns) "
        "SELECT $run, * FROM temp.vendor_new_step",
        values,
    )
    writer.run_sql(
        "UPDATE task SET step_id = s.step_id FROM temp.vendor_new_step AS s WHERE task.run_id = $run "
        "AND task.step_id IS NULL AND task.start_ns >= s.fp_start_ns AND task.start_ns < s.end_ns "
        "AND (task.device_id IS NULL OR s.device_id IS NULL OR task.device_id = s.device_id)",
        values,
    )
    same, fresh = writer.fetch(
        "SELECT (SELECT count(*) FROM temp.vendor_same_step), (SELECT count(*) FROM temp.vendor_new_step)"
    )[0]
    return int(same), int(fresh)


def add_fusions(writer: StoreWriter, run_id: int) -> None:
    """Fusions of `vendor_fusion`: the op of that name and model is the fused one; made where there is none."""
    values = {"run": run_id}
    writer.run_sql("DROP TABLE IF EXISTS temp.vendor_fused")
    writer.run_sql(
        "CREATE TEMP TABLE vendor_fused AS SELECT v.*, row_number() OVER (ORDER BY v.id) "
        "+ (SELECT coalesce(max(fusion_id), 0) FROM fusion WHERE run_id = $run) AS fusion_id, o.op_id "
        "FROM temp.vendor_fusion AS v LEFT JOIN op AS o ON o.run_id = $run AND o.name = v.name "
        "AND o.fusion_id IS NULL AND (o.model_id IS NULL OR v.model_id IS NULL OR o.model_id = v.model_id) "
        "QUALIFY row_number() OVER (PARTITION BY v.id ORDER BY o.op_id) = 1",
        values,
    )
    writer.run_sql(
        "UPDATE temp.vendor_fused SET op_id = fresh.op_id FROM (SELECT id, row_number() OVER (ORDER BY id) "
        "+ (SELECT coalesce(max(op_id), 0) FROM op WHERE run_id = $run) AS op_id FROM temp.vendor_fused "
        "WHERE op_id IS NULL) AS fresh WHERE vendor_fused.id = fresh.id",
        values,
    )
    writer.run_sql(
        "INSERT INTO op (run_id, op_id, model_id, name) SELECT $run, op_id, model_id, name FROM temp.vendor_fused AS f "
        "WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.op_id = f.op_id)",
        values,
    )
    writer.run_sql(
        "UPDATE op SET fusion_id = f.fusion_id, model_name = coalesce(op.model_name, f.model_name), "
        "input_bytes = f.input_bytes, output_bytes = f.output_bytes, weight_bytes = f.weight_bytes, "
        "workspace_bytes = f.workspace_bytes FROM temp.vendor_fused AS f "
        "WHERE op.run_id = $run AND op.op_id = f.op_id",
        values,
    )
    writer.run_sql(
        "INSERT INTO fusion (run_id, fusion_id, op_id, original_index, original_name) "
        "SELECT $run, fusion_id, op_id, place - 1, trim(originals[place]) FROM ("
        "SELECT fusion_id, op_id, originals, unnest(range(1, len(originals) + 1)) AS place FROM ("
        "SELECT fusion_id, op_id, string_split(originals, ';') AS originals FROM temp.vendor_fused)) "
        "WHERE trim(originals[place]) <> ''",
        values,
    )


def add_memory(writer: StoreWriter, run_id: int) -> None:
    """Blocks of `vendor_memory`; the operator that asked for one is an op of its own, by its name."""
    values = {"run": run_id}
    writer.run_sql(
        "INSERT INTO op (run_id, op_id, name, op_type) SELECT $run, (SELECT coalesce(max(op_id), 0) FROM op "
        "WHERE run_id = $run) + row_number() OVER (ORDER BY name), name, name FROM ("
        "SELECT DISTINCT name FROM temp.vendor_memory WHERE name IS NOT NULL) AS v "
        "WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.name = v.name AND o.op_type = v.name)",
        values,
    )
    writer.run_sql(
        "INSERT INTO memory (run_id, block_id, device_id, kind, size_bytes, alloc_ns, free_ns, op_id) "
        "SELECT $run, (SELECT coalesce(max(block_id), 0) FROM memory WHERE run_id = $run) "
        "+ row_number() OVER (ORDER BY v.id), v.device_id, 'block', v.size_bytes, v.alloc_ns, v.free_ns, "
        "(SELECT min(o.op_id) FROM op AS o WHERE o.run_id = $run AND o.name = v.name AND o.op_type = v.name) "
        "FROM temp.vendor_memory AS v",
        values,
    )
    add_devices(writer, run_id)


def add_devices(writer: StoreWriter, run_id: int) -> None:
    """Devices that blocks or steps name and the timeline does not."""
    writer.run_sql(
        "INSERT INTO device (run_id, device_id, kind) SELECT DISTINCT $run, device_id, 'NPU' FROM ("
        "SELECT device_id FROM memory WHERE run_id = $run UNION SELECT device_id FROM step WHERE run_id = $run "
        "UNION SELECT device_id FROM track WHERE run_id = $run) AS d WHERE device_id IS NOT NULL "
        "AND NOT EXISTS (FROM device AS k WHERE k.run_id = $run AND k.device_id = d.device_id)",
        {"run": run_id},
    )


def settle_one_device(writer: StoreWriter, run_id: int) -> None:
    """Where the files of a recording name one device and no other, its tasks, streams and steps are of that one."""
    values = {"run": run_id}
    found = writer.fetch("SELECT device_id FROM device WHERE run_id = $run LIMIT 2", values)
    if len(found) != 1:
        return
    values["device"] = found[0][0]
    writer.run_sql("UPDATE task SET device_id = $device WHERE run_id = $run AND device_id IS NULL", values)
    writer.run_sql("UPDATE step SET device_id = $device WHERE run_id = $run AND device_id IS NULL", values)
    writer.run_sql(
        "UPDATE track SET device_id = $device WHERE run_id = $run AND device_id IS NULL AND kind = 'stream'", values
    )
