"""advise on real files: all findings, read as a performance engineer, and savings by plain recount of the JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recount import chrome, sources, writers
from recount.tally import nanoseconds
from shared_data import SHARED, shared

import traceconv

REAL = shared("real")
KINETO = [path for path, of in sources.chrome_traces(SHARED).items() if of is writers.kineto]
#: Seed systems whose files repeat one trace in several formats.
ONCE = ("injected_seed.rows.csv", "injected_edge.rows.csv")
#: Rules whose evidence has a row for each gap, task or call counted, and the column with its saving.
SAVING_OF_ROW = {
    "launch-bound": "saving_ns",
    "forced-synchronisation": "saving_ns",
    "fragmentation": "saving_ns",
    "low-occupancy": "saving_ns",
    "host-bound": "host_wait_ns",
    "data-loading": "host_wait_ns",
    "unexplained-idle": "gap_ns",
    "ai-cpu-ops": "dur_ns",
}


@pytest.mark.long
def test_findings_on_all_real_files(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """At most one finding per file that a reader would call wrong: read the differences."""
    store = tmp_path / "s.duckdb"
    traceconv.ingest(REAL, SHARED / "seed_systems", db=store)
    lines = []
    with traceconv.open_store(store) as opened:
        for run in opened.runs():
            advice = opened.advise(run["run_id"])
            if not advice.devices or ("injected" in advice.label and advice.label not in ONCE):
                continue
            lines.append(advice.label)
            for one in advice.findings:
                assert 0 < one.saving_ns <= advice.devices[one.device_id]
                lines.append(
                    f"    {one.rule:24} device {one.device_id} {one.saving_ns:>14,} ns {one.saving_percent:5.1f} % "
                    f"{one.count:>7,}  {'; '.join(subject[:60] for subject in one.subjects)}".rstrip()
                )
    golden("advice.txt", "\n".join(lines) + "\n")


@dataclass
class Task:
    """A kernel, copy or collective of the JSON; `submit_ns`: start of the call with its correlation."""

    device: object
    kind: str | None
    start_ns: int
    end_ns: int
    submit_ns: int | None
    blocks_per_sm: object


def tasks_of(path: Path) -> list[Task]:
    calls: dict[object, int] = {}
    found = []
    for event in chrome.events_of(chrome.read(path)):
        start, dur = chrome.number(event.get("ts")), chrome.number(event.get("dur"))
        if event.get("ph") != "X" or start is None or dur is None:
            continue
        args: dict[str, Any] = event.get("args") or {}
        category = event.get("cat")
        if category in ("cuda_runtime", "cuda_driver", "Runtime") and args.get("correlation") is not None:
            calls.setdefault(args["correlation"], nanoseconds(start))
        row = writers.kineto(chrome.Slice((), category, event.get("name"), None, None, args, nanoseconds(start)))
        if row.table == "task" and row.kind != "sync":
            task = Task(row.device, row.kind, nanoseconds(start), nanoseconds(start) + nanoseconds(dur), None,
                        args.get("blocks per SM"))  # fmt: skip
            found.append((task, args.get("correlation")))
    for task, correlation in found:
        task.submit_ns = calls.get(correlation)
    return [task for task, _ in found]


def percentile(values: list[int]) -> int:
    """The smallest value that 1 % of them don't exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) // 100) - 1)]


def pauses(tasks: list[Task]) -> Iterator[tuple[int, int | None]]:
    """Idle times of a device, with the time from the next launch to its start."""
    reached: int | None = None
    for task in sorted(tasks, key=lambda one: one.start_ns):
        if reached is not None and task.start_ns > reached:
            known = task.submit_ns is not None and task.submit_ns <= task.start_ns
            yield task.start_ns - reached, task.start_ns - task.submit_ns if known else None  # type: ignore[operator]
        reached = max(task.end_ns, task.end_ns if reached is None else reached)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=pytest.mark.long if "resnet50" in path.name else ())  # takes longest
        for path in KINETO
    ],
)
def test_savings_by_plain_recount(path: Path) -> None:
    by_device: dict[object, list[Task]] = defaultdict(list)
    for task in tasks_of(path):
        by_device[task.device].append(task)
    with traceconv.open_store(path, cache=False) as store:
        advice = store.advise(least_percent=0)
        gaps = list(store.report("idle-gaps"))
        for one in advice.findings:
            if (column := SAVING_OF_ROW.get(one.rule)) is not None:
                shown = store.query(f"SELECT count(*), sum({column}) FROM ({one.evidence})").fetchall()
                assert (one.rule, *shown[0]) == (one.rule, one.count, one.saving_ns)
    found = {(one.rule, one.device_id): one.saving_ns for one in advice.findings}
    for device, tasks in by_device.items():
        short = [pause for pause in pauses(tasks) if pause[0] < 10_000]
        delays = [delay for _, delay in pauses(tasks) if delay is not None]
        latency = percentile(delays) if delays else 0
        host = sum(max(0, min(gap, gap + latency - delay)) for gap, delay in short if delay is not None)
        rest = sum(min(gap, max(0, delay - latency)) for gap, delay in short if delay is not None)
        longer = sum(
            gap["gap_ns"]
            for gap in gaps
            if gap["device_id"] == device and gap["cause"] in ("host", "launch") and gap["gap_ns"] < 1_000_000
        )
        assert found.get(("launch-bound", device), 0) == host + longer
        durations = [task.end_ns - task.start_ns for task in tasks if task.kind == "compute"]
        small = sum(dur <= 10_000 for dur in durations)
        cost = small * min(10_000, percentile(durations)) + rest if small >= 100 else 0
        assert found.get(("many-small-ops", device), 0) == cost
        unfilled: dict[object, int] = defaultdict(int)
        for task, dur in ((one, one.end_ns - one.start_ns) for one in tasks):
            if task.kind == "compute" and dur >= 10_000 and task.blocks_per_sm is not None:
                share = round(1000 * float(str(task.blocks_per_sm)))
                if share < 1000:
                    unfilled[device] += dur * (1000 - share) // 1000
        assert found.get(("low-occupancy", device), 0) == unfilled[device]
