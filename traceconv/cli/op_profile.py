"""`traceconv op-profile`: one op, or the ops of a small graph, alone on the device."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from traceconv.base.errors import UsageError, printable
from traceconv.cli import options

if TYPE_CHECKING:
    from traceconv.runtime.expression import ExpressionProfile
    from traceconv.runtime.op_profile import OpInput, OpProfile

_COLUMNS = (
    ("part", "VARCHAR", "enum", "op, or expression: all ops of a graph."),
    ("op_name", "VARCHAR", "text", "Name of the op in the graph, or of the graph; the type of a single op."),
    ("op_type", "VARCHAR", "text", "Type of the op, in a graph its type on the device; NULL for the expression."),
    ("core_type", "VARCHAR", "text", "Type of core that executed it; NULL for the expression, or an op without work."),
    ("input_shapes", "VARCHAR", "text", "Shapes of the inputs."),
    ("input_dtypes", "VARCHAR", "text", "Data types of the inputs."),
    ("output_shapes", "VARCHAR", "text", "Shapes of the outputs."),
    ("output_dtypes", "VARCHAR", "text", "Data types of the outputs."),
    ("repeat", "BIGINT", "count", "Number of executions."),
    ("min_ns", "BIGINT", "ns", "Shortest duration on the device; of an expression, with the gaps between its ops."),
    ("max_ns", "BIGINT", "ns", "Longest duration on the device."),
    ("latencies_ns", "BIGINT[]", "ns", "All durations, in order."),
    ("workspace_bytes", "BIGINT", "byte", "Scratch memory during execution; of an expression, the peak."),
    ("flops", "BIGINT", "flop", "Floating-point operations, 2 per multiply-accumulate."),
    ("flops_per_s", "BIGINT", "flop/s", "flops / min_ns, rounded down; NULL if that is 0."),
    ("memory_bytes", "BIGINT", "byte", "Size of its inputs, weights and outputs."),
    ("cached", "BOOLEAN", "flag", "Whether the result came from the cache."),
)
_SHOWN = ("op_type", "core_type", "input_shapes", "output_shapes", "repeat", "min_ns", "max_ns", "workspace_bytes",
          "flops", "flops_per_s")  # fmt: skip
_SHOWN_OF_GRAPH = ("part", "op_name", "op_type", "core_type", "output_shapes", "min_ns", "workspace_bytes", "flops")


def op_profile(
    op_type: str | None = typer.Argument(None, metavar="OP|FILE", help="An ONNX operator, or an .onnx file."),
    inputs: list[str] = typer.Option(
        [], "--input", "-i", metavar="SHAPE[:DTYPE][=VALUES]", help="An input (repeatable).", show_default=False
    ),
    attributes: list[str] = typer.Option(
        [], "--attr", "--attribute", "-a", metavar="NAME=VALUE", help="An attribute (repeatable).", show_default=False
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
    """Run one op or a small graph alone on the reference NPU.

    Reports duration and scratch memory. OP is an ONNX operator such as Conv or MatMul. Each input is a shape
    (16x3x224x224) with an optional dtype, overriding --dtype (16x8:float16), and with values if it is a constant
    (2:int64=3,8). An attribute is NAME=VALUE, where VALUE is JSON or comma-separated numbers.

    The ops of a FILE run one after another, fused as in a recording. There is a row for each, and one for the
    expression: its duration includes the gaps between ops, and its workspace is the peak. Inputs, in the order of the
    graph, are only needed for what it leaves open.

    Results are cached by op, attributes, shapes, dtypes and device in $TRACECONV_CACHE, else $XDG_CACHE_HOME/traceconv,
    else ~/.cache/traceconv. An empty $TRACECONV_CACHE disables the cache.

    \b
    Examples:
      traceconv op-profile Conv --input 16x3x224x224 --input 3x3x5x5
      traceconv op-profile MatMul --input 128x768 --input 768x768 --dtype bf16
      traceconv op-profile MaxPool --input 1x3x16x16 --attr kernel_shape=2,2
      traceconv op-profile Reshape --input 4x6 --input 2:int64=3,8
      traceconv op-profile block.onnx --input 8x64x56x56
      traceconv op-profile --cache-size
      traceconv op-profile --reset-cache
    """
    from traceconv.cli.output import print_message, write_rows

    if cache_size or reset_cache:
        _manage_cache(reset_cache)
        if op_type is None:
            return
    if op_type is None:
        raise UsageError("missing OP; for example: traceconv op-profile MatMul --input 128x768 --input 768x768")
    chosen = options.row_format(form, output, options.TEXT_ONLY)
    from traceconv.reports.render import Table
    from traceconv.runtime.expression import profile_expression
    from traceconv.runtime.op_profile import profile_op
    from traceconv.store.documented_sql import SqlColumn

    parsed = [_input(text, dtype) for text in inputs]
    is_graph = Path(op_type).suffix == ".onnx"
    if is_graph:
        if attributes or outputs is not None or opset is not None:
            raise UsageError("--attr, --outputs and --opset: for a single op; the graph in an .onnx file has its own")
        values = [value for value, _ in parsed] or None
        measured = profile_expression(op_type, values, repeat=repeat, device_spec=device_spec, cache=cache)
        rows = [*(_row(op, "op", op.op_name) for op in measured.ops), _row(measured, "expression", measured.name)]
        cached = measured.cached
    else:
        result = profile_op(
            op_type, [value for value, _ in parsed], dict(map(_attribute, attributes)), [kind for _, kind in parsed],
            repeat=repeat, outputs=outputs, opset=opset, device_spec=device_spec, cache=cache,
        )  # fmt: skip
        rows, cached = [_row(result, "op", result.op_name)], result.cached
    shown = _SHOWN_OF_GRAPH if is_graph else _SHOWN
    columns = [SqlColumn(*column) for column in _COLUMNS if chosen not in ("table", "markdown") or column[0] in shown]
    write_rows(Table(tuple(columns), [[[row[column.name] for column in columns] for row in rows]]), chosen, output)
    print_message("taken from the cache" if cached else f"ran {repeat} time{'s' * (repeat != 1)}")


def _row(result: OpProfile | ExpressionProfile, part: str, name: str) -> dict[str, Any]:
    """Return the values of all columns."""
    shortest = min(result.latencies_ns)
    return {
        "part": part,
        "op_name": name,
        **{column[0]: getattr(result, column[0], None) for column in _COLUMNS[2:]},
        "repeat": len(result.latencies_ns),
        "min_ns": shortest,
        "max_ns": max(result.latencies_ns),
        "latencies_ns": list(result.latencies_ns),
        "flops_per_s": result.flops * 10**9 // shortest if shortest else None,
    }


def _manage_cache(reset: bool) -> None:
    from traceconv.cli.output import print_message, write_lines
    from traceconv.reports.values import human_bytes
    from traceconv.runtime import op_cache

    if reset:
        print_message(f"removed {_entries(op_cache.reset())}")
        return
    kept = op_cache.size()
    where = "disabled: $TRACECONV_CACHE is empty" if kept.folder is None else printable(str(kept.folder))
    write_lines([f"{_entries(kept.entry_count)}, {human_bytes(kept.size_bytes)}, {where}"])


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def _input(text: str, dtype: str) -> tuple[OpInput, str]:
    """Parse `16x8:float16=…` into a shape or an array, and the dtype."""
    import numpy as np

    from traceconv.runtime.bfloat16 import BF16
    from traceconv.runtime.op_profile import shape_of

    head, equals, values = text.partition("=")
    shape_text, colon, kind = head.partition(":")
    kind = kind if colon else dtype
    shape = shape_of("--input", shape_text)
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
