"""Markers, counters and metadata of a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv.base.diagnostics import Code
from traceconv.base.int64 import Int64
from traceconv.events.trace import Coded
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.counters import samples_of
from traceconv.normalize.trace.distinct import Places, distinct_rows
from traceconv.normalize.trace.event_batch import SCOPES, EventBatch
from traceconv.normalize.trace.metadata import BUFFER_FULL, read_metadata


def metadata(events: EventBatch) -> None:
    """Apply metadata to processes and threads; metadata that they have no column for becomes markers."""
    places = events.places(phases.METADATA)
    if not len(places):
        return
    full = [place for place in places.tolist() if events.names[place] == BUFFER_FULL]
    events.report_each(Code.MISSING_RECORDS, "the writer's buffer was full: later events are missing", full)
    args = events.raw("args", places)
    texts = args.to_pylist() if args is not None else [b""] * len(places)
    used = [
        place
        for place, text in zip(places.tolist(), texts, strict=True)
        if read_metadata(events.first.tracks, events.names[place], events.pids[place], events.tids[place], text)
    ]
    events.rebook(np.array(used, np.intp), "used")
    events.kind[used] = phases.UNKNOWN
    thread_markers(events, events.places(phases.METADATA))


def thread_markers(events: EventBatch, at: Places) -> None:
    """Spill events as markers of their threads."""
    if len(at):
        markers(events, at, events.thread_tracks(at))


def markers(events: EventBatch, at: Places, track: Int64) -> None:
    """Spill events as markers of these tracks."""
    scopes = events.batch.columns.label("s")
    categories = events.categories
    if (events.kind[at] == phases.METADATA).any():
        own = categories.mask(lambda category: category is None)
        own &= events.kind == phases.METADATA
        codes = np.where(own, len(categories.distinct), categories.codes).astype(np.int32)
        categories = Coded(codes, [*categories.distinct, "__metadata"])
    events.first.markers.append(
        (
            pa.array(events.ids[at]),
            pa.array(track),
            pa.array(events.ts.ns[at], mask=~events.ts.valid[at] | (events.kind[at] == phases.METADATA)),
            Coded(scopes.codes, [SCOPES.get(scope) for scope in scopes.distinct]).text(at),
            categories.text(at),
            events.names.text(at),
            events.args_of(at),
        )
    )


def counters(events: EventBatch) -> None:
    """Spill counter samples. Each number in args is a series."""
    at = events.places(phases.COUNTER)
    if not len(at):
        return
    raw = events.raw("args", at)
    samples = samples_of(pa.array([b""] * len(at), pa.binary()) if raw is None else raw)
    has_sample, is_bad = np.zeros(len(at), np.bool_), np.zeros(len(at), np.bool_)
    has_sample[samples.events] = True
    is_bad[samples.bad] = True
    events.report_each(Code.BAD_NUMBER, "counter value is not a number", at[is_bad].tolist())
    events.report_each(Code.BAD_NUMBER, "counter args are not an object", at[samples.unread].tolist())
    is_bad[samples.unread] = True
    events.rebook(at[is_bad & ~has_sample], "lost")
    events.rebook(at[~is_bad & ~has_sample], "used")
    tracks = _counter_tracks(events, at)
    if not len(samples.events):
        return
    event = at[samples.events]
    events.first.counters.append(
        (
            pa.array(tracks[samples.events]),
            samples.series.text(np.arange(len(event))),
            pa.array(events.ts.ns[event]),
            pa.array(samples.values),
            samples.integers,
        )
    )


def _counter_tracks(events: EventBatch, at: Places) -> Int64:
    """Return the tracks of counters: one for each process, name and ID."""
    ids = events.ids_of(at)
    key = (events.pids.take(at), events.names.take(at), Coded(ids.codes, ids.texts.to_pylist()))
    firsts, number = distinct_rows(*(column.codes for column in key))
    each = zip(*(column.take(firsts) for column in key), strict=True)
    counter_of = events.first.tracks.counter_of
    return np.array([counter_of(pid, name, text or None) for pid, name, text in each], np.int64)[number]
