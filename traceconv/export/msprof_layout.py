"""Processes and threads of msprof's timeline: their names, numbers, labels and order.

msprof numbers a process `host pid << 10 | order << 5 | device`; the host is device 31. Processes and threads that the
source has in msprof's layout already keep their numbers and names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import duckdb

from traceconv.export.json_sql import json_text

HARDWARE, CANN, COMMUNICATION, OVERLAP, APPLICATION = (
    "Ascend Hardware", "CANN", "Communication", "Overlap Analysis", "MsprofTx",
)  # fmt: skip
#: msprof's processes in their order on the screen.
ORDER = {
    APPLICATION: 6, CANN: 7, HARDWARE: 13, "AI Core Freq": 14, COMMUNICATION: 15, "HCCL": 15, "DDR": 16, "HBM": 17,
    "LLC": 18, "NPU MEM": 19, "Stars Soc Info": 20, "Acc PMU": 21, "QoS": 22, OVERLAP: 30,
}  # fmt: skip
#: Slices of Overlap Analysis, by thread.
OVERLAPS = ("Computing", COMMUNICATION, "Communication(Not Overlapped)", "Free")
_HOST_DEVICE = 31
_OTHER_ORDER = 29
#: msprof's thread of the steps of model 0.
_STEP_TID = 70_000
_MOST_PID = 2**53


@dataclass(slots=True)
class Process:
    """A viewer's process, with the numbers of its threads."""

    pid: int
    name: str
    label: str
    order: int
    tids: set[int] = field(default_factory=set)

    def tid(self, wanted: int | None) -> int:
        """Return `wanted` if it is free, otherwise another number; no two threads get the same one."""
        number = _free(self.tids, wanted if wanted is not None else 1)
        self.tids.add(number)
        return number


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the table track, and its process in the source."""

    track_id: int
    kind: str | None
    device_id: int | None
    tid: int | None
    stream_id: int | None
    name: str | None
    unit: str | None
    order: int | None
    process_id: int | None
    pid: int | None
    process: str | None
    process_order: int | None
    process_label: str | None

    @property
    def in_layout(self) -> bool:
        """Whether the source has the process in msprof's layout."""
        return self.process in ORDER


#: For rows without a known track.
NO_TRACK = Track(-1, *[None] * 12)


class Layout:
    """The processes and threads so far, and their metadata events. Threads are numbered in the order of requests."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
        self.tracks = _tracks(connection, run_id)
        found = connection.execute("SELECT device_id FROM device WHERE run_id = ? ORDER BY 1", [run_id]).fetchall()
        self._devices: list[int] = [device_id for (device_id,) in found]
        self._processes: dict[tuple[str, object], Process] = {}
        self._threads: list[tuple[Process, int, str, int]] = []
        self._pids: set[int] = set()
        #: Processes of devices have the PID of the recorded program.
        self._host_pid = next((track.pid for track in self.tracks.values() if track.kind == "thread" and track.pid), 0)

    def thread(self, process: Process, name: str | None, tid: int | None, order: int | None = None) -> tuple[str, int]:
        """Add a thread; return the members `pid` and `tid` of its events, and its number. No name: the number."""
        number = process.tid(tid)
        self._threads.append((process, number, name or f"Thread {number}", number if order is None else order))
        return head(process, number), number

    def of_host(self, name: str, track: Track) -> Process:
        """Return a process for rows of host threads, by the process of their track."""
        order = ORDER.get(name, track.process_order or ORDER[APPLICATION])
        keeps = track.in_layout or track.process_order is not None
        wanted = track.pid if keeps and track.process == name else None
        return self._process((name, track.process_id), name, wanted, track.pid, order, None, track.process_label)

    def of_device(self, name: str, device_id: int | None, track: Track | None = None) -> Process:
        """Return a process for rows of a device; `track`: where the source has them."""
        known = track is not None and track.in_layout
        if device_id is None and track is not None:
            device_id = self._device_of(track)
        name = str(track.process) if track is not None and known else name
        key = track.process_id if device_id is None and track is not None else device_id
        order = (track.process_order if track is not None and known else None) or ORDER.get(name, _OTHER_ORDER)
        wanted = track.pid if track is not None and known else None
        label = track.process_label if track is not None else None
        return self._process((name, (key, device_id is None)), name, wanted, self._host_pid, order, device_id, label)

    def _device_of(self, track: Track) -> int | None:
        """Return the device of a process in msprof's layout: the only one, or the one that its number contains."""
        if len(self._devices) == 1:
            return self._devices[0]
        number = -1 if track.pid is None else track.pid % (_HOST_DEVICE + 1)
        return number if number in self._devices else None

    def _process(
        self, key: tuple[str, object], name: str, wanted: int | None, host: int | None, order: int, device: int | None,
        label: str | None,
    ) -> Process:  # fmt: skip
        if key not in self._processes:
            on_host = not isinstance(key[1], tuple)
            if wanted is None:
                low = _HOST_DEVICE if on_host else device if device is not None and 0 <= device < _HOST_DEVICE else 0
                wanted = (host or 0) * 1024 + order * 32 + low
            shown = f"NPU {device}" if device is not None else label or ("CPU" if on_host else "NPU")
            self._processes[key] = Process(_free(self._pids, wanted), name, shown, order)
            self._pids.add(self._processes[key].pid)
        return self._processes[key]

    def steps(self, device_id: int | None, model_id: int | None) -> tuple[str, int]:
        """Add the thread for the steps of a model."""
        name = "Step Trace" if model_id is None else f"Step Trace(Model ID:{model_id})"
        process = self.of_device(HARDWARE, device_id)
        return self.thread(process, name, _STEP_TID + (model_id if model_id is not None and model_id >= 0 else 0))

    def metadata(self, only: str | None = None) -> Iterator[str]:
        """Yield the metadata events; `only`: of threads whose name starts so, and their processes."""
        threads = [one for one in self._threads if only is None or one[2].startswith(only)]
        named = {id(process) for process, *_ in threads}
        for process in self._processes.values():
            if only is None or id(process) in named:
                for what, args in (
                    ("process_name", {"name": process.name}),
                    ("process_labels", {"labels": process.label}),
                    ("process_sort_index", {"sort_index": process.order}),
                ):
                    yield _metadata(what, process.pid, 0, args)
        for process, tid, name, order in threads:
            yield _metadata("thread_name", process.pid, tid, {"name": name})
            yield _metadata("thread_sort_index", process.pid, tid, {"sort_index": order})


def head(process: Process, tid: int = 0) -> str:
    """Return the members `pid` and `tid` of an event."""
    return f',"pid":{process.pid},"tid":{tid}'


def _metadata(name: str, pid: int, tid: int, args: Mapping[str, object]) -> str:
    return json_text({"name": name, "pid": pid, "tid": tid, "ph": "M", "args": args})


def _free(used: set[int], wanted: int) -> int:
    if 0 <= wanted < _MOST_PID and wanted not in used:
        return wanted
    number = len(used) + 1
    while number in used:
        number += 1
    return number


def _tracks(connection: duckdb.DuckDBPyConnection, run_id: int) -> dict[int, Track]:
    rows = connection.execute(
        """SELECT k.track_id, k.kind, k.device_id, TRY_CAST(k.tid_text AS BIGINT), k.stream_id, k.name, k.unit,
          k.sort_index, k.process_id, TRY_CAST(p.pid_text AS BIGINT), p.name, p.sort_index, l.label
        FROM track AS k LEFT JOIN process AS p ON p.run_id = k.run_id AND p.process_id = k.process_id
        LEFT JOIN (
          SELECT t.process_id, min(CASE WHEN json_valid(m.args) THEN m.args->>'labels' END) AS label FROM marker AS m
          JOIN track AS t ON t.run_id = m.run_id AND t.track_id = m.track_id
          WHERE m.run_id = ?1 AND m.name = 'process_labels' AND m.ts_ns IS NULL GROUP BY t.process_id
        ) AS l ON l.process_id = k.process_id
        WHERE k.run_id = ?1 ORDER BY k.track_id""",
        [run_id],
    ).fetchall()
    return {row[0]: Track(*row) for row in rows}
