"""Tracks of async events, one for each ID. A trace may have millions: their rows are spilled and found by number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64, Mask
from traceconv.base.workers import Workers
from traceconv.events.trace import Coded, Label
from traceconv.normalize.names import constant
from traceconv.normalize.rows import ColumnData, Nullable, plain_batch
from traceconv.normalize.sort.numbers_by_key import NumbersByKey
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.distinct import Places, distinct_rows
from traceconv.normalize.trace.ids import Ids, numbers_of, salt_of
from traceconv.normalize.trace.spill import SHARED, SpilledRows
from traceconv.normalize.tracks import TRACK_COLUMNS
from traceconv.schema.dtypes import RecordArray

_SCHEMA = pa.schema(
    [
        ("track_id", pa.int64()),
        ("process_id", pa.int64()),
        ("name", SHARED),
        ("tid_text", pa.string()),
        ("scope", SHARED),
    ]
)
#: By track: the device and stream whose tasks are on it, and whether each is known (1).
_STREAM_DTYPE = np.dtype([("device_id", "<i8"), ("stream_id", "<i8"), ("has_device_id", "i1"), ("has_stream_id", "i1")])
#: Tracks whose rows are kept in memory.
_MOST_LOADED = 1 << 16


class AsyncOwner(NamedTuple):
    """What the IDs of some async events belong to.

    process_id  None: they are global
    """

    process_id: int | None
    category: Label
    scope: Label

    @property
    def track_scope(self) -> str:
        """The scope of their tracks: as the source names it, or where its ID is unique."""
        named = "global" if self.process_id is None else "process"
        return str(self.scope) if self.scope else named


class AsyncTrack(NamedTuple):
    """A track's process and name."""

    process_id: int | None
    name: str | None


class AsyncTracks:
    """Tracks by owner and ID. An ID is known by a 64-bit hash, which no source can choose."""

    def __init__(self, take_ids: Callable[[int], int], writer: Workers | None = None) -> None:
        """`take_ids`: takes the next track IDs for this many tracks; returns the first. `writer`: writes rows."""
        self._take_ids = take_ids
        self._by_key = NumbersByKey()
        self._rows = SpilledRows(_SCHEMA, writer)
        self._streams = Spool(_STREAM_DTYPE)
        #: Stretches of consecutive track IDs: their firsts, and the ends.
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._loaded: dict[int, AsyncTrack] = {}

    def close(self) -> None:
        """Free the disk space."""
        for part in (self._by_key, self._rows, self._streams):
            part.close()

    def tracks_of(self, owners: Sequence[AsyncOwner], owner_of: Places, ids: Ids, names: Coded) -> Int64:
        """Return the track of each event. A new track gets the name of its first event.

        owner_of  the place of each event's owner; owners may be equal
        """
        salts = np.fromiter(map(salt_of, owners), np.int64, len(owners))
        same = np.unique(salts, return_inverse=True)[1]
        firsts, number = distinct_rows(same[owner_of], ids.codes)
        owner, code = owner_of[firsts], ids.codes[firsts]
        keys = numbers_of(ids.texts)[code] + salts[owner]
        tracks = self._by_key.find(keys)
        new = np.flatnonzero(tracks < 0)
        if len(new):
            first = self._take_ids(len(new))
            tracks[new] = np.arange(first, first + len(new))
            self._by_key.add(keys[new], tracks[new])
            texts = ids.texts.take(pa.array(code[new]))
            self._append(tracks[new], owners, owner[new], names.text(firsts[new]), texts)
        return tracks[number]

    def _append(
        self, tracks: Int64, owners: Sequence[AsyncOwner], owner_of: Places, names: pa.Array, texts: pa.Array
    ) -> None:
        place = pa.array(owner_of)
        processes = pa.array([owner.process_id for owner in owners], pa.int64()).take(place)
        scopes = pa.array([owner.track_scope for owner in owners], pa.string()).dictionary_encode().take(place)
        self._rows.append((pa.array(tracks), processes, names, texts, scopes))
        first, end = int(tracks[0]), int(tracks[-1]) + 1
        if self._ends and self._ends[-1] == first:
            self._ends[-1] = end
        else:
            self._firsts.append(first)
            self._ends.append(end)

    def end(self) -> None:
        """Finish writing: from now on, rows can be read."""
        self._rows.end()

    def __contains__(self, track_id: int) -> bool:
        place = bisect_right(self._firsts, track_id) - 1
        return place >= 0 and track_id < self._ends[place]

    def among(self, tracks: Int64) -> Mask:
        """Return which of these tracks are async ones."""
        place = np.searchsorted(np.array(self._firsts, np.int64), tracks, side="right") - 1
        found: Mask = (place >= 0) & (tracks < np.array([*self._ends, 0], np.int64)[place])
        return found

    def load(self, tracks: Int64) -> None:
        """Read the rows of these tracks together, before they are needed one by one."""
        if not len(tracks):
            return
        found = self._read(tracks)
        # Replaced as a whole, since another thread may do the same.
        self._loaded = found if len(self._loaded) + len(found) > _MOST_LOADED else {**self._loaded, **found}

    def _read(self, tracks: Int64) -> dict[int, AsyncTrack]:
        found: dict[int, AsyncTrack] = {}
        for _, rows in self._rows.find(tracks):
            columns = (rows.column(name).to_pylist() for name in ("track_id", "process_id", "name"))
            found.update((track, AsyncTrack(process, name)) for track, process, name in zip(*columns, strict=True))
        return found

    def at(self, track_id: int) -> AsyncTrack:
        """Return the row of a track."""
        return self._loaded.get(track_id) or self._read(np.array([track_id]))[track_id]

    def names(self) -> Iterator[str]:
        """Yield the names of tracks, some of them several times."""
        for _, batch in self._rows.batches("name"):
            yield from batch.column(0).unique().drop_null().to_pylist()

    def make_streams(self, tracks: Int64, **found: tuple[Int64, Int64]) -> None:
        """Set the devices and streams of these tracks where they are unknown.

        found  `device_id` and `stream_id`: numbers, and whether each is known (1)
        """
        distinct = np.unique(tracks)
        held = self._streams_of(distinct)
        for column, (values, known) in found.items():
            rows = np.flatnonzero(known)
            own, first = np.unique(tracks[rows], return_index=True)
            at = np.searchsorted(distinct, own)
            new = held[f"has_{column}"][at] == 0
            held[column][at[new]] = values[rows[first[new]]]
            held[f"has_{column}"][at[new]] = 1
        self._streams.put(distinct, None, held)

    def _streams_of(self, tracks: Int64) -> RecordArray:
        """Return the streams of these tracks, in ascending order."""
        found = np.zeros(len(tracks), _STREAM_DTYPE)
        written = int(np.searchsorted(tracks, self._streams.count))
        found[:written] = self._streams.take(tracks[:written])
        return found

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of table track."""
        for _, batch in self._rows.batches():
            columns: dict[str, ColumnData] = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns["kind"] = constant("async", batch.num_rows)
            if self._streams.count:
                streams = self._streams_of(batch.column("track_id").to_numpy())
                for column in ("device_id", "stream_id"):
                    columns[column] = Nullable(streams[column], streams[f"has_{column}"] == 0)
            yield plain_batch("track", TRACK_COLUMNS, columns, batch.num_rows)
