"""Raw logs of the reference NPU, read with struct by docs/reference/raw-records.md and the schemas in the files."""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

from recount.tally import Tally

Record = dict[str, Any]

_FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "f64": "d", "str": "Q"}
_KINDS = {5: "copy", 6: "collective", 7: "sync", 8: "sync"}
_LEVELS = ("acl", "model", "node", "runtime", "communication")
_RANGES = ("annotation", "module", "host_op", "inference", "execution", "external_op")
_CORES = ("AI_CORE", "AI_VECTOR_CORE", "AI_CPU", "MIX_AIC", "MIX_AIV", "SDMA", "HCCL")


def records(capture: Path) -> dict[str, list[Record]]:
    """The records of an intact capture by type, with the device of their file."""
    found: dict[str, list[Record]] = defaultdict(list)
    for path in sorted(capture.rglob("*.bin"), key=lambda path: (path.parent, int(path.stem.split("_")[-1]))):
        device = re.search(r"device_(\d+)", str(path.relative_to(capture)))
        for name, record in _of_file(path.read_bytes()):
            found[name].append({**record, "device": int(device[1]) if device else None})
    return found


def _of_file(data: bytes) -> Iterator[tuple[str, Record]]:
    header_size, schema_size = struct.unpack_from("<I", data, 12)[0], struct.unpack_from("<I", data, 52)[0]
    schemas = {schema["tag"]: schema for schema in json.loads(data[56 : 56 + schema_size])}
    at = header_size
    while at < len(data):
        magic, tag, size, count = struct.unpack_from("<4sHHI", data, at)
        assert magic == b"\x95BLK"
        at += 32
        schema = schemas[tag]
        layout = "<" + "".join(_FORMATS.get(field["type"], "48s") for field in schema["fields"])
        assert struct.calcsize(layout) == size
        for _ in range(count):
            values = struct.unpack_from(layout, data, at)
            yield schema["name"], dict(zip((field["name"] for field in schema["fields"]), values, strict=True))
            at += size


def add_up(capture: Path) -> tuple[Tally, dict[tuple[object, ...], list[int]]]:
    """Sum up an intact capture; return also the durations of its operators by type and core."""
    tally = Tally()
    found = records(capture)
    texts = _texts(found["dictionary"])
    start = found["capture"][0]  # a profile writes the capture record again when it knows the model
    offset_ns = start["epoch_ns"] - start["host_ns"]
    clocks = {
        device: _Clock([sync for sync in found["sync"] if sync["device"] == device], offset_ns)
        for device in {sync["device"] for sync in found["sync"]}
    }
    ops = {op["op_index"]: (texts.get(op["name"]), texts.get(op["op_type"])) for op in found["op"]}
    calls = {call["correlation_id"]: call["host_ns"] + offset_ns for call in found["api"] if call["event"] == 0}
    kernels: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for first, begin, end in _halves(found["task"], "task_id", "ticks"):
        clock = clocks[first["device"]]
        name = texts.get(first["name"]) or ops.get(first["op_index"], (None, None))[0]
        key = ("task", _KINDS.get(first["task_type"], "compute"), first["device"], first["stream_id"], name)
        dur_ns = clock.between(begin, end)
        tally.slice(key, clock.ns(begin), dur_ns)
        if first["op_index"] in ops:
            kernels[ops[first["op_index"]][1], _CORES[first["task_type"]]].append(dur_ns or 0)
        if first["correlation_id"] in calls:
            tally.arrow(None, None, clock.ns(begin) - calls[first["correlation_id"]])
    for name, number, kind, kinds in (
        ("api", "correlation_id", "level", _LEVELS),
        ("range", "span_id", "kind", _RANGES),
    ):
        for first, begin, end in _halves(found[name], number, "host_ns"):
            key = (name, kinds[first[kind]], None, None, texts.get(first["name"]))
            tally.slice(key, begin + offset_ns, None if end is None else end - begin)
    for first, begin, end in _halves(found["stream_range"], "span_id", "ticks"):
        clock = clocks[first["device"]]
        key = ("range", "annotation", None, None, texts.get(first["name"]))
        tally.slice(key, clock.ns(begin), clock.between(begin, end))
    for block in found["memory"]:
        if block["event"] == 0:
            tally.block((block["device_id"],), block["size_bytes"])
        for name in ("used", "reserved"):
            tally.sample((f"Memory {name}", None), block["host_ns"] + offset_ns, block[f"{name}_bytes"])
    for sample in found["counter"]:
        tally.sample((texts[sample["name"]], None), clocks[sample["device"]].ns(sample["ticks"]), sample["value"])
    steps: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for mark in found["step_mark"]:
        steps[mark["step_id"], mark["iteration"]][mark["mark"]] = clocks[mark["device"]].ns(mark["ticks"])
    for (_, iteration), marks in steps.items():
        tally.steps.add((iteration, marks.get(0), marks.get(3)))
    return tally, kernels


def _texts(parts: list[Record]) -> dict[int, str]:
    joined: dict[int, dict[int, bytes]] = defaultdict(dict)
    for part in parts:
        joined[part["hash"]][part["part"]] = part["text_bytes"][: part["size_bytes"]]
    return {number: b"".join(by[part] for part in sorted(by)).decode() for number, by in joined.items()}


def _halves(both: list[Record], key: str, at: str) -> Iterator[tuple[Record, int, int | None]]:
    """Begins, their field `at`, and that of their ends; None without an end."""
    begun: dict[tuple[Any, Any], Record] = {}
    for half in both:
        if half["event"] == 0:
            begun[half["device"], half[key]] = half
        else:
            first = begun.pop((half["device"], half[key]))
            yield first, first[at], half[at]
    for first in begun.values():
        yield first, first[at], None


class _Clock:
    """The device clock by docs/explanation/clock.md: linear interpolation between its readings.

    Readings that took more than four times the median are not used.
    """

    def __init__(self, syncs: list[Record], offset_ns: int) -> None:
        syncs = sorted(syncs, key=lambda sync: sync["ticks"])
        halves = [(sync["host_after_ns"] - sync["host_before_ns"] + 1) // 2 for sync in syncs]
        ranked = sorted(halves)
        median = Fraction(ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2], 2)
        self._points = [
            (sync["ticks"], sync["host_before_ns"] + (sync["host_after_ns"] - sync["host_before_ns"]) // 2)
            for sync, half in zip(syncs, halves, strict=True)
            if half <= max(4 * floor(median), 1)
        ]
        self._offset_ns = offset_ns

    def ns(self, ticks: int) -> int:
        """Convert a reading of the device clock to wall-clock time."""
        place = max([0, *(number for number, (at, _) in enumerate(self._points[:-1]) if at <= ticks)])
        (t0, h0), (t1, h1) = self._points[place : place + 2]
        return floor(h0 + (ticks - t0) * Fraction(h1 - h0, t1 - t0)) + self._offset_ns

    def between(self, begin: int, end: int | None) -> int | None:
        """Duration between two readings."""
        return None if end is None else self.ns(end) - self.ns(begin)
