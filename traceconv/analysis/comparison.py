"""Compare the steps of two runs: which ops, overlap or idle time account for the change, exact to the ns.

Steps of both runs are averaged. The mean step of each run is divided into whole ns that add up: those of all rows and
parts to the step, so that their changes add up to its change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import duckdb
import numpy as np

from traceconv.analysis.bootstrap import Resampled, resample
from traceconv.analysis.pairing import Pair, Unit, pair_ops
from traceconv.analysis.step_times import StepTimes, measure_steps
from traceconv.base.errors import IncomparableError, UsageError, option, printable
from traceconv.base.int64 import Int64
from traceconv.reports.run_choice import one_run
from traceconv.reports.short_names import short_name
from traceconv.reports.window import Window

#: Version of the JSON document.
VERSION = 1
#: Less of the time of both runs in paired ops: another program.
_LEAST_COMMON = 0.5
#: Kernels and operators of a graph that torch.compile made. Its fused kernels pair with no operator of an eager run.
_COMPILED = re.compile(r"triton_[a-z]+_fused_|^CompiledF(unction|xGraph)|^Torch-Compiled Region")
#: Steps of one run are slower than those of another if these quantiles are: nine tenths against nine tenths.
_FAST, _SLOW = 0.1, 0.9
#: Median step, in undisturbed steps, up to which the limit isn't raised: of a host, and of devices that wait for one.
_DISTURBED = {True: 1.25, False: 1.05}
#: Fewer steps of a device are seldom undisturbed.
_LEAST_STEPS = 20
#: Kernels that a row names.
_NAMED_KERNELS = 3


@dataclass(frozen=True, slots=True)
class Side:
    """A run to compare, with an open connection to its store. `name`: for messages."""

    connection: duckdb.DuckDBPyConnection
    run_id: int
    name: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What was measured of a run: `name`, the unit ("step" or "run"), steps compared and left out, devices.

    mean_ns, p50_ns  mean and median duration of a step; of the run if it has no steps
    """

    name: str
    run_id: int
    unit: str
    steps: int
    left_out: int
    devices: tuple[str, ...]
    model_name: str | None
    mean_ns: int
    p50_ns: int


@dataclass(frozen=True, slots=True)
class Change:
    """Mean ns per step and device in both runs, the change, and its 95 % interval; None if a run has one step."""

    base_ns: int
    new_ns: int
    low_ns: int | None
    high_ns: int | None

    @property
    def change_ns(self) -> int:
        """new_ns − base_ns."""
        return self.new_ns - self.base_ns

    @property
    def percent(self) -> float | None:
        """The change in percent of base_ns; None if that is 0."""
        return 100 * self.change_ns / self.base_ns if self.base_ns else None

    @property
    def significant(self) -> bool | None:
        """Whether the interval excludes 0; None without an interval."""
        return None if self.low_ns is None or self.high_ns is None else self.low_ns > 0 or self.high_ns < 0


@dataclass(frozen=True, slots=True)
class OpChange:
    """An op in both runs, or in one.

    status     matched, new or vanished
    paired_by  operator, name, sequence, type and shape, or short name; None if it is not matched
    name       name of the op, or of the operator that launched the kernels; of the new run if they differ
    kernels    short names of the kernels with the most time, if the op is an operator
    count      executions that started inside the compared steps
    total_ns   their durations inside these steps
    p50_ns     median over steps of the time per step
    time       time per step, which adds up to the step
    """

    status: str
    paired_by: str | None
    name: str
    op_type: str | None
    kind: str | None
    scope: str | None
    path: str | None
    base_shapes: str | None
    new_shapes: str | None
    base_kernels: tuple[str, ...]
    new_kernels: tuple[str, ...]
    base_count: int
    new_count: int
    base_total_ns: int
    new_total_ns: int
    base_p50_ns: int
    new_p50_ns: int
    time: Change


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Two runs compared: the `step`, its `parts`, and the `ops` by the size of their change.

    step     change of the mean step
    parts    matched, new, vanished, overlap and idle; their changes add up to that of the step
    p50_percent        change of the median step in percent, and its 95 % interval; no interval if a run has one step
    busy_percent       change of the mean busy time, in percent of the base's mean step, and its interval
    slower_percent     by how much nine tenths of the new steps are slower than nine tenths of the base's
    undisturbed_percent  change of the step that no other process disturbs; None: a run on a device that is busy for
                       half of the time or has fewer than 20 steps, or one step
    disturbance        median step of the new run, in its undisturbed steps
    on_host            whether the runs are without a device
    not_comparable     reasons against the comparison, which was made anyway
    limit_percent      limit for the median step; None: no limit
    """

    base: RunSummary
    new: RunSummary
    step: Change
    parts: dict[str, Change]
    ops: tuple[OpChange, ...]
    p50_percent: float
    p50_interval: tuple[float, float] | None
    busy_percent: float
    busy_interval: tuple[float, float] | None
    slower_percent: float
    undisturbed_percent: float | None
    disturbance: float | None
    on_host: bool
    not_comparable: tuple[str, ...]
    limit_percent: float | None

    def raised_limit(self, percent: float) -> float:
        """Return the limit for the undisturbed step: the more the steps of the new run are disturbed, the higher."""
        excess = max(1.0, (self.disturbance or 1.0) / _DISTURBED[self.on_host])
        return (100 + percent) * sqrt(excess) - 100

    def exceeds(self, percent: float) -> bool:
        """Whether the new run's steps are slower by more than `percent`, and not only by noise.

        With one step, or without, the change decides. On a host, the undisturbed step must be slower by more than the
        raised limit, and the median step must be slower. That is also enough on devices that wait for their host. On
        any device, it is enough that the median step is slower by more than the limit, and either the interval of the
        change of busy time begins above the limit, or nine tenths of the new steps are slower, by more than the limit,
        than nine tenths of the base's.
        """
        if self.undisturbed_percent is not None:
            if self.p50_percent > 0 and self.undisturbed_percent > self.raised_limit(percent):
                return True
            if self.on_host:
                return False
        if self.p50_percent <= percent:
            return False
        return self.busy_interval is None or self.busy_interval[0] > percent or self.slower_percent > percent

    @property
    def failed(self) -> bool:
        """Whether the limit is exceeded."""
        return self.limit_percent is not None and self.exceeds(self.limit_percent)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document: version 1, times in ns."""
        from traceconv.analysis.comparison_text import as_dict

        return as_dict(self)

    def to_html(self) -> str:
        """Return a page with the summary, a picture of what changed, and a table of the ops."""
        from traceconv.analysis.comparison_page import page

        return "".join(page(self))

    def __repr__(self) -> str:
        from traceconv.analysis.comparison_text import text_lines

        return "\n".join(text_lines(self))

    def _repr_html_(self) -> str:
        from traceconv.analysis.comparison_text import html_text

        return html_text(self)


def find_side(connection: duckdb.DuckDBPyConnection, wanted: str | None, name: str) -> Side:
    """Return the run that `wanted` names, or the only one (None). Raises UsageError."""
    if wanted is None:
        runs = connection.execute("SELECT count(*) FROM run").fetchall()[0][0]
        if runs > 1:
            raise UsageError(f"{printable(name)} has {runs} runs; ingest it and compare two runs of the store")
    run_id, _ = one_run(connection, wanted, "a comparison")
    label = connection.execute("SELECT label FROM run WHERE run_id = ?", [run_id]).fetchall()[0][0]
    return Side(connection, run_id, printable(str(label), 60))


def parse_limit(limit: str | float | None) -> float | None:
    """Parse a limit such as "5%" or 5 into percent. Raises UsageError."""
    if limit is None:
        return None
    text = str(limit).strip().removesuffix("%").strip()
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise UsageError(f"{option('--fail-over')} needs a percentage such as 5%, not '{printable(str(limit), 60)}'")
    return float(text)


def compare_runs(
    base: Side,
    new: Side,
    window: Window,
    *,
    device: int | None = None,
    warmup: int | None = None,
    anyway: bool = False,
    limit_percent: float | None = None,
) -> Comparison:
    """Compare two runs. Raises IncomparableError with the reasons, unless `anyway`, and UsageError as measure_steps."""
    one, other = (
        measure_steps(side.connection, side.run_id, window, device=device, warmup=warmup) for side in (base, new)
    )
    if one.on_host != other.on_host:
        names = [printable(side.name, 60) for side, times in ((base, one), (new, other)) if times.on_host]
        raise IncomparableError([f"{names[0]} has no tasks of a device, the other run has"])
    if one.unit != other.unit:
        names = [printable(side.name, 60) for side, times in ((base, one), (new, other)) if times.unit == "run"]
        raise IncomparableError([f"{names[0]} has no steps, the other run has"])
    pairs = pair_ops(one.ops, other.ops)
    reasons = (*_differences(one, other), *_shape_differences(one, other, pairs), *_strangers(one, other, pairs))
    if reasons and not anyway:
        raise IncomparableError(reasons, f"; {option('--anyway', 'anyway=True')} compares them")
    return _compared(_Sides(base, new, one, other), pairs, reasons, limit_percent)


@dataclass(frozen=True, slots=True)
class _Sides:
    base: Side
    new: Side
    one: StepTimes
    other: StepTimes


def _differences(one: StepTimes, other: StepTimes) -> Iterator[str]:
    """Why runs with these properties can't be compared; unknown ones are compatible."""
    if one.model_name and other.model_name and one.model_name != other.model_name:
        yield f"different models ({printable(one.model_name, 60)} against {printable(other.model_name, 60)})"
    if len(one.devices) != len(other.devices):
        yield f"different numbers of devices ({len(one.devices)} against {len(other.devices)})"
    for ours, theirs in zip(one.devices, other.devices, strict=False):
        if any(a and b and a != b for a, b in zip(ours, theirs, strict=True)):
            yield f"different devices ({_device(ours)} against {_device(theirs)})"
            break
    if one.steps != other.steps:
        yield f"different numbers of steps ({one.steps} against {other.steps}; select some with {option('--steps')})"


def _device(device: tuple[str | None, str | None]) -> str:
    return printable(device[1] or device[0] or "unknown", 60)


def _shape_differences(one: StepTimes, other: StepTimes, pairs: Sequence[Pair]) -> Iterator[str]:
    """Whether most of the time of ops with known shapes is in ops whose shapes changed, as with another batch size."""
    known = changed = 0
    example: Unit | None = None
    for pair in pairs:
        if pair.base and pair.new and pair.base.op.shapes and pair.new.op.shapes:
            ns = _total(one, pair.base)
            known += ns
            if pair.base.op.shapes != pair.new.op.shapes:
                changed += ns
                if example is None:
                    example, theirs = pair.base, pair.new.op.shapes
    if example is not None and 2 * changed > known:
        name = printable(_name(example), 60)
        ours, theirs = (printable(shapes.split(";")[0], 40) for shapes in (example.op.shapes or "", theirs))
        yield f"different input shapes ({name}: {ours} against {theirs})"


def _strangers(one: StepTimes, other: StepTimes, pairs: Sequence[Pair]) -> Iterator[str]:
    """Whether the programs have little in common."""
    common = [0, 0]
    for pair in pairs:
        if pair.base and pair.new:
            common[0] += _total(one, pair.base)
            common[1] += _total(other, pair.new)
    totals = [int(times.op_ns.sum()) for times in (one, other)]
    shares = [ns / total for ns, total in zip(common, totals, strict=True) if total]
    if len(shares) < 2:
        yield "no task ran inside the steps of a run"
    elif min(shares) < _LEAST_COMMON and _is_compiled(one) == _is_compiled(other):
        yield f"different programs (only {100 * min(shares):.0f} % of the op time is in ops of both runs)"


def _is_compiled(times: StepTimes) -> bool:
    return any(_COMPILED.search(name) for op in times.ops for name in (op.name or "", *op.path))


def _total(times: StepTimes, unit: Unit) -> int:
    return int(times.op_ns[list(unit.ops)].sum())


def _compared(sides: _Sides, pairs: Sequence[Pair], reasons: Sequence[str], limit_percent: float | None) -> Comparison:
    one, other = sides.one, sides.other
    drawn = resample(one.windows, other.windows)
    ours = _rows(one, [pair.base for pair in pairs])
    theirs = _rows(other, [pair.new for pair in pairs])
    changes = _changes(drawn, one, other, ours, theirs)
    ops = [_op_change(sides, pair, changes[i], ours[i], theirs[i]) for i, pair in enumerate(pairs)]
    groups: dict[str, list[int]] = {status: [] for status in ("matched", "new", "vanished")}
    for i, op in enumerate(ops):
        groups[op.status].append(i)
    parts = {
        status: _sum_of(drawn, [changes[i] for i in places], ours[places], theirs[places])
        for status, places in groups.items()
    }
    parts["overlap"], parts["idle"], step = changes[-3], changes[-2], changes[-1]
    medians = [times.span_ns / times.windows for times in (one, other)]
    base_mean = float(one.span_ns.sum()) / int(one.windows.sum())
    busy = drawn.mean_change(one.busy_ns[None], other.busy_ns[None])
    busy_change = float(other.busy_ns.sum()) / int(other.windows.sum()) - float(one.busy_ns.sum()) / int(
        one.windows.sum()
    )
    interval = drawn.relative_median_change(medians[0], medians[1])
    undisturbed = [times.undisturbed_ns() for times in (one, other)]
    judged = interval is not None and min(undisturbed) > 0
    if not one.on_host:
        judged = judged and all(times.waits_for_host and times.steps >= _LEAST_STEPS for times in (one, other))
    slow, fast = float(np.quantile(medians[0], _SLOW)), float(np.quantile(medians[1], _FAST))
    return Comparison(
        base=_summary(sides.base, one), new=_summary(sides.new, other), step=step, parts=parts,
        ops=tuple(sorted(ops, key=lambda op: (-abs(op.time.change_ns), op.name, op.status))),
        p50_percent=100 * (float(np.median(medians[1])) / float(np.median(medians[0])) - 1),
        p50_interval=None if interval is None else (100 * interval[0], 100 * interval[1]),
        busy_percent=100 * busy_change / base_mean,
        busy_interval=None if busy is None else (100 * busy[0][0] / base_mean, 100 * busy[0][1] / base_mean),
        slower_percent=100 * (fast / slow - 1),
        undisturbed_percent=100 * (undisturbed[1] / undisturbed[0] - 1) if judged else None,
        disturbance=float(np.median(medians[1])) / undisturbed[1] if judged else None,
        on_host=one.on_host, not_comparable=tuple(reasons), limit_percent=limit_percent,
    )  # fmt: skip


def _rows(times: StepTimes, units: Iterable[Unit | None]) -> Int64:
    """Return [row, sample] ns: a row for each unit, then overlap (negative), idle, and the windows themselves."""
    rows = [
        np.zeros(len(times.windows), np.int64) if unit is None else times.op_ns[list(unit.ops)].sum(axis=0)
        for unit in units
    ]
    overlap = times.busy_ns - times.op_ns.sum(axis=0)
    return np.stack([*rows, overlap, times.span_ns - times.busy_ns, times.span_ns])


def _changes(drawn: Resampled, one: StepTimes, other: StepTimes, ours: Int64, theirs: Int64) -> list[Change]:
    base_ns = _per_window(ours, one.windows)
    new_ns = _per_window(theirs, other.windows)
    intervals = drawn.mean_change(ours, theirs)
    return [
        Change(base, new, *((None, None) if intervals is None else intervals[i]))
        for i, (base, new) in enumerate(zip(base_ns, new_ns, strict=True))
    ]


def _per_window(rows: Int64, windows: Int64) -> list[int]:
    """Return each row's mean per window in whole ns; those of all rows but the last add up to the last."""
    means = rounded_quotients([int(row) for row in rows[:-1].sum(axis=1)], int(windows.sum()))
    return [*means, sum(means)]


def rounded_quotients(values: Sequence[int], parts: int) -> list[int]:
    """Divide integers by `parts` so that the rounded quotients add up to the rounded quotient of the sum.

    Each is off by less than 1: the largest remainders are rounded up.
    """
    floors = [value // parts for value in values]
    missing = (2 * sum(values) + parts) // (2 * parts) - sum(floors)
    largest = sorted(range(len(values)), key=lambda i: -(values[i] % parts))
    for i in largest[:missing]:
        floors[i] += 1
    return floors


def _sum_of(drawn: Resampled, changes: Sequence[Change], ours: Int64, theirs: Int64) -> Change:
    intervals = drawn.mean_change(ours.sum(axis=0)[None], theirs.sum(axis=0)[None])
    ends = (None, None) if intervals is None else intervals[0]
    return Change(sum(one.base_ns for one in changes), sum(one.new_ns for one in changes), *ends)


def _op_change(sides: _Sides, pair: Pair, change: Change, ours: Int64, theirs: Int64) -> OpChange:
    unit = pair.new or pair.base
    assert unit is not None  # a pair has at least one
    counts = [
        0 if one is None else int(times.count[list(one.ops)].sum())
        for one, times in ((pair.base, sides.one), (pair.new, sides.other))
    ]
    medians = [_median(row // times.windows) for row, times in ((ours, sides.one), (theirs, sides.other))]
    return OpChange(
        status="new" if pair.base is None else "vanished" if pair.new is None else "matched",
        paired_by=pair.paired_by, name=_name(unit), op_type=unit.op.op_type if not unit.by_operator else None,
        kind=unit.op.kind, scope=unit.op.scope.replace("\x1f", "/") or None,
        path=" > ".join(unit.op.path) or None,
        base_shapes=pair.base.op.shapes if pair.base else None, new_shapes=pair.new.op.shapes if pair.new else None,
        base_kernels=_kernels(sides.one, pair.base), new_kernels=_kernels(sides.other, pair.new),
        base_count=counts[0], new_count=counts[1], base_total_ns=int(ours.sum()), new_total_ns=int(theirs.sum()),
        base_p50_ns=medians[0], new_p50_ns=medians[1], time=change,
    )  # fmt: skip


def _name(unit: Unit) -> str:
    if unit.by_operator:
        return unit.op.path[-1 if unit.joined == 1 else 0]
    more = f" and {unit.joined - 1} more" if unit.joined > 1 else ""
    return (unit.op.name if unit.op.name is not None else "(unnamed)") + more


def _kernels(times: StepTimes, unit: Unit | None) -> tuple[str, ...]:
    """Names of the kernels of an operator with the most time."""
    if unit is None or not unit.by_operator:
        return ()
    total: Counter[str] = Counter()
    for place in unit.ops:
        name = times.ops[place].name
        if name is not None:
            total[short_name(name)] += int(times.op_ns[place].sum())
    return tuple(name for name, _ in sorted(total.items(), key=lambda one: (-one[1], one[0]))[:_NAMED_KERNELS])


def _summary(side: Side, times: StepTimes) -> RunSummary:
    windows = int(times.windows.sum())
    return RunSummary(
        side.name, side.run_id, times.unit, times.steps, times.left_out, tuple(map(_device, times.devices)),
        times.model_name, mean_ns=(2 * int(times.span_ns.sum()) + windows) // (2 * windows),
        p50_ns=_median(times.span_ns // times.windows),
    )  # fmt: skip


def _median(values: Int64) -> int:
    """Median in whole ns, rounded down."""
    ordered = np.sort(values)
    return (int(ordered[(len(ordered) - 1) // 2]) + int(ordered[len(ordered) // 2])) // 2
