"""The reports op-tree and modules on real PyTorch traces: a plain recount of the tree, and the tasks of each module."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from recount import chrome, writers
from recount.tally import nanoseconds
from shared_data import shared
from stores import query

from traceconv.pipeline.ingest import ingest

TORCH = shared("real") / "torch"
SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces/pytorch/resnet18.pt.trace.json.gz"
QUICK = ("mi250_rocm6.2_minitoy.json.gz", "alexnet_critical_path.json.gz")
#: Without the trace of a B200, whose partially overlapping functions a plain recount would have to nest by guess.
LONG = (
    "kineto_gpu_metrics_input.json",
    "kineto_resnet50_worker0.pt.trace.json.gz",
    "nccl_metadata.json.gz",
    "ns_resolution_rank0.pt.trace.json.gz",
)

Path_ = tuple[str, ...]


def tree(path: Path) -> dict[Path_, list[int]]:
    """By names from the root: ranges, their time, tasks launched directly and inside, and the time of those."""
    slices: dict[Any, list[tuple[int, int, int, str | None, dict[str, Any]]]] = defaultdict(list)
    tasks: list[tuple[int, int]] = []
    for place, event in enumerate(chrome.events_of(chrome.read(path))):
        start, dur = chrome.number(event.get("ts")), chrome.number(event.get("dur"))
        if event.get("ph") != "X" or start is None or dur is None:
            continue
        name, args = event.get("name"), event.get("args") or {}
        row = writers.kineto(chrome.Slice((), event.get("cat"), name, None, None, args, nanoseconds(start)))
        if row.table == "task" and row.kind != "sync":
            tasks.append((int(args["correlation"]), nanoseconds(dur)))
        elif row.table != "task" and event.get("cat") != "gpu_user_annotation" and row.kind != "summary":
            shown = None if row.table == "api" else re.sub(r"^ProfilerStep#\d+$", "ProfilerStep*", name or "")
            track = slices[str(event["pid"]), str(event.get("tid"))]
            track.append((nanoseconds(start), -nanoseconds(dur), place, shown, args))
    found: dict[Path_, list[int]] = defaultdict(lambda: [0] * 5)
    calls: dict[int, Path_] = {}
    for track in slices.values():
        stack: list[tuple[int, Path_]] = []
        for start, minus, _, name, args in sorted(track, key=lambda one: one[:3]):
            while stack and stack[-1][0] <= start and (stack[-1][0] < start or minus):
                stack.pop()
            above = stack[-1][1] if stack else ()
            names = above if name is None else (*above, name)
            stack.append((start - minus, names))
            if name is None:
                calls.setdefault(int(args.get("correlation", -1)), names)
            else:
                found[names][0] += 1
                found[names][1] -= minus
    for correlation, dur in tasks:
        names = calls.get(correlation, ())
        found[names][2] += 1
        for depth in range(len(names) + 1) if names else (0,):
            if depth or not names:
                found[names[:depth]][3] += 1
                found[names[:depth]][4] += dur
    return found


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_tree_by_plain_recount(name: str, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    ingest([TORCH / name], store)
    rows = query(
        store,
        "SELECT coalesce(path, ''), count, host_total_ns, self_task_count, task_count, device_total_ns FROM op_tree",
    )
    wanted = {" > ".join(names): tuple(sums) for names, sums in tree(TORCH / name).items()}
    assert {path: tuple(sums) for path, *sums in rows} == wanted


def test_modules_of_an_npu_trace(tmp_path: Path) -> None:
    """torch_npu: each backward task that a fwdbwd flow leads to has a module of the forward pass."""
    store = tmp_path / "s.duckdb"
    ingest([TORCH.parent / "ascend" / "torch_npu_level1_rank1"], store)
    with duckdb.connect(str(store), read_only=True) as connection:
        counts = connection.execute(
            "SELECT found_by, count(*), count(DISTINCT module_name) FROM task_module GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        total = connection.execute(
            "SELECT (SELECT sum(device_self_ns) FROM op_tree), (SELECT sum(dur_ns) FROM task WHERE kind <> 'sync')"
        ).fetchone()
    assert counts == [("backward", 95, 22), ("launch", 52, 22), (None, 392, 0)]
    assert total is not None and total[0] == total[1]


@pytest.mark.parametrize(
    "path",
    [
        *(pytest.param(TORCH / name, id=name) for name in ("b200_eager_trace.json.gz", *QUICK)),
        pytest.param(SAMPLE, id=SAMPLE.name),
        pytest.param(shared("real") / "ascend" / "torch_npu_level1_rank1", id="torch_npu"),
    ],
)
def test_modules_have_their_tasks(path: Path, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    ingest([path], store)
    of_tasks = (
        "SELECT module_name, sum(dur_ns)::BIGINT FROM task_module WHERE kind IS DISTINCT FROM 'sync' GROUP BY ALL"
    )
    of_modules = "SELECT module_name, sum(device_self_ns)::BIGINT AS ns FROM modules GROUP BY ALL HAVING ns > 0"
    assert sorted(query(store, of_modules), key=str) == sorted(query(store, of_tasks), key=str)
