"""Bytes that collectives exchange: the number of elements times the size of their type, as the writers give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from ingest_checks import taken
from shared_data import shared
from stores import query

from traceconv.pipeline.ingest import ingest

#: Bytes per element, by type names of PyTorch (NCCL kernels) and HCCL.
TORCH = {
    "Byte": 1, "Char": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e5m2fnuz": 1, "Short": 2, "Half": 2,
    "BFloat16": 2, "UInt16": 2, "Int": 4, "Float": 4, "UInt32": 4, "ComplexHalf": 4, "Long": 8, "Double": 8,
    "UInt64": 8, "ComplexFloat": 8, "ComplexDouble": 16, "SomethingNew": None,
}  # fmt: skip
HCCL = {
    "INT8": 1, "UINT8": 1, "FP8E4M3": 1, "HIF8": 1, "INT16": 2, "FP16": 2, "BFP16": 2, "INT32": 4, "FP32": 4,
    "INT64": 8, "FP64": 8, "INT128": 16, "RESERVED": None,
}  # fmt: skip


def sizes(events: list[dict[str, Any]], tmp_path: Path) -> dict[str, int | None]:
    """Bytes of each collective, by the type in its name."""
    _, store = taken({"deviceProperties": [], "traceEvents": events}, tmp_path)
    rows = query(store, "SELECT name, size_bytes FROM task WHERE kind = 'collective'")
    return {name.rpartition("__")[2]: size for name, size in rows}


def test_pytorch_types(tmp_path: Path) -> None:
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "dur": 1}
    events = [
        {**place, "name": f"ncclDevKernel__{dtype}", "ts": number,
         "args": {"device": 0, "stream": 7, "dtype": dtype, "In msg nelems": 1000 + number, "Out msg nelems": 5}}
        for number, dtype in enumerate(TORCH)
    ]  # fmt: skip
    expected = {dtype: width and (1000 + number) * width for number, (dtype, width) in enumerate(TORCH.items())}
    assert sizes(events, tmp_path) == expected


def test_hccl_types(tmp_path: Path) -> None:
    names = {"process_name": (0, "HCCL"), "thread_name": (1, "Group 0 Communication")}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 3, "tid": tid, "name": what, "args": {"name": name}} for what, (tid, name) in names.items()
    ]
    events += [
        {"ph": "X", "pid": 3, "tid": 1, "ts": number, "dur": 1, "name": f"hcom_allReduce__{dtype}",
         "args": {"count": 1000 + number, "data_type": dtype}}
        for number, dtype in enumerate(HCCL)
    ]  # fmt: skip
    expected = {dtype: width and (1000 + number) * width for number, (dtype, width) in enumerate(HCCL.items())}
    assert sizes(events, tmp_path) == expected


@pytest.mark.parametrize(
    ("file", "total"),
    [
        # Five all-reduces and a broadcast of floats, and a broadcast of 53 64-bit integers, in each of three steps.
        ("nccl_metadata", 3 * (4 * (6_637_568 + 2_431_040 + 2_049_000 + 7_875_584 + 6_563_840 + 53_120) + 8 * 53)),
        # This rank's part of the all-gather, in bfloat16; unknown for the 73 all-reduces over shared memory.
        ("b200_eager_trace", 2 * 25_136),
    ],
)
def test_real_collectives(file: str, total: int, tmp_path: Path) -> None:
    ingest([shared("real") / "torch" / f"{file}.json.gz"], tmp_path / "trace.duckdb")
    with duckdb.connect(str(tmp_path / "trace.duckdb"), read_only=True) as store:
        rows = store.execute("SELECT count(*), count(size_bytes), sum(size_bytes) FROM task WHERE kind = 'collective'")
        assert rows.fetchall() == [{"nccl_metadata": (21, 21, total), "b200_eager_trace": (74, 1, total)}[file]]
