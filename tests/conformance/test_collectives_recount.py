"""Counts, times and bandwidths of the collectives in real files equal a plain recount of their events."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared

from traceconv.api import open_store
from traceconv.pipeline.ingest import ingest

REAL = shared("real")
TORCH = ("nccl_metadata", "b200_eager_trace")
#: Name in PyTorch → kind, the argument with its size, and the factor of the bus bandwidth of n ranks.
KINDS: dict[str, tuple[str, str, Any]] = {
    "allreduce": ("all_reduce", "In msg nelems", lambda n: Decimal(2 * (n - 1)) / n),
    "broadcast": ("broadcast", "In msg nelems", lambda n: Decimal(1)),
    "_allgather_base": ("all_gather", "Out msg nelems", lambda n: Decimal(n - 1) / n),
}
BYTES = {"Float": 4, "Long": 8, "BFloat16": 2}


@pytest.mark.parametrize("name", TORCH)
def test_kernels_of_nccl(name: str, tmp_path: Path) -> None:
    path = REAL / "torch" / f"{name}.json.gz"
    trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for event in trace["traceEvents"]:
        args = event.get("args") or {}
        if event.get("cat") == "kernel" and "Collective name" in args:
            kind, size, factor = KINDS[args["Collective name"]]
            size_bytes = args[size] * BYTES[args["dtype"]]
            group = (args["Process Group Name"], args["Process Group Ranks"], args["Group size"])
            key = (*group, kind, args["dtype"], size_bytes, factor(args["Group size"]))
            found[key].append(event["dur"] * 1000)
    expected = {
        (*key, len(durs), int(sum(durs)), int(min(durs)), int(max(durs)), int(key[-1] * len(durs) * 10**9 / sum(durs)),
         int(key[-1] * len(durs) * factor * 10**9 / sum(durs)))
        for (*key, factor), durs in found.items()
    }  # fmt: skip
    ingest([path], tmp_path / "trace.duckdb")
    columns = (
        "comm_group", "group_ranks", "group_size", "collective", "dtype", "message_bytes", "count", "total_ns",
        "min_ns", "max_ns", "algorithm_bytes_per_s", "bus_bytes_per_s",
    )  # fmt: skip
    with open_store(tmp_path / "trace.duckdb") as store:
        rows = {tuple(row[column] for column in columns) for row in store.report("collectives")}
    assert {row for row in rows if row[0] is not None} == expected
    # All-reduces over shared memory have no args: nothing but their times is known.
    others = [e for e in trace["traceEvents"] if e.get("cat") == "kernel" and "multimem_all_reduce" in e["name"]]
    total = int(sum(e["dur"] for e in others) * 1000)
    known = {(row[3], row[5], row[6], row[7], row[10]) for row in rows if row[0] is None}
    assert known == ({("all_reduce", None, len(others), total, None)} if others else set())


def test_collectives_of_torch_npu(tmp_path: Path) -> None:
    folder = REAL / "ascend/torch_npu_level1_rank1"
    trace = json.loads((folder / "trace_view.json").read_text(), parse_float=Decimal)
    communication = json.loads((folder / "communication.json").read_text(), parse_float=Decimal)
    parts = ("Transit Time(ms)", "Wait Time(ms)", "Idle Time(ms)")
    vendor = {
        key.partition("@")[0]: tuple(round(figures["Communication Time Info"][part] * 10**6) for part in parts)
        for key, figures in communication["step50"]["collective"].items()
        if key != "Total Op Info"
    }
    expected = {
        ("all_reduce", "FP32", 4 * event["args"]["count"], 1, round(event["dur"] * 1000), *vendor[event["name"]])
        for event in trace
        if event["name"].startswith("hcom_allReduce")
    }
    assert len(expected) == 4
    ingest([folder], tmp_path / "trace.duckdb")
    columns = ("collective", "dtype", "message_bytes", "count", "total_ns")
    columns += ("vendor_transit_ns", "vendor_wait_ns", "vendor_idle_ns")
    with open_store(tmp_path / "trace.duckdb") as store:
        assert {tuple(row[column] for column in columns) for row in store.report("collectives")} == expected


@pytest.mark.parametrize(
    ("text", "paired"),
    [
        ("{", None),
        ("[1]", None),
        ('{"step": {"collective": {"hcom_x": 5, "Total Op Info": {}}, "p2p": []}}', None),
        ('{"s": {"c": {"hcom_x@1": {"Communication Time Info": {"Start Timestamp(us)": 1e400}}}}}', None),
        ('{"s": {"c": {"hcom_x@1": {"Communication Time Info": {"Start Timestamp(us)": 90.9}}}}}', 0),
        ('{"s": {"c": {"hcom_\\ud800": {"Communication Time Info": {"Start Timestamp(us)": 10.3}}}}}', 0),
        ('{"s": {"c": {"hcom_x": {"Communication Time Info": {"Start Timestamp(us)": 10.3, "Wait Time(ms)": 0}}}}}', 1),
        (
            '{"s": {"c": {"hcom_x": {"Communication Time Info": {"Start Timestamp(us)": 10.3, "Wait Time(ms)": 0,'
            ' "\\udfff": NaN}}}}}',
            1,
        ),
    ],
)
def test_communication_files_may_be_anything(text: str, paired: int | None, tmp_path: Path) -> None:
    names = [("process_name", 0, "HCCL"), ("thread_name", 1, "Group 0 Communication")]
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 3, "tid": tid, "name": what, "args": {"name": name}} for what, tid, name in names
    ]
    events.append({"ph": "X", "pid": 3, "tid": 1, "ts": "10.25", "dur": 2, "name": "hcom_x", "args": {"count": 1}})
    folder = tmp_path / "a_ascend_pt/ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder / "trace_view.json").write_text(json.dumps(events))
    (folder / "communication.json").write_text(text)
    ingest([tmp_path], tmp_path / "trace.duckdb")
    with open_store(tmp_path / "trace.duckdb") as store:
        found = store.query("SELECT args->>'$.communication' IS NOT NULL FROM task").fetchall()
        assert found == [(bool(paired),)]
        accounts = "SELECT paired_count FROM import_account WHERE record LIKE 'communication%'"
        assert store.query(accounts).fetchall() in ([(paired or 0,)], [])
        assert [row["vendor_wait_ns"] for row in store.report("collectives")] == [0 if paired else None]
        repaired = "SELECT count(*)::BIGINT FROM import_log WHERE code = 'odd_json'"
        assert store.query(repaired).fetchall() == [("\\ud" in text,)]
