"""Find an event of an XSpace by its number in its block."""

from __future__ import annotations

import numpy as np

from traceconv.base.diagnostics import ImportLog
from traceconv.formats.common.files import TextSource
from traceconv.formats.locate import NO_LIMITS, Evidence, Wanted
from traceconv.formats.xplane import field_numbers as pb
from traceconv.formats.xplane.framing import SpaceFramer
from traceconv.formats.xplane.reader import EVENTS, events_of
from traceconv.formats.xplane.stats import column
from traceconv.wire.protobuf import walk

_FIELDS = {"metadata_id": pb.METADATA_ID, "offset_ps": pb.OFFSET, "duration_ps": pb.DURATION}
_UNITS = {"offset_ps": "ps", "duration_ps": "ps"}


def locate(wanted: Wanted) -> list[Evidence]:
    """Read the file up to the block: events between lines can't be found from the block alone."""
    first = wanted.byte_offset
    if first is None:
        return []
    chunks = TextSource(wanted.source.path, ImportLog(), NO_LIMITS, lambda size: None, is_text=False).chunks()
    for events in events_of(SpaceFramer(chunks, NO_LIMITS.event_bytes, EVENTS, lambda *loss: None).fields()):
        starts = events.bounds[:, 0] + events.byte_offset
        if starts[-1] < first:
            continue
        bounds = events.bounds[walk(events.data, events.bounds).sound]
        at = int(np.searchsorted(bounds[:, 0] + events.byte_offset, first)) + wanted.index
        if at >= len(bounds):
            break
        start, stop = bounds[at].tolist()
        data = events.data[start:stop]
        found = walk(data, np.array([(0, len(data))], np.int64))
        fields = {name: int(column(found, number, 1)[0]) for name, number in _FIELDS.items()}
        offset = events.byte_offset + start - first
        return [wanted.evidence(offset, data, fields=fields, units=_UNITS, is_text=False)]
    return []
