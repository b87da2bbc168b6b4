"""Steps, fusions and memory blocks from a vendor's CSV files: SQL (`table_sql.sql`) over temporary tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from traceconv.normalize.rows import rows_from_tuples
from traceconv.normalize.trace.steps import NO_STEP, SPAN, StepsOverTime, none_as_no_step
from traceconv.pipeline.run_sql import RunSql
from traceconv.store.sections import section

STEP_COLUMNS = dict.fromkeys(
    ("id", "device_id", "model_id", "iteration", "start_ns", "fp_start_ns", "bp_end_ns", "end_ns", "iteration_time_ns"),
    "BIGINT",
)
FUSION_COLUMNS = {
    **dict.fromkeys(("id", "device_id", "model_id"), "BIGINT"),
    **dict.fromkeys(("input_bytes", "output_bytes", "weight_bytes", "workspace_bytes"), "BIGINT"),
    **dict.fromkeys(("model_name", "name", "originals"), "VARCHAR"),
}
MEMORY_COLUMNS = {
    **dict.fromkeys(
        ("id", "device_id", "size_bytes", "alloc_ns", "free_ns", "total_bytes", "reserved_bytes"), "BIGINT"
    ),
    **dict.fromkeys(("name", "pool"), "VARCHAR"),
}


def add_steps(target: RunSql) -> tuple[int, int]:
    """Store the steps of `vendor_step`; return the number of completed steps of the timeline and of new steps.

    Tasks that start within a new step on its device belong to it.
    """
    _run(target, "times_of_steps", "devices_of_steps", "same_steps", "complete_steps", "new_steps")
    added = target.number(section(__name__, "add_steps"))
    _run(target, "steps_of_tasks")
    return target.number("SELECT count(*) FROM temp.vendor_same_step"), added


def add_fusions(target: RunSql) -> None:
    """Store the fusions of `vendor_fusion`. The fused op is the one with that name and model, or a new one.

    A fusion that is listed for several devices is stored once.
    """
    _run(target, "fused", "number_fused", "add_fused", "complete_fused", "add_fusions")


def add_memory(target: RunSql) -> None:
    """Store the blocks of `vendor_memory`, with an op for each operator that requested one.

    The allocator's totals after each allocation are kept for `add_held_memory`.
    """
    _run(target, "add_ops", "add_memory", "held_table", "note_held", "add_devices")


def add_held_memory(target: RunSql, coarse_bytes: int) -> None:
    """Store blocks for memory that pools hold in addition to the listed blocks, and segments for what they reserve.

    Both follow from the totals recorded with each allocation. A block without times is held during the complete
    recording; unlisted changes happen at the first total that shows them.

    coarse_bytes  smaller differences of totals are rounding errors
    """
    if not target.fetch("SELECT 1 FROM duckdb_tables() WHERE table_name = 'vendor_held' AND temporary"):
        return
    # Both before any block is stored, since new blocks would count as listed ones.
    levels: dict[tuple[str, int | None, str | None], list[tuple[int, int]]] = {}
    for column, kind in (("rest", "block"), ("reserved", "segment")):
        for device_id, pool, ns, held in target.fetch(section(__name__, "held", column=column)):
            levels.setdefault((kind, device_id, pool), []).append((ns, held))
    rows = [
        (device_id, pool, kind, size, alloc_ns, free_ns)
        for (kind, device_id, pool), found in levels.items()
        for size, alloc_ns, free_ns in _parts(found, coarse_bytes)
    ]
    first = target.number("SELECT coalesce(max(block_id), 0) + 1 FROM memory WHERE run_id = $run")
    names = ("block_id", "device_id", "pool", "kind", "size_bytes", "alloc_ns", "free_ns")
    batch = rows_from_tuples("memory", names, [(first + at, *row) for at, row in enumerate(rows)])
    target.writer.insert("memory", target.run_id, iter([batch]))
    target.run_sql("DROP TABLE temp.vendor_held")


def _parts(levels: Iterable[tuple[int, int]], coarse_bytes: int) -> list[tuple[int, int | None, int | None]]:
    """Return (size, start, end) of parts that add up to these levels over time; the newest part ends first."""
    open_parts: list[tuple[int, int | None]] = []
    done: list[tuple[int, int | None, int | None]] = []
    now: int | None = None
    for ns, held in levels:
        level = max(held, 0)
        if now is not None and abs(level - now) < coarse_bytes:
            continue
        if now is None or level > now:
            open_parts.append((level - (now or 0), None if now is None else ns))
        else:
            less = now - level
            while less:
                size, start = open_parts.pop()
                taken = min(size, less)
                done.append((taken, start, ns))
                less -= taken
                if taken < size:
                    open_parts.append((size - taken, start))
        now = level
    return [part for part in (*done, *((size, start, None) for size, start in open_parts)) if part[0]]


def add_devices(target: RunSql) -> None:
    """Store devices that only blocks, steps or tracks name."""
    _run(target, "add_devices")


def settle_one_device(target: RunSql) -> None:
    """If a recording names a single device, set it for all tasks, streams and steps."""
    found = target.fetch("SELECT device_id FROM device WHERE run_id = $run LIMIT 2")
    if len(found) != 1:
        return
    for table, condition in (("task", "true"), ("step", "true"), ("track", "kind = 'stream'")):
        sql = section(__name__, "set_device", table=table, condition=condition)
        target.run_sql(sql, device=found[0][0])


def settle_device_steps(target: RunSql) -> None:
    """Set the step of tasks without one from the steps of their device that the vendor's slices mark.

    In a timeline of several devices, the collectives of a device are in another process than its steps.
    """
    _run(target, "devices_of_steps")
    steps: dict[int, list[tuple[int, ...]]] = {}
    for device_id, step_id, model_id, low_ns, high_ns in target.fetch(section(__name__, "marked_steps")):
        steps.setdefault(device_id, []).append((step_id, low_ns, high_ns, device_id, none_as_no_step(model_id)))
    current = ((device_id, StepsOverTime(np.array(spans, SPAN))) for device_id, spans in steps.items())
    batches = (
        pa.record_batch(
            {
                "device_id": np.full(len(over_time.from_ns), device_id),
                "from_ns": over_time.from_ns,
                "step_id": over_time.step_ids,
            }
        )
        for device_id, over_time in current
    )
    target.writer.stage("vendor_current_step", batches, dict.fromkeys(("device_id", "from_ns", "step_id"), "BIGINT"))
    target.run_sql(section(__name__, "marked_steps_of_tasks"), none=NO_STEP)


def _run(target: RunSql, *names: str) -> None:
    """Execute sections of the SQL."""
    for name in names:
        target.run_sql(section(__name__, name))
