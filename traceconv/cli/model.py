"""`traceconv model`: the static cost of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.reports.render import Row
    from traceconv.runtime.static_profile import OpEstimate, StaticProfile
    from traceconv.store.documented_sql import SqlColumn

_TABLES = ("ops", "cores", "memory")
_ASSUMPTIONS_SHOWN = 10


def model(
    model: str = options.MODEL,
    batch: int | None = options.BATCH,
    device_spec: Path | None = options.DEVICE_SPEC,
    streams: int | None = options.STREAMS,
    prefetch: bool = typer.Option(
        True, "--prefetch/--no-prefetch", help="Allocate the inputs of the next run during a run, as record does."
    ),
    show: str = typer.Option("ops", "--show", metavar="|".join(_TABLES), help="Table to print."),
    top: int | None = typer.Option(None, "--top", metavar="N", min=1, help="Only the first N rows."),
    order_by: str | None = options.ORDER_BY,
    columns: str | None = options.COLUMNS,
    form: str | None = options.TEXT_FORMAT,
    output: Path | None = options.OUTPUT,
    db: Path | None = typer.Option(
        None, "--db", metavar="FILE", help="Add the profile to this store; with --run, the store that contains the run."
    ),
    run: str | None = typer.Option(
        None, "--run", metavar="N|LABEL", help="Compare the memory estimate with this recorded run."
    ),
) -> None:
    """Estimate a model's cost statically.

    MODEL is an .onnx file or the name of a model, as for traceconv record. For each op as the device runs it: time
    alone on the device by the cost model, floating-point operations (2 per multiply-accumulate), parameters, bytes of
    weights, activations and workspace, arithmetic intensity, and shapes. Totals, time by core type and peak memory go
    to stderr, with what is assumed of control flow: a Loop with a constant limit makes that many trips, another one; of
    an If, the longer branch is taken.

    \b
    Examples:
      traceconv model resnet50
      traceconv model model.onnx --batch 8 --order-by flops --top 10
      traceconv model resnet50 --show cores
      traceconv model resnet50 --show memory --run 1   next to a recorded run
      traceconv model resnet50 --format csv -o ops.csv
      traceconv model resnet50 --db static.duckdb      as a run of that store

    --db without --run adds the profile to the store. With --run, the store is only read.
    """
    if show not in _TABLES:
        near = suggestion(show, list(_TABLES))
        raise UsageError(f"--show {printable(show)}: unknown table.{near} Choose one of: {', '.join(_TABLES)}")
    if streams is not None and not 1 <= streams <= 64:
        raise UsageError(f"--streams {streams}: must be from 1 to 64")
    chosen = options.row_format(form, output, options.TEXT_ONLY)
    from dataclasses import replace

    from traceconv.cli.output import print_message, write_rows
    from traceconv.reports.columns import find_columns, order_term
    from traceconv.reports.render import Table
    from traceconv.runtime.spec import load_spec, reference_npu
    from traceconv.runtime.static_profile import static_profile

    measured = None if run is None else _measured(db, run)
    spec = reference_npu() if device_spec is None else load_spec(device_spec)
    spec = spec if streams is None else replace(spec, compute_stream_count=streams)
    profile = static_profile(model, batch, spec=spec, prefetch=prefetch)
    table = _table(profile, show, measured)
    rows, names = table.rows, [column.name for column in table.columns]
    if order_by is not None:
        term = order_term(table, order_by)
        place = names.index(term.column)
        rows = [row for row in rows if row[place] is not None]
        rows.sort(key=lambda row: row[place], reverse=term.descending)  # type: ignore[arg-type,return-value]  # one type
        rows += [row for row in table.rows if row[place] is None]
    if columns is not None and columns != "all":
        wanted = options.wanted_columns(columns)
    else:
        wanted = list(_SHOWN) if show == "ops" and columns is None and chosen in ("table", "markdown") else names
    picked = find_columns(table, wanted)
    places = [names.index(column.name) for column in picked]
    write_rows(Table(picked, [[tuple(row[place] for place in places) for row in rows[:top]]]), chosen, output)
    for line in _summary(profile, measured):
        print_message(line)
    if db is not None and run is None:
        from traceconv.pipeline.static_profile import store_static_profile

        target = options.store_path(db)
        number = store_static_profile(profile, target, batch=batch)
        print_message(f"added to {printable(str(target))} as run {number}")


class _Measured(NamedTuple):
    """Peak memory of a recorded run."""

    where: str
    used_bytes: int
    reserved_bytes: int | None


def _measured(db: Path | None, run: str) -> _Measured:
    from traceconv.pipeline.static_profile import measured_memory
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.run import one_run

    with open_current_store(options.store_path(db)) as connection:
        run_id, _ = one_run(connection, run, "the comparison")
        peaks = measured_memory(connection, run_id)
    if not peaks:
        raise UsageError(f"run {run_id} has no memory log; record the model with: traceconv record MODEL -o DIR")
    device = max(peaks, key=lambda number: peaks[number][0])
    return _Measured(f"run {run_id}, device {device}", *peaks[device])


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
_SHOWN = ("op_name", "op_type", "core_type", "dur_ns", "flops", "arithmetic_intensity", "weight_bytes",
          "activation_bytes", "output_shapes")  # fmt: skip
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


class _Table(NamedTuple):
    name: str
    columns: tuple[SqlColumn, ...]
    rows: list[Row]


def _table(profile: StaticProfile, show: str, measured: _Measured | None) -> _Table:
    from traceconv.runtime.static_profile import by_core
    from traceconv.store.documented_sql import SqlColumn

    columns: tuple[tuple[str, str, str, str], ...]
    rows: list[Row]
    if show == "cores":
        columns, total = _CORES, profile.total_ns
        rows = [
            (core, count, dur_ns, 100 * dur_ns / total if total else None, flops)
            for core, (count, dur_ns, flops) in by_core(profile.ops).items()
        ]
    elif show == "memory":
        columns, memory = _MEMORY, profile.memory
        used, reserved = (None, None) if measured is None else (measured.used_bytes, measured.reserved_bytes)
        peaks: list[tuple[str, int, int | None]] = [
            ("weights", memory.weight_bytes, None),
            ("peak of tensors and workspace", memory.peak_tensor_bytes, None),
            ("peak used by the allocator", memory.peak_used_bytes, used),
            ("peak reserved by the allocator", memory.peak_reserved_bytes, reserved),
        ]
        rows = [(*row, None if row[2] is None else row[2] - row[1]) for row in peaks]
    else:
        columns, rows = _OPS, [_op_row(estimate) for estimate in profile.ops]
    return _Table(show, tuple(SqlColumn(*column) for column in columns), rows)


def _op_row(estimate: OpEstimate) -> Row:
    op = estimate.op
    return (
        op.index, op.name, op.op_type, op.core, op.repeats, estimate.dur_ns, op.flops, estimate.flops_per_s,
        estimate.memory_bytes, estimate.bytes_per_s, estimate.arithmetic_intensity, op.param_count, op.weight_bytes,
        op.input_bytes, op.output_bytes, op.cost.workspace_bytes, op.cost.block_count, estimate.stream_id, op.state,
        op.scope_path, *op.describe_operands()[:2], *op.describe_results()[:2],
    )  # fmt: skip


def _summary(profile: StaticProfile, measured: _Measured | None) -> list[str]:
    from traceconv.reports.values import human_bytes, human_duration, human_scaled
    from traceconv.runtime.static_profile import by_core

    memory = profile.memory
    cores = ", ".join(f"{core} {human_duration(dur_ns)}" for core, (_, dur_ns, _) in by_core(profile.ops).items())
    lines = [
        f"{profile.model_name} on {printable(profile.device.name)}: {len(profile.ops)} ops, "
        f"{human_scaled(profile.flops, 'FLOP')}, {profile.param_count:,} parameters",
        f"total op time: {human_duration(profile.total_ns)}" + (f" ({cores})" if cores else ""),
        f"peak memory: {human_bytes(memory.peak_used_bytes)} used, "
        f"{human_bytes(memory.peak_reserved_bytes)} reserved ({human_bytes(memory.weight_bytes)} weights)"
        + ("" if profile.fits else f"; exceeds the device's {human_bytes(profile.device.memory_bytes)}"),
    ]
    shown = profile.assumptions[:_ASSUMPTIONS_SHOWN]
    lines += [f"assumed: {printable(one.op_name, 120)}: {printable(one.text, 300)}" for one in shown]
    if len(profile.assumptions) > len(shown):
        lines.append(f"assumed: {len(profile.assumptions) - len(shown)} more")
    if measured is not None:
        reserved = "" if measured.reserved_bytes is None else f", {human_bytes(measured.reserved_bytes)} reserved"
        same = " as estimated" if measured.used_bytes == memory.peak_used_bytes else ""
        lines.append(f"measured in {measured.where}: {human_bytes(measured.used_bytes)} used{reserved}{same}")
    return lines
