"""Comparisons of real traces: times recounted from the JSON, and pairs of recordings of one workload."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from shared_data import shared

import traceconv
from traceconv.analysis.step_times import measure_steps
from traceconv.reports.window import Window

REAL = shared("real")
SEEDS = shared("seed_systems")
TORCH = REAL / "torch"
WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
HOST = {"user_annotation", "cpu_op", "Operator"}
WITH_STEPS = [
    "kineto_resnet50_worker0.pt.trace.json.gz",
    "ns_resolution_rank0.pt.trace.json.gz",
    "nccl_metadata.json.gz",
    "mi250_rocm6.2_minitoy.json.gz",
    "kineto_gpu_metrics_input.json",
    "triton_example.json.gz",
]
#: Recordings of one workload: on another machine and with another version, with other settings, of more steps.
PAIRS = [
    (TORCH / WITH_STEPS[0], TORCH / WITH_STEPS[1], 0.95),
    (SEEDS / "megengine/mlp_train.chrome_timeline.json", SEEDS / "megengine/mlp_train_sync.chrome_timeline.json", 0.5),
    (SEEDS / "megengine/conv_train_sr1.chrome_timeline.json",
     SEEDS / "megengine/conv_train_watch0.chrome_timeline.json", 0.99),
    (REAL / "tensorflow/timeline_gpu_02_step_0.json", REAL / "tensorflow/timeline_gpu_03_merged.json", 0.99),
    (SEEDS / "furiosa/injected_seed.export_chrome_trace.json",
     SEEDS / "furiosa/legacy_injected_seed.export_chrome_trace.json", 0.99),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each trace is ingested once, into a cache of these tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRACECONV_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def recount(path: Path) -> tuple[int, int, int]:
    """Ns of all steps, of all device work inside them, and of its union, from the JSON alone."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = [e for e in json.loads(text, parse_float=Decimal)["traceEvents"] if e.get("ph") == "X"]
    steps = [ns(e) for e in events if e["name"].startswith("ProfilerStep#") and e["cat"] in HOST]
    work = sorted(ns(e) for e in events if e["cat"] in WORK)
    total = busy = 0
    for first, last in steps:
        reached = first
        for start, end in work:
            total += max(0, min(end, last) - max(start, first))
            busy += max(0, min(end, last) - max(start, reached))
            reached = max(reached, min(end, last))
    return sum(last - first for first, last in steps), total, busy


def ns(event: dict[str, Any]) -> tuple[int, int]:
    start, dur = (int(Decimal(str(event[key])) * 1000) for key in ("ts", "dur"))
    return start, start + dur


@pytest.mark.parametrize("name", WITH_STEPS)
def test_times_of_steps_equal_a_recount_of_the_trace(name: str) -> None:
    with traceconv.open_store(TORCH / name) as store:
        times = measure_steps(store.connection, 1, Window(), warmup=0)
    found = tuple(int(column.sum()) for column in (times.span_ns, times.op_ns, times.busy_ns))
    assert found == recount(TORCH / name)


@pytest.mark.parametrize(("base", "new", "least"), PAIRS, ids=[pair[1].name for pair in PAIRS])
def test_recordings_of_one_workload_pair(base: Path, new: Path, least: float) -> None:
    found = traceconv.compare(base, new, anyway=True)
    assert sum(part.change_ns for part in found.parts.values()) == found.step.change_ns
    for status in ("matched", "new", "vanished"):
        rows = [op.time for op in found.ops if op.status == status]
        part = found.parts[status]
        assert (sum(row.base_ns for row in rows), sum(row.new_ns for row in rows)) == (part.base_ns, part.new_ns)
    matched, lost, added = (found.parts[status] for status in ("matched", "vanished", "new"))
    assert matched.base_ns >= least * (matched.base_ns + lost.base_ns)
    assert matched.new_ns >= least * (matched.new_ns + added.new_ns)
    again = traceconv.compare(base, base)
    assert not any(op.time.change_ns or op.paired_by is None for op in again.ops)
    assert again.step.change_ns == 0


def test_operators_of_resnet50_pair_across_versions_of_pytorch() -> None:
    """PyTorch 1.9 computes gradients of convolutions with two operators, 2.x with one."""
    found = traceconv.compare(TORCH / WITH_STEPS[0], TORCH / WITH_STEPS[1], anyway=True)
    name = "autograd::engine::evaluate_function: ConvolutionBackward0"
    (row,) = [op for op in found.ops if op.name == name]
    # The sum of gradients of the new version is part of it.
    assert (row.status, row.paired_by, row.base_count, row.new_count) == ("matched", "operator", 1254, 1064 + 64)
    assert abs(row.time.percent or 0) < 2
    assert found.not_comparable == (
        "different devices (Tesla V100-DGXS-32GB against Tesla V100-SXM2-32GB)",
        "different numbers of steps (5 against 4; select some with steps)",
    )
