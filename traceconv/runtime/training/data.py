"""Training data: a data set in memory, shuffled, cut into batches and augmented on the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from traceconv.base.errors import InputError, option, printable
from traceconv.runtime.bfloat16 import is_float
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
    """The inputs by name and the target of one step on one device."""

    inputs: Mapping[str, Array]
    target: Array

    @property
    def size_bytes(self) -> int:
        """Size of all arrays."""
        return self.target.nbytes + sum(value.nbytes for value in self.inputs.values())


@dataclass(frozen=True, slots=True)
class DataSet:
    """Samples along the first axis of every array; `seed` determines the order, which differs in each epoch."""

    inputs: Mapping[str, Array]
    target: Array
    batch: int
    seed: int = 0

    @property
    def batch_count(self) -> int:
        """Number of complete batches in an epoch. The remaining samples are not used in that epoch."""
        return len(self.target) // self.batch

    def load(self, number: int) -> Batch:
        """Return batch `number` of the training."""
        epoch, index = divmod(number, self.batch_count)
        rows = _order(len(self.target), self.seed, epoch)[index * self.batch : (index + 1) * self.batch]
        return Batch({name: values[rows] for name, values in self.inputs.items()}, self.target[rows])


@lru_cache(maxsize=2)
def _order(count: int, seed: int, epoch: int) -> Values:
    return np.random.default_rng([seed, epoch]).permutation(count)


def _input() -> str:
    return option("--input", "the input data")


def augmented(batch: Batch, seed: tuple[int, ...]) -> Batch:
    """Shift each image (inputs of floats, N × C × H × W) by a few random pixels; keep other inputs."""
    random = np.random.default_rng(list(seed))
    return Batch({name: _shifted(value, random) for name, value in batch.inputs.items()}, batch.target)


def _shifted(value: Array, random: np.random.Generator) -> Array:
    if value.ndim != 4 or not is_float(value.dtype) or min(value.shape[2:]) < 2:
        return value
    count, _, height, width = value.shape
    most = np.array([max(1, height // _SHIFT), max(1, width // _SHIFT)])
    shifted = np.zeros_like(value)
    for sample, (down, right) in enumerate(random.integers(-most, most + 1, (count, 2)).tolist()):
        to = (slice(max(0, down), height + min(0, down)), slice(max(0, right), width + min(0, right)))
        source = (slice(max(0, -down), height - max(0, down)), slice(max(0, -right), width - max(0, right)))
        shifted[sample][:, to[0], to[1]] = value[sample][:, source[0], source[1]]
    return shifted


def given_data(tensors: Mapping[str, Tensor], loss: Loss, arrays: Mapping[str, Array], seed: int) -> DataSet:
    """Return the data set of a file: an array for each input, and one named `target`, which is required.

    `tensors`: the model's inputs. Raises InputError if an array does not fit the model.
    """
    given = dict(arrays)
    target = given.pop(TARGET)
    if len(given) == len(tensors) == 1:
        given = dict(zip(tensors, given.values(), strict=True))
    for name in given:
        if name not in tensors:
            raise InputError(f"{_input()} has '{printable(name, 60)}', but the inputs are: {names_of(tensors)}")
    count = len(target) if target.ndim else 0
    inputs: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if name not in given:
            raise InputError(f"{_input()} has no '{printable(name, 60)}', an input of shape {list(tensor.shape)}")
        inputs[name] = _samples(f"'{printable(name, 60)}'", given[name], tensor, count)
    if loss.target.numpy_dtype.kind == "i" and target.dtype.kind not in "iu":
        raise InputError(f"{_input()}: '{TARGET}' is {target.dtype}, but class numbers are integers")
    target = _samples(f"'{TARGET}'", target, loss.target, count)
    batch = loss.target.shape[0]
    if count < batch:
        raise InputError(f"{_input()} has {count} samples, but a batch is {batch}: give a smaller {option('--batch')}")
    for start in range(0, count - batch + 1, batch):
        loss.check(target[start : start + batch])
    return DataSet(inputs, target, batch, seed)


def _samples(label: str, values: Array, tensor: Tensor, count: int) -> Array:
    if not tensor.shape or values.shape[1:] != tensor.shape[1:]:
        wanted = ", ".join(map(str, ("samples", *tensor.shape[1:])))
        raise InputError(f"{_input()}: {label} has the shape {list(values.shape)}, but must be [{wanted}]")
    if len(values) != count:
        raise InputError(f"{_input()}: {label} has {len(values)} samples, but '{TARGET}' has {count}")
    wanted_dtype = tensor.numpy_dtype
    kinds = "".join("f" if is_float(dtype) else dtype.kind for dtype in (values.dtype, wanted_dtype))
    if kinds not in ("ff", "if", "uf", "ii", "ui", "uu", "bb"):
        raise InputError(f"{_input()}: {label} is {values.dtype}, but must be {wanted_dtype}")
    return np.ascontiguousarray(values.astype(wanted_dtype, copy=False))


def random_data(inputs: Mapping[str, Array], tensors: Mapping[str, Tensor], loss: Loss, seed: int) -> DataSet:
    """Return a few batches of random inputs and random targets, which a model can only memorize.

    `inputs`: one batch. Integer inputs, which may be indices, are repeated from it.
    """
    random = np.random.default_rng([seed, 1])
    batch = loss.target.shape[0] if loss.target.shape else 1
    samples: dict[str, Array] = {}
    for name, value in inputs.items():
        if tensors[name].elem_type in FLOATS:
            shape = (_RANDOM_BATCHES * value.shape[0], *value.shape[1:])
            samples[name] = random.standard_normal(shape).astype(value.dtype)
        else:
            samples[name] = np.concatenate([value] * _RANDOM_BATCHES)
    shape = (_RANDOM_BATCHES * batch, *loss.target.shape[1:])
    target: Array
    if loss.kind == "mse":
        target = random.standard_normal(shape).astype(loss.target.numpy_dtype)
    else:
        target = random.integers(0, loss.source.shape[loss.class_axis], shape).astype(loss.target.numpy_dtype)
    return DataSet(samples, target, batch, seed)


def names_of(names: Mapping[str, object]) -> str:
    """Return the keys for a message."""
    return ", ".join(printable(name, 60) for name in names) or "none"
