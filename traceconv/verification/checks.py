"""The formulas of msprof's and torch_npu's tables, file by file, in exact arithmetic.

The formulas are from msprof's documentation and from real files, in which each is true for every correct row.
Rows are dictionaries of normalized headings (`spec.plain`) and cells; times are ns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from traceconv.normalize.vendor_csv.typed import EXACT
from traceconv.verification.cells import NO_VALUE, Tally, number
from traceconv.verification.steps import StepTimes

Cells = Mapping[str, str]
#: Start and duration of the previous row, by device.
LastRows = dict[str, tuple[Decimal, Decimal]]
#: For results of two times and a duration, all printed to the nanosecond.
_SLACK_DIFFERENCE = 2
_SLACK_TIME = 1
_NS_DECIMALS = 3
_WIDEST_US = Decimal(2) ** 63 / 1000
#: The name of a task in traceconv's own exports that contains several executions.
_SUMMARISED = re.compile(r".* x[1-9][0-9]*")
#: Headings of names, in which white space counts; other cells are trimmed.
_NAMES = ("op type", "api name")
_COMMUNICATION = ("HCCL", "COMMUNICATION", "HCCL_AI_CPU")


@dataclass(frozen=True, slots=True)
class TimelineTask:
    """The task in the timeline that a row is about."""

    name: str | None
    start_ns: int | None
    dur_ns: int | None
    source_task_id: int | None


@dataclass(frozen=True, slots=True)
class StepEnd:
    """The start and the end of an iteration in the timeline; device and model are empty if unknown."""

    device: str
    model: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Kernels:
    """Durations in a kernel table by (device, type, core), those of collectives separately."""

    computing: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    communication: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    #: Keys of which one row is several executions, as traceconv's own exports name it: `MatMul x900`.
    summarised: set[tuple[str, str, str]] = field(default_factory=set)


def check_tasks(
    tally: Tally,
    rows: Iterable[tuple[Cells, TimelineTask | None]],
    headings: Mapping[str, str],
    kernels: Kernels,
    last: LastRows,
    *,
    timeline: bool,
    start_slack_ns: int = 0,
) -> None:
    """Check a table of tasks: each row against its task in the timeline, waits and ends against the rows themselves.

    Wait time = max(0, start − end of the previous row of the same device), 0 for the first.
    headings        the headings of our columns in this file
    last            the previous rows, if the table was split into slices; updated
    start_slack_ns  error of the starts, see `start_slack`
    """
    difference_slack = _SLACK_DIFFERENCE + 2 * start_slack_ns
    name_of, start_of, dur_of = headings["name"], headings["start_ns"], headings["dur_ns"]
    for cells, task in rows:
        ours = {
            column: cells[heading] if column in EXACT else cells[heading].strip()
            for column, heading in headings.items()
        }
        start, dur = _ns(cells[start_of]), _ns(cells[dur_of])
        device = ours.get("device_id", "")
        row = f"{ours['name']} at {ours['start_ns']}"
        if timeline and task is None:
            tally.row_missing(row, in_vendors=False)
        if task is not None:
            tally.time(row, start_of, cells[start_of], task.start_ns, _SLACK_TIME + start_slack_ns)
            tally.time(row, dur_of, cells[dur_of], task.dur_ns, _SLACK_TIME)
            tally.text(row, name_of, cells[name_of], task.name)
            if "source_task_id" in headings:
                tally.number(row, headings["source_task_id"], ours["source_task_id"], task.source_task_id, 0)
        if start is None or dur is None:
            continue
        if "end_ns" in headings:
            tally.time(row, headings["end_ns"], ours["end_ns"], start + dur, difference_slack)
        if "vendor_wait_ns" in headings:
            before = last.get(device)
            wait = Decimal(0) if before is None else max(Decimal(0), start - before[0] - before[1])
            double_us = _wait_us(start, before)
            tally.time(row, headings["vendor_wait_ns"], ours["vendor_wait_ns"], wait, difference_slack, double_us)
        last[device] = (start, dur)
        if "op_type" in headings:
            core = ours.get("task_type", "")
            group = kernels.communication if core.upper() in _COMMUNICATION else kernels.computing
            known = int(dur) if task is None or task.dur_ns is None else task.dur_ns
            group.setdefault((device, ours["op_type"], core), []).append(known)
            if _SUMMARISED.fullmatch(ours["name"]):
                kernels.summarised.add((device, ours["op_type"], core))


def _wait_us(start_ns: Decimal, before: tuple[Decimal, Decimal] | None) -> float:
    """Return the wait in msprof's doubles, which resolve µs since 1970 to a quarter of a µs."""
    if before is None:
        return 0.0
    start, start_before, dur_before = (float(ns / 1000) for ns in (start_ns, *before))
    return max(0.0, round(start - start_before - dur_before, _NS_DECIMALS))


def start_slack(starts: Iterable[str]) -> int:
    """Return the maximum error of a file's start times in ns, rounded up; 0 if any is printed to the nanosecond.

    Writers that store µs in a double print the shortest text for that double: at most one decimal for times since 1970,
    which are quarters of a µs. The error is at most half a step of the double plus half of the last decimal.
    """
    decimals, maximum = 0, Decimal(0)
    for cell in starts:
        value = number(cell)
        if value is None:
            continue
        decimals = max(decimals, len(cell.strip().partition(".")[2]))
        if decimals >= _NS_DECIMALS:
            return 0
        if abs(value) < _WIDEST_US:
            maximum = max(maximum, abs(value))
    if decimals == 0:
        return 0  # integers: no sign that they were rounded
    return math.ceil(1000 * (math.ulp(float(maximum)) + 10.0**-decimals) / 2)


def check_sums(
    tally: Tally,
    rows: Sequence[Cells],
    groups: Mapping[tuple[str, str, str], Sequence[int]],
    *,
    by_core: bool,
    summarised: Collection[tuple[str, str, str]] = (),
) -> None:
    """Check op_statistic, communication_statistic: count, sum, min, mean and max of durations by type, and shares.

    Of `summarised` groups, only the sum can be checked.
    """
    by_device = any("device id" in cells for cells in rows)
    sums: dict[tuple[str, ...], list[int]] = {}
    only_sums: set[tuple[str, ...]] = set()
    for (device, op_type, core), durs in groups.items():
        key = ((device,) if by_device else ()) + ((op_type, core) if by_core else (op_type,))
        sums.setdefault(key, []).extend(durs)
        if (device, op_type, core) in summarised:
            only_sums.add(key)
    totals: dict[str, int] = {}
    for key, durs in sums.items():
        device = key[0] if by_device else ""
        totals[device] = totals.get(device, 0) + sum(durs)
    names = (*(("device id",) if by_device else ()), "op type", *(("core type",) if by_core else ()))
    for row, cells, found in _matched(tally, rows, names, sums):
        if _key(cells, names) in only_sums:
            tally.time(row, "total time(us)", cells.get("total time(us)", ""), sum(found), len(found))
        else:
            _statistics(tally, row, cells, found, "total time(us)", "min time(us)", "avg time(us)", "max time(us)")
        total = totals[cells["device id"].strip() if by_device else ""]
        if "ratio(%)" in cells and total:
            ratio = 100 * Decimal(sum(found)) / total
            tally.number(row, "ratio(%)", cells["ratio(%)"], ratio, Decimal("0.001"))


def _matched(
    tally: Tally, rows: Sequence[Cells], names: Sequence[str], groups: Mapping[tuple[str, ...], Sequence[int]]
) -> Iterator[tuple[str, Cells, Sequence[int]]]:
    """Yield the rows with their durations, by the cells in some columns. Report rows that are on one side only."""
    left = dict(groups)
    for cells in rows:
        key = _key(cells, names)
        durs = left.pop(key, None)
        if durs is None:
            tally.row_missing(" ".join(key), in_vendors=False)
        else:
            yield " ".join(key), cells, durs
    for key in left:
        tally.row_missing(" ".join(key), in_vendors=True)


def _key(cells: Cells, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(cells[name] if name in _NAMES else cells[name].strip() for name in names)


def check_calls(tally: Tally, rows: Sequence[Cells], calls: Mapping[tuple[str, ...], Sequence[int]]) -> None:
    """Check api_statistic: the calls by level and name, with the variance of the population in µs²."""
    for row, cells, durs in _matched(tally, rows, ("level", "api name"), calls):
        _statistics(tally, row, cells, durs, "time(us)", "min(us)", "avg(us)", "max(us)")
        if "variance" in cells:
            squares, total, count = sum(dur * dur for dur in durs), sum(durs), len(durs)
            variance = Decimal(squares * count - total * total) / (count * count) / 10**6
            # Half a nanosecond in a duration changes the variance by up to twice that times the deviation.
            slack = Decimal("0.001") + 2 * variance.sqrt() * Decimal("0.0005")
            tally.number(row, "variance", cells["variance"], variance, slack)


def check_steps(tally: Tally, rows: Sequence[Cells], ends: Mapping[int, Sequence[StepEnd]]) -> None:
    """Check step_trace: the four intervals of an iteration, and reduces that have wrapped.

    Data Aug Bound = FP Start − the latest end of an earlier iteration on the device; N/A or 0 for the first.
    ends  iteration → its ends in the timeline, on each device and of each model
    """
    before: dict[str, Decimal] = {}
    for cells in rows:
        fp, bp, end = (_ns(cells.get(name, "")) for name in ("fp start(us)", "bp end(us)", "iteration end(us)"))
        device, iteration = cells.get("device id", "").strip(), cells.get("iteration id", "").strip()
        row = f"iteration {iteration}" + (f" of device {device}" if device else "")
        number_of = number(iteration)
        model = cells.get("model id", "").strip()
        found = {
            (one.start_ns, one.end_ns)
            for one in ends.get(-1 if number_of is None else int(number_of), ())
            if _may_equal(device, one.device) and _may_equal(model, one.model)
        }
        known_start, known_end = found.pop() if len(found) == 1 else (None, None)
        tally.time(row, "iteration end(us)", cells.get("iteration end(us)", ""), known_end, _SLACK_TIME)
        fp, bp = fp or None, bp or None  # some versions of msprof write 0 for inferences, which have none
        spans = {
            "iteration time(us)": _iteration_time(cells, end, fp, known_start),
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


def _iteration_time(cells: Cells, end: Decimal | None, fp: Decimal | None, known_start: int | None) -> Decimal | None:
    """Return the time of an iteration: msprof counts from its start, others from its forward pass, which is later."""
    from_fp, given = _less(end, fp), _ns(cells.get("iteration time(us)", ""))
    if from_fp is None or given is None or given <= from_fp + _SLACK_DIFFERENCE:
        return from_fp
    return _less(end, None if known_start is None else Decimal(known_start))


def check_step_times(tally: Tally, rows: Sequence[Cells], steps: Mapping[tuple[str, str], StepTimes]) -> None:
    """Check step_trace_time of torch_npu: computing, communication, their overlap, and free time, by step.

    steps  by (device, step); the device is '' if the timeline doesn't contain it
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
    """Check operator_memory: durations are differences of its own timestamps."""
    pairs = (("release time(us)", "duration(us)"), ("active release time(us)", "active duration(us)"))
    for cells in rows:
        start = _ns(cells.get("allocation time(us)", ""))
        row = f"{cells.get('name', '').strip()} at {cells.get('allocation time(us)', '').strip()}"
        for end, span in pairs:
            value = _less(_ns(cells.get(end, "")), start)
            if value is not None and span in cells:
                tally.time(row, span, cells[span], value, _SLACK_DIFFERENCE)


def check_fusions(tally: Tally, rows: Iterable[Cells]) -> None:
    """Check fusion_op: the total memory is the sum of its parts."""
    parts = ("memory input(kb)", "memory output(kb)", "memory weight(kb)", "memory workspace(kb)")
    for cells in rows:
        values = [value for part in parts if (value := number(cells.get(part, ""))) is not None]
        if len(values) == len(parts) and "memory total(kb)" in cells:
            row, total = cells.get("fusion op", "").strip(), sum(values, Decimal(0))
            tally.number(row, "memory total(kb)", cells["memory total(kb)"], total, Decimal("0.01"))


def _statistics(
    tally: Tally, row: str, cells: Cells, durs: Sequence[int], total: str, minimum: str, mean: str, maximum: str
) -> None:
    count = len(durs)
    tally.number(row, "count", cells.get("count", ""), count, 0)
    # The vendor sums before it rounds: each duration may be off by half a nanosecond, and the sum too.
    tally.time(row, total, cells.get(total, ""), sum(durs), count)
    tally.time(row, minimum, cells.get(minimum, ""), min(durs), _SLACK_TIME)
    tally.time(row, mean, cells.get(mean, ""), Decimal(sum(durs)) / count, _SLACK_TIME)
    tally.time(row, maximum, cells.get(maximum, ""), max(durs), _SLACK_TIME)


def _ns(cell: str) -> Decimal | None:
    value = number(cell)
    return None if value is None or abs(value) >= _WIDEST_US else value * 1000


def _may_equal(cell: str, known: str) -> bool:
    return not cell or not known or cell in NO_VALUE or cell == known


def _less(end: Decimal | None, start: Decimal | None) -> Decimal | None:
    return None if end is None or start is None else end - start
