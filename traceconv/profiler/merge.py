"""Chrome traces of several profiles as one, on the time axis of the first."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

Trace = dict[str, Any]


def merged(traces: Iterator[Trace]) -> Trace:
    """Return one trace: processes and threads with the same names share a track, IDs of flows stay distinct.

    A single trace is returned unchanged. The result of several can't be restored as runs by `ingest`.
    """
    first = next(traces)
    rest = list(traces)
    if not rest:
        return first
    base_ns = min(int(trace["otherData"]["base_ns"]) for trace in (first, *rest))
    tracks, events = _Tracks(), list[Trace]()
    for number, trace in enumerate((first, *rest)):
        shift_ns = int(trace["otherData"]["base_ns"]) - base_ns
        events += _moved(trace["traceEvents"], tracks, shift_ns, number)
    data = {"writer": first["otherData"]["writer"], "base_ns": str(base_ns), "profiles": 1 + len(rest)}
    return {"displayTimeUnit": first["displayTimeUnit"], "otherData": data, "traceEvents": events}


class _Tracks:
    """Numbers of processes and threads, by their names."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], int] = {}
        self._numbers = itertools.count(1)

    def number(self, *key: object) -> tuple[int, bool]:
        """Return the number for a key, and whether it is new."""
        count = len(self._known)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = next(self._numbers)
        return found, len(self._known) > count


def _moved(events: list[Trace], tracks: _Tracks, shift_ns: int, number: int) -> Iterator[Trace]:
    names = {
        (one["name"], one["pid"], one.get("tid")): json.dumps(one["args"], sort_keys=True)
        for one in events
        if one["ph"] == "M"
    }
    numbers: dict[tuple[object, object], tuple[int, int | None]] = {}
    new: set[tuple[object, object]] = set()

    def placed(event: Mapping[str, Any]) -> tuple[int, int | None]:
        pid, tid = event["pid"], event.get("tid")
        if (pid, tid) not in numbers:
            process, first = tracks.number(names.get(("process_name", pid, None), (number, pid)))
            thread = None
            if tid is not None:
                name = names.get(("thread_name", pid, tid), (number, tid))
                thread, first = tracks.number(process, name)
            numbers[pid, tid] = process, thread
            if first:
                new.add((pid, tid))
        return numbers[pid, tid]

    for event in events:
        process, thread = placed(event)
        if event["ph"] == "M" and (event["pid"], event.get("tid")) not in new:
            continue
        moved = {**event, "pid": process}
        if thread is not None:
            moved["tid"] = thread
        if "ts" in event:
            moved["ts"] = round(event["ts"] + shift_ns / 1000, 3)
        if number and "id" in event:
            moved["id"] = f"{number}:{event['id']}"
        yield moved
