"""Batches of decoded raw log events, with their source's clock and IDs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.schema.dtypes import RecordArray

#: An event's ID is source_id × 2**ORDINAL_BITS + its ordinal in that source.
ORDINAL_BITS = 40


class EventBatch(NamedTuple):
    """Events of one kind in the order of their source.

    kind       name of the record type, such as "api"
    device_id  device whose log they are from; None for the host
    ids        int64, one per event; rising
    records    structured array with the fields of the record's schema; str fields are dictionary hashes
    """

    kind: str
    device_id: int | None
    ids: NDArray[np.int64]
    records: RecordArray
