"""What the cells of msprof's and torch_npu's tables must be, file by file: their own formulas, in exact arithmetic.

Sources of the formulas: the documents of msprof; and real files, in which each holds for every row but those that are
wrong. Rows come as dictionaries of headings in plain spelling (`spec.plain`) and cells; times are ns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from traceconv.verification.cells import Tally, number
from traceconv.verification.steps import StepTimes

Cells = Mapping[str, str]
#: Start and duration of the row before, by device.
LastRows = dict[str, tuple[Decimal, Decimal]]
#: Two times and a duration, each printed to the nanosecond, and the result too.
_SLACK_DIFFERENCE = 2
_SLACK_TIME = 1
_NS_DECIMALS = 3
_WIDEST_US = Decimal(2) ** 63 / 1000
_COMMUNICATION = ("HCCL", "COMMUNICATION", "HCCL_AI_CPU")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the timeline says of a task that a row tells of."""

    name: str | None
    start_ns: int | None
    dur_ns: int | None
    source_task_id: int | None


@dataclass(slots=True)
class Kernels:
    """Durations by (device, type, core), of the rows of a kernel table; collectives apart by type alone."""

    computing: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    communication: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """The headings of a table of tasks in one file; None for what it has not."""

    name: str
    start: str
    dur: str
    wait: str | None = None
    end: str | None = None
    device: str | None = None
    task: str | None = None
    stream: str | None = None
    op_type: str | None = None
    core: str | None = None


def check_tasks(
    tally: Tally,
    rows: Iterable[tuple[Cells, Evidence | None]],
    columns: Columns,
    kernels: Kernels,
    last: LastRows,
    *,
    timeline: bool,
    start_slack_ns: int = 0,
) -> None:
    """A table of tasks: each row against its task in the timeline, the waits and ends against the rows themselves.

    Wait time = max(0, start − end of the row before it of the same device), 0 for the first.
    last            where the table was cut into slices, the rows before this one; those of this one afterwards
    start_slack_ns  by how much starts are off, see `start_slack`
    """
    difference_slack = _SLACK_DIFFERENCE + 2 * start_slack_ns
    for cells, evidence in rows:
        start, dur = _ns(cells[columns.start]), _ns(cells[columns.dur])
        device = cells.get(columns.device, "").strip() if columns.device else ""
        row = f"{cells[columns.name].strip()} at {cells[columns.start].strip()}"
        if timeline and evidence is None:
            tally.row_missing(row, in_vendors=False)
        if evidence is not None:
            tally.time(row, columns.start, cells[columns.start], evidence.start_ns, _SLACK_TIME + start_slack_ns)
            tally.time(row, columns.dur, cells[columns.dur], evidence.dur_ns, _SLACK_TIME)
            tally.text(row, columns.name, cells[columns.name], evidence.name)
            if columns.task:
                tally.number(row, columns.task, cells[columns.task], evidence.source_task_id, 0)
        if columns.end and start is not None and dur is not None:
            tally.time(row, columns.end, cells[columns.end], start + dur, difference_slack)
        if columns.wait and start is not None and dur is not None:
            before = last.get(device)
            wait = Decimal(0) if before is None else max(Decimal(0), start - before[0] - before[1])
            tally.time(row, columns.wait, cells[columns.wait], wait, difference_slack, _wait_us(start, before))
        if start is not None and dur is not None:
            last[device] = (start, dur)
            known = int(dur) if evidence is None or evidence.dur_ns is None else evidence.dur_ns
            if columns.op_type:
                core = cells[columns.core].strip() if columns.core else ""
                where = kernels.communication if core.upper() in _COMMUNICATION else kernels.computing
                where.setdefault((device, cells[columns.op_type].strip(), core), []).append(known)


def _wait_us(start_ns: Decimal, before: tuple[Decimal, Decimal] | None) -> float:
    """The wait as msprof's doubles give it: of moments in µs since 1970 they keep a quarter of a µs."""
    if before is None:
        return 0.0
    start, start_before, dur_before = (float(ns / 1000) for ns in (start_ns, *before))
    return max(0.0, round(start - start_before - dur_before, _NS_DECIMALS))


def start_slack(starts: Iterable[str]) -> int:
    """By how many ns the start times of a file are off, rounded up: 0 when one of them is printed to the nanosecond.

    Writers that keep µs in a double print the shortest text that is the same double: of times since 1970, which are
    quarters of a µs, no more than one decimal. Each is off by half a step of the double and half of the last decimal.
    """
    decimals, greatest = 0, Decimal(0)
    for cell in starts:
        value = number(cell)
        if value is None:
            continue
        decimals = max(decimals, len(cell.strip().partition(".")[2]))
        if decimals >= _NS_DECIMALS:
            return 0
        if abs(value) < _WIDEST_US:
            greatest = max(greatest, abs(value))
    if decimals == 0:
        return 0  # whole µs: nothing says that they were rounded
    return math.ceil(1000 * (math.ulp(float(greatest)) + 10.0**-decimals) / 2)


def check_sums(
    tally: Tally, rows: Sequence[Cells], groups: Mapping[tuple[str, str, str], Sequence[int]], *, by_core: bool
) -> None:
    """op_statistic, communication_statistic: count, sum, least, mean and greatest duration by type, and the share."""
    by_device = any("device id" in cells for cells in rows)
    sums: dict[tuple[str, ...], list[int]] = {}
    for (device, op_type, core), durs in groups.items():
        key = ((device,) if by_device else ()) + ((op_type, core) if by_core else (op_type,))
        sums.setdefault(key, []).extend(durs)
    totals: dict[str, int] = {}
    for key, durs in sums.items():
        device = key[0] if by_device else ""
        totals[device] = totals.get(device, 0) + sum(durs)
    for cells in rows:
        names = (*(("device id",) if by_device else ()), "op type", *(("core type",) if by_core else ()))
        key = tuple(cells[name].strip() for name in names)
        row = " ".join(key)
        found = sums.pop(key, None)
        if found is None:
            tally.row_missing(row, in_vendors=False)
            continue
        _statistics(tally, row, cells, found, "total time(us)", "min time(us)", "avg time(us)", "max time(us)")
        total = totals[key[0] if by_device else ""]
        if "ratio(%)" in cells and total:
            ratio = 100 * Decimal(sum(found)) / total
            tally.number(row, "ratio(%)", cells["ratio(%)"], ratio, Decimal("0.001"))
    for key in sums:
        tally.row_missing(" ".join(key), in_vendors=True)


def check_calls(tally: Tally, rows: Sequence[Cells], calls: Mapping[tuple[str, str], Sequence[int]]) -> None:
    """api_statistic: the calls by level and name; the variance is that of the population, in µs²."""
    left = dict(calls)
    for cells in rows:
        key = (cells["level"].strip(), cells["api name"].strip())
        row = " ".join(key)
        durs = left.pop(key, None)
        if durs is None:
            tally.row_missing(row, in_vendors=False)
            continue
        _statistics(tally, row, cells, durs, "time(us)", "min(us)", "avg(us)", "max(us)")
        if "variance" in cells:
            squares, total, count = sum(dur * dur for dur in durs), sum(durs), len(durs)
            variance = Decimal(squares * count - total * total) / (count * count) / 10**6
            # A duration that is half a nanosecond off moves the variance by as much as twice the deviation times that.
            slack = Decimal("0.001") + 2 * variance.sqrt() * Decimal("0.0005")
            tally.number(row, "variance", cells["variance"], variance, slack)
    for key in left:
        tally.row_missing(" ".join(key), in_vendors=True)


def check_steps(
    tally: Tally, rows: Sequence[Cells], steps: Mapping[int, tuple[int | None, int | None, int | None]]
) -> None:
    """step_trace: the four spans of an iteration, and that no reduce has wrapped.

    Data Aug Bound = FP Start − the latest end of an iteration of the device before it; N/A or 0 for the first.
    steps  iteration → FP start, BP end and end, as the timeline has them
    """
    before: dict[str, Decimal] = {}
    for cells in rows:
        fp, bp, end = (_ns(cells.get(name, "")) for name in ("fp start(us)", "bp end(us)", "iteration end(us)"))
        device, iteration = cells.get("device id", "").strip(), cells.get("iteration id", "").strip()
        row = f"iteration {iteration}" + (f" of device {device}" if device else "")
        number_of = number(iteration)
        known = steps.get(int(number_of)) if number_of is not None else None
        for name, ours in zip(("fp start(us)", "bp end(us)", "iteration end(us)"), known or (), strict=False):
            tally.time(row, name, cells.get(name, ""), ours, _SLACK_TIME)
        bp = bp or None  # an inference has none, and msprof of old writes 0
        spans = {
            "iteration time(us)": _less(end, fp),
            "fp to bp time(us)": _less(bp, fp),
            "iteration refresh(us)": _less(end, bp),
            "data aug bound(us)": _less(fp, before.get(device)),
        }
        for name, span in spans.items():
            if span is None:
                tally.wrapped(row, name, cells.get(name, ""))
            else:
                tally.time(row, name, cells.get(name, ""), span, _SLACK_DIFFERENCE)
        for name, cell in cells.items():
            if name.startswith("reduce "):
                tally.wrapped(row, name, cell)
        if end is not None:
            before[device] = max(before.get(device, end), end)


def check_step_times(tally: Tally, rows: Sequence[Cells], steps: Mapping[tuple[str, str], StepTimes]) -> None:
    """step_trace_time of torch_npu: computing, communication, what of it overlaps, and what is free, by step.

    steps  by (device, step); the device is '' where the timeline does not tell
    """
    devices = {device for device, _ in steps}
    for cells in rows:
        key = cells.get("step", "").strip()
        key = "" if key in ("None", "N/A") else key
        device = cells.get("device id", "").strip()
        row = f"step {key}".strip() + (f" of device {device}" if device else "")
        times = steps.get((device if device in devices or len(devices) != 1 else next(iter(devices)), key))
        if times is None:
            tally.row_missing(row, in_vendors=False)
            continue
        alone = times.communication - times.overlapped
        ours: dict[str, tuple[int | None, float | None]] = {
            "computing": (times.computing, None),
            "communication(not overlapped)": (alone, None),
            "overlapped": (times.overlapped, None),
            "communication": (times.communication, None),
            "free": (times.free, None),
            "stage": (times.stage, times.stage_us),
            "bubble": (times.bubble, None),
            "communication(not overlapped and exclude receive)": (alone - times.bubble, None),
            "preparing": (times.preparing, times.preparing_us),
        }
        for name, (value, double_us) in ours.items():
            if name in cells:
                slack = _SLACK_DIFFERENCE + (times.slack_ns if double_us is None else 0)
                tally.time(row, name, cells[name], value, slack, double_us)


def check_blocks(tally: Tally, rows: Iterable[Cells]) -> None:
    """operator_memory: durations are differences of its own moments."""
    pairs = (("release time(us)", "duration(us)"), ("active release time(us)", "active duration(us)"))
    for cells in rows:
        start = _ns(cells.get("allocation time(us)", ""))
        row = f"{cells.get('name', '').strip()} at {cells.get('allocation time(us)', '').strip()}"
        for end, span in pairs:
            value = _less(_ns(cells.get(end, "")), start)
            if value is not None and span in cells:
                tally.time(row, span, cells[span], value, _SLACK_DIFFERENCE)


def check_fusions(tally: Tally, rows: Iterable[Cells]) -> None:
    """fusion_op: the total of the memory is the sum of its parts."""
    parts = ("memory input(kb)", "memory output(kb)", "memory weight(kb)", "memory workspace(kb)")
    for cells in rows:
        values = [number(cells.get(part, "")) for part in parts]
        if all(value is not None for value in values) and "memory total(kb)" in cells:
            total = sum((value for value in values if value is not None), Decimal(0))
            tally.number(
                cells.get("fusion op", "").strip(),
                "memory total(kb)",
                cells["memory total(kb)"],
                total,
                Decimal("0.01"),
            )


def _statistics(
    tally: Tally, row: str, cells: Cells, durs: Sequence[int], total: str, least: str, mean: str, greatest: str
) -> None:
    count = len(durs)
    tally.number(row, "count", cells.get("count", ""), count, 0)
    # The vendor sums before it rounds: each duration may be half a nanosecond off, and the sum once more.
    tally.time(row, total, cells.get(total, ""), sum(durs), count)
    tally.time(row, least, cells.get(least, ""), min(durs), _SLACK_TIME)
    tally.time(row, mean, cells.get(mean, ""), Decimal(sum(durs)) / count, _SLACK_TIME)
    tally.time(row, greatest, cells.get(greatest, ""), max(durs), _SLACK_TIME)


def _ns(cell: str) -> Decimal | None:
    value = number(cell)
    return None if value is None or abs(value) >= Decimal(2) ** 63 / 1000 else value * 1000


def _less(end: Decimal | None, start: Decimal | None) -> Decimal | None:
    return None if end is None or start is None else end - start
