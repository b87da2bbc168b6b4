"""The tracks of a Perfetto trace: their descriptors, and the track of each row.

Processes and threads are those of the Chrome trace. Streams, steps, asynchronous sequences and counters are tracks of
their process; slices that overlap are on a sibling track of the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.errors import StoreError
from traceconv.base.int64 import Int64
from traceconv.export.chrome_layout import DEVICE_TABLES, Thread, make_layout
from traceconv.export.load_counters import allocations, load_counters, running_sums
from traceconv.export.perfetto_records import bytes_field, number_field
from traceconv.export.timeline import SLICE_TABLES, device_memory

#: Maximum size of the lookup table for tracks of slices.
_MOST_PLACES = 1 << 27

_EXPLICIT_ORDER = 3
#: Fields of TrackDescriptor.
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER, _ORDERING, _RANK = 1, 2, 3, 4, 5, 8, 11, 12
_UNITS = {"ns": 1, "count": 2, "bytes": 3, "byte": 3}


class TrackPlan:
    """The descriptors of all tracks of a run, and the track IDs by the rows on them."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        run_id: int,
        sources: Mapping[str, str],
        counted: Mapping[str, str],
        end_ns: int | None = None,
        title: str = "",
        first_id: int = 1,
    ) -> None:
        """`sources` are FROM clauses of the rows to export, by table.

        counted   those that determine the counters of memory and load; `end_ns`: when an excerpt ends
        title     what precedes the names of processes
        first_id  the first number for processes, threads and tracks; `next_id` is the first that is free then
        """
        self.layout = make_layout(connection, run_id, sources, first_id)
        self._title = title
        self.descriptors: list[bytes] = []
        threads = self.layout.threads
        self._uuids = count(max(thread.tid for thread in threads) + 1)
        self._add_processes()
        self._add_threads()
        self._by_place = {source: self._places(source) for source in ("task", "api", "range", "marker")}
        recorded = self._add_counters(connection, sources["counter"])
        #: Numbers of series; tracks of counters in the order of their place, and the places.
        self._series = {series: number for number, series in enumerate(dict.fromkeys(series for _, series in recorded))}
        places = np.array([track * len(self._series) + self._series[series] for track, series in recorded], np.int64)
        order = np.argsort(places)
        self._counter_places, self._counters = places[order], np.array([*recorded.values()], np.int64)[order]
        #: A FROM clause of the memory that determines counters.
        self.counted_memory = counted["memory"]
        self._memory = self._add_memory(connection, device_memory(run_id, self.counted_memory))
        counters = load_counters(connection, run_id, counted, self.layout, _first_ns(counted["memory"]), end_ns)
        #: The counters of the devices' load, each with its track.
        self._load = [(self._add_counter(one.name, thread, one.unit), one) for one, thread in counters]
        self._steps = {(thread.track_id, thread.lane): thread.tid for thread in threads if thread.source == "step"}
        self.next_id = next(self._uuids)

    def header(self) -> dict[str, object]:
        """Return what the header of the trace contains: the rows of small tables, and the tracks of slices."""
        threads = [
            {"pid": t.pid, "tid": t.tid, "table": t.source,
             "device_id" if t.source in DEVICE_TABLES else "track_id": t.track_id}
            for t in self.layout.threads
            if not t.shared and t.source in (*SLICE_TABLES, "marker", "step")
        ]  # fmt: skip
        return {**self.layout.tables, "thread": threads}

    def slices(self, source: str, track_id: Int64, lane: NDArray[np.integer] | int = 0) -> Int64:
        """Return the tracks of slices or markers of a table."""
        found: Int64 = self._by_place[source][track_id, lane]
        return found

    def steps(self, device_id: Sequence[int | None], lane: Sequence[int]) -> Int64:
        """Return the tracks of steps."""
        return np.array([self._steps[place] for place in zip(device_id, lane, strict=True)], np.int64)

    def counters(self, track_id: Int64, series: pa.Array) -> Int64:
        """Return the tracks of counter samples."""
        number: Int64 | int
        if series.null_count == len(series):
            number = self._series.get(None, 0)
        else:
            coded = series.dictionary_encode()
            numbers = np.array([self._series.get(one, 0) for one in (*coded.dictionary.to_pylist(), None)], np.int64)
            number = numbers[coded.indices.fill_null(len(numbers) - 1).to_numpy()]
        found: Int64 = self._counters[np.searchsorted(self._counter_places, track_id * len(self._series) + number)]
        return found

    def memory(self, connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Int64, Int64, Int64]]:
        """Yield the bytes in blocks (used) and segments (reserved) of devices over time: tracks, times, values."""
        source = self.counted_memory
        for (device, kind), uuid in self._memory.items():
            same = "IS NULL" if device is None else f"= {device}"
            blocks = f"(SELECT * FROM {source} WHERE kind = '{kind}' AND device_id {same})"
            for times, used in running_sums(connection, allocations(blocks, ("size_bytes",), _first_ns(source))):
                yield np.full(len(times), uuid, np.int64), times, used

    def load(self, connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Int64, Int64, pa.Array]]:
        """Yield the counters of the devices' load: tracks, times, values (integers or doubles)."""
        for uuid, counter in self._load:
            for batch in counter.samples(connection):
                if batch.num_rows:
                    yield np.full(batch.num_rows, uuid, np.int64), batch.column(0).to_numpy(), batch.column(1)

    def _add_processes(self) -> None:
        used = {thread.pid for thread in self.layout.threads if thread.layer != "unbound"}
        for process in self.layout.processes:
            if process.pid in used:
                name = f"{self._title}{process.name}".encode()
                about = number_field(1, process.pid) + number_field(3, process.pid) + bytes_field(6, name)
                self.descriptors.append(
                    number_field(_UUID, process.pid)
                    + bytes_field(_PROCESS, about)
                    + number_field(_ORDERING, _EXPLICIT_ORDER)
                )

    def _add_threads(self) -> None:
        """Add the tracks of slices, markers and steps."""
        kinds = {row["track_id"]: row.get("kind") for row in self.layout.tables["track"]}
        hosts = {(thread.source, thread.track_id): thread for thread in self.layout.threads if not thread.lane}
        for thread in self.layout.threads:
            if thread.layer == "unbound" or thread.source in ("counter", "memory") or thread.shared:
                continue
            if thread.layer != "device" and kinds.get(thread.track_id) == "thread" and not thread.lane:
                about = number_field(1, thread.pid) + number_field(2, thread.tid) + bytes_field(5, thread.name.encode())
                self.descriptors.append(number_field(_UUID, thread.tid) + bytes_field(_THREAD, about))
                continue
            host = hosts[thread.source, thread.track_id]
            self.descriptors.append(_named(thread.tid, host.name, thread.pid, thread.tid))

    def _places(self, source: str) -> NDArray[np.int64]:
        """Return the tracks of a table's slices by track_id and lane."""
        threads = [thread for thread in self.layout.threads if thread.source == source and thread.track_id is not None]
        tracks = [thread.track_id or 0 for thread in threads]
        lanes = max((thread.lane for thread in threads), default=0) + 1
        if tracks and not 0 <= min(tracks) <= max(tracks) < _MOST_PLACES // lanes:
            ids = f"{source}.track_id ranges from {min(tracks)} to {max(tracks)}"
            raise StoreError(f"{ids}; the store is damaged, ingest its sources again")
        places = np.zeros((max(tracks, default=0) + 1, lanes), np.int64)
        for thread in threads:
            places[thread.track_id, thread.lane] = thread.tid
        return places

    def _add_counters(self, connection: duckdb.DuckDBPyConnection, source: str) -> dict[tuple[int, str | None], int]:
        """Add the tracks of recorded counters; return them by track_id and series."""
        threads = {thread.track_id: thread for thread in self.layout.threads if thread.source == "counter"}
        rows = {row["track_id"]: row for row in self.layout.tables["track"]}
        found = connection.execute(f"SELECT DISTINCT track_id, series FROM {source} ORDER BY ALL").fetchall()
        counts = Counter(track for track, _ in found)
        tracks = {}
        for track, series in found:
            thread, row = threads[track], rows.get(track, {})
            name = str(row.get("name") or thread.name)
            if series is not None and (counts[track] > 1 or series != "value"):
                name = f"{name} {series}"
            unit = row.get("unit")
            tracks[track, series] = self._add_counter(name, thread, None if unit is None else str(unit))
        return tracks

    def _add_memory(self, connection: duckdb.DuckDBPyConnection, source: str) -> dict[tuple[int | None, str], int]:
        """Add counters of device memory, unless the source has such counters itself; return them by device and kind."""
        threads = {thread.track_id: thread for thread in self.layout.threads if thread.source == "memory"}
        found = connection.execute(f"SELECT DISTINCT device_id, kind FROM {source} ORDER BY ALL").fetchall()
        titles = {"block": "Memory used", "segment": "Memory reserved"}
        return {(device, kind): self._add_counter(titles[kind], threads[device], "bytes") for device, kind in found}

    def _add_counter(self, name: str, thread: Thread, unit: str | None) -> int:
        about = b""
        if unit is not None:
            about = number_field(3, _UNITS[unit]) if unit in _UNITS else bytes_field(6, unit.encode())
        uuid = next(self._uuids)
        self.descriptors.append(_named(uuid, name, thread.pid, thread.tid, bytes_field(_COUNTER, about)))
        return uuid


def _first_ns(memory: str) -> str:
    return f"(SELECT min(coalesce(alloc_ns, free_ns)) FROM {memory})"


def _named(uuid: int, name: str, parent: int, rank: int, more: bytes = b"") -> bytes:
    about = number_field(_UUID, uuid) + bytes_field(_NAME, name.encode()) + number_field(_PARENT, parent)
    return about + number_field(_RANK, rank) + more
