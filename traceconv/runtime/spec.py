"""The device as data: the constants of the reference NPU, or of another device described in TOML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tomli

from traceconv.base.errors import InputError, UsageError, option, printable, reason_of, suggestion

MAX_STREAMS = 64


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """Constants of a device; units are in the names, meanings in `reference_npu.toml`.

    A pair is the minimum and maximum value; 1 and 2^40 for fields without one.
    """

    kind: str
    name: str
    memory_bytes: Annotated[int, (1, 1 << 50)]
    memory_call_ns: Annotated[int, (0, 1_000_000_000)]
    compute_stream_count: Annotated[int, (1, MAX_STREAMS)]
    clock_hz: Annotated[int, (1_000, 1 << 36)]
    drift_ppb: Annotated[int, (-100_000_000, 100_000_000)]
    jump_ticks: Annotated[int, (0, 1 << 40)]
    jump_after_ns: Annotated[int, (0, 1 << 50)]
    core_clock_hz: Annotated[int, (1_000_000, 1 << 36)]
    throttle_after_ns: Annotated[int, (0, 1 << 50)]
    throttled_clock_percent: Annotated[int, (1, 100)]
    launch_latency_ns: Annotated[int, (0, 1_000_000_000)]
    dispatch_gap_ticks: Annotated[int, (0, 1_000_000_000)]
    task_overhead_cycles: Annotated[int, (0, 1_000_000_000)]
    completion_latency_ns: Annotated[int, (0, 1_000_000_000)]
    hbm_bytes_per_s: Annotated[int, (1_000_000, 1 << 50)]
    hbm_efficiency_percent: Annotated[int, (1, 100)]
    l2_bytes_per_cycle: int
    cube_cores: Annotated[int, (1, 65_535)]
    mac_fractal: int
    l0c_bytes: Annotated[int, (16 * 16 * 4, 1 << 40)]
    mte1_bytes_per_cycle: int
    cube_mte2_bytes_per_cycle: int
    fixpipe_bytes_per_cycle: int
    vector_cores: Annotated[int, (1, 65_535)]
    register_bytes: int
    ub_bytes: Annotated[int, (1_024 * 8 * 3, 1 << 40)]
    vector_mte2_bytes_per_cycle: int
    mte3_bytes_per_cycle: int
    scatter_factor: int
    cpu_cores: Annotated[int, (1, 65_535)]
    cpu_start_cycles: Annotated[int, (0, 1_000_000_000)]
    cpu_cycles_per_element: Annotated[int, (0, 1_000_000)]
    sdma_latency_ns: Annotated[int, (0, 1_000_000_000)]
    host_bytes_per_s: Annotated[int, (1_000_000, 1 << 50)]
    link_latency_ns: Annotated[int, (0, 1_000_000_000)]
    link_bytes_per_s: Annotated[int, (1_000_000, 1 << 50)]
    #: Op types and the speed of their tasks, in percent of that of the cost model.
    op_speed_percent: tuple[tuple[str, int], ...] = ()

    @property
    def peak_flops(self) -> int:
        """Floating-point operations per second of all cubes with fp16, their native type."""
        macs = self.mac_fractal * self.mac_fractal * 16
        return 2 * macs * self.cube_cores * self.core_clock_hz


#: Field of DeviceSpec for a key that is in several sections, or ambiguous without its section.
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
#: The section whose keys are op types.
_SPEEDS = "op_speed_percent"
_SPEED_RANGE = (1, 10_000)
_FIELD_TYPES = get_type_hints(DeviceSpec, include_extras=True)
#: Extents of a fractal that divide every tile size of the cost model.
_FRACTALS = (1, 2, 4, 8, 16)


@cache
def reference_npu() -> DeviceSpec:
    """Return the default device."""
    values: dict[str, Any] = {field: value for _, _, field, value in _entries(_reference_toml())}
    return DeviceSpec(**values)


def spec_of(path: Path | None, streams: int | None = None) -> DeviceSpec:
    """Return the device described in a TOML file, or the reference NPU, with at most `streams` compute streams.

    Raises UsageError for an invalid number of streams.
    """
    if streams is not None and not (type(streams) is int and 1 <= streams <= MAX_STREAMS):
        raise UsageError(f"{option('--streams')} {printable(str(streams), 40)}: must be from 1 to {MAX_STREAMS}")
    spec = reference_npu() if path is None else load_spec(path)
    return spec if streams is None else replace(spec, compute_stream_count=streams)


def load_spec(path: Path) -> DeviceSpec:
    """Return the device described in a TOML file; except for the name, missing keys are as in the reference NPU.

    The keys of the section op_speed_percent are op types.

    Raises InputError for an unreadable file, an unknown section or key, and an invalid value.
    """
    shown = printable(str(path))
    try:
        sections = tomli.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{shown} can't be read: {reason_of(error)}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not a TOML file: it is not UTF-8 text") from error
    except tomli.TOMLDecodeError as error:
        raise InputError(f"{shown} is not a TOML file: {printable(str(error))}") from error
    _check_keys(sections, shown)
    values: dict[str, Any] = {"name": path.stem, _SPEEDS: tuple(sections.pop(_SPEEDS, {}).items())}
    for op_type, percent in values[_SPEEDS]:
        where = f"{shown}: [{_SPEEDS}] {printable(op_type, 60)}"
        _check_integer(where, percent, *_SPEED_RANGE)
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
    """Yield (section, key, field of DeviceSpec, value) of every entry."""
    for section, entries in sections.items():
        for key, value in entries.items():
            yield section, key, _RENAMED.get((section, key), key), value


def _check_keys(sections: Mapping[str, Any], shown: str) -> None:
    known = _reference_toml()
    for section, entries in sections.items():
        if section not in known and section != _SPEEDS:
            near = suggestion(section, [*known, _SPEEDS]) or f" Sections: {', '.join([*known, _SPEEDS])}."
            raise InputError(f"{shown}: unknown section [{printable(section, 60)}].{near}")
        if not isinstance(entries, dict):
            raise InputError(f"{shown}: {section} must be a section: [{section}]")
        for key in entries if section != _SPEEDS else ():
            if key not in known[section]:
                near = suggestion(key, list(known[section])) or f" Keys: {', '.join(known[section])}."
                raise InputError(f"{shown}: [{section}] has no key '{printable(key, 60)}'.{near}")


def _check_value(where: str, field: str, value: object) -> None:
    if field in _TEXTS:
        if not isinstance(value, str) or not value or len(value) > 200:
            raise InputError(f"{where}: must be a string of 1 to 200 characters")
        return
    low, high = next(iter(getattr(_FIELD_TYPES[field], "__metadata__", ())), (1, 1 << 40))
    _check_integer(where, value, low, high)
    if field == "mac_fractal" and value not in _FRACTALS:
        raise InputError(f"{where} = {value}: must be one of {', '.join(map(str, _FRACTALS))}")


def _check_integer(where: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{where} = {printable(repr(value), 60)}: must be an integer from {low} to {high}")
