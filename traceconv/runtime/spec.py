"""The device as data: every constant of the reference NPU, read from its TOML."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Constants of a device; units are in the names, meanings in `reference_npu.toml`."""

    kind: str
    name: str
    memory_bytes: int
    clock_hz: int
    drift_ppb: int
    core_clock_hz: int
    launch_latency_ns: int
    dispatch_gap_ticks: int
    task_overhead_cycles: int
    completion_latency_ns: int
    hbm_bytes_per_s: int
    hbm_efficiency_percent: int
    l2_bytes_per_cycle: int
    cube_cores: int
    mac_fractal: int
    l0c_bytes: int
    mte1_bytes_per_cycle: int
    cube_mte2_bytes_per_cycle: int
    fixpipe_bytes_per_cycle: int
    vector_cores: int
    register_bytes: int
    ub_bytes: int
    vector_mte2_bytes_per_cycle: int
    mte3_bytes_per_cycle: int
    scatter_factor: int
    cpu_cores: int
    cpu_start_cycles: int
    cpu_cycles_per_element: int
    sdma_latency_ns: int
    host_bytes_per_s: int

    @property
    def peak_flops(self) -> int:
        """Floating-point operations a second of all cubes with fp16, the type that they are made for."""
        macs = self.mac_fractal * self.mac_fractal * 16
        return 2 * macs * self.cube_cores * self.core_clock_hz


#: Field of DeviceSpec for a key that stands in more than one section, or is too short to stand alone.
_RENAMED = {
    ("cube", "core_count"): "cube_cores",
    ("vector", "core_count"): "vector_cores",
    ("cpu", "core_count"): "cpu_cores",
    ("cpu", "start_cycles"): "cpu_start_cycles",
    ("cpu", "cycles_per_element"): "cpu_cycles_per_element",
    ("cube", "mte2_bytes_per_cycle"): "cube_mte2_bytes_per_cycle",
    ("vector", "mte2_bytes_per_cycle"): "vector_mte2_bytes_per_cycle",
    ("sdma", "latency_ns"): "sdma_latency_ns",
}


@cache
def reference_npu() -> DeviceSpec:
    """The device that `traceconv record` runs models on."""
    text = resources.files("traceconv.runtime").joinpath("reference_npu.toml").read_text(encoding="utf-8")
    sections: dict[str, dict[str, Any]] = tomllib.loads(text)
    values = {
        _RENAMED.get((section, key), key): value
        for section, entries in sections.items()
        for key, value in entries.items()
    }
    return DeviceSpec(**values)
