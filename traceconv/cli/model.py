"""`traceconv model`: the static cost of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from traceconv.base.errors import UsageError, printable, suggestion
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.reports.render import Row
    from traceconv.runtime.static_profile import StaticProfile
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
    dump_only_opr: bool = typer.Option(
        False, "--dump-only-opr", help="Print only name, type and ID of each op, a line each, for diff."
    ),
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
    to stderr, with the assumptions about control flow: a Loop with a constant limit makes that many trips, any other
    Loop one; an If takes the longer branch.

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
    chosen = options.row_format(form, output, options.TEXT_ONLY)
    if dump_only_opr and (show != "ops" or columns is not None or form is not None):
        raise UsageError("--dump-only-opr has its own columns and format: omit --show, --columns and --format")
    from traceconv.cli.output import print_message, write_text
    from traceconv.reports.columns import parse_order
    from traceconv.runtime.spec import spec_of
    from traceconv.runtime.static_profile import static_profile

    measured = None if run is None else _measured(db, run)
    spec = spec_of(device_spec, streams)
    profile = static_profile(model, batch, spec=spec, prefetch=prefetch)
    table = _table(profile, show, measured)
    rows = table.rows
    for text in reversed(order_by.split(",") if order_by else []):
        term = parse_order(table, text)
        place = [column.name for column in table.columns].index(term.column)
        unknown = [row for row in rows if row[place] is None]
        rows = [row for row in rows if row[place] is not None]
        rows.sort(key=lambda row: row[place], reverse=term.descending)  # type: ignore[arg-type,return-value]  # one type
        rows += unknown
    if dump_only_opr:
        write_text((f"{printable(str(row[1]))} {printable(str(row[2]))} {row[0]}\n" for row in rows[:top]), output)
    else:
        _write(table, rows[:top], show, columns, chosen, output)
    for line in _summary(profile, measured):
        print_message(line)
    if db is not None and run is None:
        from traceconv.pipeline.static_profile import store_static_profile

        target = options.store_path(db)
        number = store_static_profile(profile, target, batch=batch)
        print_message(f"added to {printable(str(target))} as run {number}")


def _write(table: _Table, rows: list[Row], show: str, columns: str | None, chosen: str, output: Path | None) -> None:
    from traceconv.cli.output import write_rows
    from traceconv.reports.columns import find_columns
    from traceconv.reports.render import Table

    names = [column.name for column in table.columns]
    if columns is not None and columns != "all":
        wanted = options.wanted_columns(columns)
    else:
        wanted = list(_SHOWN) if show == "ops" and columns is None and chosen in ("table", "markdown") else names
    picked = find_columns(table, wanted)
    places = [names.index(column.name) for column in picked]
    optional = () if columns else wanted
    write_rows(Table(picked, [[tuple(row[place] for place in places) for row in rows]], {}, optional), chosen, output)


class _Measured(NamedTuple):
    """Peak memory of a recorded run."""

    where: str
    used_bytes: int
    reserved_bytes: int | None


def _measured(db: Path | None, run: str) -> _Measured:
    from traceconv.cli.one_shot import asked_run
    from traceconv.pipeline.static_profile import measured_memory

    with asked_run(options.store_path(db), run, "the comparison") as (connection, run_id):
        peaks = measured_memory(connection, run_id)
    if not peaks:
        raise UsageError(f"run {run_id} has no memory log; record the model with: traceconv record MODEL -o DIR")
    device = max(peaks, key=lambda number: peaks[number][0])
    return _Measured(f"run {run_id}, device {device}", *peaks[device])


_SHOWN = ("op_name", "op_type", "core_type", "dur_ns", "flops", "arithmetic_intensity", "weight_bytes",
          "activation_bytes", "output_shapes")  # fmt: skip


class _Table(NamedTuple):
    name: str
    columns: tuple[SqlColumn, ...]
    rows: list[Row]


def _table(profile: StaticProfile, show: str, measured: _Measured | None) -> _Table:
    from traceconv.runtime.static_tables import COLUMNS, PEAK_RESERVED, PEAK_USED, rows_of
    from traceconv.store.documented_sql import SqlColumn

    peaks = None if measured is None else {PEAK_USED: measured.used_bytes, PEAK_RESERVED: measured.reserved_bytes}
    columns = tuple(SqlColumn(*column) for column in COLUMNS[show])
    return _Table(show, columns, [*rows_of(profile, show, peaks)])


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
