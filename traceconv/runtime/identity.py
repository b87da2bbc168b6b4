"""Who records and when: taken from the machine, or derived from a seed."""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from traceconv.runtime.clock import DeviceClock, Random
from traceconv.runtime.spec import DeviceSpec

#: 2024-01-01T00:00:00Z; deterministic captures begin within the year after it.
_MODELLED_EPOCH_S = 1_704_067_200
_YEAR_S = 366 * 86_400
#: Devices after the first differ in drift by up to this, in parts per 10^9.
_DRIFT_SPREAD_PPB = 40_000


@dataclass(frozen=True, slots=True)
class Identity:
    """What distinguishes a capture from others. `host_ns`: when its modelled time begins; None for real time."""

    folder_name: str
    writer_id: int
    host_ns: int | None
    epoch_ns: int
    process_id: int
    host_name: str
    counter_offset: int
    seeds: tuple[int, int]

    def device_seeds(self, device_id: int) -> tuple[int, int]:
        """Return (seed of the host's times, seed of trace ids) for a device."""
        if device_id == 0:
            return self.seeds
        random = Random(self.seeds[1] + device_id)
        return random.bits64(), random.bits64()

    def device_clock(self, device_id: int, start_ns: int, spec: DeviceSpec) -> DeviceClock:
        """Return the clock of a device: each has its own offset, and its own drift near that of its kind."""
        offset, drift_ppb = self.counter_offset, spec.drift_ppb
        if device_id:
            random = Random(self.seeds[0] + device_id)
            offset = random.below(1 << 40)
            drift_ppb += random.below(2 * _DRIFT_SPREAD_PPB + 1) - _DRIFT_SPREAD_PPB
        clock = DeviceClock(start_ns, offset, spec.clock_hz, drift_ppb)
        if not spec.jump_ticks:
            return clock
        return replace(clock, jump_at=clock.ticks_after(start_ns + spec.jump_after_ns), jump_ticks=spec.jump_ticks)


def real_identity(output_dir: Path) -> Identity:
    """Return the identity of a recording by this process, now."""
    epoch_ns = time.time_ns()
    return Identity(
        _folder_name(_next_sequence(output_dir), epoch_ns, secrets.randbits(32)),
        secrets.randbits(64),
        None,
        epoch_ns,
        os.getpid(),
        socket.gethostname(),
        secrets.randbits(40),
        (secrets.randbits(63), secrets.randbits(63)),
    )


def modelled_identity(seed: int) -> Identity:
    """Return an identity that is the same for a seed on every machine."""
    random = Random(seed)
    epoch_ns = (_MODELLED_EPOCH_S + random.below(_YEAR_S)) * 10**9
    process_id = 1_000 + random.below(30_000)
    return Identity(
        _folder_name(1, epoch_ns, random.below(1 << 32)),
        random.bits64(),
        random.below(10**15),
        epoch_ns,
        process_id,
        "reference-host",
        random.below(1 << 40),
        (random.bits64(), random.bits64()),
    )


def _folder_name(sequence: int, epoch_ns: int, number: int) -> str:
    stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(epoch_ns // 10**9))
    return f"PROF_{sequence:06d}_{stamp}_{number:08X}"


def _next_sequence(output_dir: Path) -> int:
    """Return the highest number of a capture in the folder, plus one."""
    try:
        names = [entry.name for entry in output_dir.iterdir()]
    except OSError:
        return 1  # missing or unreadable: creating the capture reports that
    numbers = [int(match[1]) for name in names if (match := re.match(r"PROF_([0-9]{1,9})_", name))]
    return max(numbers, default=0) + 1
