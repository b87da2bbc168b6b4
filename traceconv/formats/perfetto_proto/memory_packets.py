"""Packets about the memory of processes → counter samples, and markers with what has no counter.

The names of counters, and their unit (bytes), are those of trace processor. Source: Perfetto's published
protos/perfetto/trace/ps/process_stats.proto, profiling/smaps.proto and memory_graph.proto.
"""

from __future__ import annotations

from collections.abc import Iterable

from traceconv.events.trace import Label, NamedTrack
from traceconv.formats.perfetto_proto import field_numbers as pb
from traceconv.formats.perfetto_proto.annotations import Member, object_of
from traceconv.formats.perfetto_proto.message import Message
from traceconv.formats.perfetto_proto.rows import Rows
from traceconv.formats.perfetto_proto.sequences import Sequence
from traceconv.formats.perfetto_proto.state import TraceState
from traceconv.formats.perfetto_proto.typed_fields import TypedFields
from traceconv.wire.protobuf import WireError

#: Counters of ProcessStats.Process in KB, by field number, and those with other units.
_KILOBYTES = {
    2: "mem.virt",
    3: "mem.rss",
    4: "mem.rss.anon",
    5: "mem.rss.file",
    6: "mem.rss.shmem",
    7: "mem.swap",
    8: "mem.locked",
    9: "mem.rss.watermark",
    13: "chrome.private_footprint_kb",
    14: "chrome.peak_resident_set_kb",
    16: "mem.smaps.rss",
    17: "mem.smaps.pss",
    18: "mem.smaps.pss.anon",
    19: "mem.smaps.pss.file",
    20: "mem.smaps.pss.smem",
    23: "mem.smaps.swap.pss",
    24: "mem.dmabuf_rss",
}
_OTHERS = {10: "oom_score_adj", 21: "runtime.user_ns", 22: "runtime.kernel_ns"}
_PID, _COLLECTION_END = 1, 2


class MemoryPackets:
    """Turns packets into rows, one after another."""

    def __init__(self, trace: TraceState, typed_fields: TypedFields) -> None:
        self._trace = trace
        self._typed_fields = typed_fields

    def take(
        self, rows: Rows, number: int, start: int, end: int, data: bytes, sequence: Sequence, ns: int | None
    ) -> None:
        """Add the rows of a packet. `number`: its field in the packet; `ns`: the packet's timestamp."""
        if ns is None:
            self._trace.losses.counts["timeless"] += 1
            return
        try:
            message = Message(data, start, end)
            if number == pb.PROCESS_STATS:
                for process in [Message(data, *span) for span in message.spans(1)]:
                    self._statistics(rows, process, sequence, ns)
                message.take(_COLLECTION_END)
                if message:
                    self._mark(rows, "process stats", message, "ProcessStats", sequence, ns)
            elif number == pb.SMAPS:
                pid = self._process(message, rows)
                self._mark(rows, "smaps", message, "SmapsPacket", sequence, ns, pid)
            else:
                processes = [Message(data, *span) for span in message.spans(3)]
                about = self._typed_fields.rest(message, "MemoryTrackerSnapshot", sequence)
                for process in processes or [message]:
                    kind = "MemoryTrackerSnapshot.ProcessSnapshot"
                    pid = self._process(process, rows)
                    self._mark(rows, "memory snapshot", process, kind, sequence, ns, pid, about)
        except WireError:
            self._trace.losses.counts["damaged"] += 1

    def _statistics(self, rows: Rows, process: Message, sequence: Sequence, ns: int) -> None:
        """Add the counter samples of a process; what has no counter is in a marker."""
        pid = self._process(process, rows)
        for counters, factor in ((_KILOBYTES, 1024), (_OTHERS, 1)):
            for number, name in counters.items():
                value = process.signed(number)
                if value is not None:
                    rows.add("C", name, None, pid, None, ns, f'{{"value":{value * factor}}}')
        if process:
            self._mark(rows, "process stats", process, "ProcessStats.Process", sequence, ns, pid)

    def _process(self, message: Message, rows: Rows) -> Label:
        pid = message.signed(_PID)
        return None if pid is None else self._trace.tracks.process_at(pid, rows.position)

    def _mark(
        self,
        rows: Rows,
        name: str,
        message: Message,
        kind: str,
        sequence: Sequence,
        ns: int,
        pid: Label = None,
        about: Iterable[Member] = (),
    ) -> None:
        """Add a marker with what was not taken of a message of a kind, after `about`."""
        members = [*about, *self._typed_fields.rest(message, kind, sequence)]
        rows.add("i", name, None, pid, NamedTrack("process", str(pid)), ns, object_of(members))
