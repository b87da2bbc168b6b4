"""Training options: the optimizer, the loss, and the ops that delimit the parts of a step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from traceconv.base.errors import UsageError
from traceconv.runtime.training.optimizers import Optimizer


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Options of a training.

    loss          "cross-entropy" or "mse"; None: "mse" for float targets, otherwise "cross-entropy"
    fp_point      name of the op that starts the forward part of a step; None: the first op
    bp_point      name of the op that ends the backward part; None: the last op
    augment       whether the host shifts images before each step
    bucket_bytes  approximate size of the buckets for exchanging gradients; None: a quarter of all, at most 25 MiB
    fuse          whether forward ops are fused, which changes no result
    """

    optimizer: Optimizer = field(default_factory=Optimizer)
    loss: str | None = None
    fp_point: str | None = None
    bp_point: str | None = None
    augment: bool = True
    bucket_bytes: int | None = None
    fuse: bool = True

    def check(self) -> None:
        """Raise UsageError for invalid options."""
        self.optimizer.check()
        if self.bucket_bytes is not None and self.bucket_bytes < 1:
            raise UsageError(f"bucket_bytes {self.bucket_bytes}: must be at least 1")

    def described(self) -> dict[str, object]:
        """The options as written to the log."""
        return {**asdict(self.optimizer), **{name: getattr(self, name) for name in _SHOWN}}


_SHOWN = ("loss", "fp_point", "bp_point", "augment", "bucket_bytes", "fuse")
