"""Text of whole events → columns by the compiled scanner (native/events.c).

What it takes is the same as what the other ways take, and comes out the same: a property test holds them together.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.json_events import LABEL_FIELDS, RAW_FIELDS, Coded, EventColumns
from traceconv.readers.chrome_json.fields import beside, label_of

_LABELS = tuple(field.encode() for field in LABEL_FIELDS)
_RAWS = tuple(field.encode() for field in RAW_FIELDS)


def scanned_columns(text: bytes, lines: bool) -> EventColumns | None:
    """The events of `text`, which has a comma (`lines`: line breaks) between them, and neither before nor behind them.

    None when it is not sound JSON of objects, an event has a key twice, or a value is of a type that its field does
    not take. That it is UTF-8 is to be known before.
    """
    found = native.events(text, lines, _LABELS, _RAWS)
    if found is None:
        return None
    count, label_columns, raw_columns, others = found
    labels: dict[str, Coded] = {}
    for field, column in zip(LABEL_FIELDS, label_columns, strict=True):
        if column is not None:
            label = label_of(field, np.frombuffer(column[0], np.int32), column[1])
            if label is None:
                return None
            labels[field] = label
    raw = {
        field: pa.Array.from_buffers(pa.binary(), count, [None, *map(pa.py_buffer, column)], null_count=0)
        for field, column in zip(RAW_FIELDS, raw_columns, strict=True)
        if column is not None
    }
    if not others:
        return EventColumns(count, labels, raw, None)
    extra = beside(text, [*np.frombuffer(others, np.int32).reshape(-1, 5).T], count)
    return None if extra is None else EventColumns(count, labels, raw, extra)
