"""`traceconv.TrainingSession`: trains a model in a user's program, profiled or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from traceconv.base.errors import InputError, UsageError, printable
from traceconv.runtime import session as engine_module
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.live import CURRENT_SPAN, PROCESS
from traceconv.runtime.session import CompiledModel, RunOptions
from traceconv.runtime.spec import load_spec, reference_npu
from traceconv.runtime.training.compile import batch_of, compile_training
from traceconv.runtime.training.data import TARGET, Batch
from traceconv.runtime.training.lane import Elsewhere, Lane, Meetings, find_points
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.team import Team
from traceconv.runtime.user_session import Session, found_model
from traceconv.runtime.zoo import find_model

if TYPE_CHECKING:
    import onnx


class TrainingSession(Session):
    """Trains a model on its own device, step by step.

        with traceconv.TrainingSession("mini_resnet", {"input": images}, labels, lr=0.1) as session:
            for images, labels in batches:
                loss = session.train_step({"input": images}, labels)
            weights = session.weights()

    model          path of an .onnx file, the name of a network such as "resnet50", or an onnx.ModelProto
    batch, target  an example batch, which determines the shapes and the loss and is not trained on;
                   target None: it is the array 'target' of the batch
    optimizer      "sgd" or "adam"; `momentum` is that of sgd
    lr             None: 0.01, or 0.001 with adam
    loss           "cross-entropy" or "mse"; None: "mse" where targets are floats
    seed           of what is drawn at random, such as the masks of Dropout
    device_spec    TOML file that describes the device; None: the reference NPU
    devices        1: several devices share gradients in `traceconv.record(…, train=…, devices=N)` only

    Raises ModelError when the model can't be trained, InputError for an example that it does not take, UsageError for
    an option that is wrong.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | onnx.ModelProto,
        batch: Mapping[str, Array],
        target: Array | None = None,
        *,
        optimizer: str = "sgd",
        lr: float | None = None,
        momentum: float = 0.9,
        loss: str | None = None,
        seed: int = 0,
        device_spec: str | os.PathLike[str] | None = None,
        devices: int = 1,
    ) -> None:
        if devices != 1:
            raise UsageError(
                f"devices {devices}: a TrainingSession has one; several train together in "
                "traceconv.record(model, folder, train=traceconv.TrainOptions(), devices=N)"
            )
        rate = lr if lr is not None else 0.001 if optimizer == "adam" else 0.01
        options = TrainOptions(Optimizer(optimizer, rate, momentum), loss)
        options.check()
        spec = reference_npu() if device_spec is None else load_spec(Path(device_spec))
        found = find_model(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else found_model(model)
        example = _batch(batch, target)
        self._training = compile_training(
            found, options, batch_of(example), inputs=example.inputs, target=example.target, seed=seed, spec=spec
        )
        self._seed = seed
        self.losses: list[float] = []
        self._begin(CompiledModel(self._training.program, Elsewhere(), spec), (), RunOptions())

    def _make_engine(self, compiled: CompiledModel, device: Device, fetch: tuple[str, ...]) -> engine_module.Session:
        meetings = Meetings(1)
        lane = Lane(
            self._training, self._host, device, meetings, ids=PROCESS.ids,
            seed=int.from_bytes(os.urandom(8), "little"), points=find_points(self._training, None, None),
            parent=CURRENT_SPAN.get, modules=True,
        )  # fmt: skip
        self._team = Team([lane], meetings, seed=self._seed)
        return lane

    def train_step(self, batch: Mapping[str, Array], target: Array | None = None) -> float:
        """Learns from a batch of the example's shapes; returns the loss before that. `target`: as the example's.

        Raises InputError for what the model does not take, UsageError when the session is closed.
        """
        given = _batch(batch, target)
        with self._running():
            loss = self._team.step([[("DataLoad", partial(_given, given))]])
        self.losses.append(loss)
        return loss

    def run(self, inputs: Mapping[str, Array], *, step: bool | None = None) -> dict[str, Array]:
        """Raise UsageError: this program trains. Put `weights()` into the model, and run that."""
        raise UsageError(f"the session of {self.name} trains: use train_step, or traceconv.Session to run the model")

    def weights(self) -> dict[str, Array]:
        """What was learned so far: parameters and running statistics by name, copied."""
        return self._team.weights()


def _batch(inputs: Mapping[str, Array], target: Array | None) -> Batch:
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    if target is None:
        if TARGET not in arrays:
            shown = ", ".join(printable(name, 60) for name in arrays) or "none"
            raise InputError(f"missing target: give a target, or an array '{TARGET}' in the batch; it has: {shown}")
        target = arrays.pop(TARGET)
    return Batch(arrays, np.asarray(target))


def _given(batch: Batch, before: Batch) -> Batch:
    return batch
