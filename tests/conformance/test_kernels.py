"""The report kernels on every real file: rows by plain recount, and a category for each name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from recount import chrome, sources, writers
from recount.stored import runs_by_path
from recount.tally import nanoseconds
from shared_data import SHARED, shared
from stores import query

from traceconv.pipeline.ingest import ingest

REAL = shared("real")
KINETO = [path for path, of in sources.chrome_traces(SHARED).items() if of is writers.kineto]


def nearest_rank(durations: list[int], percent: int) -> int:
    """The smallest element of a sorted list that this percentage of them doesn't exceed."""
    return durations[max(0, -(-len(durations) * percent // 100) - 1)]


def test_pytorch_kernels_by_plain_recount(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    ingest(KINETO, store)
    runs = {Path(path): run for path, run in runs_by_path(store).items()}
    wanted = {}
    for path in KINETO:
        durations: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for event in chrome.events_of(chrome.read(path)):
            start, dur = chrome.number(event.get("ts")), chrome.number(event.get("dur"))
            if event.get("ph") == "X" and start is not None and dur is not None:
                name, args = event.get("name"), event.get("args") or {}
                row = writers.kineto(chrome.Slice((), event.get("cat"), name, None, None, args, nanoseconds(start)))
                if row.table == "task" and row.kind != "sync":
                    durations[row.device, row.kind, name].append(nanoseconds(dur))
        for key, found in durations.items():
            found.sort()
            ranks = [nearest_rank(found, percent) for percent in (50, 90, 99)]
            wanted[(runs[path], *key)] = (len(found), sum(found), found[0], *ranks, found[-1])
    rows = query(
        store,
        "SELECT run_id, device_id, kind, kernel, count, total_ns, min_ns, p50_ns, p90_ns, p99_ns, max_ns FROM kernels",
    )
    assert {row[:4]: row[4:] for row in rows} == wanted
    assert len(wanted) >= 300


@pytest.mark.long
def test_categories_of_real_names(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    """Each distinct kernel of real files; read the differences as a performance engineer."""
    store = tmp_path / "s.duckdb"
    folders = [REAL / "torch", REAL / "rocm", REAL / "ascend" / "torch_npu_level1_rank1", REAL / "mindspore"]
    others = [REAL / "tensorflow", REAL / "onnxruntime", SHARED / "seed_systems" / "megengine"]
    ingest([*folders, *others], store)
    rows = query(
        store,
        "SELECT DISTINCT coalesce(category, '?'), kernel_label(kernel)[:100] FROM kernels "
        "WHERE kind IN ('compute', 'collective') ORDER BY ALL",
    )
    golden("kernel_categories.txt", "".join(f"{category:14} {label}\n" for category, label in rows))
