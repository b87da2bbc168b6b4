"""The format of memory snapshots, which `torch.cuda.memory._dump_snapshot` and those of other devices write."""

from __future__ import annotations

import re

from traceconv.formats.format import Format

# A dict whose first key is one of the snapshot's; some writers put none of its values before another key.
_SNAPSHOT = re.compile(
    rb"\x80[\x02-\x05](?:\x95.{8})?\}(?:q.|\x94)?\("
    rb"(?:X(?P<size>.)\0\0\0|\x8c(?P<short>.))(?:segments|device_traces|allocator_settings)",
    re.DOTALL,
)


def sniff(head: bytes) -> int:
    """Confidence, 0 to 100, that a file with these first bytes is a memory snapshot."""
    return 95 if _SNAPSHOT.match(head) else 0


FORMAT = Format(
    "torch_memory",
    "a memory snapshot of PyTorch (pickle)",
    sniff,
    "traceconv.formats.torch_memory.reader:TorchMemoryReader",
    "traceconv.formats.torch_memory.locate:locate",
    event_times="time_us in µs",
)
