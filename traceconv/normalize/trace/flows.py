"""Ends of flows → arrows: per (category, name, id), each step and end with the last start or step before it in time.

Where an id has one start, it comes first whatever its time says: clocks of hosts and devices may disagree. All others
are in the order of their times; of one time, starts come before steps, and steps before ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.normalize.rows import Nullable, row_batch
from traceconv.normalize.sort.external_sort import ExternalSort
from traceconv.normalize.trace.complete_nesting import MOMENT_DTYPE, NO_PARENT
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.schema.dtypes import RecordArray, gather

Int64 = NDArray[np.int64]
START, STEP, END = 0, 1, 2
#: From here on steps and ends of arrows whose key is free again after an end.
FREEING = 3

_POINT_DTYPE = np.dtype(
    [("key", "<i8"), ("ts_ns", "<i8"), ("row", "<i8"), ("slice_id", "<i8"), ("step", "<i4"), ("_", "<i4")]
)
_ARROW_DTYPE = np.dtype([("row", "<i8"), ("src_id", "<i8"), ("src_ns", "<i8"), ("dst_id", "<i8"), ("dst_ns", "<i8")])


class Flows:
    """Makes the rows of flow. `loose_*`: ends without a start, and starts that nothing follows."""

    def __init__(self) -> None:
        self._points = ExternalSort(_POINT_DTYPE, "key")
        self._arrows = ExternalSort(_ARROW_DTYPE, "row")
        self.loose_ends = 0
        self.loose_starts = 0
        #: Per ph (s, t, f): events that became arrows, and those that only went into one.
        self.rows: dict[str, int] = {"s": 0, "t": 0, "f": 0}

    def bind(self, lane: SpilledRows, moments: Iterator[RecordArray]) -> None:
        """Gives each end of a flow the slice that it stands on. `moments`: id → slice, in the order of ids."""
        held = np.zeros(0, MOMENT_DTYPE)
        for first, batch in lane.batches():
            ids = batch.column("id").to_numpy()
            bound = batch.column("bound").to_numpy().copy()
            asks = np.flatnonzero(bound < 0)
            while len(asks) and (not len(held) or held["id"][-1] < ids[asks[-1]]):
                more = next(moments, None)
                if more is None:
                    break
                held = np.concatenate([held, more])
            place = np.searchsorted(held["id"], ids[asks])
            bound[asks] = held["slice_id"][place]
            held = held[int(place[-1]) + 1 :] if len(asks) else held
            points = np.zeros(len(ids), _POINT_DTYPE)
            points["key"], points["ts_ns"] = batch.column("key").to_numpy(), batch.column("ts_ns").to_numpy()
            # One event may have several: the row tells them apart.
            points["row"] = np.arange(first, first + len(ids))
            points["slice_id"], points["step"] = bound, batch.column("step").to_numpy()
            self._points.add(points)

    def match(self, chains: bool) -> None:
        """Finds the arrows. `chains`: a start may follow a start, as a step of it."""
        for window in self._points.windows():
            self._arrows.add(self._match(window, chains))

    def _match(self, points: RecordArray, chains: bool) -> RecordArray:
        key, step = points["key"], points["step"]
        # Where an end frees the key, what follows it begins anew.
        frees = step >= FREEING
        step = points["step"] = np.where(frees, step - (FREEING - STEP), step)
        # The window is sorted by key.
        first = np.ones(len(points), np.bool_)
        first[1:] = key[1:] != key[:-1]
        segment = np.cumsum(first) - 1
        single = np.bincount(segment[step == START], minlength=int(first.sum()))[segment] == 1
        rank = (single & (step != START)).astype(np.int64)
        order = _order(segment, rank, points["ts_ns"], step, points["row"])
        points, frees = gather(points, order), frees[order]
        step = points["step"]
        count = len(points)
        place = np.arange(count)
        # The last start or step before each point; an end does not take the place of one.
        source = np.where(step != END, place, -1)
        before = np.concatenate([[-1], np.maximum.accumulate(source)[:-1]])
        found = (before >= 0) & (segment[np.maximum(before, 0)] == segment) & (chains | (step != START))
        found[1:] &= ~(frees[1:] & (step[:-1] == END) & ~first[1:])
        target = np.flatnonzero(found)
        origin = before[target]
        arrows = np.zeros(len(target), _ARROW_DTYPE)
        arrows["row"] = points["row"][target]
        arrows["src_id"], arrows["src_ns"] = points["slice_id"][origin], points["ts_ns"][origin]
        arrows["dst_id"], arrows["dst_ns"] = points["slice_id"][target], points["ts_ns"][target]
        self.loose_ends += int(np.count_nonzero((step == END) & ~found))
        used = np.zeros(count, np.bool_)
        used[origin] = True
        self.loose_starts += int(np.count_nonzero((step != END) & ~used & ~found))
        return arrows

    def batches(self, lane: SpilledRows, launches: Collection[str]) -> Iterator[pa.RecordBatch]:
        """The rows of flow, in the order in which their ends stand in the source.

        `launches`: categories of the arrows that lead from a call to the task that it launched.
        """
        held = np.zeros(0, _ARROW_DTYPE)
        windows = self._arrows.windows()
        flow_id = 1
        for first, batch in lane.batches():
            end = first + batch.num_rows
            while not len(held) or held["row"][-1] < end - 1:
                more = next(windows, None)
                if more is None:
                    break
                held = np.concatenate([held, more])
            cut = int(np.searchsorted(held["row"], end))
            arrows, held = held[:cut], held[cut:]
            if not len(arrows):
                continue
            rows = batch.take(pa.array(arrows["row"] - first))
            count = len(arrows)
            yield row_batch(
                "flow",
                {
                    "flow_id": np.arange(flow_id, flow_id + count, dtype=np.int64),
                    "kind": _kinds(rows.column("category"), launches),
                    **{name: rows.column(name) for name in ("category", "name", "external_id")},
                    **{name: _nullable(arrows[name]) for name in ("src_id", "dst_id")},
                    "src_ns": arrows["src_ns"].copy(),
                    "dst_ns": arrows["dst_ns"].copy(),
                },
            )
            flow_id += count

    def close(self) -> None:
        """Frees the disk space."""
        self._points.close()
        self._arrows.close()


def _order(segment: Int64, *keys: Int64) -> NDArray[np.intp]:
    """Rows by segment, which rises, then by the keys; only segments that are not in order already are sorted."""
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


def _kinds(categories: pa.DictionaryArray, launches: Collection[str]) -> pa.DictionaryArray:
    """The kinds of arrows of these categories."""
    # Arrows without a category take the last code.
    is_launch = np.array([*(category in launches for category in categories.dictionary.to_pylist()), False], np.int32)
    codes = is_launch[categories.indices.fill_null(len(is_launch) - 1).to_numpy()]
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(["other", "launch"]))


def _nullable(ids: Int64) -> Nullable:
    return Nullable(ids.copy(), ids == NO_PARENT)
