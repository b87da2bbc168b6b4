"""`traceconv record`: run a model on the reference NPU and log it."""

from __future__ import annotations

from pathlib import Path

import typer

from traceconv.base.errors import printable
from traceconv.cli import options


def record(
    model: str = options.MODEL,
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="DIR", help="Folder to create the capture in.", show_default=False
    ),
    iterations: int = typer.Option(5, "--iterations", "-n", help="Inferences to record."),
    warmup: int = typer.Option(0, "--warmup", help="Warm-up inferences to run first; they belong to no step."),
    batch: int | None = options.BATCH,
    input_path: Path | None = typer.Option(
        None, "--input", metavar="FILE.npz", help="Input arrays by name. Default: random."
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of random inputs, and of --deterministic."),
    deterministic: bool = typer.Option(
        False, "--deterministic", help="Simulate host times too, so that the same options give the same bytes."
    ),
    aic_metrics: str | None = typer.Option(
        None,
        "--aic-metrics",
        metavar="GROUP",
        help="Counter group to record for each task: PipeUtilization (the default), ArithmeticUtilization, Memory, "
        "MemoryL0, MemoryUB, ResourceConflictRatio or L2Cache; off: none.",
    ),
    task_trace: bool | None = typer.Option(None, "--task-trace/--no-task-trace", help="Record tasks. Default: yes."),
    training_trace: bool | None = typer.Option(
        None, "--training-trace/--no-training-trace", help="Record steps. Default: yes."
    ),
    clock: str | None = typer.Option(
        None,
        "--clock",
        metavar="virtual|wall",
        help="Host clock: virtual stops while kernels are emulated, wall goes on. Default: virtual.",
    ),
    profiling_options: str | None = typer.Option(
        None,
        "--profiling-options",
        metavar="FILE|JSON",
        help="Options of a profile, such as Ascend's profiling_options. Other options override them.",
    ),
    devices: int = typer.Option(1, "--devices", help="Number of devices that each run the model."),
    device_spec: Path | None = options.DEVICE_SPEC,
    streams: int | None = options.STREAMS,
    prefetch: bool | None = typer.Option(
        None,
        "--prefetch/--no-prefetch",
        help="Copy the inputs of the next run during a run. Default: yes, except with --train.",
    ),
    fetch: list[str] = typer.Option(
        [],
        "--fetch",
        metavar="TENSOR",
        help="Read this tensor on the host as soon as it is produced (repeatable).",
        show_default=False,
    ),
    truth: bool = typer.Option(False, "--truth", help="Write the ground truth, truth.jsonl, next to the manifest."),
    train: bool = typer.Option(False, "--train", help="Train the model."),
    steps: int | None = typer.Option(None, "--steps", help="Training steps to record, instead of --iterations."),
    optimizer: str | None = typer.Option(None, "--optimizer", help="sgd or adam. Default: sgd."),
    lr: float | None = typer.Option(None, "--lr", help="Learning rate. Default: 0.01, or 0.001 with adam."),
    momentum: float | None = typer.Option(None, "--momentum", help="Momentum for sgd. Default: 0.9."),
    loss: str | None = typer.Option(
        None, "--loss", help="cross-entropy (of logits) or mse. Default: mse if the targets are floats."
    ),
    fp_point: str | None = typer.Option(
        None, "--fp-point", metavar="OP", help="Op that starts the forward pass. Default, or '': the first."
    ),
    bp_point: str | None = typer.Option(
        None, "--bp-point", metavar="OP", help="Op that ends the backward pass. Default, or '': the last."
    ),
    augment: bool | None = typer.Option(
        None, "--augment/--no-augment", help="Shift images by a few pixels before each step. Default: yes."
    ),
) -> None:
    """Run a model on the reference NPU and log it.

    MODEL is an .onnx file, or the name of a model: bvlc_alexnet, densenet121, inception_v1, inception_v2, resnet50,
    shufflenet, squeezenet, vgg19, zfnet512 (from the onnx package), mini_bf16, mini_decoder, mini_detector, mini_half,
    mini_lstm, mini_quantized, mini_resnet, mini_transformer (built in). Supports fp16, bf16, fp32, fp64 and 8-bit
    integer models. Dynamic dimensions come from --batch and --input. Outputs are those of onnxruntime; bf16 ops are
    computed in fp32 and rounded.

    With --train, each iteration is a step: forward, backward, parameter update. Batches are taken from --input (arrays
    of samples by input name, and one named target) or are random. Devices share their gradients.

    A model with a single operator has no iterations: its runs belong to no step, so step reports are empty.

    The capture is a folder PROF_… in DIR, whose path is printed.

    \b
    Examples:
      traceconv record resnet50 -o raw/
      traceconv record model.onnx -o raw/ --iterations 20 --warmup 3
      traceconv record model.onnx -o raw/ --batch 8 --input data.npz
      traceconv record mini_resnet -o raw/ --deterministic --seed 7
      traceconv record resnet50 -o raw/ --aic-metrics Memory
      traceconv record resnet50 -o raw/ --no-task-trace --aic-metrics off
      traceconv record resnet50 --profiling-options ascend.json
      traceconv record inception_v1 -o raw/ --devices 2 --streams 2
      traceconv record resnet50 -o raw/ --device-spec edge.toml --truth
      traceconv record mini_resnet -o raw/ --train --steps 20 --optimizer adam
      traceconv record m.onnx -o raw/ --train --input digits.npz --devices 2

    Then: traceconv ingest raw/
    """
    import sys

    from traceconv.cli.output import print_message
    from traceconv.runtime.record import record as run
    from traceconv.runtime.record_arguments import record_options

    chosen = record_options(
        model, output, iterations=iterations, warmup=warmup, batch=batch, input=input_path, seed=seed,
        deterministic=deterministic, aic_metrics=aic_metrics, task_trace=task_trace, training_trace=training_trace,
        clock=clock, profiling_options=profiling_options, devices=devices, device_spec=device_spec, streams=streams,
        prefetch=prefetch, fetch=fetch, truth=truth, train=train, steps=steps, optimizer=optimizer, lr=lr,
        momentum=momentum, loss=loss, fp_point=fp_point, bp_point=bp_point, augment=augment,
    )  # fmt: skip
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("recording", total=None)
            recorded = run(chosen, lambda ready, total: bar.update(task, completed=ready, total=total))
    else:
        recorded = run(chosen)
    if recorded.losses:
        print_message(f"initial loss {recorded.losses[0]:.4f}, final loss {recorded.losses[-1]:.4f}", "")
    runs = f"{chosen.iterations} iteration{'s' * (chosen.iterations != 1)}"
    where = f" on {devices} devices" if devices > 1 else ""
    ops = f"{recorded.op_count} op{'s' * (recorded.op_count != 1)}"
    print_message(f"{recorded.model_name}: {ops} × {runs} recorded{where}", "")
    folder = str(recorded.folder)
    typer.echo(printable(folder, len(folder)) if sys.stdout.isatty() else folder)
