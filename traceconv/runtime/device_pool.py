"""The devices of this process, one for each open session, and the numbers of their models."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

from traceconv.runtime.clock import LiveClock
from traceconv.runtime.device import Device
from traceconv.runtime.identity import Identity, real_identity
from traceconv.runtime.spec import DeviceSpec


class DevicePool:
    """Devices that sessions take and give back, on one host clock."""

    def __init__(self, clock: LiveClock) -> None:
        self._clock = clock
        self._identity: Identity | None = None
        self._free: list[Device] = []
        self._device_ids = itertools.count()
        self._model_ids = itertools.count()
        self._op_base = 0
        self.after_fork()

    def after_fork(self) -> None:
        """In the child of a fork: use a lock that no thread of the parent has."""
        #: Reentrant: the garbage collector may give a device back at any point.
        self._lock = threading.RLock()

    def take(self, spec: DeviceSpec) -> Device:
        """Return a device that no session uses: an earlier one of this kind if possible, since its clock goes on."""
        with self._lock:
            for device in self._free:
                if device.spec == spec:
                    self._free.remove(device)
                    return device
            if self._identity is None:
                self._identity = real_identity(Path())
            device_id = next(self._device_ids)
            return Device(spec, self._identity.device_clock(device_id, self._clock.now(), spec), device_id)

    def give_back(self, device: Device) -> None:
        """Make the device of a closed session available to others."""
        with self._lock:
            self._free.append(device)
            self._free.sort(key=lambda device: device.device_id)

    def number_model(self, op_count: int) -> tuple[int, int]:
        """Return (model base, op base): offsets that make the numbers of a model and its ops unique."""
        with self._lock:
            op_base = self._op_base
            self._op_base += op_count
            return next(self._model_ids), op_base
