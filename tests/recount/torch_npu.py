"""Output folders of torch_npu: the timeline and its tables, row by row."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from recount import chrome, writers
from recount.tally import Tally, nanoseconds

#: A row and a slice of the timeline are one kernel if their starts differ by less: some writers round times.
_NEAR_NS = 1000
_COUNTERS = ("memory_record.csv", "npu_module_mem.csv")
Row = dict[str, str]


@dataclass
class Recording:
    """Sums of a folder, without devices and memory.

    kernels  durations by type and core, without collectives
    blocks   count and bytes of the blocks in the memory table, and its largest use
    """

    tally: Tally
    kernels: dict[tuple[str, str], list[int]]
    blocks: tuple[int, int, int]


def add_up(folder: Path) -> Recording:
    """Sum up a folder."""
    timeline = folder / "trace_view.json"
    tally = Tally()
    slices: list[chrome.Slice] = []
    if timeline.exists():

        def note(one: chrome.Slice) -> chrome.Row:
            slices.append(one)
            return chrome.plain(one)

        tally = chrome.add_up(chrome.events_of(chrome.read(timeline)), note)
        tally.slices.clear()
    rows = rows_of(folder / "kernel_details.csv")
    row_of = _matched(rows, slices)
    kernels: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, one in enumerate(slices):
        row = writers.ascend(one)
        details = row_of.get(place)
        kind = _kind(details) if details else row.kind
        tally.slice((row.table, kind, None, row.stream, row.name or one.name), one.start_ns, one.dur_ns)
        if details and kind == "compute":
            kernels[details["Type"], details["Accelerator Core"]].append(one.dur_ns or 0)
        if row.step is not None and one.dur_ns is not None:
            tally.steps.add((row.step, one.start_ns, one.start_ns + one.dur_ns))
    for details in rows:
        if any(details is matched for matched in row_of.values()):
            continue
        stream = int(details["Stream ID"]) if _known(details.get("Stream ID")) else None
        dur_ns = _us(details["Duration(us)"])
        key = ("task", _kind(details), None, stream, details["Name"])
        tally.slice(key, _us(details["Start Time(us)"]), dur_ns)
        if _kind(details) == "compute":
            kernels[details["Type"], details["Accelerator Core"]].append(dur_ns)
    for name in _COUNTERS:
        for sample in rows_of(folder / name):
            for column, text in sample.items():
                series = column.removesuffix("(MB)")
                if series != column and _known(text):
                    tally.sample((sample["Component"], series), _us(sample["Timestamp(us)"]), Decimal(text))
    return Recording(tally, kernels, _blocks(rows_of(folder / "operator_memory.csv")))


def _blocks(rows: list[Row]) -> tuple[int, int, int]:
    sizes = [int(Decimal(row["Size(KB)"]) * 1024) for row in rows]
    totals = [int(Decimal(row["Allocation Total Allocated(MB)"]) * 2**20) for row in rows]
    return len(sizes), sum(sizes), max(totals, default=0)


def calls(folder: Path) -> dict[tuple[str | None, str], list[int]]:
    """Durations of the timeline's CANN calls, by layer and name."""
    found: dict[tuple[str | None, str], list[int]] = defaultdict(list)

    def note(one: chrome.Slice) -> chrome.Row:
        row = writers.ascend(one)
        if row.table == "api" and one.dur_ns is not None:
            found[row.kind, row.name or str(one.name)].append(one.dur_ns)
        return row

    chrome.add_up(chrome.events_of(chrome.read(folder / "trace_view.json")), note)
    return found


def rows_of(path: Path) -> list[Row]:
    """The rows of a table; none without the file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{key.strip(): (cell or "").strip() for key, cell in row.items()} for row in csv.DictReader(file)]


def _matched(rows: list[Row], slices: list[chrome.Slice]) -> dict[int, Row]:
    """Slice → its row, if it has one.

    They have the same name, the same stream if both have one, and start at about the same time.
    """
    named: dict[str | None, list[int]] = defaultdict(list)
    for place, one in enumerate(slices):
        if writers.ascend(one).table == "task":
            named[one.name].append(place)
    found: dict[int, Row] = {}
    for row in rows:
        near = sorted(
            (abs(slices[place].start_ns - _us(row["Start Time(us)"])), place)
            for place in _candidates(row, slices, named[row["Name"]])
            if place not in found
        )
        if near and near[0][0] < _NEAR_NS:
            found[near[0][1]] = row
    return found


def _candidates(row: Row, slices: list[chrome.Slice], places: list[int]) -> Iterator[int]:
    for place in places:
        stream = writers.ascend(slices[place]).stream
        if stream is None or not _known(row.get("Stream ID")) or int(row["Stream ID"]) == stream:
            yield place


def _kind(row: Row) -> str:
    return "collective" if row["Accelerator Core"] in ("HCCL", "COMMUNICATION") else "compute"


def _known(cell: str | None) -> bool:
    return cell not in (None, "", "N/A")


def _us(cell: str) -> int:
    return nanoseconds(Decimal(cell))
