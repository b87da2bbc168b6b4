"""Flows from calls to the tasks that they launched, in traces of several processes, which may use the same flow IDs.

Then each launch ends on a stream of the process that started it, as far as that is known: by the label of its pid
(TraceTracks.by_label), or else by the launches on the stream (stream_owners).
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from contextlib import closing

import numpy as np

from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.stream_owners import NO_ARG, TASK_DTYPE, StreamOwners, bit
from traceconv.normalize.trace.tracks import TraceTracks
from traceconv.normalize.tracks import map_distinct
from traceconv.schema.dtypes import RecordArray, gather

START, STEP, END = 0, 1, 2
#: A point of a flow. group: of launches, the track, negative for a device's; then the process from 1; 0 for others.
POINT_DTYPE = np.dtype(
    [("key", "<i8"), ("ts_ns", "<i8"), ("row", "<i8"), ("slice_id", "<i8"), ("step", "<i4"), ("group", "<i4")]
)


def by_process(
    windows: Iterator[RecordArray], starting: Collection[int], tracks: TraceTracks
) -> Generator[RecordArray, None, None]:
    """Yield points with the processes of their launches, by key and group; 0 for all if processes share no keys.

    windows   the points with their tracks, by key: all of a key at once
    starting  the processes that start launches
    """
    places = {process: place for place, process in enumerate(starting)}
    process_of, same_label = tracks.process_id_of, tracks.by_label(filter(None, starting))

    def place_of(track: int) -> int:
        return places.get(process_of(track) or 0, -1) if track else -1

    def labelled(track: int) -> int:
        return places.get(same_label(process_of(track)) or 0, -1) if track else -1

    is_shared, counts = False, []
    with closing(Spool(POINT_DTYPE)) as spool, closing(StreamOwners(len(places))) as owners:
        for window in windows:
            place = map_distinct(np.abs(window["group"]).view(np.uint32), place_of)
            is_start = (window["group"] != 0) & (window["step"] == START)
            key, of_start = window["key"][is_start], place[is_start]
            is_shared |= bool(np.any((key[1:] == key[:-1]) & (of_start[1:] != of_start[:-1])))
            tasks, masks, _ = _ends(window, is_start, place, len(places))
            tasks["device"] = map_distinct(tasks["stream"], lambda track: process_of(track) or 0)
            owners.take(tasks, masks)
            counts.append(len(window))
            spool.append(window)
        found = owners.found()
        at = 0
        for count in counts:
            window = spool.read(at, count)
            at += count
            if is_shared:
                track = np.abs(window["group"]).view(np.uint32)
                place = map_distinct(track, place_of)
                is_start = (track != 0) & (window["step"] == START)
                tasks, masks, has_all = _ends(window, is_start, place, len(places))
                owner = found.of(tasks["stream"], masks, has_all)
                ends = np.flatnonzero((track != 0) & ~is_start)
                # A device may have the number of a process of the host.
                place[ends] = np.where(owner < 0, np.where(window["group"][ends] < 0, -1, place[ends]), owner)
                by_label = map_distinct(track[ends], labelled)
                place[ends] = np.where(by_label < 0, place[ends], by_label)
                window["group"] = place + 1
                window = gather(window, np.lexsort((window["group"], window["key"])))
            else:
                window["group"] = 0
            yield window


def _ends(points: RecordArray, is_start: Mask, place: Int64, processes: int) -> tuple[RecordArray, Int64, Mask]:
    """Return the ends of launches as rows of TASK_DTYPE, masks of the processes that may have launched them, and
    whether each of these has a start with the key.
    """
    ends = points[(points["group"] != 0) & ~is_start]
    tasks = np.zeros(len(ends), TASK_DTYPE)
    tasks["key"], tasks["start_ns"], tasks["arg"] = ends["key"].astype(np.uint64), ends["ts_ns"], NO_ARG
    tasks["stream"] = np.abs(ends["group"])
    masks, starting = np.zeros(len(ends), np.int64), np.zeros(len(ends), np.int64)
    for process in np.unique(place[is_start]).tolist():
        starts = points[is_start & (place == process)]
        keys, first = np.unique(starts["key"], return_index=True)
        at = np.minimum(np.searchsorted(keys, ends["key"]), len(keys) - 1)
        earliest = np.minimum.reduceat(starts["ts_ns"], first)[at]
        hit = keys[at] == ends["key"]
        masks[hit & (earliest <= ends["ts_ns"])] |= bit(process)
        starting += hit
    return tasks, masks, starting == processes
