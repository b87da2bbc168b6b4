"""The arithmetic of a training step: forward, backward, parameter update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from traceconv.base.errors import InputError, option, printable
from traceconv.runtime.bfloat16 import BF16, rounded, widened
from traceconv.runtime.graph import Array
from traceconv.runtime.training.gradient import Values
from traceconv.runtime.training.plan import MASTER, TrainingPlan, slot_name


@dataclass(frozen=True, slots=True)
class StepValues:
    """A device's results for its batch: loss, gradients by parameter, batch statistics by running statistic."""

    loss: float
    gradients: Mapping[str, Values]
    statistics: Mapping[str, Values]


class StepArithmetic:
    """Computes the steps of a plan."""

    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._constants = {name: widened(value) for name, value in plan.program.graph.constants.items()}
        self._last_uses = plan.program.last_uses()
        root = plan.program.root
        self._wanted = {root(name) for name in plan.parameters.values()}
        self._wanted |= {root(new) for _, new, _ in plan.stats} | {plan.program.downloads[0]}

    def run(self, inputs: Mapping[str, Array], state: Mapping[str, Values], seed: Sequence[int]) -> StepValues:
        """Compute forward and backward, with random numbers from `seed`.

        Raises InputError for a loss that is not finite, after which nothing would be learned.
        """
        plan, root = self._plan, self._plan.program.root
        values: dict[str, Values] = {name: widened(value) for name, value in inputs.items()}
        with np.errstate(all="ignore"):
            for op in plan.program.ops:
                arithmetic = plan.arithmetic.get(op.index)
                if arithmetic is None:
                    continue
                read = [self._value(name, values, state) for name in arithmetic.reads]
                made = arithmetic.run(read, seed)
                values.update(zip(arithmetic.makes, made, strict=True))
                for name in self._last_uses.get(op.index, ()):
                    if name not in self._wanted:
                        values.pop(name, None)
        loss = float(values[plan.program.downloads[0]])
        if not np.isfinite(loss):
            raise InputError(
                f"{plan.program.graph.name}: the loss is {loss}: try a smaller {option('--lr')}, or check the inputs"
            )
        return StepValues(
            loss,
            {name: values[root(gradient)].reshape(state[name].shape) for name, gradient in plan.parameters.items()},
            {running: values[root(new)] for running, new, _ in plan.stats},
        )

    def refresh(self, state: Mapping[str, Values], step: int, values: StepValues) -> None:
        """Update `state` in place with the mean gradients and statistics of all devices; `step` counts from 1."""
        plan = self._plan
        for name, gradient in values.gradients.items():
            dtype = plan.program.graph.tensors[name].numpy_dtype
            slots = [state[slot_name(name, slot)] for slot in plan.optimizer.task.slots]
            if dtype == np.float16:
                master = state[slot_name(name, MASTER)]
                plan.optimizer.apply(step, master, gradient.astype(np.float32), slots)
                with np.errstate(over="ignore"):
                    state[name][...] = master
                continue
            half = dtype == BF16
            plan.optimizer.apply(step, state[name], rounded(gradient) if half else gradient, slots)
            for value in (state[name], *slots) if half else ():
                value[...] = rounded(value)
        for running, _, share in plan.stats:
            old = state[running]
            new = share * old + (1.0 - share) * values.statistics[running]
            old[...] = rounded(new) if plan.program.graph.tensors[running].numpy_dtype == BF16 else new

    def _value(self, name: str, values: Mapping[str, Values], state: Mapping[str, Values]) -> Values:
        root = self._plan.program.root(name)
        value = state.get(root)
        if value is None:
            value = values.get(root)
        if value is None:
            value = self._constants.get(root)
        if value is None:
            raise AssertionError(f"nothing made '{printable(root, 80)}'")
        shape = self._plan.program.graph.tensors[name].shape
        return value if value.shape == shape else value.reshape(shape)


def mean_values(parts: Sequence[StepValues]) -> StepValues:
    """The result of the all-reduce: sums in the order of the devices, divided by their number."""
    if len(parts) == 1:
        return parts[0]
    gradients = {name: _mean([part.gradients[name] for part in parts]) for name in parts[0].gradients}
    statistics = {name: _mean([part.statistics[name] for part in parts]) for name in parts[0].statistics}
    return StepValues(sum(part.loss for part in parts) / len(parts), gradients, statistics)


def _mean(arrays: Sequence[Values]) -> Values:
    total: Values = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    total /= len(arrays)
    return total
