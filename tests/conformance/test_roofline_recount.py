"""The report roofline on real traces: work, calls and times of some operators, recounted from the JSON."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recount import chrome, writers
from recount.tally import nanoseconds
from shared_data import shared

from traceconv.pipeline.ingest import ingest

REAL = shared("real")
TORCH = REAL / "torch"
QUICK = ("mi250_rocm6.2_minitoy.json.gz",)
LONG = ("b200_eager_trace.json.gz", "kineto_resnet50_worker0.pt.trace.json.gz")

BYTES = {"float": 4, "c10::BFloat16": 2, "int": 4, "long int": 8, "c10::Half": 2, "bool": 1, "unsigned char": 1,
         "c10::Float8_e4m3fn": 1, "double": 8}  # fmt: skip


def recounted(name: str, dims: list[Any], types: list[str]) -> tuple[int | None, int | None] | None:
    """Operations and bytes of operators that have no other operator inside; None: not recounted here."""
    if any(kind not in BYTES for kind, shape in zip(types, dims, strict=True) if shape):
        return None
    sizes = [prod(shape) * BYTES.get(kind, 0) for shape, kind in zip(dims, types, strict=True)]
    if name == "aten::mm":
        (m, k), (_, n) = dims[:2]
        return 2 * m * k * n, sizes[0] + sizes[1] + m * n * BYTES[types[0]]
    if name == "aten::addmm":
        (m, k), (_, n) = dims[1:3]
        return 2 * m * k * n + m * n, sum(sizes[:3]) + m * n * BYTES[types[1]]
    if name == "aten::cudnn_convolution_backward_input":
        return 2 * prod(dims[1]) * prod(dims[2][1:]), None
    if name == "aten::copy_":
        return 0, sizes[0] + sizes[1]
    if name in ("aten::add_", "aten::mul_") and dims[0] and dims[0] == dims[1]:
        return prod(dims[0]), 2 * sizes[0] + sizes[1]
    if name == "aten::cudnn_convolution_backward":
        return 2 * prod(dims[1]) * prod(dims[2][1:]), sum(sizes[:3])
    if name == "aten::max_pool2d_with_indices_backward":
        return prod(dims[0]), sizes[0] + sizes[1] + sizes[7]
    if name == "_C::rotary_embedding":
        heads = (prod(dims[1]) + prod(dims[2])) // 64  # of 64 elements, all rotated
        return 3 * heads * dims[4][1], 2 * (sizes[1] + sizes[2]) + sizes[0] + dims[0][0] * dims[4][1] * 2
    if name == "_C_cache_ops::reshape_and_cache_flash":
        return 0, sizes[0] + sizes[1] + prod(dims[0]) + prod(dims[1]) + sizes[4]
    if name == "_C::fused_add_rms_norm":
        return 5 * prod(dims[0]), 4 * sizes[0] + sizes[2]
    return None


def operators(path: Path) -> tuple[dict[tuple[Any, ...], list[int]], int]:
    """By name, shapes, types and work: calls, tasks and their time. And the time of all tasks."""
    slices: dict[Any, list[tuple[int, int, int, str | None, dict[str, Any]]]] = defaultdict(list)
    tasks: list[tuple[int, int]] = []
    for place, event in enumerate(chrome.events_of(chrome.read(path))):
        start, dur = chrome.number(event.get("ts")), chrome.number(event.get("dur"))
        if event.get("ph") != "X" or start is None or dur is None:
            continue
        args = event.get("args") or {}
        row = writers.kineto(
            chrome.Slice((), event.get("cat"), event.get("name"), None, None, args, nanoseconds(start))
        )
        if row.table == "task" and row.kind != "sync":
            tasks.append((int(args["correlation"]), nanoseconds(dur)))
        elif row.table == "api" or event.get("cat") in ("cpu_op", "Operator"):
            name = None if row.table == "api" else event["name"]
            track = slices[str(event["pid"]), str(event.get("tid"))]
            track.append((nanoseconds(start), -nanoseconds(dur), place, name, args))
    launching: dict[int, tuple[int, str, dict[str, Any]]] = {}
    for track in slices.values():
        stack: list[tuple[int, tuple[int, str, dict[str, Any]]]] = []
        for start, minus, place, name, args in sorted(track, key=lambda one: one[:3]):
            while stack and stack[-1][0] <= start:
                stack.pop()
            # This one lacks the shape of its result, so the operator around it has the work.
            if name is not None and name != "aten::cudnn_convolution_backward_weight":
                stack.append((start - minus, (place, name, args)))
            elif name is None and stack:
                launching.setdefault(int(args.get("correlation", -1)), stack[-1][1])
    found: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    seen: set[int] = set()
    for correlation, dur in tasks:
        place, name, args = launching.get(correlation, (0, "", {}))
        dims, types = args.get("Input Dims", []), args.get("Input type", [])
        work = recounted(name, dims, types) if dims and types else None
        if work is not None:
            shapes = ";".join(",".join(map(str, shape)) for shape in dims).rstrip(";")
            key = (name, shapes, *work)
            sums = found[key]
            sums[0] += place not in seen
            sums[1] += 1
            sums[2] += dur
            seen.add(place)
    return found, sum(dur for _, dur in tasks)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_work_by_plain_recount(name: str, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    ingest([TORCH / name], store)
    wanted, total = operators(TORCH / name)
    with duckdb.connect(str(store), read_only=True) as connection:
        rows = connection.execute(
            "SELECT name, input_shapes, flops, memory_bytes, sum(count), sum(task_count), sum(total_ns) FROM roofline "
            "GROUP BY ALL"
        ).fetchall()
        sums = connection.execute("SELECT sum(total_ns), round(sum(ratio_percent)) FROM roofline").fetchone()
    names = {name for name, *_ in wanted}
    assert len(wanted) >= 3
    found = {tuple(row[:4]): list(row[4:]) for row in rows if row[0] in names}
    if "aten::mul_" in names:  # with a scalar, or by broadcasting: not recounted
        found = {
            key: sums for key, sums in found.items() if key in wanted or key[0] not in ("aten::mul_", "aten::add_")
        }
    assert found == dict(wanted)
    assert sums == (total, 100)


def test_operators_of_an_npu_trace(tmp_path: Path) -> None:
    """torch_npu: flows lead from operators to their tasks, and shapes are text."""
    store = tmp_path / "s.duckdb"
    ingest([REAL / "ascend" / "torch_npu_level1_rank1"], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        products = connection.execute(
            "SELECT input_shapes, flops, count FROM roofline WHERE name = 'aten::mm' ORDER BY ALL"
        ).fetchall()
        sums = connection.execute(
            "SELECT (SELECT sum(total_ns) FROM roofline), (SELECT sum(dur_ns) FROM task WHERE kind <> 'sync')"
        ).fetchone()
    assert products and sums is not None and sums[0] == sums[1]
    for shapes, flops, count in products:
        (m, k), (_, n) = (map(int, shape.split(",")) for shape in shapes.split(";"))
        assert (flops, count) == (2 * m * k * n, 1)
