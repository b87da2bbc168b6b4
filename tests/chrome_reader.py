"""Read the rows of a store back from an exported Chrome trace with a JSON parser.

It follows docs/how-to/export-a-timeline.md and uses no code of the exporter.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from traceconv.schema import table

Event = dict[str, Any]
Row = dict[str, object]

#: Keys of args that are from the op of a row, not from the row.
_FROM_OP = {"op_name", "op_type", "input_shapes", "input_dtypes", "output_shapes", "output_dtypes"}


def load(text: str | bytes) -> Event:
    """Parse the document with exact decimals."""
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse)  # type: ignore[no-any-return]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


class ChromeReader:
    """Reads a document; `rows[table]` are its rows, unordered and without run_id."""

    def __init__(self, document: Event) -> None:
        self.base_ns = int(document["otherData"]["base_ns"])
        self.events: list[Event] = document["traceEvents"]
        self.threads = {
            (event["pid"], event["tid"]): event["args"]
            for event in self.events
            if event["ph"] == "M" and event["name"] == "thread_name"
        }
        self.rows: dict[str, list[Row]] = defaultdict(list)
        self._blocks: dict[object, Row] = {}
        self._flows: dict[object, Row] = {}
        self._reversed: set[object] = set()
        for event in self.events:
            if event["ph"] != "M":
                self._read(event)
            elif event["name"] in ("marker", "op", "fusion", "task_pmu", "event_wait"):
                columns = event["args"]["columns"]
                listed = [dict(zip(columns, row, strict=True)) for row in event["args"]["rows"]]
                self.rows[event["name"]] += [_row(event["name"], row) for row in listed]

    def ns(self, microseconds: object) -> int:
        """The exact time of a ts."""
        value = Decimal(str(microseconds)) * 1000
        assert value == int(value)
        return self.base_ns + int(value)

    def _read(self, event: Event) -> None:
        thread, phase = self.threads[event["pid"], event["tid"]], event["ph"]
        holds = thread["table"]
        if phase in "sf":
            self._flow(event)
        elif holds == "memory":
            if phase == "i":
                self._memory(event, thread)
        elif holds == "step":
            self.rows["step"].append(_row("step", event["args"], device_id=thread.get("device_id")))
        elif holds == "counter":
            self._counter(event, thread)
        elif phase == "i":
            self._slice("marker", event, thread)
        else:
            self._slice(holds, event, thread)

    def _slice(self, name: str, event: Event, thread: Event) -> None:
        args = {key: value for key, value in event["args"].items() if key not in _FROM_OP}
        title = None if "name" in args else event["name"]
        row = _row(name, args, track_id=thread["track_id"], name=title)
        row["category"] = None if "category" in args else event.get("cat")
        row["ts_ns" if name == "marker" else "start_ns"] = self.ns(event["ts"])
        if name != "marker":
            assert (event["ph"] == "X") is ("dur" in event)
            row["dur_ns"] = int(Decimal(str(event["dur"])) * 1000) if event["ph"] == "X" else None
        self.rows[name].append(row)

    def _counter(self, event: Event, thread: Event) -> None:
        [(key, value)] = event["args"].items()
        series = event.get("series", None if key == "value" else key)
        whole = value if isinstance(value, int) else None
        double = event.get("value", value)
        self.rows["counter"].append(
            {
                "track_id": thread["track_id"],
                "series": series,
                "ts_ns": self.ns(event["ts"]),
                "value": None if double is None else float(double),
                "value_int": whole,
            }
        )

    def _memory(self, event: Event, thread: Event) -> None:
        block_id = event["args"]["block_id"]
        if event["name"] == "free":
            self._blocks[block_id]["free_ns"] = self.ns(event["ts"])
            return
        known = self.ns(event["ts"]) if event["name"] == "alloc" else None
        row = _row("memory", event["args"], device_id=thread.get("device_id"), alloc_ns=known)
        assert block_id not in self._blocks
        self._blocks[block_id] = row
        self.rows["memory"].append(row)

    def _flow(self, event: Event) -> None:
        if event["ph"] == "s":
            known = None if "src_ns" in event["args"] else self.ns(event["ts"])
            assert event["id"] not in self._flows
            args = dict(event["args"])
            if args.pop("reversed", False):
                self._reversed.add(event["id"])
            self._flows[event["id"]] = _row("flow", args, src_ns=known)
            self.rows["flow"].append(self._flows[event["id"]])
        else:
            row = self._flows[event["id"]]
            row["dst_ns"] = self.ns(event["ts"])
            if event["id"] in self._reversed:
                assert row["src_ns"] < row["dst_ns"]  # type: ignore[operator] # of an arrow that leads back both are known
                row["src_ns"], row["dst_ns"] = row["dst_ns"], row["src_ns"]


def _row(name: str, args: Mapping[str, Any], /, **placed: object) -> Row:
    """A row with every column of the table but run_id: from `placed`, from args, or NULL."""
    columns = {column.name: column for column in table(name).columns if column.name != "run_id"}
    assert set(args) - {"run_id"} <= set(columns), f"{name}: {set(args) - set(columns)} are no columns"
    row: Row = dict.fromkeys(columns)
    for key, value in args.items():
        if key != "run_id":
            whole = columns[key].type in ("i32", "i64", "u64") and value is not None
            row[key] = int(value) if whole else value
    return {**row, **placed}
