"""Build tables as `ncu --csv` prints them: pages raw and details of versions since 2019, with messages in between."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeAlias

#: The value of a metric; None: n/a.
Metric: TypeAlias = "Decimal | str | None"
_NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream")
SHAPE = ("Block Size", "Grid Size", "Device", "CC")
#: What ncu prints instead of base units, by unit: names and sizes.
_SCALED = {
    "ns": (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)),
    "nsecond": (("nsecond", 1), ("usecond", 10**3), ("msecond", 10**6), ("second", 10**9)),
    "byte": (("byte", 1), ("Kbyte", 10**3), ("Mbyte", 10**6), ("Gbyte", 10**9)),
    "byte/second": (("byte/second", 1), ("Kbyte/second", 10**3), ("Mbyte/second", 10**6), ("Gbyte/second", 10**9)),
    "hz": (("hz", 1), ("Khz", 10**3), ("Mhz", 10**6), ("Ghz", 10**9)),
    "cycle/second": (("cycle/second", 1), ("cycle/msecond", 10**3), ("cycle/usecond", 10**6), ("cycle/nsecond", 10**9)),
}
PREAMBLE = (
    "==PROF== Connected to process 108 (/usr/bin/python3.11)",
    '==PROF== Profiling "saxpy" - 0: 0%....50%....100% - 9 passes',
    'loss 0.5" of rain',
    "==WARNING== Note: Running with uncontrolled GPU caches",
)


class Launch(NamedTuple):
    """A launch: its columns, and its metrics as (section, name, base unit, value; None: n/a)."""

    id: int
    name: str
    metrics: Sequence[tuple[str, str, str, Metric]]
    process: int = 108
    device: int = 0
    stream: int = 7
    nvtx: str = ""

    def described(self) -> dict[str, str]:
        """Return the columns that describe it."""
        found = (self.id, self.process, "python3.11", "127.0.0.1", self.name, 1, self.stream)
        shape = ("(256, 1, 1)", "(4096, 1, 1)", self.device, "9.0")
        texts = dict(zip((*IDENTITY, *SHAPE), map(str, (*found, *shape)), strict=True))
        return texts | ({_NVTX: self.nvtx} if self.nvtx else {})


def launches(count: int, seed: int = 1) -> list[Launch]:
    """Return launches of a few kernels on two devices, some without metrics that others have."""
    rng = random.Random(seed)
    names = (
        "void saxpy<float, 4>(int, float, float *)",
        "ampere_sgemm_128x64_tn",
        'quoted("a", b)',
        "ncclDevKernel_x()",
    )
    found = []
    for number in range(count):
        metrics: list[tuple[str, str, str, Decimal | str | None]] = [
            (
                "GPU Speed Of Light Throughput",
                "gpu__time_duration.sum",
                "ns",
                Decimal(rng.randrange(10 ** rng.randrange(3, 9))),
            ),
            ("", "dram__bytes.sum", "byte", Decimal(rng.randrange(10**9))),
            ("", "dram__bytes.sum.per_second", "byte/second", Decimal(rng.randrange(10**12)) / 100),
            ("", "sm__cycles_elapsed.avg.per_second", "cycle/second", Decimal(rng.randrange(2 * 10**9))),
            (
                "Occupancy",
                "sm__warps_active.avg.pct_of_peak_sustained_active",
                "%",
                Decimal(rng.randrange(10**4)) / 100,
            ),
            ("Launch Statistics", "launch__func_cache_config", "", "CachePreferNone"),
            ("", "smsp__inst_executed.sum", "inst", Decimal(rng.randrange(10**12))),
        ]
        metrics = [(*one[:3], None) if rng.random() < 0.1 else one for one in metrics]
        nvtx = '1  "<default domain>:step, 1:none" ' if number % 2 else '1  "<default domain>:step, 0:none" '
        found.append(Launch(number, names[number % len(names)], metrics, 108, number // 3 % 2, 7 + number % 2, nvtx))
    return found


def printed(
    value: Decimal | str | None, unit: str, *, scaled: bool, style: str
) -> tuple[str, str, Decimal | str | None]:
    """Return unit and text of a value, and what can be read from them. `style`: C, en, de or fr."""
    if value is None or isinstance(value, str):
        return unit, value or "n/a", value
    if scaled and unit in _SCALED:
        unit, size = [one for one in _SCALED[unit] if abs(value) >= one[1]][-1:][0] if value >= 1 else _SCALED[unit][0]
        shown = (value / size).quantize(Decimal("0.01")) if size > 1 else value
        exact = shown * size
    else:
        shown = exact = value
    groups = {"C": ("", "."), "en": (",", "."), "de": (".", ","), "fr": ("\u202f", ",")}[style]
    text = format(shown, ",f").replace(",", "\0").replace(".", groups[1]).replace("\0", groups[0])
    return unit, text, exact


def raw(
    found: Sequence[Launch], *, units: str = "base", style: str = "C", line_end: str = "\n", noise: bool = True
) -> bytes:
    """Return the page raw. Its one unit per metric is that of the first launch, or the base unit."""
    names = list(dict.fromkeys(name for one in found for _, name, _, _ in one.metrics))
    by_name = {name: unit for one in found for _, name, unit, _ in one.metrics}
    if units == "scaled":
        by_name = {name: _SCALED.get(unit, ((unit, 1),))[-1][0] for name, unit in by_name.items()}
    described = list(dict.fromkeys(key for one in found for key in one.described()))
    rows = [[*described, *names], [*[""] * len(described), *(by_name[name] for name in names)]]
    for one in found:
        values = {}
        for _, name, unit, value in one.metrics:
            if isinstance(value, Decimal) and units == "scaled" and unit in _SCALED:
                value = value / _SCALED[unit][-1][1]
            values[name] = printed(value, unit, scaled=False, style=style)[1]
        texts = one.described()
        rows.append([*(texts.get(key, "") for key in described), *(values.get(name, "") for name in names)])
    return _text(rows, line_end, noise)


def details(
    found: Sequence[Launch], *, scaled: bool = True, style: str = "en", old: bool = False, noise: bool = True
) -> bytes:
    """Return the page details, in scaled units. `old`: as in 2019."""
    header = [*IDENTITY[:5], "Kernel Time", *IDENTITY[5:]] if old else [*IDENTITY, *SHAPE]
    header += ["Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    width = len(header)
    if not old:
        header += ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]
    rows = [header]
    for one in found:
        texts = one.described() | {"Kernel Time": "2019-Dec-01 10:00:00"}
        for section, name, unit, value in one.metrics:
            unit, text, _ = printed(value, unit, scaled=scaled, style=style)
            cells = [texts.get(key, "") for key in header[: width - 4]]
            rows.append([*cells, section or "Command line profiler metrics", name, unit, text, *([] if old else [""])])
        if not old and one.id % 2:
            rule = ["SOLBottleneck", "OPT", 'Look at "Memory", e.g. 1,5', "global"]
            rule.append(printed(Decimal("12.5"), "%", scaled=False, style=style)[1])
            rows.append([*(texts.get(key, "") for key in header[: width - 4]), "SpeedOfLight", "", "", "", *rule])
    return _text(rows, "\n", noise)


def _text(rows: Sequence[Sequence[str]], line_end: str, noise: bool) -> bytes:
    lines = list(_lines(rows, line_end))
    if noise:
        lines[:0] = [line + line_end for line in PREAMBLE]
        lines.insert(len(PREAMBLE) + 3, "step 1, loss: 0.25" + line_end)
    return "".join(lines).encode()


def _lines(rows: Sequence[Sequence[str]], line_end: str) -> Iterator[str]:
    for row in rows:
        line = io.StringIO()
        csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator=line_end).writerow(row)
        yield line.getvalue()


def readable(one: Launch, *, scaled: bool = False, style: str = "C") -> Mapping[str, Decimal | str]:
    """Return what can be read of a launch's metrics, by name and in base units."""
    found = {name: printed(value, unit, scaled=scaled, style=style)[2] for _, name, unit, value in one.metrics}
    return {name: value for name, value in found.items() if value is not None}
