"""Flow points of a batch: flow events (s, t, f), slices with a bind_id, and flows that the source names itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST
from traceconv.events.trace import Coded, EventFlows
from traceconv.normalize.names import constant
from traceconv.normalize.trace import phases
from traceconv.normalize.trace.args import args_column
from traceconv.normalize.trace.batch_markers import markers
from traceconv.normalize.trace.complete_nesting import BEFORE_NEXT, POINT, SPAN_DTYPE
from traceconv.normalize.trace.distinct import Places, distinct_rows
from traceconv.normalize.trace.event_batch import EventBatch, unquoted
from traceconv.normalize.trace.ids import numbers_of, salt_of
from traceconv.normalize.trace.spill import FLOW_SCHEMA
from traceconv.normalize.trace.tracks import DEVICE, FIRST

_STEPS = {"s": 0, "t": 1, "f": 2}
#: Place of the column `bound`.
_BOUND = FLOW_SCHEMA.get_field_index("bound")
_TRUE = (b"true", b"1", b'"true"', b'"1"')


def flows(events: EventBatch) -> None:
    """Spill flow points, and collect those to be bound to slices."""
    own, named = events.places(phases.FLOW), events.batch.columns.flows
    found = (
        _binding_slices(events),
        None if named is None else _named_flows(events, named),
        _flow_events(events, own) if len(own) else None,
    )
    parts = [columns for columns in found if columns is not None]
    if len(parts) > 1:
        together = pa.concat_tables([pa.Table.from_arrays(columns, schema=FLOW_SCHEMA) for columns in parts])
        order = np.argsort(together.column("id").to_numpy(), kind="stable")
        parts = [batch.columns for batch in together.combine_chunks().take(pa.array(order)).to_batches()]
    for columns in parts:
        events.first.flows.append(columns)


def _named_flows(events: EventBatch, flows: EventFlows) -> list[pa.Array]:
    """Return the flow points of events that name a flow, except of lost events. Ends are bound to slices later."""
    kept = np.flatnonzero(events.kind[flows.places] < phases.UNKNOWN)
    places = flows.places[kept]
    ids = flows.texts if isinstance(flows.texts, pa.Array) else pa.array(flows.texts, pa.string())
    ids = ids if len(kept) == len(flows.places) else ids.take(pa.array(kept))
    named = flows.category
    category = named.text(kept) if isinstance(named, Coded) else constant(named, len(places))
    points = _bound_points(events, places, flows.keys[kept], flows.steps[kept], category, ids)
    is_end = np.isin(events.kind[places], (phases.END, phases.ASYNC_END))
    if is_end.any():
        events.first.has_flow_ends = True
        points[_BOUND] = pa.array(np.where(is_end, -1, events.ids[places]))
    return points


def _flow_events(events: EventBatch, at: Places) -> list[pa.Array]:
    """Return the flow points of flow events, and collect them to be bound to slices."""
    ids = events.plain_ids(at) if events.extra is None else events.ids_of(at).column()
    ph = events.ph
    steps = np.array([_STEPS.get(str(one)[:1], 0) for one in ph.distinct], np.int32)[ph.codes[at]]
    tracks = events.thread_tracks(at, FIRST)
    is_of_device = np.zeros(len(at), np.bool_) if events.sides is None else (events.sides[at] == DEVICE) & (steps > 0)
    bp = events.batch.columns.label("bp")
    loose = bp.take(at).mask(lambda one: one != "e")
    points = np.zeros(len(at), SPAN_DTYPE)
    points["start_ns"], points["id"], points["track"] = _binding_times(events, at, steps), events.ids[at], tracks
    points["link"] = is_of_device
    points["kind"] = np.where((steps == 2) & loose, BEFORE_NEXT, POINT)
    events.first.spans.add(points)
    _flow_markers(events, at, tracks)
    return [
        pa.array(events.ids[at]),
        pa.array(_keys(events, at, ids)),
        pa.array(events.ts.ns[at]),
        pa.array(steps),
        pa.array(np.full(len(at), -1, np.int64)),
        pa.array(np.where(is_of_device, -tracks, tracks).astype(np.int32)),
        events.categories.text(at),
        events.names.text(at),
        ids,
    ]


def _binding_times(events: EventBatch, at: Places, steps: NDArray[np.int32]) -> Int64:
    """Return the times at which flow events are bound to slices.

    If only slices have exact times, a flow leads to the one that starts within its microsecond, and the last ns of that
    is inside of it. It starts in one that lasts at least until its microsecond.
    """
    ns = events.ts.ns[at]
    exact = events.first.exact_times
    if exact is None or not exact.is_used:
        return ns
    return np.where((steps > 0) & (ns % 1000 == 0) & (ns < LARGEST - 999), ns + 999, ns)


def _keys(events: EventBatch, at: Places, ids: pa.Array) -> Int64:
    """Return a number for each flow, i.e. for each category, name, scope and ID; the same in all batches."""
    labels = [column.take(at) for column in (events.categories, events.names, events.batch.columns.label("scope"))]
    firsts, word = distinct_rows(*(column.codes for column in labels))
    salts = map(salt_of, zip(*(column.take(firsts) for column in labels), strict=True))
    # Consecutive IDs have consecutive keys: sorted by key, flows stay nearly in the order of the source.
    return numbers_of(ids) + np.fromiter(salts, np.int64, len(firsts))[word]


def _flow_markers(events: EventBatch, at: Places, tracks: Int64) -> None:
    """Keep what a flow has no column for in a marker at the flow point."""
    has_any = args_column(events.raw("args", at), len(at)).is_valid().to_numpy(zero_copy_only=False)
    if events.extra is not None:
        has_any = has_any | events.extra.has_any()[at]
    if not has_any.any():
        return
    for place in at[has_any].tolist():
        letter = events.ph[place][0]
        counts = events.first.flow_markers
        counts[letter] = counts.get(letter, 0) + 1
    markers(events, at[has_any], tracks[has_any])


def _binding_slices(events: EventBatch) -> list[pa.Array] | None:
    """Return the flow points of slices with a bind_id."""
    extra = events.extra
    bound = {} if extra is None else extra.of("bind_id")
    if extra is None or not bound:
        return None
    places = np.fromiter(bound, np.intp, len(bound))
    flow_in, flow_out = np.zeros(events.count, np.bool_), np.zeros(events.count, np.bool_)
    for key, flags in (("flow_in", flow_in), ("flow_out", flow_out)):
        flags[[place for place, text in extra.of(key).items() if text in _TRUE]] = True
    is_slice = (events.kind == phases.COMPLETE) | (events.kind == phases.BEGIN)
    places = places[(is_slice & (flow_in | flow_out))[places]]
    steps = np.where(~flow_in, 0, np.where(flow_out, 1, 2)).astype(np.int32)[places]
    texts = [unquoted(bound[place]) for place in places.tolist()]
    named = zip(events.categories.take(places), texts, strict=True)
    keys = np.array([hash((category, "bind_id", text)) for category, text in named], np.int64)
    return _bound_points(events, places, keys, steps, events.categories.text(places), pa.array(texts, pa.string()))


def _bound_points(
    events: EventBatch, places: Places, keys: Int64, steps: NDArray[np.int32], category: pa.Array, ids: pa.Array
) -> list[pa.Array]:
    """Return flow points that are bound to their own events."""
    own = pa.array(events.ids[places])
    times = pa.array(events.ts.ns[places])
    no_track = pa.array(np.zeros(len(places), np.int32))
    return [own, pa.array(keys), times, pa.array(steps), own, no_track, category, constant(None, len(places)), ids]
