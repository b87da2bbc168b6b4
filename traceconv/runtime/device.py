"""The device's time: streams whose tasks run one after another, on the device's own counter."""

from __future__ import annotations

from dataclasses import dataclass, field

from traceconv.runtime.clock import DeviceClock
from traceconv.runtime.spec import DeviceSpec

#: The streams of a device: operators on one, copies on the other, events between them.
COMPUTE_STREAM = 0
COPY_STREAM = 1
STREAM_NAMES = {COMPUTE_STREAM: "compute", COPY_STREAM: "copy"}

#: Duration of recording or passing an event.
_EVENT_TICKS = 2


@dataclass(frozen=True, slots=True)
class Slot:
    """When a task runs, in ticks of the device's counter."""

    task_id: int
    start: int
    end: int


@dataclass(slots=True)
class Device:
    """A device and how far each stream's work reaches. Tasks are submitted by one thread at a time."""

    spec: DeviceSpec
    clock: DeviceClock
    device_id: int = 0
    free_at: dict[int, int] = field(default_factory=dict)
    tasks: int = 0

    def submit(self, stream_id: int, host_ns: int, ticks: int) -> Slot:
        """A task of `ticks` that the host hands over at `host_ns`; starts once it is there and the stream is free."""
        start = self._start(stream_id, host_ns)
        return self._place(stream_id, start, start + max(1, ticks))

    def record_event(self, stream_id: int, host_ns: int) -> Slot:
        """An event: it has happened at the end of the slot, after all that is on the stream already."""
        return self.submit(stream_id, host_ns, _EVENT_TICKS)

    def wait_event(self, stream_id: int, host_ns: int, event: Slot) -> Slot:
        """Holds the stream until `event` has happened."""
        start = self._start(stream_id, host_ns)
        return self._place(stream_id, start, max(start, event.end) + _EVENT_TICKS)

    def idle_ns(self, stream_id: int) -> int:
        """Host clock at which the host sees that all that was submitted to a stream is done."""
        ticks = self.free_at.get(stream_id)
        if ticks is None:
            return self.clock.origin_ns
        return self.clock.ns_at(ticks) + self.spec.completion_latency_ns

    def _start(self, stream_id: int, host_ns: int) -> int:
        arrived = self.clock.ticks_after(host_ns + self.spec.launch_latency_ns)
        free = self.free_at.get(stream_id)
        return arrived if free is None else max(arrived, free + self.spec.dispatch_gap_ticks)

    def _place(self, stream_id: int, start: int, end: int) -> Slot:
        self.tasks += 1
        self.free_at[stream_id] = end
        return Slot(self.tasks, start, end)
