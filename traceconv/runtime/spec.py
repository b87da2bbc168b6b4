"""The device as data: every constant of the reference NPU, or of another one, read from TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import tomli

from traceconv.base.errors import InputError, printable, suggestion


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Constants of a device; units are in the names, meanings in `reference_npu.toml`."""

    kind: str
    name: str
    memory_bytes: int
    compute_stream_count: int
    clock_hz: int
    drift_ppb: int
    jump_ticks: int
    jump_after_ns: int
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
    link_latency_ns: int
    link_bytes_per_s: int

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
    ("links", "latency_ns"): "link_latency_ns",
    ("links", "bytes_per_s"): "link_bytes_per_s",
}
_TEXTS = ("kind", "name")
#: Least and most of a value, where it is not 1 to 2^40. What is below the least has no meaning in the cost model.
_LIMITS: dict[str, tuple[int, int]] = {
    "memory_bytes": (1, 1 << 50),
    "compute_stream_count": (1, 64),
    "drift_ppb": (-100_000_000, 100_000_000),
    "jump_ticks": (0, 1 << 40),
    "jump_after_ns": (0, 1 << 50),
    "launch_latency_ns": (0, 1_000_000_000),
    "dispatch_gap_ticks": (0, 1_000_000_000),
    "task_overhead_cycles": (0, 1_000_000_000),
    "completion_latency_ns": (0, 1_000_000_000),
    "hbm_bytes_per_s": (1_000_000, 1 << 50),
    "host_bytes_per_s": (1_000_000, 1 << 50),
    "clock_hz": (1_000, 1 << 36),
    "core_clock_hz": (1_000_000, 1 << 36),
    "hbm_efficiency_percent": (1, 100),
    "cube_cores": (1, 65_535),
    "vector_cores": (1, 65_535),
    "cpu_cores": (1, 65_535),
    "l0c_bytes": (16 * 16 * 4, 1 << 40),
    "ub_bytes": (1_024 * 8 * 3, 1 << 40),
    "cpu_start_cycles": (0, 1_000_000_000),
    "cpu_cycles_per_element": (0, 1_000_000),
    "sdma_latency_ns": (0, 1_000_000_000),
    "link_latency_ns": (0, 1_000_000_000),
    "link_bytes_per_s": (1_000_000, 1 << 50),
}
#: Extents of a fractal that divide every tile that the tiler tries.
_FRACTALS = (1, 2, 4, 8, 16)


@cache
def reference_npu() -> DeviceSpec:
    """The device that `traceconv record` runs models on when it is given no other."""
    return DeviceSpec(**{field: value for _, _, field, value in _entries(_reference_toml())})


def load_spec(path: Path) -> DeviceSpec:
    """A device described in a TOML file; what the file leaves out is as in the reference NPU, but for the name.

    Raises InputError, in one line that names the place, for a file that can't be read, for a section or a key
    that there is not, and for a value that a device can't have.
    """
    shown = printable(str(path))
    try:
        sections = tomli.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{shown} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not a TOML file: it is not UTF-8 text") from error
    except tomli.TOMLDecodeError as error:
        raise InputError(f"{shown} is not a TOML file: {printable(str(error))}") from error
    _check_keys(sections, shown)
    values: dict[str, Any] = {"name": path.stem}
    for section, key, field, value in _entries(sections):
        _check_value(f"{shown}: [{section}] {key}", field, value)
        values[field] = value
    spec = replace(reference_npu(), **values)
    cores = max(spec.cube_cores, spec.vector_cores)
    if spec.l2_bytes_per_cycle < cores:
        wrong = f"l2_bytes_per_cycle = {spec.l2_bytes_per_cycle}"
        raise InputError(f"{shown}: [memory] {wrong}: must be at least 1 for each of {cores} cores")
    return spec


def _reference_toml() -> dict[str, dict[str, Any]]:
    text = resources.files("traceconv.runtime").joinpath("reference_npu.toml").read_text(encoding="utf-8")
    sections: dict[str, dict[str, Any]] = tomli.loads(text)
    return sections


def _entries(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str, Any]]:
    """(section, key, field of DeviceSpec, value) of every entry."""
    for section, entries in sections.items():
        for key, value in entries.items():
            yield section, key, _RENAMED.get((section, key), key), value


def _check_keys(sections: Mapping[str, Any], shown: str) -> None:
    known = _reference_toml()
    for section, entries in sections.items():
        if section not in known:
            near = suggestion(section, list(known)) or f" There are: {', '.join(known)}."
            raise InputError(f"{shown}: a device has no section [{printable(section, 60)}].{near}")
        if not isinstance(entries, dict):
            raise InputError(f"{shown}: {section} must be a section: [{section}]")
        for key in entries:
            if key not in known[section]:
                near = suggestion(key, list(known[section])) or f" There are: {', '.join(known[section])}."
                raise InputError(f"{shown}: [{section}] has no key '{printable(key, 60)}'.{near}")


def _check_value(where: str, field: str, value: object) -> None:
    if field in _TEXTS:
        if not isinstance(value, str) or not value or len(value) > 200:
            raise InputError(f"{where}: must be a text of 1 to 200 characters")
        return
    low, high = _LIMITS.get(field, (1, 1 << 40))
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{where} = {printable(repr(value), 60)}: must be a whole number from {low} to {high}")
    if field == "mac_fractal" and value not in _FRACTALS:
        raise InputError(f"{where} = {value}: must be one of {', '.join(map(str, _FRACTALS))}")
