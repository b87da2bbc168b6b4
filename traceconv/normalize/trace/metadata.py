"""Metadata events: names and places of processes and threads."""

from __future__ import annotations

import msgspec

from traceconv.base.integers import parse_int64
from traceconv.events.trace import EventColumns, Label, NamedTrack
from traceconv.normalize.trace.times import US_PLACES
from traceconv.normalize.trace.tracks import TraceTracks

#: Words of DFTracer for units of time → powers of ten of nanoseconds. Source: its core/common/enumeration.h.
TIME_UNITS = {"NS": 0, "US": 3, "MS": 6, "SEC": 9}
_OBJECT = msgspec.json.Decoder(dict[str, object])


def _object(text: bytes) -> dict[str, object]:
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def read_metadata(tracks: TraceTracks, name: str | None, pid: Label, tid: Label | NamedTrack, args: bytes) -> bool:
    """Uses a metadata event; False when it says something that no column holds."""
    if name not in ("process_name", "thread_name", "process_sort_index", "thread_sort_index"):
        return False
    known = pid is not None or isinstance(tid, NamedTrack)
    value = _object(args).get("name" if name.endswith("name") else "sort_index")
    if name.endswith("name"):
        if not isinstance(value, (str, int, float)):
            return False
        if name == "process_name":
            tracks.name_process(pid, str(value))
        else:
            tracks.name_thread(pid, tid, str(value))
        return known
    index = parse_int64(value)
    if index is None:
        return False
    if name == "process_sort_index":
        tracks.sort_process(pid, index)
    else:
        tracks.sort_thread(pid, tid, index)
    return known


def time_places(events: EventColumns) -> int:
    """The unit of times, as a power of ten of nanoseconds: µs, unless a record of DFTracer's names another."""
    names = events.label("name")
    args = events.raw.get("args")
    if args is None or "CM" not in names.distinct:
        return US_PLACES
    for place in (names.codes == names.distinct.index("CM")).nonzero()[0].tolist():
        said = _object(args[place].as_py() or b"")
        unit = said.get("value")
        if said.get("name") == "time_metric" and isinstance(unit, str) and unit in TIME_UNITS:
            return TIME_UNITS[unit]
    return US_PLACES


def id2_parts(text: bytes) -> tuple[str, str]:
    """An `id2` object as (id, `global` or `local`)."""
    for scope in ("global", "local"):
        value = _object(text).get(scope)
        if value is not None:
            return str(value), scope
    return "", ""
