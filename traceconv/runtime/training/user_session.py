"""`traceconv.TrainingSession`: train a model in a user's program, profiled or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from traceconv.base.errors import InputError, UsageError
from traceconv.runtime import session as engine_module
from traceconv.runtime.compiled import CompiledModel
from traceconv.runtime.device import Device
from traceconv.runtime.graph import Array
from traceconv.runtime.live import CURRENT_SPAN, PROCESS
from traceconv.runtime.session import RunOptions
from traceconv.runtime.spec import load_spec, reference_npu
from traceconv.runtime.training.compile import batch_of, compile_training
from traceconv.runtime.training.data import TARGET, Batch, names_of
from traceconv.runtime.training.lane import Lane, RendezvousTable, TimingOnlyExecutor, find_points
from traceconv.runtime.training.optimizers import Optimizer
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.team import Team
from traceconv.runtime.user_session import Session, found_model
from traceconv.runtime.zoo import find_model

if TYPE_CHECKING:
    import onnx


class TrainingSession(Session):
    """A model that is trained step by step on its own device.

        with traceconv.TrainingSession("mini_resnet", {"input": images}, labels, lr=0.1) as session:
            for images, labels in batches:
                loss = session.train_step({"input": images}, labels)
            weights = session.weights()

    model          path of an .onnx file, the name of a network such as "resnet50", or an onnx.ModelProto
    batch, target  an example that determines the shapes and the loss; it is not used for training. target None: the
                   array 'target' of the batch
    optimizer      "sgd" (with `momentum`), "adam", or an `Optimizer` with all of its options
    lr             learning rate; None: 0.01, or 0.001 with adam
    loss           "cross-entropy" or "mse"; None: "mse" for float targets, otherwise "cross-entropy"
    seed           seed of random values, such as the masks of Dropout
    device_spec    TOML file that describes the device; None: the reference NPU
    devices        only 1; to train on several, use `traceconv.record(…, train=…, devices=N)`

    Raises ModelError if the model can't be trained, InputError if it does not accept the example, UsageError for a
    wrong option.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | onnx.ModelProto,
        batch: Mapping[str, Array],
        target: Array | None = None,
        *,
        optimizer: str | Optimizer = "sgd",
        lr: float | None = None,
        momentum: float = 0.9,
        loss: str | None = None,
        seed: int = 0,
        device_spec: str | os.PathLike[str] | None = None,
        devices: int = 1,
    ) -> None:
        if devices != 1:
            raise UsageError(
                f"devices {devices}: a TrainingSession has one; to train on several, use "
                "traceconv.record(model, folder, train=traceconv.TrainOptions(), devices=N)"
            )
        if isinstance(optimizer, Optimizer):
            if lr is not None:
                raise UsageError("lr: the optimizer has a learning rate already; remove one of them")
            update = optimizer
        elif isinstance(optimizer, str):
            rate = lr if lr is not None else 0.001 if optimizer == "adam" else 0.01
            update = Optimizer(optimizer, rate, momentum)
        else:
            raise UsageError(f"optimizer must be a name or a traceconv.Optimizer, not {type(optimizer).__name__}")
        options = TrainOptions(update, loss)
        options.check()
        spec = reference_npu() if device_spec is None else load_spec(Path(device_spec))
        found = find_model(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else found_model(model)
        example = _batch(batch, target)
        self._training = compile_training(
            found, options, batch_of(example), inputs=example.inputs, target=example.target, seed=seed, spec=spec
        )
        self._seed = seed
        self.losses: list[float] = []
        self._begin(CompiledModel(self._training.program, TimingOnlyExecutor(self._training), spec), (), RunOptions())

    def _make_engine(self, compiled: CompiledModel, device: Device, fetch: tuple[str, ...]) -> engine_module.Session:
        rendezvous = RendezvousTable(1)
        lane = Lane(
            self._training, self._host, device, rendezvous, ids=PROCESS.ids,
            seed=int.from_bytes(os.urandom(8), "little"), points=find_points(self._training, None, None),
            parent=CURRENT_SPAN.get, modules=True,
        )  # fmt: skip
        self._team = Team([lane], rendezvous, seed=self._seed)
        return lane

    def train_step(self, batch: Mapping[str, Array], target: Array | None = None) -> float:
        """Train on a batch with the example's shapes; return the loss before the update. `target`: as in the example.

        Raises InputError if the model does not accept the batch, UsageError if the session is closed.
        """
        given = _batch(batch, target)
        with self._running():
            loss = self._team.step([[("DataLoad", lambda _: given)]])
        self.losses.append(loss)
        return loss

    def get_profile(self) -> dict[str, object]:
        """Raise UsageError: only inference has a static profile."""
        raise UsageError(
            f"the session of {self.name} trains the model, which has no static profile; "
            "traceconv.get_profile(model) estimates its inference"
        )

    def run(self, inputs: Mapping[str, Array], *, step: bool | None = None) -> dict[str, Array]:
        """Raise UsageError: this session trains. To run the model, put `weights()` into it and use a Session."""
        raise UsageError(f"the session of {self.name} trains: use train_step, or traceconv.Session to run the model")

    def weights(self) -> dict[str, Array]:
        """Return a copy of the current parameters and running statistics by name."""
        return self._team.weights()


def _batch(inputs: Mapping[str, Array], target: Array | None) -> Batch:
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    if target is None:
        if TARGET not in arrays:
            raise InputError(
                f"missing target: give one, or an array '{TARGET}' in the batch, which has: {names_of(arrays)}"
            )
        target = arrays.pop(TARGET)
    return Batch(arrays, np.asarray(target))
