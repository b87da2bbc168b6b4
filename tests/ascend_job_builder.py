"""Build jobs, the raw data of Ascend NPUs of 2020."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

#: Its device.
DEVICE = 3


def log_record(is_end: bool, task_type: int, task: int, ticks: int, stream: int, number: int = 0) -> bytes:
    """The start or the end of a task. `number`: runs in all records."""
    return struct.pack("<BBHHHQI44x", is_end | number % 16 << 4, task_type, 0x6BD3, 0, task, ticks, stream)


def marks(of_steps: Iterable[tuple[int, int, int]]) -> bytes:
    """Marks of steps, as (tag, stream, ticks)."""
    return b"".join(struct.pack("<QHHQ", tag, 1, stream, ticks) for tag, stream, ticks in of_steps)


def write_job(
    folder: Path, log: bytes = b"", training: bytes = b"", tasks: str = "", *, slice_bytes: int = 100
) -> Path:
    """Write a job with its slices in `data`, cut inside records, and return its folder."""
    data = folder / "JOBAB" / "data"
    data.mkdir(parents=True)
    for number, first in enumerate(range(0, len(log), slice_bytes)):
        path = data / f"hwts.log.data.45.dev.profiler_default_tag.{DEVICE}.slice_{number}"
        path.write_bytes(log[first : first + slice_bytes])
    if training:
        (data / f"training_trace.46.dev.profiler_default_tag.{DEVICE}.slice_0").write_bytes(training)
    if tasks:
        (data / f"Framework.host.vm.task_desc_info.{DEVICE}.slice_0").write_text(tasks)
    return data.parent
