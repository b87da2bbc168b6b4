"""Text of whole events → columns by the compiled scanner (native/events.c).

What it takes is the same as what the other ways take, and comes out the same: a property test holds them together.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.events.trace import LABEL_FIELDS, RAW_FIELDS, Coded, EventColumns
from traceconv.formats.chrome_json.fields import beside, label_of

_LABELS = tuple(field.encode() for field in LABEL_FIELDS)
_RAWS = tuple(field.encode() for field in RAW_FIELDS)


def scanned_columns(text: bytes, lines: bool) -> EventColumns | None:
    """The events of `text`, which has a comma (`lines`: line breaks) between them, and neither before nor behind them.

    None when it is not sound JSON of objects, an event has a key twice, or a value is of a type that its field does
    not take. That it is UTF-8 is to be known before.
    """
    found = native.events(text, lines, _LABELS, _RAWS, False)
    return None if found is None else _columns(text, *found)[0]


def scanned_prefix(text: bytes, lines: bool) -> tuple[EventColumns | None, int]:
    """The events that `text` begins with, up to the first that is not as above, and where that one begins.

    None and 0 when there are none.
    """
    found = native.events(text, lines, _LABELS, _RAWS, True)
    columns, end = (None, 0) if found is None or not found[0] else _columns(text, *found)
    return columns, 0 if columns is None else end


def _columns(
    text: bytes,
    count: int,
    end: int,
    label_columns: list[tuple[bytes, list[bytes]] | None],
    raw_columns: list[tuple[bytes, bytes] | None],
    others: bytes,
) -> tuple[EventColumns | None, int]:
    labels: dict[str, Coded] = {}
    for field, label_column in zip(LABEL_FIELDS, label_columns, strict=True):
        if label_column is not None:
            label = label_of(field, np.frombuffer(label_column[0], np.int32), label_column[1])
            if label is None:
                return None, end
            labels[field] = label
    raw = {
        field: pa.Array.from_buffers(pa.binary(), count, [None, *map(pa.py_buffer, column)], null_count=0)
        for field, column in zip(RAW_FIELDS, raw_columns, strict=True)
        if column is not None
    }
    if not others:
        return EventColumns(count, labels, raw, None), end
    extra = beside(text, [*np.frombuffer(others, np.int32).reshape(-1, 5).T], count)
    return None if extra is None else EventColumns(count, labels, raw, extra), end
