"""Data-parallel training: devices take steps together on different batches and keep equal weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from traceconv.runtime.bfloat16 import widened
from traceconv.runtime.graph import Array
from traceconv.runtime.training.gradient import Values
from traceconv.runtime.training.lane import Lane, RendezvousTable, Source, move_on
from traceconv.runtime.training.numbers import StepArithmetic, StepValues, mean_values


class Team:
    """The devices that train one model. Use it as a context manager, or call `open` and `close`.

    side_by_side  run each device's host threads in a thread of their own, for real time; False: in turn, for modelled
                  time
    """

    def __init__(
        self, lanes: Sequence[Lane], rendezvous: RendezvousTable, *, seed: int = 0, side_by_side: bool = False
    ) -> None:
        self.lanes = tuple(lanes)
        self.plan = self.lanes[0].plan
        self._rendezvous = rendezvous
        self._seed = seed
        self._steps = 0
        self._arithmetic = StepArithmetic(self.plan)
        self.states: list[dict[str, Values]] = [
            {name: np.array(widened(value)) for name, value in self.plan.state.items()} for _ in self.lanes
        ]
        several = side_by_side and len(self.lanes) > 1
        self._pool = ThreadPoolExecutor(len(self.lanes), "channel") if several else None

    def open(self) -> None:
        """Set up the devices, and copy the weights to them."""
        self._each([lane.open for lane in self.lanes])

    def close(self) -> None:
        """Free everything on the devices."""
        self._each([lane.close for lane in self.lanes])

    def stop(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def step(
        self,
        sources: Sequence[Source],
        *,
        step: bool = True,
        then: Sequence[Source] | None = None,
        then_step: bool = True,
    ) -> float:
        """Take a step on all devices; return the mean loss. The arguments are those of `Lane.begin` for each device."""
        following: Sequence[Source | None] = [None] * len(self.lanes) if then is None else then
        works = zip(self.lanes, sources, following, strict=True)
        self._each([partial(lane.begin, one, step=step, then=ahead, then_step=then_step) for lane, one, ahead in works])
        with self.lanes[0].stopped():
            parts = self._numbers()
            move_on(self.lanes)
        loss = mean_values(parts).loss
        self._each([partial(lane.end, part.loss) for lane, part in zip(self.lanes, parts, strict=True)])
        self._rendezvous.forget(self._steps)
        self._steps += 1
        return loss

    def weights(self, device: int = 0) -> dict[str, Array]:
        """Return a copy of a device's parameters and running statistics by name."""
        names = [*self.plan.parameters, *(running for running, _, _ in self.plan.stats)]
        tensors = self.plan.program.graph.tensors
        return {name: self.states[device][name].astype(tensors[name].numpy_dtype) for name in names}

    def _numbers(self) -> list[StepValues]:
        parts = []
        for index, (lane, state) in enumerate(zip(self.lanes, self.states, strict=True)):
            feeds = {**lane.batch.inputs, self.plan.loss.target.name: lane.batch.target}
            parts.append(self._arithmetic.run(feeds, state, (self._seed, self._steps, index)))
        mean = mean_values(parts)
        for state in self.states:
            self._arithmetic.refresh(state, self._steps + 1, mean)
        return parts

    def _each(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make all calls, in threads or in turn. Raises the first error."""
        if self._pool is None:
            for call in calls:
                call()
            return
        futures = [self._pool.submit(call) for call in calls]
        failures = [failure for future in futures if (failure := future.exception()) is not None]
        if failures:
            raise failures[0]
