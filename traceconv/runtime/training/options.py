"""What to train with: the optimizer, the loss, and which ops mark the parts of a step."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from traceconv.base.errors import UsageError
from traceconv.runtime.training.optimizers import Optimizer


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """How a model is trained.

    loss          "cross-entropy" or "mse"; None: "mse" where targets are floats, else "cross-entropy"
    fp_point      name of the op at whose start the forward part of a step begins; None: the first one
    bp_point      name of the op at whose end the backward part ends; None: the last one
    augment       whether the host shifts images before each step
    bucket_bytes  gradients are exchanged in buckets of about so many bytes; None: a quarter of all, at most 25 MiB
    """

    optimizer: Optimizer = field(default_factory=Optimizer)
    loss: str | None = None
    fp_point: str | None = None
    bp_point: str | None = None
    augment: bool = True
    bucket_bytes: int | None = None

    def check(self) -> None:
        """Raises UsageError for what can't be."""
        self.optimizer.check()
        if self.bucket_bytes is not None and self.bucket_bytes < 1:
            raise UsageError(f"bucket_bytes {self.bucket_bytes}: must be at least 1")

    def described(self) -> dict[str, object]:
        """The options as the log keeps them."""
        return {**asdict(self.optimizer), **{name: getattr(self, name) for name in _SHOWN}}


_SHOWN = ("loss", "fp_point", "bp_point", "augment", "bucket_bytes")
