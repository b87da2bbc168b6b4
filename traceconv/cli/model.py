"""`traceconv model`: what a model costs, before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.reports.render import Row
    from traceconv.runtime.static_profile import StaticProfile
    from traceconv.store.documented_sql import SqlColumn

HELP = """Say what a model costs on the device, without running it: a static profile.

MODEL is an .onnx file, or the name of a network, as for traceconv record. Of each op as the device runs it: the time
that the cost model gives it alone on the device, floating-point operations (2 for each multiply-accumulate),
parameters, bytes of weights, activations and scratch memory, arithmetic intensity, shapes. The totals, the time of
each kind of core and the memory that runs will need go to stderr.

\b
Examples:
  traceconv model resnet50
  traceconv model model.onnx --batch 8 --order-by flops --top 10
  traceconv model resnet50 --show cores
  traceconv model resnet50 --show memory --run 1   beside a recorded run
  traceconv model resnet50 --format csv -o ops.csv
  traceconv model resnet50 --db static.duckdb      as a run of that store

With --db alone the profile is added to the store. With --run nothing is written: the store is where that run is.
"""

_FORMATS = tuple(name for name in options.FORMATS if name != "parquet")
_TABLES = ("ops", "cores", "memory")


def model(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="An .onnx file, or the name of a network.", show_default=False
    ),
    batch: int | None = typer.Option(
        None, "--batch", help="First extent of every input, instead of the model's.", show_default=False
    ),
    device_spec: Path | None = typer.Option(
        None,
        "--device-spec",
        metavar="FILE.toml",
        help="Description of the device, instead of the reference NPU's.",
        show_default=False,
    ),
    streams: int | None = typer.Option(
        None, "--streams", help="Most streams for ops, instead of the device's.", show_default=False
    ),
    prefetch: bool = typer.Option(
        True, "--prefetch/--no-prefetch", help="Whether runs make room for the inputs of the next one, as in record."
    ),
    show: str = typer.Option("ops", "--show", metavar="|".join(_TABLES), help="Which table."),
    top: int | None = typer.Option(None, "--top", metavar="N", min=1, help="Only the first N rows."),
    order_by: str | None = typer.Option(
        None, "--order-by", metavar="COLUMN", help="Sort by this column: numbers from the largest, texts from A."
    ),
    columns: str | None = typer.Option(
        None, "--columns", metavar="A,B,…|all", help="Which columns. Default: those that fit for a table, else all."
    ),
    form: str | None = typer.Option(
        None, "--format", metavar="FORMAT", help=f"{', '.join(_FORMATS)}. Default: by the name of -o, else table."
    ),
    output: Path | None = options.OUTPUT,
    db: Path | None = typer.Option(
        None, "--db", metavar="FILE", help="Add the profile to this store; with --run, the store that holds the run."
    ),
    run: str | None = typer.Option(
        None, "--run", metavar="N|LABEL", help="Hold the estimate of memory against this recorded run."
    ),
) -> None:
    if show not in _TABLES:
        raise UsageError(f"--show {printable(show)}: no such table.{suggestion(show, list(_TABLES))} {_all(_TABLES)}")
    if output is not None and output.name.endswith(".parquet"):
        raise UsageError("a static profile is no Parquet file by itself; add it to a store with --db FILE, and report")
    if streams is not None and not 1 <= streams <= 64:
        raise UsageError(f"--streams {streams}: must be from 1 to 64")
    chosen = options.row_format(form, output, _FORMATS)
    from dataclasses import replace

    from traceconv.cli.output import say, write_table, write_text
    from traceconv.reports.render import TEXT_FORMATS, Table
    from traceconv.runtime.spec import load_spec, reference_npu
    from traceconv.runtime.static_profile import static_profile

    measured = _measured(db, run)
    spec = reference_npu() if device_spec is None else load_spec(device_spec)
    spec = spec if streams is None else replace(spec, compute_stream_count=streams)
    profile = static_profile(model, batch, spec=spec, prefetch=prefetch)
    known, rows = _table(profile, show, measured)
    rows = _ordered(known, rows, order_by, show)[:top]
    names = [column.name for column in known]
    wanted = _wanted(names, columns, show, everything=chosen not in ("table", "markdown"))
    places = [names.index(name) for name in wanted]
    table = Table(tuple(known[place] for place in places), [[tuple(row[place] for place in places) for row in rows]])
    if chosen == "table":
        write_table(table, output, row_limit=None)
    else:
        write_text(TEXT_FORMATS[chosen](table), output)
    for line in _summary(profile, measured):
        say(line)
    if db is not None and run is None:
        from traceconv.pipeline.static_profile import store_static_profile

        target = options.store_path(db)
        number = store_static_profile(profile, target, batch=batch)
        say(f"added to {printable(str(target))} as run {number}")


def _all(names: Sequence[str]) -> str:
    return f"All: {', '.join(names)}"


def _measured(db: Path | None, run: str | None) -> tuple[str, int, int | None] | None:
    """What is said of the recorded run, and its peaks: used, reserved."""
    if run is None:
        return None
    from traceconv.pipeline.static_profile import measured_memory
    from traceconv.reports.current_store import open_current_store
    from traceconv.reports.run import choose_run

    with open_current_store(options.store_path(db)) as connection:
        choice = choose_run(connection, run)
        if choice.run_id is None:
            raise UsageError("the estimate is held against one run; choose it with --run N")
        peaks = measured_memory(connection, choice.run_id)
    if not peaks:
        raise UsageError(f"run {choice.run_id} has no memory log; record the model with: traceconv record MODEL -o DIR")
    device = max(peaks, key=lambda number: peaks[number][0])
    return f"run {choice.run_id}, device {device}", *peaks[device]


_OPS = (
    ("op_id", "BIGINT", "id", "Number of the op, in the order of their launch."),
    ("op_name", "VARCHAR", "text", "Name of the op."),
    ("op_type", "VARCHAR", "text", "Type of the op."),
    ("core_type", "VARCHAR", "text", "Kind of core that computes it."),
    ("dur_ns", "BIGINT", "ns", "Its time alone on the device, by the cost model."),
    ("flops", "BIGINT", "flop", "Floating-point operations, 2 for each multiply-accumulate."),
    ("flops_per_s", "BIGINT", "flop/s", "flops / dur_ns, rounded down."),
    ("memory_bytes", "BIGINT", "byte", "Inputs, weights, outputs and scratch memory together."),
    ("bytes_per_s", "BIGINT", "byte/s", "memory_bytes / dur_ns, rounded down."),
    ("arithmetic_intensity", "DOUBLE", "flop/byte", "flops for each byte of inputs, weights and outputs."),
    ("param_count", "BIGINT", "count", "Elements of its weights."),
    ("weight_bytes", "BIGINT", "byte", "Bytes of its weights."),
    ("input_bytes", "BIGINT", "byte", "Bytes of its inputs that are no weights."),
    ("activation_bytes", "BIGINT", "byte", "Bytes of its outputs."),
    ("workspace_bytes", "BIGINT", "byte", "Scratch memory while it runs."),
    ("block_count", "BIGINT", "count", "Cores that it is split over."),
    ("stream_id", "BIGINT", "id", "Stream that it is launched on."),
    ("state", "VARCHAR", "text", "static or dynamic: whether its shapes are known without inputs."),
    ("scope_path", "VARCHAR", "text", "Module that it is in."),
    ("input_shapes", "VARCHAR", "text", "Shapes of all inputs, weights too."),
    ("input_dtypes", "VARCHAR", "text", "Their types."),
    ("output_shapes", "VARCHAR", "text", "Shapes of the outputs."),
    ("output_dtypes", "VARCHAR", "text", "Their types."),
)
_CORES = (
    ("core_type", "VARCHAR", "text", "Kind of core."),
    ("op_count", "BIGINT", "count", "Ops that it computes."),
    ("dur_ns", "BIGINT", "ns", "Their time, one after another."),
    ("share_percent", "DOUBLE", "percent", "100 dur_ns / the time of all ops."),
    ("flops", "BIGINT", "flop", "Their floating-point operations."),
)
_MEMORY = (
    ("what", "VARCHAR", "text", "What is in memory."),
    ("estimated_bytes", "BIGINT", "byte", "By the plan of a run."),
    ("measured_bytes", "BIGINT", "byte", "In the recorded run; NULL without --run, and where it has no such number."),
    ("difference_bytes", "BIGINT", "byte", "measured − estimated."),
)
_SHOWN = {
    "ops": ("op_name", "op_type", "core_type", "dur_ns", "flops", "arithmetic_intensity", "weight_bytes",
            "activation_bytes", "output_shapes"),
    "cores": tuple(column[0] for column in _CORES),
    "memory": tuple(column[0] for column in _MEMORY),
}  # fmt: skip


def _table(
    profile: StaticProfile, show: str, measured: tuple[str, int, int | None] | None
) -> tuple[tuple[SqlColumn, ...], list[Row]]:
    from traceconv.runtime.static_profile import by_core
    from traceconv.store.documented_sql import SqlColumn

    columns: Sequence[tuple[str, str, str, str]]
    rows: list[Row]
    if show == "cores":
        columns, total = _CORES, profile.total_ns
        rows = [
            (core, count, dur_ns, 100 * dur_ns / total if total else None, flops)
            for core, (count, dur_ns, flops) in by_core(profile.ops).items()
        ]
    elif show == "memory":
        columns, rows = _MEMORY, _memory_rows(profile, measured)
    else:
        columns = _OPS
        rows = [
            (
                op.op_index,
                op.name,
                op.op_type,
                op.core_type,
                op.dur_ns,
                op.flops,
                op.flops * 10**9 // op.dur_ns,
                op.memory_bytes,
                op.memory_bytes * 10**9 // op.dur_ns,
                op.arithmetic_intensity,
                op.param_count,
                op.weight_bytes,
                op.input_bytes,
                op.output_bytes,
                op.workspace_bytes,
                op.block_count,
                op.stream_id,
                op.state,
                op.scope_path,
                op.input_shapes,
                op.input_dtypes,
                op.output_shapes,
                op.output_dtypes,
            )
            for op in profile.ops
        ]
    return tuple(SqlColumn(*column) for column in columns), rows


def _memory_rows(profile: StaticProfile, measured: tuple[str, int, int | None] | None) -> list[Row]:
    memory = profile.memory
    used, reserved = (None, None) if measured is None else measured[1:]
    rows: list[tuple[str, int, int | None]] = [
        ("weights", memory.weight_bytes, None),
        ("tensors and scratch memory, at most", memory.peak_tensor_bytes, None),
        ("used by the allocator, at most", memory.peak_used_bytes, used),
        ("reserved by the allocator, at most", memory.peak_reserved_bytes, reserved),
    ]
    return [(*row, None if row[2] is None else row[2] - row[1]) for row in rows]


def _ordered(columns: Sequence[SqlColumn], rows: list[Row], order_by: str | None, show: str) -> list[Row]:
    if order_by is None:
        return rows
    names = [column.name for column in columns]
    if order_by not in names:
        near = suggestion(order_by, names)
        raise UsageError(f"--order-by {printable(order_by)}: {show} has no such column.{near} {_all(names)}")
    place = names.index(order_by)
    known = [row for row in rows if row[place] is not None]
    text = columns[place].type == "VARCHAR"
    known.sort(key=lambda row: row[place], reverse=not text)  # type: ignore[arg-type,return-value]  # of one type, by the column
    return known + [row for row in rows if row[place] is None]


def _wanted(names: list[str], columns: str | None, show: str, *, everything: bool) -> Sequence[str]:
    if columns is None:
        return names if everything else _SHOWN[show]
    if columns == "all":
        return names
    wanted = [name.strip() for name in columns.split(",")]
    for name in wanted:
        if name not in names:
            near = suggestion(name, names)
            raise UsageError(f"--columns {printable(name)}: {show} has no such column.{near} {_all(names)}")
    return wanted


def _summary(profile: StaticProfile, measured: tuple[str, int, int | None] | None) -> list[str]:
    from traceconv.reports.values import human_bytes, human_duration, human_scaled
    from traceconv.runtime.static_profile import by_core

    memory = profile.memory
    cores = ", ".join(f"{core} {human_duration(dur_ns)}" for core, (_, dur_ns, _) in by_core(profile.ops).items())
    lines = [
        f"{profile.model_name} on {printable(profile.device.name)}: {len(profile.ops)} ops, "
        f"{human_scaled(profile.flops, 'FLOP')}, {profile.param_count:,} parameters",
        f"time one op after another: {human_duration(profile.total_ns)}" + (f" ({cores})" if cores else ""),
        f"memory at most: {human_bytes(memory.peak_used_bytes)} used, "
        f"{human_bytes(memory.peak_reserved_bytes)} reserved ({human_bytes(memory.weight_bytes)} weights)"
        + ("" if profile.fits else f": more than the device's {human_bytes(profile.device.memory_bytes)}"),
    ]
    if measured is not None:
        where, used, reserved = measured
        held = "" if reserved is None else f", {human_bytes(reserved)} reserved"
        same = " as estimated" if used == memory.peak_used_bytes else ""
        lines.append(f"measured in {where}: {human_bytes(used)} used{held}{same}")
    return lines
