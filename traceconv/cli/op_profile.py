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

_COLUMNS = (
    ("op_type", "VARCHAR", "text", "Type of the op."),
    ("core_type", "VARCHAR", "text", "Type of core that executed it; NULL if the op does no work."),
    ("input_shapes", "VARCHAR", "text", "Shapes of the inputs."),
    ("input_dtypes", "VARCHAR", "text", "Data types of the inputs."),
    ("output_shapes", "VARCHAR", "text", "Shapes of the outputs."),
    ("output_dtypes", "VARCHAR", "text", "Data types of the outputs."),
    ("repeat", "BIGINT", "count", "Number of executions."),
    ("min_ns", "BIGINT", "ns", "Shortest duration on the device."),
    ("max_ns", "BIGINT", "ns", "Longest duration on the device."),
    ("latencies_ns", "BIGINT[]", "ns", "All durations, in order."),
    ("workspace_bytes", "BIGINT", "byte", "Scratch memory during execution."),
    ("flops", "BIGINT", "flop", "Floating-point operations, 2 per multiply-accumulate."),
    ("flops_per_s", "BIGINT", "flop/s", "flops / min_ns, rounded down; NULL if that is 0."),
    ("memory_bytes", "BIGINT", "byte", "Size of its inputs and outputs."),
    ("cached", "BOOLEAN", "flag", "Whether the result came from the cache."),
)
_SHOWN = ("op_type", "core_type", "input_shapes", "output_shapes", "repeat", "min_ns", "max_ns", "workspace_bytes",
          "flops", "flops_per_s")  # fmt: skip


def op_profile(
    op_type: str | None = typer.Argument(None, metavar="OP", help="An ONNX operator."),
    inputs: list[str] = typer.Option(
        [], "--input", "-i", metavar="SHAPE[:DTYPE][=VALUES]", help="An input (repeatable).", show_default=False
    ),
    attributes: list[str] = typer.Option(
        [], "--attr", "-a", metavar="NAME=VALUE", help="An attribute (repeatable).", show_default=False
    ),
    dtype: str = typer.Option("float32", "--dtype", help="Data type of inputs without one."),
    repeat: int = typer.Option(1, "--repeat", "-n", metavar="N", help="Number of executions."),
    outputs: int | None = typer.Option(None, "--outputs", metavar="N", help="Number of outputs. Default: the minimum."),
    opset: int | None = typer.Option(
        None, "--opset", metavar="N", help="ONNX opset version. Default: 17, or the first later one with OP."
    ),
    device_spec: Path | None = options.DEVICE_SPEC,
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Read and write the cache."),
    cache_size: bool = typer.Option(False, "--cache-size", help="Print the size and path of the cache."),
    reset_cache: bool = typer.Option(False, "--reset-cache", help="Delete all cache entries."),
    form: str | None = options.TEXT_FORMAT,
    output: Path | None = options.OUTPUT,
) -> None:
    """Run one op alone on the reference NPU.

    Reports its duration and scratch memory. OP is an ONNX operator such as Conv or MatMul. Each input is a shape
    (16x3x224x224) with an optional dtype, overriding --dtype (16x8:float16), and with values if it is a constant
    (2:int64=3,8). An attribute is NAME=VALUE, where VALUE is JSON or comma-separated numbers.

    Results are cached by op, attributes, shapes, dtypes and device in $TRACECONV_CACHE, else $XDG_CACHE_HOME/traceconv,
    else ~/.cache/traceconv. An empty $TRACECONV_CACHE disables the cache.

    \b
    Examples:
      traceconv op-profile Conv --input 16x3x224x224 --input 3x3x5x5
      traceconv op-profile MatMul --input 128x768 --input 768x768 --dtype bf16
      traceconv op-profile MaxPool --input 1x3x16x16 --attr kernel_shape=2,2
      traceconv op-profile Reshape --input 4x6 --input 2:int64=3,8
      traceconv op-profile --cache-size
      traceconv op-profile --reset-cache
    """
    from traceconv.cli.output import say, write_rows

    if cache_size or reset_cache:
        _manage_cache(reset_cache)
        if op_type is None:
            return
    if op_type is None:
        raise UsageError("missing OP; for example: traceconv op-profile MatMul --input 128x768 --input 768x768")
    chosen = options.row_format(form, output, options.TEXT_ONLY)
    from traceconv.reports.render import Table
    from traceconv.runtime.op_profile import profile_op
    from traceconv.store.documented_sql import SqlColumn

    parsed = [_input(text, dtype) for text in inputs]
    result = profile_op(
        op_type, [value for value, _ in parsed], dict(map(_attribute, attributes)), [kind for _, kind in parsed],
        repeat=repeat, output_count=outputs, opset=opset, device_spec=device_spec, cache=cache,
    )  # fmt: skip
    shortest = min(result.latencies_ns)
    row = {
        "repeat": len(result.latencies_ns),
        "min_ns": shortest,
        "max_ns": max(result.latencies_ns),
        "latencies_ns": list(result.latencies_ns),
        "flops_per_s": result.flops * 10**9 // shortest if shortest else None,
    }
    columns = [SqlColumn(*column) for column in _COLUMNS if chosen not in ("table", "markdown") or column[0] in _SHOWN]
    cells = [row[name] if (name := column.name) in row else getattr(result, name) for column in columns]
    write_rows(Table(tuple(columns), [[cells]]), chosen, output)
    say("taken from the cache" if result.cached else f"ran {repeat} time{'s' * (repeat != 1)}")


def _manage_cache(reset: bool) -> None:
    from traceconv.cli.output import print_lines, say
    from traceconv.reports.values import human_bytes
    from traceconv.runtime import op_cache

    if reset:
        say(f"removed {_entries(op_cache.reset())}")
        return
    kept = op_cache.size()
    where = "disabled: $TRACECONV_CACHE is empty" if kept.folder is None else printable(str(kept.folder))
    print_lines([f"{_entries(kept.entry_count)}, {human_bytes(kept.size_bytes)}, {where}"])


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _input(text: str, dtype: str) -> tuple[OpInput, str]:
    """Parse `16x8:float16=…` into a shape or an array, and the dtype."""
    import numpy as np

    from traceconv.runtime.bfloat16 import BF16

    head, equals, values = text.partition("=")
    shape_text, colon, kind = head.partition(":")
    kind = kind if colon else dtype
    try:
        shape = [int(extent) for extent in shape_text.split("x")] if shape_text else []
    except ValueError:
        raise UsageError(f"--input {printable(text, 60)}: not a shape such as 16x3x224x224") from None
    if not equals:
        return shape, kind
    numbers = [part.strip() for part in values.split(",")]
    if math.prod(shape) != len(numbers):
        raise UsageError(f"--input {printable(text, 60)}: {len(numbers)} values for {math.prod(shape)} elements")
    try:
        if kind == "bool":
            return np.array([_BOOLS[number.lower()] for number in numbers]).reshape(shape), kind
        if kind in ("bf16", "bfloat16", "dt_bf16"):
            return np.array(numbers).astype(np.float32).astype(BF16).reshape(shape), kind
        return np.array(numbers).astype(np.dtype(kind)).reshape(shape), kind
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UsageError(f"--input {printable(text, 60)}: not values of type {printable(kind, 30)}") from None


_BOOLS = {"0": False, "1": True, "false": False, "true": True}


def _attribute(text: str) -> tuple[str, object]:
    """Parse `NAME=VALUE`, where VALUE is JSON, comma-separated numbers or text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--attr needs NAME=VALUE, not '{printable(text, 60)}'")
    for form in (value, f"[{value}]"):
        try:
            return name, json.loads(form)
        except (ValueError, RecursionError):
            continue
    return name, value
