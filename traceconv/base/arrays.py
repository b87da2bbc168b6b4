"""The type of numpy arrays. It is that of numpy.typing, whose import takes 5 of the 270 ms of a small ingest."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np

_Scalar = TypeVar("_Scalar", bound=np.generic)
NDArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[_Scalar]]
