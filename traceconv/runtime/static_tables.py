"""The tables of a static profile: columns and rows, as `traceconv model` and `traceconv.get_profile` give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from traceconv.runtime.static_profile import OpEstimate, StaticProfile, by_core

Row: TypeAlias = "Sequence[object]"

PEAK_USED, PEAK_RESERVED = "peak used by the allocator", "peak reserved by the allocator"
#: Name, type, unit and description of each column.
_OPS = (
    ("op_id", "BIGINT", "id", "ID of the op, in launch order."),
    ("op_name", "VARCHAR", "text", "Name of the op."),
    ("op_type", "VARCHAR", "text", "Type of the op."),
    ("core_type", "VARCHAR", "text", "Type of core that executes it."),
    ("count", "BIGINT", "count", "Executions in a run; assumed for ops in bodies of If, Loop and Scan."),
    ("dur_ns", "BIGINT", "ns", "Duration of all executions alone on the device, by the cost model."),
    ("flops", "BIGINT", "flop", "Floating-point operations, 2 per multiply-accumulate."),
    ("flops_per_s", "BIGINT", "flop/s", "flops / dur_ns, rounded down."),
    ("memory_bytes", "BIGINT", "byte", "Inputs, weights, outputs and workspace."),
    ("bytes_per_s", "BIGINT", "byte/s", "memory_bytes / dur_ns, rounded down."),
    ("arithmetic_intensity", "DOUBLE", "flop/byte", "flops per byte of inputs, weights and outputs."),
    ("param_count", "BIGINT", "count", "Number of weight elements."),
    ("weight_bytes", "BIGINT", "byte", "Size of the weights."),
    ("input_bytes", "BIGINT", "byte", "Size of the inputs without weights."),
    ("activation_bytes", "BIGINT", "byte", "Size of the outputs."),
    ("workspace_bytes", "BIGINT", "byte", "Scratch memory during execution."),
    ("block_count", "BIGINT", "count", "Number of cores that it is split over."),
    ("stream_id", "BIGINT", "id", "Stream that it is launched on."),
    ("state", "VARCHAR", "text", "static or dynamic: whether its shapes are known without inputs."),
    ("scope_path", "VARCHAR", "text", "Module that contains it."),
    ("input_shapes", "VARCHAR", "text", "Shapes of all inputs, including weights."),
    ("input_dtypes", "VARCHAR", "text", "Data types of all inputs."),
    ("output_shapes", "VARCHAR", "text", "Shapes of the outputs."),
    ("output_dtypes", "VARCHAR", "text", "Data types of the outputs."),
)
_CORES = (
    ("core_type", "VARCHAR", "text", "Type of core."),
    ("op_count", "BIGINT", "count", "Number of ops that it executes."),
    ("dur_ns", "BIGINT", "ns", "Sum of their durations."),
    ("share_percent", "DOUBLE", "percent", "100 dur_ns / duration of all ops."),
    ("flops", "BIGINT", "flop", "Floating-point operations of these ops."),
)
_MEMORY = (
    ("what", "VARCHAR", "text", "Kind of memory."),
    ("estimated_bytes", "BIGINT", "byte", "Estimate for a run."),
    ("measured_bytes", "BIGINT", "byte", "Value of the recorded run; NULL without --run or if not recorded."),
    ("difference_bytes", "BIGINT", "byte", "measured − estimated."),
)
COLUMNS = {"ops": _OPS, "cores": _CORES, "memory": _MEMORY}


def rows_of(profile: StaticProfile, table: str, measured: Mapping[str, int | None] | None = None) -> list[Row]:
    """Return the rows of a table. `measured`: for memory, peaks of a recorded run by `what`."""
    if table == "cores":
        total = profile.total_ns
        return [
            (core, count, dur_ns, 100 * dur_ns / total if total else None, flops)
            for core, (count, dur_ns, flops) in by_core(profile.ops).items()
        ]
    if table == "memory":
        memory, known = profile.memory, measured or {}
        peaks = {
            "weights": memory.weight_bytes,
            "peak of tensors and workspace": memory.peak_tensor_bytes,
            PEAK_USED: memory.peak_used_bytes,
            PEAK_RESERVED: memory.peak_reserved_bytes,
        }
        found = [(what, estimated, known.get(what)) for what, estimated in peaks.items()]
        return [(*row, None if row[2] is None else row[2] - row[1]) for row in found]
    return [_op_row(estimate) for estimate in profile.ops]


def _op_row(estimate: OpEstimate) -> Row:
    op = estimate.op
    return (
        op.index, op.name, op.op_type, op.core, op.repeats, estimate.dur_ns, op.flops, estimate.flops_per_s,
        estimate.memory_bytes, estimate.bytes_per_s, estimate.arithmetic_intensity, op.param_count, op.weight_bytes,
        op.input_bytes, op.output_bytes, op.cost.workspace_bytes, op.cost.block_count, estimate.stream_id, op.state,
        op.scope_path, *op.describe_operands()[:2], *op.describe_results()[:2],
    )  # fmt: skip


def as_dict(profile: StaticProfile) -> dict[str, object]:
    """Return a profile as values that `json.dump` writes: totals, and a list of rows for each table."""
    tables = {
        table: [dict(zip([column[0] for column in columns], row, strict=True)) for row in rows_of(profile, table)]
        for table, columns in COLUMNS.items()
    }
    return {
        "model_name": profile.model_name,
        "device_name": profile.device.name,
        "total_ns": profile.total_ns,
        "flops": profile.flops,
        "param_count": profile.param_count,
        "device_memory_bytes": profile.device.memory_bytes,
        "peak_used_bytes": profile.memory.peak_used_bytes,
        "peak_reserved_bytes": profile.memory.peak_reserved_bytes,
        **tables,
        "assumptions": [{"op_name": one.op_name, "text": one.text} for one in profile.assumptions],
    }
