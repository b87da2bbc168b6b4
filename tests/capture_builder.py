"""Build small captures for tests, one record per line, with simple times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from traceconv.schema import record
from traceconv.wire.log_writer import CaptureWriter, new_records

#: Device clock in tests: 100 MHz, so a tick is 10 ns.
CLOCK_HZ = 100_000_000
NS_PER_TICK = 10


class CaptureBuilder:
    """Writes a capture. Strings are given as text, enum fields by name."""

    def __init__(
        self, folder: Path, *, devices: tuple[int, ...] = (0,), block_bytes: int = 1 << 20, **options: Any
    ) -> None:
        self.folder = folder
        hz = dict.fromkeys(devices, CLOCK_HZ)
        self.writer = CaptureWriter(folder, writer_id=7, device_clock_hz=hz, block_bytes=block_bytes, **options)

    def add(self, record_name: str, owner: int | None = None, /, **values: Any) -> CaptureBuilder:
        """Add a record; missing fields are null or 0."""
        records = new_records(record_name, 1)
        for field in record(record_name).fields:
            if field.name not in values:
                continue
            value = values.pop(field.name)
            if field.type == "str":
                value = self.writer.text(value)
            elif field.values is not None and isinstance(value, str):
                value = next(number for number, text in field.values.items() if text == value)
            records[field.name] = value
        assert not values, f"{record_name} has no {values}"
        self.writer.append(record_name, records, owner)
        return self

    def call(
        self, correlation_id: int, begin_ns: int, end_ns: int | None, name: str = "call", **values: Any
    ) -> CaptureBuilder:
        """Add an API call without nested calls: a begin directly followed by its end."""
        self.begin(correlation_id, begin_ns, name, **values)
        return self if end_ns is None else self.end(correlation_id, end_ns, **values)

    def begin(self, correlation_id: int, host_ns: int, name: str = "call", **values: Any) -> CaptureBuilder:
        """Add the begin of an API call."""
        values = {"level": "runtime", "thread_id": 1, **values}
        return self.add("api", host_ns=host_ns, correlation_id=correlation_id, name=name, event="begin", **values)

    def end(self, correlation_id: int, host_ns: int, **values: Any) -> CaptureBuilder:
        """Add the end of an API call."""
        thread_id = values.get("thread_id", 1)
        return self.add("api", host_ns=host_ns, correlation_id=correlation_id, event="end", thread_id=thread_id)

    def sync(self, ticks: int, host_ns: int, half_ns: int = 0, device_id: int = 0) -> CaptureBuilder:
        """Add a clock reading, uncertain by ± `half_ns`."""
        values = {"ticks": ticks, "host_before_ns": host_ns - half_ns, "host_after_ns": host_ns + half_ns}
        return self.add("sync", device_id, **values)

    def task(
        self, task_id: int, start: int, end: int | None, name: str = "", device_id: int = 0, **values: Any
    ) -> CaptureBuilder:
        """Add a task; `start` and `end` in ticks."""
        values = {"task_type": "AI_CORE", "stream_id": 0, "block_count": 1, **values}
        self.add("task", device_id, ticks=start, task_id=task_id, name=name, event="start", **values)
        if end is not None:
            stream_id = values["stream_id"]
            self.add("task", device_id, ticks=end, task_id=task_id, event="end", stream_id=stream_id)
        return self

    def close(self, **manifest: Any) -> Path:
        """Write the manifest; return the capture's folder."""
        self.writer.close(manifest)
        return self.folder

    def cut(self) -> Path:
        """End without a manifest, like a killed process; return the capture's folder."""
        self.writer.flush()
        self.writer.abandon()
        return self.folder
