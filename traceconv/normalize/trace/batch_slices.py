"""Slices of a batch, on threads and asynchronous: collect spans to nest and ends to match, and spill rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64, Mask, differences, sums
from traceconv.events.trace import TOO_LONG
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.async_tracks import AsyncOwner
from traceconv.normalize.trace.batch_markers import markers, thread_markers
from traceconv.normalize.trace.begin_end import POINT_DTYPE, TOO_LONG_PAIR
from traceconv.normalize.trace.complete_nesting import PAIR, SLICE, SPAN_DTYPE, UNFINISHED
from traceconv.normalize.trace.distinct import Places, distinct_of, distinct_rows
from traceconv.normalize.trace.event_batch import EventBatch
from traceconv.normalize.trace.ids import UNIQUE_IN
from traceconv.schema.dtypes import gather

#: A name that fewer rows have on average is shared by few.
_FEW_SHARE = 8
#: Slices for which columns for each group would take longer.
_FEW_ROWS = 1024


def slices(events: EventBatch) -> None:
    """Turn complete events and adjacent pairs into spans; leave other begins and ends to be matched in time order."""
    at = events.places(phases.COMPLETE, phases.BEGIN, phases.END)
    events.track[at] = events.thread_tracks(at)
    dur_known = _complete(events, events.places(phases.COMPLETE))
    _spill_ends(events, events.places(phases.END, phases.ASYNC_END))
    _points(events, events.places(phases.BEGIN), events.places(phases.END))
    thread_markers(events, events.places(phases.INSTANT, phases.OTHER))
    _asyncs(events)
    _spill_slices(events, dur_known)


def _complete(events: EventBatch, at: Places) -> Mask:
    """Turn complete events into spans. Return which events have a duration."""
    if not len(at):
        return np.zeros(events.count, np.bool_)
    dur = events.durations = events.times("dur")
    valid: Mask = dur.valid.copy()
    _, beyond = sums(events.ts.ns[at], dur.ns[at])
    valid[at[beyond & (dur.ns[at] > 0)]] = False
    bad = at[~valid[at] & ~dur.absent[at]].tolist()
    events.report_each(Code.BAD_DURATION, "duration is not a number, or the end exceeds 64 bits", bad)
    absent = at[dur.absent[at]].tolist()
    events.report_each(Code.NO_DURATION, "complete event without dur", absent)
    negative = at[valid[at] & (dur.ns[at] < 0)].tolist()
    if negative:
        events.report_each(Code.BACKWARD, "negative duration", negative)
        valid[negative] = False
    for place in (*absent, *bad):
        # Otherwise the row would look like that of a begin without an end.
        events.own_members.setdefault(place, {})["ph"] = b'"X"'
    raw = events.batch.columns.raw.get("dur")
    for place in (*bad, *negative):
        value = raw[place].as_py() if raw is not None else b"null"
        if value != TOO_LONG:
            events.own_members.setdefault(place, {})["dur"] = value if isinstance(value, bytes) else str(value).encode()
    spans = np.zeros(len(at), SPAN_DTYPE)
    spans["start_ns"], spans["dur_ns"] = events.ts.ns[at], np.where(valid[at], dur.ns[at], 0)
    spans["id"], spans["link"], spans["track"], spans["kind"] = events.ids[at], -1, events.track[at], SLICE
    unfinished = valid & _is_unfinished(events)
    spans["kind"][unfinished[at]] = UNFINISHED
    events.first.spans.add(spans)
    events.first.note_times(spans["start_ns"] + spans["dur_ns"])
    events.first.log.count(Code.UNFINISHED, "complete events marked as unfinished", int(unfinished.sum()), 1)
    return valid & ~unfinished


def _is_unfinished(events: EventBatch) -> Mask:
    """Return which events are of a category that may be unfinished, and have args that say so."""
    args = events.batch.columns.raw.get("args")
    may_be = [category in events.first.unfinished for category in events.categories.distinct]
    if args is None or not any(may_be):
        return np.zeros(events.count, np.bool_)
    marked = pc.match_substring_regex(args, r'"finished":\s*false')
    if not marked.true_count:
        return np.zeros(events.count, np.bool_)
    found: Mask = np.array(may_be, np.bool_)[events.categories.codes]
    found &= marked.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _points(events: EventBatch, begins: Places, ends: Places) -> None:
    if not len(begins) and not len(ends):
        return
    names, ph = events.names, events.ph
    is_end, is_point = np.zeros(events.count, np.bool_), np.zeros(events.count, np.bool_)
    is_end[ends] = is_point[ends] = is_point[begins] = True
    at = np.flatnonzero(is_point)
    points = np.zeros(len(at), POINT_DTYPE)
    points["ts_ns"], points["id"], points["track"] = events.ts.ns[at], events.ids[at], events.track[at]
    points["name"] = np.array([_name_hash(name) for name in names.distinct], np.int64)[names.codes[at]]
    letters = np.array([ord(one[0]) if isinstance(one, str) and one else 0 for one in ph.distinct], np.int32)
    points["end"] = np.where(is_end[at], letters[ph.codes[at]], 0)
    if not events.batch.columns.pairs_neighbors:
        events.first.points.add(points)
        return
    one, two = points[:-1], points[1:]
    pair = (one["end"] == 0) & (two["end"] != 0) & (at[1:] == at[:-1] + 1) & (one["track"] == two["track"])
    pair &= ((one["name"] == two["name"]) | (two["name"] == 0)) & (two["ts_ns"] >= one["ts_ns"])
    first = np.flatnonzero(pair)
    spans = np.zeros(len(first), SPAN_DTYPE)
    dur_ns, too_long = differences(two["ts_ns"][first], one["ts_ns"][first])
    spans["start_ns"], spans["dur_ns"] = one["ts_ns"][first], np.where(too_long, 0, dur_ns)
    spans["id"], spans["link"] = one["id"][first], two["id"][first]
    spans["track"], spans["kind"] = one["track"][first], np.where(too_long, UNFINISHED, PAIR)
    if too_long.any():
        events.report(Code.BAD_DURATION, TOO_LONG_PAIR, None, int(np.count_nonzero(too_long)))
    events.first.spans.add(spans)
    events.rebook(at[1:][first], "paired")
    alone = np.ones(len(points), np.bool_)
    alone[first] = alone[first + 1] = False
    events.first.points.add(gather(points, np.flatnonzero(alone)))


def _spill_ends(events: EventBatch, at: Places) -> None:
    """Spill what ends add to the rows of their begins; all ends at once, so that IDs rise."""
    if not len(at):
        return
    tts = events.times("tts")
    args = events.args_of(at)
    keep = np.flatnonzero(args.is_valid().to_numpy(zero_copy_only=False) | tts.valid[at])
    if len(keep):
        times = pa.array(tts.ns[at[keep]], mask=~tts.valid[at[keep]])
        events.first.ends.append((pa.array(events.ids[at[keep]]), times, args.take(pa.array(keep))))


def _asyncs(events: EventBatch) -> None:
    """Treat async begins and ends like those of threads, each on the track of its ID."""
    at = events.places(phases.ASYNC_BEGIN, phases.ASYNC_END, phases.ASYNC_INSTANT)
    if not len(at):
        return
    ids = events.ids_of(at)
    labels = [label.take(at) for label in (events.pids, events.categories, events.batch.columns.label("scope"))]
    is_global = ids.unique_in == UNIQUE_IN.index("global")
    firsts, owner_of = distinct_rows(*(label.codes for label in labels), is_global.astype(np.int8))
    tracks = events.first.tracks
    owners = [
        AsyncOwner(None if is_global[row] else tracks.process_of(pid), category, scope)
        for row, pid, category, scope in zip(firsts.tolist(), *(label.take(firsts) for label in labels), strict=True)
    ]
    events.track[at] = tracks.asyncs.tracks_of(owners, owner_of, ids, events.names.take(at))
    _points(events, events.places(phases.ASYNC_BEGIN), events.places(phases.ASYNC_END))
    instants = events.places(phases.ASYNC_INSTANT)
    if len(instants):
        markers(events, instants, events.track[instants])


def _spill_slices(events: EventBatch, dur_known: Mask) -> None:
    """Spill the rows of all slices of the batch, in the order of the source."""
    at = events.places(phases.COMPLETE, phases.BEGIN, phases.ASYNC_BEGIN)
    if not len(at):
        return
    nameless = events.names.take(at).mask(lambda name: name is None)
    if nameless.any():
        place, count = int(at[nameless.argmax()]), int(np.count_nonzero(nameless))
        events.report(Code.NO_NAME, "event without a name", place, count)
    numbers = events.first.slice_numbers
    rows = np.arange(numbers.count, numbers.count + len(at))
    is_slice = np.zeros(events.count, np.bool_)
    is_slice[at] = True
    numbers.add(events.batch.first_ordinal, is_slice)
    categories = events.categories
    firsts, number = distinct_of(categories.codes[at].astype(np.int64), len(categories.distinct))
    groups = [events.first.group_of(categories[place]) for place in at[firsts].tolist()]
    group_of_row = np.array(groups, np.int8)[number]
    order = np.argsort(group_of_row, kind="stable")
    at, rows = at[order], rows[order]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(group_of_row))])
    # Names that few rows share are put into separate columns for each group, others, or few rows, into columns for all.
    together = len(events.names.distinct) * _FEW_SHARE < len(at) or len(at) <= _FEW_ROWS
    columns = _columns(events, at, rows, dur_known) if together else []
    for group, (start, stop) in enumerate(pairwise(bounds.tolist())):
        if start == stop:
            continue
        if together:
            own = [column.slice(start, stop - start) for column in columns]
        else:
            own = _columns(events, at[start:stop], rows[start:stop], dur_known)
        events.first.slices.append(own, group)


def _columns(events: EventBatch, at: Places, rows: Int64, dur_known: Mask) -> list[pa.Array]:
    """Return the columns of some slices."""
    complete = (events.kind[at] == phases.COMPLETE) & dur_known[at]
    times = []
    for field in ("tts", "tdur"):
        if field in events.batch.columns.raw:
            found = events.times(field)
            times.append(pa.array(found.ns[at], mask=~found.valid[at]))
        else:
            times.append(pa.nulls(len(at), pa.int64()))
    return [
        pa.array(events.ids[at]),
        pa.array(rows),
        pa.array(events.track[at].astype(np.int32)),
        events.names.text(at),
        events.categories.text(at),
        pa.array(events.ts.ns[at]),
        pa.array(events.durations.ns[at], mask=~complete),
        *times,
        events.args_of(at),
    ]


def _name_hash(name: str | None) -> int:
    return hash(name) or 1 if name else 0  # an empty name is no name, as in Perfetto
