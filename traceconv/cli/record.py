"""`traceconv record`: a model on the reference NPU, logged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from traceconv.runtime.training.options import TrainOptions

HELP = """Run a model on the reference NPU and log what the device and the host do.

MODEL is an .onnx file, or the name of a network: bvlc_alexnet, densenet121, inception_v1, inception_v2,
resnet50, shufflenet, squeezenet, vgg19, zfnet512 (inside the onnx package), mini_decoder, mini_detector,
mini_half, mini_lstm, mini_quantized, mini_resnet, mini_transformer (built in). Networks in floats of 16, 32 and
64 bits and in 8-bit integers run; open dimensions are those of --batch and --input, and outputs are those of
onnxruntime.

With --train the model learns: each iteration is a step of forward, backward and refresh, on batches that the host
takes from --input (arrays of samples by input name, and one named target) or from noise. Several devices share the
gradients.

A model of a single operator has no iterations: its runs are in no step, and reports of steps say so.

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
  traceconv record mini_resnet -o raw/ --train --steps 20 --optimizer adam
  traceconv record m.onnx -o raw/ --train --input digits.npz --devices 2

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
    prefetch: bool | None = typer.Option(
        None,
        "--prefetch/--no-prefetch",
        help="Bring the inputs of a run while the one before it computes. [default: yes, but not with --train]",
        show_default=False,
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
    train: bool = typer.Option(False, "--train", help="Train the model instead of running it."),
    steps: int | None = typer.Option(
        None, "--steps", help="Steps to record, with --train, instead of --iterations.", show_default=False
    ),
    optimizer: str | None = typer.Option(None, "--optimizer", help="sgd or adam.  [default: sgd]", show_default=False),
    lr: float | None = typer.Option(
        None, "--lr", help="Learning rate.  [default: 0.01, or 0.001 with adam]", show_default=False
    ),
    momentum: float | None = typer.Option(
        None, "--momentum", help="Momentum of sgd.  [default: 0.9]", show_default=False
    ),
    loss: str | None = typer.Option(
        None,
        "--loss",
        help="cross-entropy (of the logits) or mse.  [default: mse for targets that are floats]",
        show_default=False,
    ),
    fp_point: str | None = typer.Option(
        None,
        "--fp-point",
        metavar="OP",
        help="Op at whose start the forward part begins, instead of the first.",
        show_default=False,
    ),
    bp_point: str | None = typer.Option(
        None,
        "--bp-point",
        metavar="OP",
        help="Op at whose end the backward part ends, instead of the last.",
        show_default=False,
    ),
    augment: bool | None = typer.Option(
        None,
        "--augment/--no-augment",
        help="Shift images by a few pixels before each step.  [default: yes]",
        show_default=False,
    ),
) -> None:
    import sys

    from traceconv.base.errors import UsageError, printable
    from traceconv.cli.output import say
    from traceconv.runtime.record import Recorded, RecordOptions
    from traceconv.runtime.record import record as run

    learning = {
        "--steps": steps,
        "--optimizer": optimizer,
        "--lr": lr,
        "--momentum": momentum,
        "--loss": loss,
        "--fp-point": fp_point,
        "--bp-point": bp_point,
        "--augment": augment,
    }
    stray = [name for name, value in learning.items() if value is not None]
    if stray and not train:
        raise UsageError(f"{stray[0]} is for training: add --train")
    iterations = iterations if steps is None else steps
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
        _training(optimizer, lr, momentum, loss, fp_point, bp_point, augment) if train else None,
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
    if done.losses:
        say(f"loss {done.losses[0]:.4f} at first, {done.losses[-1]:.4f} at last", "")
    runs = f"{iterations} iteration{'s' * (iterations != 1)}"
    where = f" on {devices} devices" if devices > 1 else ""
    ops = f"{done.op_count} op{'s' * (done.op_count != 1)}"
    say(f"{done.model_name}: {ops} × {runs} recorded{where}", "")
    folder = str(done.folder)
    typer.echo(printable(folder, len(folder)) if sys.stdout.isatty() else folder)


def _training(
    optimizer: str | None,
    lr: float | None,
    momentum: float | None,
    loss: str | None,
    fp_point: str | None,
    bp_point: str | None,
    augment: bool | None,
) -> TrainOptions:
    """What is not given is as the optimizer usually has it. Raises UsageError for what does not go together."""
    from traceconv.base.errors import UsageError
    from traceconv.runtime.training.optimizers import Optimizer
    from traceconv.runtime.training.options import TrainOptions

    kind = optimizer or "sgd"
    if kind == "adam" and momentum is not None:
        raise UsageError("--momentum is for sgd: adam has moments of its own")
    rate = lr if lr is not None else 0.001 if kind == "adam" else 0.01
    chosen = Optimizer(kind, rate, 0.9 if momentum is None else momentum)
    return TrainOptions(chosen, loss, fp_point, bp_point, augment is not False)
