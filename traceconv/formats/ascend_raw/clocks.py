"""The clocks of a recording: ticks of the host and of each device → ns since 1970, in integers.

ns of a tick = mono + (tick - first) * 1000 / MHz, where host_start.log (mono, on the host's CLOCK_MONOTONIC_RAW) and
host_start.log or dev_start.log (first) were read at the same moment; the difference of the epoch and that clock is in
start_info. Formulas of msprof: utils/time_utils.cpp, common_func/info_conf_reader.py.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from traceconv.base.arrays import NDArray
from traceconv.base.errors import InputError
from traceconv.base.int64 import Int64, Mask
from traceconv.formats.common.files import opened

#: Descriptions are a few KB.
_MOST_BYTES = 16 << 20
_ENTRY = re.compile(r"\s*(\w+)\s*[:=]\s*(-?\d+)\s*")
#: Ticks further from the first one are damaged: 10 years at 1 GHz.
_MOST_TICKS = 1 << 58
#: A frequency of as many MHz says that times are ns.
_NS_MHZ = 1000


class Clock:
    """Converts ticks. `mono_ns`: the time at the first tick; `mhz`: ticks per µs."""

    def __init__(self, mono_ns: int, first: int, mhz: Fraction, epoch_ns: int) -> None:
        self._base_ns = mono_ns + epoch_ns
        self._first = first
        self._mhz = mhz

    def ns(self, ticks: NDArray[np.uint64]) -> tuple[Int64, Mask]:
        """Return the times of ticks, rounded to ns, and which of them are valid; the others are meaningless."""
        since = ticks.astype(np.int64) - self._first  # wraps only where it isn't valid
        numerator, denominator = self._mhz.numerator, self._mhz.denominator
        most = min(_MOST_TICKS, (2**62) // (2000 * denominator))
        valid = (ticks <= np.uint64(2**63 - 1)) & (since > -most) & (since < most)
        scaled = np.where(valid, since, 0) * (2000 * denominator)
        times: Int64 = (scaled + numerator) // (2 * numerator) + self._base_ns
        return times, valid


#: The clock of jobs: 100 MHz, since an unknown moment.
JOB_CLOCK = Clock(0, 0, Fraction(100), 0)


def read_json(path: Path | None) -> dict[str, Any]:
    """Return the object in a description; an empty one if it is missing or damaged."""
    try:
        found = msgspec.json.decode(_read(path))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def read_entries(path: Path | None) -> dict[str, int]:
    """Return the numbers of lines `name: number`."""
    lines = _read(path).decode("utf-8", "replace").splitlines()
    found = {match[1]: number(match[2]) for line in lines if (match := _ENTRY.fullmatch(line))}
    return {name: value for name, value in found.items() if value is not None}


def number(value: object, most: int = 2**60) -> int | None:
    """Return an integer, which may be written as text; None if it is larger than any in a valid description."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value.strip()):
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= most else None


def wall_ns(description: dict[str, Any], key: str) -> int | None:
    """Return a time in µs since 1970 as ns."""
    time_us = number(description.get(key), 2**51)
    return None if time_us is None else time_us * 1000


def megahertz(value: object) -> Fraction | None:
    """Return a frequency, which is text or a number; None for 0 and if it is missing."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", text):
        return None
    return Fraction(text) or None


def epoch_offset(start_info: Path | None) -> int | None:
    """Return the ns from the host's CLOCK_MONOTONIC_RAW to the epoch; None if they are not recorded."""
    found = read_json(start_info)
    begin_ns, mono_ns = wall_ns(found, "collectionTimeBegin"), number(found.get("clockMonotonicRaw"))
    return None if begin_ns is None or mono_ns is None else begin_ns - mono_ns


def host_clock(info: dict[str, Any], host_start: dict[str, int], epoch_ns: int) -> Clock | None:
    """Return the clock of the host's records; None if ticks can't be converted."""
    mhz = host_mhz(info)
    if mhz is None or mhz == _NS_MHZ:
        return Clock(0, 0, Fraction(_NS_MHZ), epoch_ns)
    mono_ns, first = _mono(info, host_start), host_start.get("cntvct")
    return None if mono_ns is None or first is None else Clock(mono_ns, first, mhz, epoch_ns)


def device_clock(
    info: dict[str, Any],
    host_info: dict[str, Any],
    host_start: dict[str, int],
    dev_start: dict[str, int],
    epoch_ns: int,
) -> Clock | None:
    """Return the clock of a device's records; None if ticks can't be converted."""
    mhz = megahertz(device_info(info).get("hwts_frequency"))
    mono_ns, first = _mono(host_info, host_start), dev_start.get("cntvct")
    return None if mhz is None or mono_ns is None or first is None else Clock(mono_ns, first, mhz, epoch_ns)


def host_mhz(info: dict[str, Any]) -> Fraction | None:
    """Return the frequency of the host's counter; None if its records have ns."""
    cpus = info.get("CPU")
    first = cpus[0] if isinstance(cpus, list) and cpus and isinstance(cpus[0], dict) else {}
    return megahertz(first.get("Frequency"))


def device_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return what info.json says of the device."""
    devices = info.get("DeviceInfo")
    return devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}


def _mono(info: dict[str, Any], host_start: dict[str, int]) -> int | None:
    """Return the time at the first tick: the two counters were not read at once."""
    mono_ns, mhz = host_start.get("clock_monotonic_raw"), host_mhz(info)
    if mono_ns is None:
        return None
    late_ns = int(Fraction(host_start.get("cntvct_diff", 0) * 1000) / mhz) if mhz else 0
    return mono_ns + late_ns if abs(late_ns) < 2**60 else None


def _read(path: Path | None) -> bytes:
    if path is None:
        return b""
    try:
        with opened(path) as stream:
            return stream.read(_MOST_BYTES)
    except InputError:
        return b""
