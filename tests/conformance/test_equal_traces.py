"""Changes of a trace that must not change any report: other IDs, orders, encodings and clocks of the same events."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from shared_data import SHARED

import traceconv
from traceconv.reports.catalog import reports
from traceconv.store.documented_sql import SqlColumn

Event = dict[str, Any]
SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces/pytorch/resnet18.pt.trace.json.gz"
TORCH = SHARED / "real" / "torch"
#: Columns with the name of the file, or when it was recorded. `position` is an order of rows with equal times.
OF_THE_RUN = {"run_summary": ("note",), "trend": ("label", "recorded")}
#: Times are later by this.
LATER_US = Decimal("123456789.001")
#: Categories of events on threads of the host.
HOST = (
    "cpu_op",
    "cpu_instant_event",
    "python_function",
    "user_annotation",
    "cuda_runtime",
    "hip_runtime",
    "cuda_driver",
)


def later(event: Event) -> Event:
    return {**event, "ts": event["ts"] + LATER_US} if "ts" in event and event["ph"] != "M" else event


def as_texts(event: Event) -> Event:
    times = {key: f"{event[key]:E}" for key in ("ts", "dur") if event["ph"] == "X" and key in event}
    found = {**event, **times}
    return {key: found[key] for key in reversed(found)}


def renumbered(events: list[Event]) -> list[Event]:
    """Other numbers of threads, streams and launches."""
    more: dict[tuple[object, object], int] = {}
    for event in events:
        if event["ph"] == "X" and isinstance(event.get("tid"), int):
            if "stream" in (event.get("args") or {}) or event.get("cat") == "gpu_user_annotation":
                more[event["pid"], event["tid"]] = 1000
            elif event.get("cat") in HOST:
                more[event["pid"], event["tid"]] = 100_000
    return [_renumbered(event, more.get((event.get("pid"), event.get("tid")), 0)) for event in events]


def _renumbered(event: Event, more: int) -> Event:
    args = dict(event.get("args") or {})
    for key in ("correlation", "wait_on_cuda_event_record_corr_id"):
        if isinstance(args.get(key), int) and args[key] > 0:
            args[key] += 5_000_000
    streams = {key: args[key] + 1000 for key in ("stream", "wait_on_stream") if str(args.get(key, "")).isdecimal()}
    found = {**event, "args": {**args, **streams}} if args else dict(event)
    if more and event["ph"] != "M":
        found["tid"] = event["tid"] + more
    return {**found, "id": event["id"] + 5_000_000} if event["ph"] in "stf" and isinstance(event["id"], int) else found


def shuffled(events: list[Event]) -> list[Event]:
    """Complete events in another order. Of those that begin together, the longer contains the other."""
    places = [place for place, event in enumerate(events) if event["ph"] == "X"]
    found = list(events)
    for place, other in zip(places, random.Random(3).sample(places, len(places)), strict=True):
        found[place] = events[other]
    return found


CHANGES: dict[str, Callable[[list[Event]], list[Event]]] = {
    "same": list,
    "later": lambda events: list(map(later, events)),
    "texts": lambda events: list(map(as_texts, events)),
    "renumbered": renumbered,
    "shuffled": shuffled,
}


def shown(column: SqlColumn, value: object, change: str) -> object:
    """A value without what the change changes. IDs of rows follow from the order of the events."""
    if change == "later" and value is not None and (column.timestamp or column.name == "reduce_start_ns"):
        by = int(LATER_US * 1000)
        return [one - by for one in value] if isinstance(value, list) else value - by  # type: ignore[operator]
    if change == "renumbered" and column.name == "stream_id" and isinstance(value, int):
        return value - 1000 if value >= 1000 else value
    return round(value, 6) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "path",
    [TORCH / "mi250_rocm6.2_minitoy.json.gz",
     pytest.param(TORCH / "cuda_event_sync_multi_stream.json.gz", marks=pytest.mark.long),
     pytest.param(SAMPLE, marks=pytest.mark.long)],
    ids=lambda path: path.name,
)  # fmt: skip
def test_reports_of_equal_traces(path: Path, tmp_path: Path) -> None:
    if not path.exists():
        pytest.skip("no shared/conformance here; set TRACECONV_SHARED")
    trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = [{**e, "ts": Decimal(e["ts"])} if "ts" in e else e for e in trace["traceEvents"]]
    for change, changed in CHANGES.items():
        file = tmp_path / f"{change}.json"
        text = json.dumps({**trace, "traceEvents": changed(events)}, default=lambda number: f"@{number}@")
        file.write_text(re.sub(r'"@([^"@]*)@"', r"\1", text))
        traceconv.ingest(file, db=tmp_path / "s.duckdb", jobs=1)
    with traceconv.open_store(db=tmp_path / "s.duckdb") as store:
        for name, report in reports().items():
            columns = [c for c in report.columns if c.unit != "id" or c.name in ("device_id", "stream_id", "step_id")]
            columns = [c for c in columns if c.name not in OF_THE_RUN.get(name, ()) and c.name != "position"]
            rows: dict[str, Counter[str]] = {change: Counter() for change in CHANGES}
            for run in range(1, len(CHANGES) + 1) if report.compares_runs else ("all",):
                for row in store.report(name, run=run):
                    change = list(CHANGES)[row["run_id"] - 1]
                    rows[change][repr([shown(column, row[column.name], change) for column in columns])] += 1
            for change, found in rows.items():
                assert found == rows["same"], (name, change)
