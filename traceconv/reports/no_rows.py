"""Why a report has no rows, and what to record for it to have some."""

from __future__ import annotations

import json

import duckdb

from traceconv.reports.question import Question
from traceconv.reports.run_choice import NO_RUNS
from traceconv.schema.ddl import quote_identifier

#: When traces of other programs have rows in a table.
IN_TRACES = {
    "task": "Traces have tasks if devices were recorded, in PyTorch with ProfilerActivity.CUDA.",
    "collective": "Traces have collectives if devices were recorded, in PyTorch with ProfilerActivity.CUDA, or if Gloo "
    "was used.",
    "api": "Traces have API calls if a runtime was recorded, in PyTorch with ProfilerActivity.CUDA.",
    "step": "PyTorch traces have steps if the profiler had a schedule and prof.step() was called, JAX traces those "
    "in jax.profiler.StepTraceAnnotation.",
    "memory": "PyTorch and Paddle traces have memory if recorded with profile_memory=True.",
    "fusion": "Apart from the reference NPU, only msprof records fusions, in a CSV file of its folder.",
}
#: Tables that a trace may have instead of those that a report needs.
_MAY_HAVE = ("task", "api", "range", "memory", "counter", "marker")
#: Reports that have no rows for tasks without a start.
_OF_STARTS = ("breakdown", "idle_causes", "idle_gaps", "launch_queue", "stream_utilisation")
#: Table or report → the resources of a profile that fill it; one is enough.
_RESOURCES = {
    "task": ("npu",), "collective": ("npu",), "step": ("npu",), "memory": ("memory",), "api": ("host",),
    "range": ("inferences", "operators", "host"), "inference": ("inferences",), "inference_latency": ("inferences",),
    "latency_by_label": ("inferences",),
    "npu_execution": ("inferences",), "external_operator": ("operators",),
}  # fmt: skip


def why_empty(connection: duckdb.DuckDBPyConnection, question: Question) -> str:
    """Explain why there are no rows, and what to record."""
    name = question.report.name.replace("_", "-")
    if not connection.execute("SELECT 1 FROM run LIMIT 1").fetchall():
        return f"{name}: {NO_RUNS}"
    run = question.parameters.get("run")
    run_id = None if run is None else int(run)
    of = "the store" if run_id is None else f"run {run_id}"
    for table in question.report.needs:
        if not _has_rows(connection, table, run_id):
            if question.report.when_single and _is_of_single_operators(connection, run_id):
                return f"{name}: {of} has no rows in {table}. {question.report.when_single}"
            if excluded := _excluded(connection, run_id, table):
                return f"{name}: {of} has no rows in {table}. {excluded}"
            has = _trace_has(connection, run_id)
            if has == "":
                return f"{name}: {of} has no rows in any table: its file contains only metadata, or nothing"
            reason = question.report.when_empty if has is None else " ".join(filter(None, (IN_TRACES.get(table), has)))
            return f"{name}: {of} has no rows in {table}. {reason}"
    if question.filters or set(question.parameters) - {"run"} or len(question.runs) > 1:
        return (
            f"{name}: no row of {of} matches the filters{_devices(connection, question)}{_steps(connection, question)}"
        )
    why = _excluded(connection, run_id, question.report.name) or question.report.when_empty
    if question.report.name in _OF_STARTS and not _has_starts(connection, run_id):
        why = "Its tasks have durations, but no start times."
    return f"{name}: no rows for {of}. {why}"


def _has_starts(connection: duckdb.DuckDBPyConnection, run_id: int | None) -> bool:
    sql = "SELECT 1 FROM task WHERE (?1 IS NULL OR run_id = ?1) AND start_ns IS NOT NULL LIMIT 1"
    return bool(connection.execute(sql, [run_id]).fetchall())


def _devices(connection: duckdb.DuckDBPyConnection, question: Question) -> str:
    """The devices that a question could select, if it selects one."""
    if question.parameters.get("device") is None:
        return ""
    sql = "SELECT DISTINCT device_id FROM device WHERE $run IS NULL OR run_id = $run ORDER BY device_id LIMIT 20"
    found = connection.execute(sql, {"run": question.parameters.get("run")}).fetchall()
    return f". Devices: {', '.join(str(device) for (device,) in found) or 'none'}"


def _steps(connection: duckdb.DuckDBPyConnection, question: Question) -> str:
    """The steps that a question could select, if it selects some."""
    if not {"step", "first_step", "last_step"} & set(question.parameters):
        return ""
    sql = "SELECT min(step_id), max(step_id) FROM step WHERE $run IS NULL OR run_id = $run"
    ((first, last),) = connection.execute(sql, {"run": question.parameters.get("run")}).fetchall()
    return ". Steps: " + ("none" if first is None else f"{first}" if first == last else f"{first} to {last}")


def _excluded(connection: duckdb.DuckDBPyConnection, run_id: int | None, table: str) -> str | None:
    """Explain which option kept rows of a table or report out of the latest recording of the reference NPU."""
    sql = "SELECT options FROM run WHERE source_format = 'npulog' AND (?1 IS NULL OR run_id = ?1) ORDER BY run_id DESC"
    row = connection.execute(f"{sql} LIMIT 1", [run_id]).fetchone()
    try:
        options = json.loads(row[0]) if row else None
    except (TypeError, ValueError):
        return None
    if not isinstance(options, dict):
        return None
    switch = {"task": "task_trace", "collective": "task_trace", "step": "training_trace"}.get(table)
    if switch is not None and options.get(switch) is False:
        return f"The recording had {switch} off: record with {switch} on."
    needed, had = _RESOURCES.get(table), options.get("resources")
    if needed and isinstance(had, list) and not set(needed) & set(had):
        if options.get("level") == 1 and "npu" not in needed:
            return f"The recording was of level 1, without them: record at level 2, or add {needed[0]} to resource."
        off = " and don't turn profile_device off" if "npu" in needed else ""
        return f"The recording excluded the resource {needed[0]}: add it to resource{off}."
    if options.get("level") is not None and "iterations" not in options:
        return "Nothing of this kind happened in the profile."
    return None


def _trace_has(connection: duckdb.DuckDBPyConnection, run_id: int | None) -> str | None:
    """For traces of other programs, list the tables with rows, "" if none; None for recordings of the reference NPU."""
    ours = "SELECT 1 FROM run WHERE source_format = 'npulog' AND (?1 IS NULL OR run_id = ?1) LIMIT 1"
    if connection.execute(ours, [run_id]).fetchall():
        return None
    having = [table for table in _MAY_HAVE if _has_rows(connection, table, run_id)]
    if not having:
        return ""
    return f"There are rows in {', '.join(having)}. To classify events differently: traceconv ingest --rules FILE"


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str, run_id: int | None) -> bool:
    sql = f"SELECT 1 FROM {quote_identifier(table)} WHERE ?1 IS NULL OR run_id = ?1 LIMIT 1"  # noqa: S608 - our tables
    return bool(connection.execute(sql, [run_id]).fetchall())


def _is_of_single_operators(connection: duckdb.DuckDBPyConnection, run_id: int | None) -> bool:
    """Whether every model that the NPU ran, in one run or in all, is a single operator."""
    rows = connection.execute(
        """SELECT count(*) FROM op JOIN run USING (run_id)
        WHERE run.source_format = 'npulog' AND op.model_id IS NOT NULL AND (?1 IS NULL OR run_id = ?1)
        GROUP BY run_id, op.model_id""",
        [run_id],
    ).fetchall()
    return bool(rows) and all(count == 1 for (count,) in rows)
