"""Store a static profile: the ops of a model, and tasks with a duration but no start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from traceconv._version import __version__
from traceconv.events.npu import ORDINAL_BITS
from traceconv.normalize.rows import rows_from_tuples
from traceconv.reports.statements import report_statements
from traceconv.runtime.static_profile import StaticProfile
from traceconv.schema.model import SCHEMA_VERSION
from traceconv.store.writer import StoreWriter

_MODEL_ID = 1
_SOURCE_ID = 1
#: All tasks have one track: without start times, nothing is known of how streams overlap.
_TRACK_ID, _TRACK = 1, "Estimated ops, one after another"
#: The `run.source_format` of such a run.
STATIC_FORMAT = "static"


def store_static_profile(profile: StaticProfile, store: Path, *, batch: int | None = None) -> int:
    """Add a profile to a store, which is created if it does not exist; return the number of the new run.

    Raises StoreError if the store can't be written.
    """
    with StoreWriter(store, report_statements) as writer:
        run_id = writer.next_run_id()
        for table, batch_of_rows in _tables(profile, batch):
            writer.insert(table, run_id, iter([batch_of_rows]))
        writer.commit()
    return run_id


def measured_memory(connection: duckdb.DuckDBPyConnection, run_id: int) -> dict[int, tuple[int, int | None]]:
    """Return the peak bytes (used, reserved) of each device of a run; empty if its memory was not logged."""
    rows = connection.execute(
        "SELECT device_id, peak_used_bytes, peak_reserved_bytes FROM memory_peak(run := ?) "
        "WHERE level = 'device' AND device_id IS NOT NULL ORDER BY device_id",
        [run_id],
    ).fetchall()
    return {device_id: (used, reserved) for device_id, used, reserved in rows}


def _tables(profile: StaticProfile, batch: int | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    spec = profile.device
    run = {
        "label": f"static {profile.model_name}",
        "source_path": profile.model_name,
        "source_format": STATIC_FORMAT,
        "writer": f"traceconv {__version__}",
        "model_name": profile.model_name,
        "epoch_known": False,
        "complete": True,
        "options": json.dumps({"batch": batch}),
        "schema_version": SCHEMA_VERSION,
    }
    yield "run", rows_from_tuples("run", tuple(run), [tuple(run.values())])
    device = {
        "device_id": 0,
        "kind": spec.kind,
        "name": spec.name,
        "peak_flops": spec.peak_flops,
        "peak_bytes_per_s": spec.hbm_bytes_per_s,
        "memory_bytes": spec.memory_bytes,
        "clock_hz": spec.clock_hz,
        "core_clock_hz": spec.core_clock_hz,
        "ai_core_count": spec.cube_cores,
        "ai_vector_core_count": spec.vector_cores,
        "ai_cpu_count": spec.cpu_cores,
    }
    yield "device", rows_from_tuples("device", tuple(device), [tuple(device.values())])
    names: tuple[str, ...] = ("track_id", "kind", "device_id", "name", "sort_index")
    yield "track", rows_from_tuples("track", names, [(_TRACK_ID, "stream", 0, _TRACK, 0)])
    yield "op", _ops(profile)
    yield "task", _tasks(profile)
    names = ("fusion_id", "op_id", "original_index", "original_name", "original_type")
    yield "fusion", rows_from_tuples("fusion", names, profile.fusions)


def _ops(profile: StaticProfile) -> pa.RecordBatch:
    names = ["op_id", "model_id", "model_name", "op_type_source", "name", "op_type", "state", "scope_path", "fusion_id"]
    names += ["executions_per_task", "flops", "input_bytes", "output_bytes", "weight_bytes", "workspace_bytes"]
    names += [f"{side}_{what}" for side in ("input", "output") for what in ("shapes", "dtypes", "formats")]
    rows = [
        (op.index, _MODEL_ID, profile.model_name, "recorded", op.name, op.op_type, op.state, op.scope_path,
         op.fusion_id, op.repeats if op.repeats > 1 else None, op.flops, op.input_bytes, op.output_bytes,
         op.weight_bytes, op.cost.workspace_bytes,
         *op.describe_operands(), *op.describe_results())
        for op in (estimate.op for estimate in profile.ops)
    ]  # fmt: skip
    return rows_from_tuples("op", tuple(names), rows)


def _tasks(profile: StaticProfile) -> pa.RecordBatch:
    rows = [
        {
            "id": (_SOURCE_ID << ORDINAL_BITS) + op.index,
            "track_id": _TRACK_ID,
            "device_id": 0,
            "stream_id": estimate.stream_id,
            "op_id": op.index,
            "name": op.name,
            "task_type": op.core,
            "core_type": op.core,
            "kind": "compute",
            "kind_source": "recorded",
            "dur_ns": estimate.dur_ns,
            "depth": 0,
            "self_ns": estimate.dur_ns,
            "block_count": op.cost.block_count,
            "mix_block_count": op.cost.mix_block_count,
            "hf32_eligible": op.hf32_eligible,
        }
        for estimate in profile.ops
        for op in [estimate.op]
    ]
    return rows_from_tuples("task", tuple(rows[0]) if rows else ("id",), [tuple(row.values()) for row in rows])
