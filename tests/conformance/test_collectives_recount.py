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
    expected = {
        ("all_reduce", "FP32", 4 * event["args"]["count"], 1, round(event["dur"] * 1000))
        for event in trace
        if event["name"].startswith("hcom_allReduce")
    }
    ingest([folder], tmp_path / "trace.duckdb")
    columns = ("collective", "dtype", "message_bytes", "count", "total_ns")
    with open_store(tmp_path / "trace.duckdb") as store:
        assert {tuple(row[column] for column in columns) for row in store.report("collectives")} == expected
