"""Rows of plain events, as columns of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.formats.perfetto_proto.codes import Coder
from traceconv.wire.protobuf import Int64, Mask, UInt64

Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Rows of plain events, one of each, in the order of their packets.

    packets      of each row
    ph, name, cat, pid, tid, id   codes into `values`
    ts, timed    nanoseconds, and whether they fit
    args         binary; None when no row has any
    flows        rows, keys, steps of the arrows that they name
    """

    packets: Int64
    codes: Mapping[str, Int32]
    values: Mapping[str, Coder]
    ts: Int64
    timed: Mask
    args: pa.Array | None
    flows: tuple[Int64, UInt64, NDArray[np.int32]]
