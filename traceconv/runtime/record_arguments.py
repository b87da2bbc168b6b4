"""The arguments of `traceconv record` and `traceconv.record`, as options of a recording."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from traceconv.base.errors import UsageError, option, printable
from traceconv.runtime.profile_options import parse_options
from traceconv.runtime.record import RecordOptions
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions


def record_options(  # noqa: PLR0913 - the options of the command
    model: str,
    output: Path | None,
    *,
    iterations: int,
    warmup: int,
    batch: int | None,
    input: Path | None,
    seed: int,
    deterministic: bool,
    aic_metrics: str | None,
    task_trace: bool | None,
    training_trace: bool | None,
    clock: str | None,
    profiling_options: str | os.PathLike[str] | Mapping[str, object] | None,
    devices: int,
    device_spec: Path | None,
    streams: int | None,
    prefetch: bool | None,
    fetch: Sequence[str],
    truth: bool,
    train: bool | TrainOptions,
    steps: int | None,
    optimizer: str | None,
    lr: float | None,
    momentum: float | None,
    loss: str | None,
    fp_point: str | None,
    bp_point: str | None,
    augment: bool | None,
) -> RecordOptions:
    """Return the options of a recording. Raises UsageError for those that exclude each other or lack another."""
    if not isinstance(train, (bool, TrainOptions)):
        raise UsageError(f"train must be True, False or TrainOptions, not {printable(repr(train), 60)}")
    for_training = {"lr": lr, "momentum": momentum, "loss": loss, "augment": augment}
    stray = {"steps": steps, "optimizer": optimizer, **for_training}
    given = [name for name, value in stray.items() if value is not None]
    if given and train is False:
        raise UsageError(f"{option('--' + given[0])} is for training; add {option('--train')}")
    training = None
    if isinstance(train, TrainOptions):
        training = train
        if given and given != ["steps"]:
            name = next(name for name in given if name != "steps")
            raise UsageError(f"{name} is given both as an argument and in train; remove one")
    elif train:
        kind = optimizer or "sgd"
        if kind == "adam" and momentum is not None:
            raise UsageError(f"{option('--momentum')} applies only to sgd; omit it, or use {option('--optimizer')} sgd")
        rate = lr if lr is not None else 0.001 if kind == "adam" else 0.01
        update = Optimizer(kind, rate, 0.9 if momentum is None else momentum)
        training = TrainOptions(update, loss, augment=augment is not False)
    selected = {
        "output": output, "aic_metrics": aic_metrics, "task_trace": task_trace, "training_trace": training_trace,
        "fp_point": fp_point, "bp_point": bp_point, "clock": clock,
    }  # fmt: skip
    profile = parse_options(selected, profiling_options, override=True)
    if profile.output is None:
        missing = option("missing option --output", "missing output")
        raise UsageError(f"{missing}: name a folder for the capture{option(' with -o DIR', '')}")
    return RecordOptions(
        model, profile.output, iterations if steps is None else steps, warmup, batch, input, seed, deterministic,
        profile, devices, device_spec, streams, prefetch, tuple(fetch), truth, training,
    )  # fmt: skip
