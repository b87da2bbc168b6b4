"""Where batches come from: a data set in memory, shuffled, cut into batches and augmented on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from traceconv.base.errors import InputError, printable
from traceconv.runtime.graph import FLOATS, Array, Tensor
from traceconv.runtime.training.gradient import Values
from traceconv.runtime.training.losses import Loss

#: Name of the array of targets among those of a file.
TARGET = "target"
#: Number of batches in a random data set.
_RANDOM_BATCHES = 4
#: Images are shifted by up to 1/16 of their size.
_SHIFT = 16


@dataclass(frozen=True, slots=True)
class Batch:
    """Training data of one device in one step: inputs by name and the target."""

    inputs: Mapping[str, Array]
    target: Array

    @property
    def size_bytes(self) -> int:
        """All of it."""
        return self.target.nbytes + sum(value.nbytes for value in self.inputs.values())


@dataclass(frozen=True, slots=True)
class DataSet:
    """Samples along the first axis of every array; each epoch is in another order, which comes of `seed`."""

    inputs: Mapping[str, Array]
    target: Array
    batch: int
    seed: int = 0

    @property
    def batch_count(self) -> int:
        """Whole batches in an epoch; what is left over comes in another one, as the order changes."""
        return len(self.target) // self.batch

    def load(self, number: int) -> Batch:
        """The `number`-th batch of the run."""
        epoch, place = divmod(number, self.batch_count)
        rows = _order(len(self.target), self.seed, epoch)[place * self.batch : (place + 1) * self.batch]
        return Batch({name: values[rows] for name, values in self.inputs.items()}, self.target[rows])


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> Values:
    return np.random.default_rng([seed, epoch]).permutation(count)


def augmented(batch: Batch, seed: tuple[int, ...]) -> Batch:
    """Images (N × C × H × W of floats) shifted by a few pixels, each sample by its own; the rest as it is."""
    random = np.random.default_rng(list(seed))
    return Batch({name: _shifted(value, random) for name, value in batch.inputs.items()}, batch.target)


def _shifted(value: Array, random: np.random.Generator) -> Array:
    if value.ndim != 4 or value.dtype.kind != "f" or min(value.shape[2:]) < 2:
        return value
    count, _, height, width = value.shape
    most = (max(1, height // _SHIFT), max(1, width // _SHIFT))
    shifts = random.integers([-most[0], -most[1]], [most[0] + 1, most[1] + 1], (count, 2))
    made = np.zeros_like(value)
    for place, (down, right) in enumerate(shifts.tolist()):
        to = (slice(max(0, down), height + min(0, down)), slice(max(0, right), width + min(0, right)))
        taken = (slice(max(0, -down), height - max(0, down)), slice(max(0, -right), width - max(0, right)))
        made[place][:, to[0], to[1]] = value[place][:, taken[0], taken[1]]
    return made


def given_data(tensors: Mapping[str, Tensor], loss: Loss, arrays: Mapping[str, Array], seed: int) -> DataSet:
    """The data set in a file: an array for each input, and one named `target`.

    `tensors`: the model's inputs. Raises InputError for what does not fit the model.
    """
    given = dict(arrays)
    target = given.pop(TARGET, None)
    if target is None:
        raise InputError(f"--input needs an array '{TARGET}' to train with; it has: {_listed(arrays)}")
    if len(given) == len(tensors) == 1:
        given = dict(zip(tensors, given.values(), strict=True))
    for name in given:
        if name not in tensors:
            raise InputError(f"--input has '{printable(name, 60)}', but the inputs are: {_listed(tensors)}")
    count = len(target) if target.ndim else 0
    made: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if name not in given:
            raise InputError(f"--input has no '{printable(name, 60)}', an input of shape {list(tensor.shape)}")
        made[name] = _samples(f"'{printable(name, 60)}'", given[name], tensor, count)
    if loss.target.numpy_dtype.kind == "i" and target.dtype.kind not in "iu":
        raise InputError(f"--input: '{TARGET}' is {target.dtype}, but class numbers are integers")
    target = _samples(f"'{TARGET}'", target, loss.target, count)
    batch = loss.target.shape[0]
    if count < batch:
        raise InputError(f"--input has {count} samples, but a batch is {batch}: give a smaller --batch")
    for start in range(0, count - batch + 1, batch):
        loss.check(target[start : start + batch])
    return DataSet(made, target, batch, seed)


def _samples(what: str, values: Array, tensor: Tensor, count: int) -> Array:
    if not tensor.shape or values.shape[1:] != tensor.shape[1:]:
        wanted = ", ".join(map(str, ("samples", *tensor.shape[1:])))
        raise InputError(f"--input: {what} is {list(values.shape)}, but must be [{wanted}]")
    if len(values) != count:
        raise InputError(f"--input: {what} has {len(values)} samples, but '{TARGET}' has {count}")
    wanted_dtype = tensor.numpy_dtype
    kinds = values.dtype.kind + wanted_dtype.kind
    if kinds not in ("ff", "if", "uf", "ii", "ui", "uu", "bb"):
        raise InputError(f"--input: {what} is {values.dtype}, but must be {wanted_dtype}")
    return np.ascontiguousarray(values.astype(wanted_dtype, copy=False))


def random_data(inputs: Mapping[str, Array], tensors: Mapping[str, Tensor], loss: Loss, seed: int) -> DataSet:
    """A few batches of random inputs and targets: a model can only memorize them.

    `inputs`: one batch; where integers index something, theirs are taken again.
    """
    random = np.random.default_rng([seed, 1])
    batch = loss.target.shape[0] if loss.target.shape else 1
    made: dict[str, Array] = {}
    for name, value in inputs.items():
        if tensors[name].elem_type in FLOATS:
            shape = (_RANDOM_BATCHES * value.shape[0], *value.shape[1:])
            made[name] = random.standard_normal(shape).astype(value.dtype)
        else:
            made[name] = np.concatenate([value] * _RANDOM_BATCHES)
    shape = (_RANDOM_BATCHES * batch, *loss.target.shape[1:])
    target: Array
    if loss.kind == "mse":
        target = random.standard_normal(shape).astype(loss.target.numpy_dtype)
    else:
        target = random.integers(0, loss.source.shape[loss.class_axis], shape).astype(loss.target.numpy_dtype)
    return DataSet(made, target, batch, seed)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(printable(name, 60) for name in names) or "none"
