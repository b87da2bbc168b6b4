"""traceconv's exports, summed from their files, and a run summed as ranges, the only kind that protobuf keeps."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from recount.tally import Tally, nanoseconds

_KINDS = {"task": "kind", "api": "level", "range": "kind"}


def count_chrome(path: Path) -> Tally:
    """The table of each event is that of its thread (docs/how-to/export-a-timeline.md)."""
    tally = Tally()
    document = json.loads(path.read_text("utf-8"), parse_float=Decimal)
    base_ns = int(document["otherData"]["base_ns"])
    events = document["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks = {track["track_id"]: track.get("name") for track in document["otherData"]["track"]}
    arrows: dict[Any, dict[str, Any]] = defaultdict(dict)
    for event in events:
        args, thread = event.get("args", {}), threads.get((event["pid"], event.get("tid")), {})
        ns = nanoseconds(event["ts"]) + base_ns if "ts" in event else None
        name = args["name"] if "name" in args else event["name"]
        category = args["category"] if "category" in args else event.get("cat")
        if event["ph"] == "M":
            if event["name"] == "marker":
                for row in args["rows"]:
                    marker = dict(zip(args["columns"], row, strict=True))
                    ts_ns = marker.get("ts_ns") if marker.get("category") != "__metadata" else None
                    tally.moment(marker.get("category"), marker.get("name"), ts_ns)
            continue
        assert ns is not None
        if event["ph"] in "sf":
            arrows[event["id"]][event["ph"]] = (ns, event)
        elif event["ph"] == "C":
            if thread["table"] in ("memory", "task"):  # computed from blocks and tasks, for viewers
                continue
            is_labelled = "value" in args and event.get("series") != "value"
            series = None if is_labelled else next(iter(args))
            tally.sample((tracks[thread["track_id"]], series), ns, Decimal(args[series or "value"]))
        elif thread.get("table") == "memory":
            if event["name"] in ("alloc", "held"):
                tally.block((thread.get("device_id"),), int(args["size_bytes"]))
        elif thread.get("table") == "step":
            start, end = (int(args[key]) if args.get(key) is not None else None for key in ("start_ns", "end_ns"))
            tally.steps.add((args.get("iteration"), start, end))
        elif event["ph"] in "XB":
            place = (args.get("device_id"), args.get("stream_id")) if thread["table"] == "task" else (None, None)
            key = (thread["table"], args.get(_KINDS[thread["table"]]), *place, name)
            tally.slice(key, ns, nanoseconds(event["dur"]) if "dur" in event else None)
        elif event["ph"] in "iI":
            tally.moment(category, name, ns)
    for ends in arrows.values():
        (source_ns, event), (target_ns, _) = ends["s"], ends["f"]
        args = event.get("args", {})
        length = source_ns - target_ns if args.get("reversed") else target_ns - source_ns
        tally.arrow(args.get("category"), args.get("name"), length)
    return tally


def as_ranges(store: Path, run: int, tally: Tally) -> Tally:
    """Sum up a run as a Perfetto trace keeps it: every slice is a range, including steps.

    Flows start and end at the start of their slices. Flows without a slice at an end and markers without a timestamp
    are not exported.
    """
    found = Tally()
    several = Counter(track for track, _ in tally.counters)
    for (track, series), samples in tally.counters.items():
        if series == "value" and several[track] == 1:
            series = None
        found.counters[track if series is None else f"{track} {series}", "value"].add(samples)
    for (*_, name), one in tally.slices.items():
        found.slices["range", "annotation", None, None, name].add(one)
    if not any(str(track).startswith("Memory ") for track, _ in tally.counters):
        _sums_of_memory(store, run, found)
    with duckdb.connect(str(store), read_only=True) as connection:
        for iteration, start_ns, end_ns in connection.execute(
            "SELECT iteration, start_ns, end_ns FROM step WHERE run_id = ? AND start_ns IS NOT NULL", [run]
        ).fetchall():
            key = ("range", "annotation", None, None, f"Iteration {iteration}")
            found.slice(key, start_ns, None if end_ns is None else end_ns - start_ns)
        for (length_ns,) in connection.execute(
            "SELECT b.start_ns - a.start_ns FROM flow AS f JOIN slice AS a ON a.run_id = f.run_id AND a.id = src_id "
            "JOIN slice AS b ON b.run_id = f.run_id AND b.id = dst_id WHERE f.run_id = ?",
            [run],
        ).fetchall():
            found.arrow(None, None, length_ns)
        for category, name, ts_ns in connection.execute(
            "SELECT category, name, ts_ns FROM marker WHERE run_id = ? AND ts_ns IS NOT NULL", [run]
        ).fetchall():
            found.moment(category, name, ts_ns)
    return found


def _sums_of_memory(store: Path, run: int, tally: Tally) -> None:
    """Bytes in blocks and in segments of each device, at each time when they change."""
    with duckdb.connect(str(store), read_only=True) as connection:
        blocks = connection.execute(
            "SELECT device_id, kind, alloc_ns, free_ns, size_bytes FROM memory WHERE run_id = ?", [run]
        ).fetchall()
    first_ns = min((ns for _, _, *both, _ in blocks for ns in both if ns is not None), default=0)
    for kind, name in (("block", "Memory used"), ("segment", "Memory reserved")):
        for device in {block[0] for block in blocks}:
            changes: dict[int, int] = defaultdict(int)
            for other, what, alloc_ns, free_ns, size in blocks:
                if (other, what) == (device, kind):
                    changes[first_ns if alloc_ns is None else alloc_ns] += size
                    if free_ns is not None:
                        changes[free_ns] -= size
            held = 0
            for ns in sorted(changes):
                held += changes[ns]
                tally.sample((name, "value"), ns, held)
