"""Flow points → flows: per (category, name, ID), each step and end is connected to the last start or step before it.

The only start of an ID comes first whatever its time, since clocks of hosts and devices may disagree. Other points are
in the order of their times; at the same time, starts come before steps, and steps before ends, except in flows whose
key is free again after an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.rows import Nullable, row_batch
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.trace.binary import codes_of
from traceconv.normalize.trace.complete_nesting import ENCLOSING_DTYPE, NO_PARENT
from traceconv.normalize.trace.launch_flows import END, POINT_DTYPE, START, STEP, by_process
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.schema.dtypes import RecordArray, gather

#: Steps and ends from this value on are of flows whose key is free again after an end.
FREEING = 3

_FLOW_DTYPE = np.dtype([("row", "<i8"), ("src_id", "<i8"), ("src_ns", "<i8"), ("dst_id", "<i8"), ("dst_ns", "<i8")])


class Flows:
    """Produces the rows of flow. `loose_*`: ends without a start, and starts without an end."""

    def __init__(self, launches: re.Pattern[str] | None, tracks: TraceTracks) -> None:
        """`launches`: matches categories of flows from a call to the task that it launched."""
        self._is_launch = partial(_match, launches)
        self._tracks = tracks
        #: Tracks on which launches start, 0 for other flows.
        self.starting: set[int] = set()
        self._points = ExternalSort(POINT_DTYPE, "key")
        self._matched = ExternalSort(_FLOW_DTYPE, "row")
        self.loose_ends = 0
        self.loose_starts = 0

    def bind(self, flow_points: SpilledRows, slices: Iterator[RecordArray]) -> None:
        """Assign each flow point to its slice. `slices`: ID → slice, in the order of IDs."""
        found = np.zeros(0, ENCLOSING_DTYPE)
        for first, batch in flow_points.batches():
            ids = batch.column("id").to_numpy()
            bound = batch.column("bound").to_numpy().copy()
            asks = np.flatnonzero(bound < 0)
            if len(asks):
                found = _read_up_to(found, slices, "id", int(ids[asks[-1]]))
                bound[asks] = _slices_of(ids[asks], found)
                # The first point of the next batch may be of the same event.
                found = found[int(np.searchsorted(found["id"], ids[asks[-1]])) :]
            points = np.zeros(len(ids), POINT_DTYPE)
            points["key"], points["ts_ns"] = batch.column("key").to_numpy(), batch.column("ts_ns").to_numpy()
            # One event may have several points: the row identifies them.
            points["row"] = np.arange(first, first + len(ids))
            points["slice_id"], points["step"] = bound, batch.column("step").to_numpy()
            points["group"] = self._is_launch(batch.column("category")) * batch.column("track_id").to_numpy()
            self.starting.update(np.unique(points["group"][points["step"] == START]).tolist())
            self._points.add(points)

    def match(self, chains: bool) -> None:
        """Match points. `chains`: a start after a start is a step of it."""
        windows = self._points.windows()
        starting = {self._tracks.process_id_of(track) or 0 for track in self.starting if track}
        if len(starting) > 1:
            windows = by_process(windows, starting, self._tracks)
        for window in windows:
            if len(starting) < 2:
                window["group"] = 0
            self._matched.add(self._match(window, chains))

    def _match(self, points: RecordArray, chains: bool) -> RecordArray:
        key, group, step = points["key"], points["group"], points["step"]
        # After an end that frees the key a new flow begins.
        frees = step >= FREEING
        step = points["step"] = np.where(frees, step - (FREEING - STEP), step)
        # The window is sorted by key and group.
        first = np.ones(len(points), np.bool_)
        first[1:] = (key[1:] != key[:-1]) | (group[1:] != group[:-1])
        segment = np.cumsum(first) - 1
        single = np.bincount(segment[step == START], minlength=int(first.sum()))[segment] == 1
        rank = (single & (step != START)).astype(np.int64)
        # Points of such flows with equal times are in the order of the source.
        order = _order(segment, rank, points["ts_ns"], np.where(frees, STEP, step), points["row"])
        points, frees = gather(points, order), frees[order]
        step = points["step"]
        count = len(points)
        place = np.arange(count)
        # The last start or step before each point; ends do not count.
        source = np.where(step != END, place, -1)
        before = np.concatenate([[-1], np.maximum.accumulate(source)[:-1]])
        found = (before >= 0) & (segment[np.maximum(before, 0)] == segment) & (chains | (step != START))
        found[1:] &= ~(frees[1:] & (step[:-1] == END) & ~first[1:])
        target = np.flatnonzero(found)
        origin = before[target]
        matched = np.zeros(len(target), _FLOW_DTYPE)
        matched["row"] = points["row"][target]
        matched["src_id"], matched["src_ns"] = points["slice_id"][origin], points["ts_ns"][origin]
        matched["dst_id"], matched["dst_ns"] = points["slice_id"][target], points["ts_ns"][target]
        self.loose_ends += int(np.count_nonzero((step == END) & ~found))
        used = np.zeros(count, np.bool_)
        used[origin] = True
        # Proton repeats a start for each of its ends: only the last one before an end is used.
        again = np.zeros(count, np.bool_)
        again[:-1] = ~first[1:] & (step[:-1] == START) & (step[1:] == START) & (points["slice_id"][1:] != NO_PARENT)
        for name in ("slice_id", "ts_ns"):
            again[:-1] &= points[name][1:] == points[name][:-1]
        self.loose_starts += int(np.count_nonzero((step != END) & ~used & ~found & ~again))
        return matched

    def batches(self, lane: SpilledRows) -> Iterator[pa.RecordBatch]:
        """Yield the rows of flow, in the order of their ends in the source."""
        held = np.zeros(0, _FLOW_DTYPE)
        windows = self._matched.windows()
        flow_id = 1
        for first, batch in lane.batches():
            end = first + batch.num_rows
            held = _read_up_to(held, windows, "row", end - 1)
            cut = int(np.searchsorted(held["row"], end))
            matched, held = held[:cut], held[cut:]
            if not len(matched):
                continue
            rows = batch.take(pa.array(matched["row"] - first))
            count = len(matched)
            yield row_batch(
                "flow",
                {
                    "flow_id": np.arange(flow_id, flow_id + count, dtype=np.int64),
                    "kind": self._kinds(rows.column("category")),
                    **{name: rows.column(name) for name in ("category", "name", "external_id")},
                    "src_id": Nullable(matched["src_id"], matched["src_id"] == NO_PARENT),
                    "dst_id": Nullable(matched["dst_id"], matched["dst_id"] == NO_PARENT),
                    "src_ns": matched["src_ns"],
                    "dst_ns": matched["dst_ns"],
                },
            )
            flow_id += count

    def _kinds(self, categories: pa.DictionaryArray) -> pa.DictionaryArray:
        codes = self._is_launch(categories).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(["other", "launch"]))

    def close(self) -> None:
        """Free the disk space."""
        self._points.close()
        self._matched.close()


def _slices_of(ids: Int64, found: RecordArray) -> Int64:
    """Return the slice of each event; none for an end without a begin."""
    place = np.searchsorted(found["id"], ids)
    known = place < len(found)
    known[known] = found["id"][place[known]] == ids[known]
    slices = np.full(len(ids), NO_PARENT, np.int64)
    slices[known] = found["slice_id"][place[known]]
    return slices


def _read_up_to(held: RecordArray, windows: Iterator[RecordArray], key: str, last: int) -> RecordArray:
    """Append windows to `held` until it reaches key `last`, or no more follow."""
    while not len(held) or held[key][-1] < last:
        more = next(windows, None)
        if more is None:
            break
        held = np.concatenate([held, more])
    return held


def _order(segment: Int64, *keys: Int64) -> NDArray[np.intp]:
    """Sort rows by segment, which rises, then by the keys; only segments that are not in order are sorted."""
    later = np.zeros(max(0, len(segment) - 1), np.bool_)  # whether a row belongs before the one above it
    equal = segment[1:] == segment[:-1]
    for key in keys:
        later |= equal & (key[1:] < key[:-1])
        equal &= key[1:] == key[:-1]
    order = np.arange(len(segment))
    if later.any():
        some = np.flatnonzero(np.isin(segment, segment[1:][later]))
        order[some] = some[np.lexsort((*(key[some] for key in reversed(keys)), segment[some]))]
    return order


def _match(wanted: re.Pattern[str] | None, categories: pa.DictionaryArray) -> Mask:
    """Return which of the categories the pattern matches."""
    # Flows without a category use the last code.
    texts = [*categories.dictionary.to_pylist(), ""]
    matching = np.array([wanted is not None and wanted.fullmatch(text or "") is not None for text in texts])
    found: Mask = matching[codes_of(categories, len(texts) - 1)]
    return found
