"""Profiles of JAX, read with messages that google.protobuf builds from the published field numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from recount.tally import Tally, nanoseconds

_INT64, _STRING, _MESSAGE = 3, 9, 11
#: Message → field: number, type, message.
_MESSAGES: dict[str, dict[str, tuple[int, int, str]]] = {
    "Space": {"planes": (1, _MESSAGE, "Plane")},
    "Plane": {
        "name": (2, _STRING, ""),
        "lines": (3, _MESSAGE, "Line"),
        "kinds": (4, _MESSAGE, "Entry"),
        "keys": (5, _MESSAGE, "Entry"),
    },
    "Line": {
        "name": (2, _STRING, ""),
        "timestamp_ns": (3, _INT64, ""),
        "events": (4, _MESSAGE, "Event"),
        "display_name": (11, _STRING, ""),
    },
    "Event": {
        "kind": (1, _INT64, ""),
        "offset_ps": (2, _INT64, ""),
        "duration_ps": (3, _INT64, ""),
        "stats": (4, _MESSAGE, "Stat"),
    },
    "Stat": {"key": (1, _INT64, ""), "int64": (4, _INT64, "")},
    "Entry": {"key": (1, _INT64, ""), "value": (2, _MESSAGE, "Named")},
    "Named": {"name": (2, _STRING, ""), "display_name": (4, _STRING, "")},
}
_NS_OF_PS = Decimal("0.001")
_REPEATED = {"planes", "lines", "kinds", "keys", "events", "stats"}


def _space() -> Any:
    """The class of a file."""
    file = descriptor_pb2.FileDescriptorProto(name="recount.proto", package="recount", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, other) in fields.items():
            label = 3 if field in _REPEATED else 1
            type_name = f".recount.{other}" if other else None
            message.field.add(name=field, number=number, type=kind, label=label, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("recount.Space"))


def add_up(path: Path) -> Tally:
    """Sum up the events of all lines."""
    tally = Tally()
    for plane in _space().FromString(path.read_bytes()).planes:
        kinds = {entry.key: entry.value.display_name or entry.value.name for entry in plane.kinds}
        keys = {entry.key: entry.value.name for entry in plane.keys}
        for line in plane.lines:
            thread = line.display_name or line.name
            for event in line.events:
                name = kinds[event.kind]
                start_ps = line.timestamp_ns * 1000 + event.offset_ps
                start_ns = nanoseconds(start_ps, _NS_OF_PS)
                end_ns = nanoseconds(start_ps + event.duration_ps, _NS_OF_PS)
                tally.event_count += 1
                given = {keys[stat.key] for stat in event.stats}
                tally.slice((*_row(plane.name, thread, name, given), name), start_ns, end_ns - start_ns)
                steps = [stat.int64 for stat in event.stats if keys[stat.key] == "step_num"]
                if steps and plane.name == "/host:CPU":
                    tally.steps.add((steps[-1], start_ns, end_ns))
    return tally


def _row(process: str, thread: str, name: str, given: set[str]) -> tuple[str, str, int | None, int | None]:
    """Table, kind, device and stream of a slice with these statistics."""
    device, stream = re.fullmatch(r"/device:GPU:(\d+).*", process), re.fullmatch(r"Stream #(\d+).*", thread)
    if device and stream:
        copies = name.lower().startswith(("memcpy", "memset"))
        return "task", "copy" if copies else "compute", int(device[1]), int(stream[1])
    if process == "/host:CPU" and re.fullmatch(r"(cuda|hip)[A-Z]\w*", name):
        return "api", "runtime", None, None
    if process == "/host:CPU" and re.fullmatch(r"cu[A-Z]\w*", name):
        return "api", "driver", None, None
    if process == "/host:CPU" and not given.isdisjoint(("hlo_op", "long_name")):
        return "range", "host_op", None, None
    is_function = process == "/host:CPU" and re.fullmatch(r"\$.+", name)
    return "range", "frame" if is_function else "annotation", None, None
