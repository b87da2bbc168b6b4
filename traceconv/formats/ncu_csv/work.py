"""The work of a launch by its metrics: operations, bytes of the device's memory, and the peaks at its clocks.

As in Nsight Compute's roofline charts (SpeedOfLight_*RooflineChart.section) and NERSC's roofline-on-nvidia-gpus: an
addition or multiplication of a thread counts as 1, a multiply-add as 2, those of two packed fp32 as twice that;
operations of the tensor path are counters of their own (sm__ops_path_tensor_*). A count is a sum, or follows from its
rate per cycle, the clock and the duration. What is not certain is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

_INSTRUCTIONS = "sass_thread_inst_executed_op_{}_pred_on"
_CLOCKS = ("smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
_CAPABILITY = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)
_TENSOR = re.compile(r'"(sm__ops_path_tensor_src_\w+)\.sum(?:\.per_cycle_elapsed)?"')
_TENSOR_PARTS = re.compile(r"(sm__ops_path_tensor_src_([a-z]+\d+))(_dst_[a-z]+\d+)?(_sparsity_o(?:n|ff))?")
_TENSOR_PIPE = re.compile(r'"(?:smsp|sm)__(?:inst_executed_pipe_tensor|pipe_tensor\w*_cycles_active)\S*"')
#: By name, and as the page details calls it.
_MEMORY_RATES = ("dram__bytes.sum.per_second", "Memory Workload Analysis: Memory Throughput")
#: Types without which it isn't known that the tensor path did nothing; from CC 8.9 on also fp8.
_TENSOR_TYPES = frozenset(("bf16", "fp16", "tf32", "fp64", "int8"))


class _Metrics:
    """The metrics of a launch: key → JSON text, with their units; its duration in ns, and its compute capability."""

    def __init__(
        self, args: Mapping[str, str], units: Mapping[str, str], dur_ns: Decimal | None, capability: str
    ) -> None:
        self._args, self._units, self._dur_ns = args, units, dur_ns
        parts = _CAPABILITY.fullmatch(capability)
        self.capability = (99, 0) if parts is None else (int(parts[1]), int(parts[2]))

    def named(self, pattern: re.Pattern[str]) -> set[str]:
        """Return the metrics whose names match, or the first group of the match."""
        return {found[found.lastindex or 0].strip('"') for found in map(pattern.fullmatch, self._args) if found}

    def value(self, *names: str) -> Decimal | None:
        """Return the first of these metrics that was collected."""
        found = (self._args.get(f'"{name}"', '"') for name in names if self._has_unit(name))
        return next((Decimal(text) for text in found if not text.startswith('"')), None)

    def _has_unit(self, name: str) -> bool:
        """Whether the unit is one that is known: others may have a prefix."""
        unit = self._units.get(name, "")
        if name.startswith("dram__bytes") or name in _MEMORY_RATES:
            return unit.startswith("byte")
        return unit in ("cycle/s", "hz") if "cycles_elapsed" in name else True

    def in_time(self, rate: Decimal | None) -> Decimal | None:
        """Return a rate per second times the duration."""
        return None if rate is None or self._dur_ns is None else rate * self._dur_ns / 10**9

    def count(self, *names: str) -> Decimal | None:
        """Return the sum of the first of these counters that was collected."""
        total = self.value(*(f"{name}.sum" for name in names))
        if total is not None:
            return total
        return self._in_cycles(self.value(*(f"{name}.sum.per_cycle_elapsed" for name in names)))

    def _in_cycles(self, per_cycle: Decimal | None) -> Decimal | None:
        clock = self.value(*_CLOCKS)
        return None if per_cycle is None or clock is None else self.in_time(per_cycle * clock)

    def instructions(self, name: str) -> Decimal | None:
        """Return how many threads executed an instruction."""
        metric = _INSTRUCTIONS.format(name)
        return self.count(f"sm__{metric}", f"smsp__{metric}")

    def fused(self, name: str, factor: int) -> Decimal | None:
        """Return the operations of multiply-adds, which ncu may give as a product per cycle only."""
        found = self.instructions(name)
        if found is not None:
            return factor * found
        return self._in_cycles(self.value(f"derived__smsp__{_INSTRUCTIONS.format(name)}_x{factor}"))

    def peak(self, counter: str, clock: str) -> Decimal | None:
        """Return the largest count of a counter per second."""
        per_cycle, hz = (
            self.value(f"{counter}.sum.peak_sustained"),
            self.value(f"{clock}__cycles_elapsed.avg.per_second"),
        )
        return None if per_cycle is None or hz is None else per_cycle * hz


def measured(
    args: Mapping[str, str], units: Mapping[str, str], dur_ns: Decimal | None, capability: str
) -> dict[str, str]:
    """Return what is known of the work, as args: integers, and the type of the operations as JSON text."""
    metrics = _Metrics(args, units, dur_ns, capability)
    memory = metrics.value("dram__bytes.sum")
    if memory is None:
        memory = _sum((metrics.value("dram__bytes_read.sum"), metrics.value("dram__bytes_write.sum")))
    if memory is None:
        memory = metrics.in_time(metrics.value(*_MEMORY_RATES))
    found = {"measured_bytes": memory, "measured_peak_bytes_per_s": metrics.peak("dram__bytes", "dram")}
    flops = _flops(metrics)
    if flops is not None:
        # The type with the most operations.
        kind, (_, counter, factor) = max(flops.items(), key=lambda one: (one[1][0], one[0]))
        peak = metrics.peak(counter, "sm")
        found["measured_flops"] = _sum(count for count, _, _ in flops.values())
        found["measured_peak_flops"] = None if peak is None else factor * peak
    shown = {f'"{key}"': str(int(value)) for key, value in found.items() if value is not None and 0 <= value < 2**63}
    return shown | ({'"measured_type"': f'"{kind}"'} if '"measured_flops"' in shown else {})


def _flops(metrics: _Metrics) -> dict[str, tuple[Decimal, str, int]] | None:
    """Return the operations of each type, the counter of its peak and its factor; None if that of one is unknown."""
    fp64 = _sum((metrics.instructions("dadd"), metrics.instructions("dmul"), metrics.fused("dfma", 2)))
    fp32 = _sum((metrics.instructions("fadd"), metrics.instructions("fmul"), metrics.fused("ffma", 2)))
    packed = [metrics.instructions(name) for name in ("fadd2", "fmul2", "ffma2")]
    if metrics.capability >= (10, 0) or any(packed):
        two = _sum(None if count is None else count * factor for count, factor in zip(packed, (2, 2, 4), strict=True))
        fp32 = _sum((fp32, two))
    # Instructions of fp16 and bf16 have one or two lanes, and compilers use them to move constants.
    half = _sum((metrics.instructions("hadd"), metrics.instructions("hmul"), metrics.fused("hfma", 4)))
    tensor = _tensor(metrics)
    if fp64 is None or fp32 is None or half is None or tensor is None:
        return None
    found = {
        "fp64 vector": (fp64, "sm__" + _INSTRUCTIONS.format("dfma"), 2),
        "fp32 vector": (fp32, "sm__" + _INSTRUCTIONS.format("ffma"), 2),
        **tensor,
    }
    return found if 10 * half <= sum(count for count, _, _ in found.values()) else None


def _tensor(metrics: _Metrics) -> dict[str, tuple[Decimal, str, int]] | None:
    """Return the same of the tensor path; None if it may have done what was not collected."""
    if metrics.capability < (7, 0):
        return {}
    found: dict[str, tuple[Decimal, str, int]] = {}
    names = metrics.named(_TENSOR)
    for name in sorted(names):
        count, parts = metrics.count(name), _TENSOR_PARTS.fullmatch(name)
        if count is None or (count > 0 and (parts is None or parts[4] == "_sparsity_on")):
            return None
        # Counters overlap: those of a type include those by the type of the result, and these those by sparsity.
        if parts is not None and not names & ({parts[1], parts[1] + (parts[3] or "")} - {name}):
            before = found.get(f"{parts[2]} matrix", (Decimal(0), "", 1))[0]
            found[f"{parts[2]} matrix"] = (before + count, name, 1)
    if any(count > 0 for count, _, _ in found.values()):
        return found
    pipes = [metrics.value(name) for name in metrics.named(_TENSOR_PIPE)]
    if pipes and not any(pipes):
        return {}
    types = _TENSOR_TYPES | {"fp8"} if metrics.capability >= (8, 9) else _TENSOR_TYPES
    return {} if types <= {kind.partition(" ")[0] for kind in found} else None


def _sum(values: Iterable[Decimal | None]) -> Decimal | None:
    """Return the sum; None if a value is unknown."""
    total = Decimal(0)
    for value in values:
        if value is None:
            return None
        total += value
    return total
