"""Compute a device's steps and its busy and free times in them as torch_npu does, in doubles of µs.

A step begins with the first task that the first call in the host's step launched, and ends with the last task of the
last such call, or with the host's step if that is later. Slices of Overlap Analysis belong to the step in which they
begin on their device. Doubles of µs since 1970 are a quarter of a µs apart, so the same doubles are computed to get the
same digits. Sources: torch_npu's code, and real files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

COMPUTING, COMMUNICATION, ALONE, FREE = "Computing", "Communication", "Communication(Not Overlapped)", "Free"
RECEIVE = "hcom_receive"


@dataclass(frozen=True, slots=True)
class HostStep:
    """A step of the host, and the bounds of the device tasks it launched; None if it launched none."""

    step: str
    start_ns: int
    end_ns: int
    device_start_ns: int | None = None
    device_end_ns: int | None = None

    def contains(self, start_us: float) -> bool:
        """Whether a slice that starts at this time belongs to the step."""
        low = self.start_ns if self.device_start_ns is None else self.device_start_ns
        high = self.end_ns if self.device_end_ns is None else max(self.device_end_ns, self.end_ns)
        return low / 1000 <= start_us < high / 1000


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of one step on one device, ns.

    stage                   from the first start to the last end, minus `bubble`
    preparing               from the host's start of the step to the first task; None if unknown
    bubble                  waiting to receive
    stage_us, preparing_us  the same as the vendor's doubles, µs
    slack_ns                tolerance of sums whose durations were rounded to nanoseconds
    """

    computing: int
    communication: int
    overlapped: int
    free: int
    stage: int
    preparing: int | None
    bubble: int = 0
    stage_us: float | None = None
    preparing_us: float | None = None
    slack_ns: int = 0


def host_steps(steps: Iterable[tuple[str, int, int]], launches: Iterable[tuple[int, int, int, int]]) -> list[HostStep]:
    """Return the steps with the bounds of their device tasks, sorted by start.

    launches  for each: (time of the call or of its cause, number of the call, start and end of the task)
    """
    calls: dict[int, tuple[int, list[int], list[int]]] = {}
    for called_ns, order, start_ns, end_ns in launches:
        _, starts, ends = calls.setdefault(order, (called_ns, [], []))
        starts.append(start_ns)
        ends.append(end_ns)
    found = []
    for step, begun, ended in sorted(steps, key=lambda one: one[1]):
        orders = [order for order, (called_ns, _, _) in calls.items() if begun <= called_ns < ended]
        if orders:
            bounds = min(calls[min(orders)][1]), max(calls[max(orders)][2])
            found.append(HostStep(step, begun, ended, *bounds))
        else:
            found.append(HostStep(step, begun, ended))
    return found


def rounding_of_sum(count: int) -> int:
    """Return the tolerance of a sum of rounded times, in ns: four standard deviations of its rounding error."""
    return math.ceil(4 * math.sqrt(count / 12))


@dataclass(slots=True)
class _Sums:
    ns: dict[str, int] = field(default_factory=dict)
    count: int = 0
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    ends_us: list[float] = field(default_factory=list)
    task_starts: list[int] = field(default_factory=list)


def step_times(
    slices: Iterable[tuple[str, str, int, int]], steps: Sequence[HostStep], *, rounded: bool
) -> Mapping[tuple[str, str], StepTimes]:
    """Return times by (device, step); without steps in the recording, the step is ''.

    slices   (device, name, start, duration) of Overlap Analysis and of receives
    rounded  whether durations in the timeline are finer than a nanosecond
    """
    sums: dict[tuple[str, HostStep | None], _Sums] = {}
    for device, name, start_ns, dur_ns in slices:
        step = next((one for one in steps if one.contains(start_ns / 1000)), None)
        if step is None and steps:
            continue
        one = sums.setdefault((device, step), _Sums())
        what = RECEIVE if name.startswith(RECEIVE) else name
        one.ns[what] = one.ns.get(what, 0) + dur_ns
        one.count += 1
        one.starts.append(start_ns)
        one.ends.append(start_ns + dur_ns)
        one.ends_us.append(start_ns / 1000 + dur_ns / 1000)
        if what in (COMPUTING, COMMUNICATION):
            one.task_starts.append(start_ns)
    found = {}
    for (device, step), one in sums.items():
        get = one.ns.get
        bubble, first = get(RECEIVE, 0), min(one.task_starts, default=None)
        prepared = None if step is None or first is None else first - step.start_ns
        prepared_us = None if step is None or first is None else first / 1000 - step.start_ns / 1000
        found[device, "" if step is None else step.step] = StepTimes(
            computing=get(COMPUTING, 0),
            communication=get(COMMUNICATION, 0),
            overlapped=get(COMMUNICATION, 0) - get(ALONE, 0),
            free=get(FREE, 0),
            stage=max(one.ends) - min(one.starts) - bubble,
            preparing=prepared,
            bubble=bubble,
            stage_us=max(one.ends_us) - min(one.starts) / 1000 - bubble / 1000,
            preparing_us=prepared_us,
            slack_ns=rounding_of_sum(one.count) if rounded else 0,
        )
    return found
