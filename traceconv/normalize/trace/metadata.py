"""Metadata events: names and sort order of processes and threads, and the unit of times."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.integers import parse_int64
from traceconv.events.trace import EventColumns, Label, NamedTrack
from traceconv.normalize.trace.args import arg_keys
from traceconv.normalize.trace.times import US_PLACES
from traceconv.normalize.trace.tracks import TraceTracks

#: DFTracer's names of time units → powers of ten of nanoseconds. Source: its core/common/enumeration.h.
TIME_UNITS = {"NS": 0, "US": 3, "MS": 6, "SEC": 9}
#: Digits of a time since 1970 (2001 to 2286) → its unit.
_PLACES_BY_DIGITS = {19 - places: places for places in TIME_UNITS.values()}
_DFTRACER = "dftracer"
#: Chrome writes this event if its buffer was full before the recording ended.
BUFFER_FULL = "trace_buffer_overflowed"
_NAMES = ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
_OBJECT = msgspec.json.Decoder(dict[str, object])


def _object(text: bytes) -> dict[str, object]:
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def read_metadata(tracks: TraceTracks, name: str | None, pid: Label, tid: Label | NamedTrack, args: bytes) -> bool:
    """Apply a metadata event to its process or thread. Return False if a part of it has no column."""
    if name not in _NAMES:
        return False
    owner, _, column = name.partition("_")
    value = _object(args).get(column)
    text = str(value) if isinstance(value, (str, int, float)) else None
    new = text if column == "name" else parse_int64(value)
    if new is None:
        return False
    if owner == "process":
        tracks.change_process(pid, **{column: new})
    else:
        tracks.change_thread(pid, tid, **{column: new})
    return pid is not None or isinstance(tid, NamedTrack)


def time_places(events: EventColumns) -> int:
    """Return the unit of times as a power of ten of nanoseconds: µs, unless DFTracer wrote others, or the file is
    Proton's first format or has only times that are since 1970 in nanoseconds, which are too large for µs.
    """
    if _has_nanoseconds(events) or _are_nanoseconds(events.raw.get("ts")):
        return 0
    names = events.label("name")
    args = events.raw.get("args")
    if args is not None and "CM" in names.distinct:
        for place in (names.codes == names.distinct.index("CM")).nonzero()[0].tolist():
            fields = _object(args[place].as_py() or b"")
            unit = fields.get("value")
            if fields.get("name") == "time_metric" and isinstance(unit, str) and unit in TIME_UNITS:
                return TIME_UNITS[unit]
    return _unit_since_1970(events.raw.get("ts")) if _DFTRACER in events.label("cat").distinct else US_PLACES


def _unit_since_1970(times: pa.Array | None) -> int:
    """Return the unit of the first time, which is between 2001 and 2286; µs if it isn't with any.

    DFTracer's newest versions name the unit only in their last event.
    """
    for text in [] if times is None or not pa.types.is_binary(times.type) else times:
        digits = (text.as_py() or b"").strip(b'"').partition(b".")[0]
        if digits.isdigit():
            return _PLACES_BY_DIGITS.get(len(digits), US_PLACES)
    return US_PLACES


def _has_nanoseconds(events: EventColumns) -> bool:
    """Whether events are those of the first versions of Proton: kernels without a pid, in whole nanoseconds."""
    if events.label("cat").distinct != ["kernel"] or events.label("pid").distinct != [None] or "ts" not in events.raw:
        return False
    times = events.raw["ts"]
    is_decimal = pa.types.is_binary(times.type) and pc.any(pc.match_substring(times, ".")).as_py()
    return "call_stack" in arg_keys(events.raw.get("args")) and not is_decimal


def _are_nanoseconds(times: pa.Array | None) -> bool:
    """Whether all times but zeros have the digits of nanoseconds since 1970 (2001 to 2286), and some have."""
    if times is None or not pa.types.is_binary(times.type):
        return False
    long = pc.match_substring_regex(times, rb'^"?[1-9]\d{18}(?:\.\d*)?"?$')
    none = pc.match_substring_regex(times, rb'^(?:"?0(?:\.0*)?"?|null)?$')
    return bool(pc.any(long).as_py() and pc.all(pc.or_(long, none)).as_py())


def id2_parts(text: bytes) -> tuple[str, str]:
    """Return an `id2` object as (ID, `global` or `local`)."""
    keys = _object(text)
    for scope in ("global", "local"):
        value = keys.get(scope)
        if value is not None:
            return str(value), scope
    return "", ""
