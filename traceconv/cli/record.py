"""`traceconv record`: a model on the reference NPU, logged."""

from __future__ import annotations

from pathlib import Path

import typer

HELP = """Run a model on the reference NPU and log what the device and the host do.

MODEL is an .onnx file, or the name of a network: bvlc_alexnet, densenet121, inception_v1, inception_v2,
resnet50, shufflenet, squeezenet, vgg19, zfnet512 (inside the onnx package), mini_decoder, mini_detector,
mini_half, mini_lstm, mini_quantized, mini_resnet, mini_transformer (built in). Networks in floats of 16, 32 and
64 bits and in 8-bit integers run; open dimensions are those of --batch and --input, and outputs are those of
onnxruntime.

The log is a folder PROF_… under DIR, whose path is printed.

\b
Examples:
  traceconv record resnet50 -o raw/
  traceconv record model.onnx -o raw/ --iterations 20 --warmup 3
  traceconv record model.onnx -o raw/ --batch 8 --input data.npz
  traceconv record mini_resnet -o raw/ --deterministic --seed 7
  traceconv record resnet50 -o raw/ --aic-metrics Memory
  traceconv record inception_v1 -o raw/ --devices 2 --streams 2
  traceconv record resnet50 -o raw/ --device-spec edge.toml --truth

Then: traceconv ingest raw/
"""


def record(
    model: str = typer.Argument(
        ..., metavar="MODEL", help="An .onnx file, or the name of a network.", show_default=False
    ),
    output: Path = typer.Option(
        ..., "--output", "-o", metavar="DIR", help="Folder for the capture; made if need be.", show_default=False
    ),
    iterations: int = typer.Option(5, "--iterations", "-n", help="Inferences to record."),
    warmup: int = typer.Option(0, "--warmup", help="Inferences before them, marked as warm-up and in no step."),
    batch: int | None = typer.Option(
        None, "--batch", help="First extent of every input, instead of the model's.", show_default=False
    ),
    input_path: Path | None = typer.Option(
        None,
        "--input",
        metavar="FILE.npz",
        help="Input arrays by name; without it they are random.",
        show_default=False,
    ),
    seed: int = typer.Option(0, "--seed", help="Seed of random inputs, and of --deterministic."),
    deterministic: bool = typer.Option(
        False, "--deterministic", help="Model the host's times too: same options, same bytes."
    ),
    aic_metrics: str = typer.Option(
        "PipeUtilization",
        "--aic-metrics",
        metavar="GROUP",
        help="Counters to record of each task: PipeUtilization, ArithmeticUtilization, Memory, MemoryL0, MemoryUB, "
        "ResourceConflictRatio or L2Cache.",
    ),
    devices: int = typer.Option(1, "--devices", help="Devices that run the model at a time, each for itself."),
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
        True, "--prefetch/--no-prefetch", help="Copy the inputs of a run while the one before it computes."
    ),
    fetch: list[str] = typer.Option(
        [],
        "--fetch",
        metavar="TENSOR",
        help="Have the host read this tensor as soon as it is made; may be given several times.",
        show_default=False,
    ),
    truth: bool = typer.Option(
        False, "--truth", help="Write what really happened beside the manifest, as truth.jsonl, to check analyses with."
    ),
) -> None:
    import sys

    from traceconv.runtime.record import Recorded, RecordOptions
    from traceconv.runtime.record import record as run

    options = RecordOptions(
        model,
        output,
        iterations,
        warmup,
        batch,
        input_path,
        seed,
        deterministic,
        aic_metrics,
        devices,
        device_spec,
        streams,
        prefetch,
        tuple(fetch),
        truth,
    )
    done: Recorded
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("recording", total=None)
            done = run(options, lambda ready, total: bar.update(task, completed=ready, total=total))
    else:
        done = run(options)
    runs = f"{iterations} iteration{'s' * (iterations != 1)}"
    where = f" on {devices} devices" if devices > 1 else ""
    typer.echo(f"{done.model_name}: {done.op_count} ops × {runs} recorded{where}", err=True)
    typer.echo(str(done.folder))
