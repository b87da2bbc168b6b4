"""Trains a model on one or more devices in modelled time, without logging."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from traceconv.runtime.device import Device
from traceconv.runtime.event_log import CaptureIds, EventLog, EventStore
from traceconv.runtime.graph import Array
from traceconv.runtime.host import THREADS, modelled_host
from traceconv.runtime.identity import modelled_identity
from traceconv.runtime.training.compile import batch_of, compile_training
from traceconv.runtime.training.data import Batch
from traceconv.runtime.training.lane import Lane, RendezvousTable
from traceconv.runtime.training.options import TrainOptions
from traceconv.runtime.training.team import Team
from traceconv.runtime.zoo import FoundModel, find_model


class Trainer:
    """The first batch determines shapes and the loss. Each device takes an equal part of every batch."""

    def __init__(self, model: str | FoundModel, options: TrainOptions | None = None, *, devices: int = 1) -> None:
        self.losses: list[float] = []
        self._options = options or TrainOptions()
        self._model = find_model(model) if isinstance(model, str) else model
        self._devices = devices
        self._team: Team | None = None

    @property
    def team(self) -> Team:
        assert self._team is not None, "the first step makes it"
        return self._team

    def step(self, batch: Mapping[str, Array], target: Array) -> float:
        """Learn from a batch; returns the loss before that."""
        arrays = {name: np.split(np.asarray(value), self._devices) for name, value in batch.items()}
        targets = np.split(np.asarray(target), self._devices)
        parts = [Batch({name: cut[k] for name, cut in arrays.items()}, targets[k]) for k in range(self._devices)]
        if self._team is None:
            self._team = self._opened(parts[0])
        loss = self._team.step([[("DataLoad", partial(_second, part))] for part in parts])
        self.losses.append(loss)
        return loss

    def weights(self, device: int = 0) -> dict[str, Array]:
        return self.team.weights(device)

    def _opened(self, example: Batch) -> Team:
        plan = compile_training(
            self._model,
            self._options,
            batch_of(example),
            inputs=example.inputs,
            target=example.target,
            devices=self._devices,
        )
        identity, ids, rendezvous = modelled_identity(0), CaptureIds(), RendezvousTable(self._devices)
        log = EventLog(EventStore())
        lanes = []
        for device_id in range(self._devices):
            host_seed, trace_seed = identity.device_seeds(device_id)
            host_ns = identity.host_ns or 0
            host = modelled_host(log, range(1, 1 + len(THREADS)), THREADS, host_ns, host_seed, ids.correlations)
            device = Device(plan.spec, identity.device_clock(device_id, host_ns, plan.spec), device_id)
            lanes.append(Lane(plan, host, device, rendezvous, ids=ids, seed=trace_seed))
        team = Team(lanes, rendezvous)
        team.open()
        return team


def _second(part: Batch, before: Batch) -> Batch:
    return part
