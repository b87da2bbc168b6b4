"""`traceconv op-profile`: one op alone on the device."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from traceconv.base.errors import UsageError, printable
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.runtime.op_profile import OpInput

HELP = """Run one op alone on the reference NPU, and say how long it takes and how much scratch memory it needs.

OP is an operator of ONNX, such as Conv or MatMul. Each input is a shape, 16x3x224x224, with a type if it has not that
of --dtype, 16x8:float16, and with its values where it is a constant: 2:int64=3,8. An attribute is NAME=VALUE, where
VALUE is JSON, or numbers joined by commas.

What was found is kept in a cache, by op, attributes, shapes, types and device: under $TRACECONV_CACHE, else
$XDG_CACHE_HOME/traceconv, else ~/.cache/traceconv. An empty $TRACECONV_CACHE keeps nothing.

\b
Examples:
  traceconv op-profile Conv --input 16x3x224x224 --input 3x3x5x5
  traceconv op-profile MatMul --input 128x768 --input 768x768 --dtype float16
  traceconv op-profile MaxPool --input 1x3x16x16 --attr kernel_shape=2,2
  traceconv op-profile Reshape --input 4x6 --input 2:int64=3,8
  traceconv op-profile --cache-size
  traceconv op-profile --reset-cache
"""

_FORMATS = tuple(name for name in options.FORMATS if name != "parquet")
_COLUMNS = (
    ("op_type", "VARCHAR", "text", "The op."),
    ("core_type", "VARCHAR", "text", "Kind of core that computed it; NULL for an op that is no work."),
    ("input_shapes", "VARCHAR", "text", "Shapes of the inputs."),
    ("input_dtypes", "VARCHAR", "text", "Their types."),
    ("output_shapes", "VARCHAR", "text", "Shapes of the outputs."),
    ("output_dtypes", "VARCHAR", "text", "Their types."),
    ("repeat", "BIGINT", "count", "How often it ran."),
    ("min_ns", "BIGINT", "ns", "Shortest time on the device."),
    ("max_ns", "BIGINT", "ns", "Longest time on the device."),
    ("latencies_ns", "BIGINT[]", "ns", "All of them, in their order."),
    ("workspace_bytes", "BIGINT", "byte", "Scratch memory while it runs."),
    ("flops", "BIGINT", "flop", "Floating-point operations, 2 for each multiply-accumulate."),
    ("flops_per_s", "BIGINT", "flop/s", "flops / min_ns, rounded down; NULL when that is 0."),
    ("memory_bytes", "BIGINT", "byte", "Bytes of its inputs and outputs."),
    ("cached", "BOOLEAN", "flag", "Whether it was taken from the cache."),
)
_SHOWN = ("op_type", "core_type", "input_shapes", "output_shapes", "repeat", "min_ns", "max_ns", "workspace_bytes",
          "flops", "flops_per_s")  # fmt: skip


def op_profile(
    op_type: str | None = typer.Argument(None, metavar="OP", help="An operator of ONNX.", show_default=False),
    inputs: list[str] = typer.Option(
        [], "--input", "-i", metavar="SHAPE[:DTYPE][=VALUES]", help="An input; once for each.", show_default=False
    ),
    attributes: list[str] = typer.Option(
        [], "--attr", "-a", metavar="NAME=VALUE", help="An attribute; may be given several times.", show_default=False
    ),
    dtype: str = typer.Option("float32", "--dtype", help="Type of inputs that don't name one."),
    repeat: int = typer.Option(1, "--repeat", "-n", metavar="N", help="How often it runs."),
    outputs: int | None = typer.Option(
        None, "--outputs", metavar="N", help="Outputs that it makes, if more than it must."
    ),
    opset: int | None = typer.Option(
        None, "--opset", metavar="N", help="Version of ONNX's operators. Default: 17, or the first after it with OP."
    ),
    device_spec: Path | None = typer.Option(
        None, "--device-spec", metavar="FILE.toml", help="Description of the device, instead of the reference NPU's."
    ),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Take from the cache, and keep there."),
    cache_size: bool = typer.Option(False, "--cache-size", help="Say how much is kept, and where."),
    reset_cache: bool = typer.Option(False, "--reset-cache", help="Forget all that is kept."),
    form: str | None = typer.Option(
        None, "--format", metavar="FORMAT", help=f"{', '.join(_FORMATS)}. Default: by the name of -o, else table."
    ),
    output: Path | None = options.OUTPUT,
) -> None:
    from traceconv.cli.output import say

    if cache_size or reset_cache:
        _manage(reset_cache)
        if op_type is None:
            return
    if op_type is None:
        raise UsageError("which op? Such as: traceconv op-profile MatMul --input 128x768 --input 768x768")
    if output is not None and output.name.endswith(".parquet"):
        raise UsageError("op-profile writes no Parquet; choose --format csv or json")
    chosen = options.row_format(form, output, _FORMATS)
    from traceconv.runtime.op_profile import profile_op

    given, dtypes = [], []
    for text in inputs:
        value, kind = _input(text, dtype)
        given.append(value)
        dtypes.append(kind)
    found = profile_op(
        op_type, given, dict(map(_attribute, attributes)), dtypes, repeat=repeat, output_count=outputs, opset=opset,
        device_spec=device_spec, cache=cache,
    )  # fmt: skip
    from traceconv.cli.output import write_table, write_text
    from traceconv.reports.render import TEXT_FORMATS, Table
    from traceconv.store.documented_sql import SqlColumn

    shortest = min(found.latencies_ns)
    row = {
        **{name: getattr(found, name) for name in ("op_type", "core_type", "input_shapes", "input_dtypes")},
        **{name: getattr(found, name) for name in ("output_shapes", "output_dtypes", "workspace_bytes", "flops")},
        "repeat": len(found.latencies_ns),
        "min_ns": shortest,
        "max_ns": max(found.latencies_ns),
        "latencies_ns": list(found.latencies_ns),
        "flops_per_s": found.flops * 10**9 // shortest if shortest else None,
        "memory_bytes": found.memory_bytes,
        "cached": found.cached,
    }
    columns = [SqlColumn(*column) for column in _COLUMNS if chosen not in ("table", "markdown") or column[0] in _SHOWN]
    table = Table(tuple(columns), [[tuple(row[column.name] for column in columns)]])
    if chosen == "table":
        write_table(table, output, row_limit=None)
    else:
        write_text(TEXT_FORMATS[chosen](table), output)
    say("taken from the cache" if found.cached else f"ran {repeat} time{'s' * (repeat != 1)}")


def _manage(reset: bool) -> None:
    from traceconv.cli.output import print_lines, say
    from traceconv.reports.values import human_bytes
    from traceconv.runtime import op_cache

    if reset:
        removed = op_cache.reset()
        say(f"{removed} entr{'y' if removed == 1 else 'ies'} removed")
        return
    kept = op_cache.size()
    where = "nothing is kept: $TRACECONV_CACHE is empty" if kept.folder is None else printable(str(kept.folder))
    entries = f"{kept.entry_count} entr{'y' if kept.entry_count == 1 else 'ies'}"
    print_lines([f"{entries}, {human_bytes(kept.size_bytes)}, {where}"])


def _input(text: str, dtype: str) -> tuple[OpInput, str]:
    """`16x8:float16=…` as a shape or an array, and the type."""
    import numpy as np

    head, equals, values = text.partition("=")
    shape_text, colon, kind = head.partition(":")
    kind = kind if colon else dtype
    try:
        shape = [int(extent) for extent in shape_text.split("x")] if shape_text else []
    except ValueError:
        raise UsageError(f"--input {printable(text, 60)}: a shape is written as 16x3x224x224") from None
    if not equals:
        return shape, kind
    numbers = [part.strip() for part in values.split(",")]
    if math.prod(shape) != len(numbers):
        raise UsageError(f"--input {printable(text, 60)}: {len(numbers)} values for {math.prod(shape)} elements")
    try:
        if kind == "bool":
            return np.array([_BOOLS[number.lower()] for number in numbers]).reshape(shape), kind
        return np.array(numbers).astype(np.dtype(kind)).reshape(shape), kind
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UsageError(f"--input {printable(text, 60)}: the values are no {printable(kind, 30)}") from None


_BOOLS = {"0": False, "1": True, "false": False, "true": True}


def _attribute(text: str) -> tuple[str, object]:
    """`NAME=VALUE` as both; VALUE is JSON, or numbers joined by commas, or the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--attr needs NAME=VALUE, not '{printable(text, 60)}'")
    for form in (value, f"[{value}]"):
        try:
            return name, json.loads(form)
        except (ValueError, RecursionError):
            continue
    return name, value
